"""CIFAR-100 (Krizhevsky, 2009): ten tasks of ten classes, or the Gaussian schedule."""

from __future__ import annotations

from promptpool.data.datasets.selection import select
from promptpool.data.readers.cifar import read_cifar100
from promptpool.data.sets import LabelledSet
from promptpool.data.stream import examples
from promptpool.files import data_folder


def cifar100(
    *, train_per_class: int | None = None, test_per_class: int | None = None, held_out: int = 0, seed: int = 0
) -> LabelledSet:
    """One hundred classes of 32x32 photographs, 500 + 100 of each."""
    published = read_cifar100(data_folder() / "cifar100")
    train, test = select(
        published, train_per_class=train_per_class, test_per_class=test_per_class, held_out=held_out, seed=seed
    )
    return LabelledSet(examples(*train), examples(*test), published.class_names)
