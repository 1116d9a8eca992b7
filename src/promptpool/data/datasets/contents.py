"""What the readers find in the folder of a published set: its images and classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from promptpool.data.datasets.five import FIVE
from promptpool.data.readers.arrays import Split
from promptpool.data.readers.cifar import read_cifar100
from promptpool.data.readers.core50 import read_core50


class Contents(NamedTuple):
    """How much there is; `test` is 0 where the publisher made no split."""

    train: int
    test: int
    classes: int


def contents(name: str, folder: Path) -> Contents:
    """Read a set whole, or list it where it is large; raises `BadFileError` where that cannot be done."""
    if name in ("core50", "core50-32"):
        _, entries = read_core50(folder, 32 if name == "core50-32" else 128)
        tested = sum(entry.split == "test" for entry in entries)
        return Contents(len(entries) - tested, tested, len({entry.label for entry in entries}))
    read: dict[str, Callable[[Path], Split]] = {"cifar100": read_cifar100, **FIVE}
    found = read[name](folder)
    train, test = len(found.train.labels), len(found.test.labels)
    if name == "notmnist":  # the split is ours
        train, test = train + test, 0
    return Contents(train, test, len({*found.train.labels.tolist(), *found.test.labels.tolist()}))
