"""5-datasets (Ebrahimi et al., 2020): five unlike sets of ten classes, one after the other.

Deviation: images of 28x28 are resized to 32x32 first, so that all can lie in one memory and one batch; the view's
own resize then starts from 32. Grey images become RGB.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from promptpool.data.scenarios import LabelledSet
from promptpool.data.sets.cifar import read_cifar10
from promptpool.data.sets.mnist import read_mnist
from promptpool.data.sets.notmnist import read_notmnist
from promptpool.data.sets.published import Arrays, Images, Split
from promptpool.data.sets.selection import select
from promptpool.data.sets.svhn import read_svhn
from promptpool.data.stream import Examples, Notes, concatenate, examples
from promptpool.data.views import resample
from promptpool.files import data_folder

SIZE = 32
CHUNK = 4096

FIVE: dict[str, Callable[[Path], Split]] = {
    "cifar10": read_cifar10,
    "mnist": partial(read_mnist, name="mnist"),
    "svhn": read_svhn,
    "notmnist": read_notmnist,
    "fashion-mnist": partial(read_mnist, name="fashion-mnist"),
}


def five_datasets(
    *, train_per_class: int | None = None, test_per_class: int | None = None, held_out: int = 0, seed: int = 0
) -> LabelledSet:
    """CIFAR-10, MNIST, SVHN, notMNIST and Fashion-MNIST in turn; labels of each follow those of the one before."""
    trains: list[Examples] = []
    tests: list[Examples] = []
    names: list[str] = []
    skipped: list[tuple[str, str]] = []
    for name, read in FIVE.items():
        published = read(data_folder() / name)
        train, test = select(
            published, train_per_class=train_per_class, test_per_class=test_per_class, held_out=held_out, seed=seed
        )
        trains.append(_alike(train, len(names)))
        tests.append(_alike(test, len(names)))
        names += [f"{name} {label}" for label in published.class_names]
        skipped += published.skipped
    return LabelledSet(concatenate(trains), concatenate(tests), tuple(names), Notes(tuple(skipped)))


def _alike(arrays: Arrays, offset: int) -> Examples:
    return examples(in_colour(arrays.images), arrays.labels + offset)


def in_colour(images: Images) -> Images:
    """Any images as RGB of 32x32: [n, 3, 32, 32]."""
    whole, flipped = torch.tensor([[0.0, 0.0, 1.0, 1.0]], dtype=torch.float64), torch.zeros(1, dtype=torch.bool)
    converted = np.empty((len(images), 3, SIZE, SIZE), dtype=np.uint8)
    for begin in range(0, len(images), CHUNK):
        chunk = torch.from_numpy(images[begin : begin + CHUNK])
        chunk = chunk.unsqueeze(1) if chunk.ndim == 3 else chunk.permute(0, 3, 1, 2)
        if chunk.shape[2:] != (SIZE, SIZE):
            chunk = resample(chunk, whole, flipped, SIZE).round().clamp(0, 255).to(torch.uint8)
        converted[begin : begin + CHUNK] = chunk.expand(-1, 3, -1, -1).numpy()
    return converted
