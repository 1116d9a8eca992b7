"""What is said of a published set: its files, and its images once they are read.

Beside each set's reader stands what its files are called, where they are, how long they are and what their md5 is. No
such number is ours. The sums of CIFAR-10 and Fashion-MNIST are on their home pages; all but those of CORe50 and
notMNIST are in torchvision as well, CORe50's in avalanche, notMNIST's in several continual-learning repositories. Sizes
are those of tensorflow_datasets (MNIST, Fashion-MNIST, SVHN) or what others saw of the servers. Where no source gives
a size it is None; there is no file without a sum, so that a mirror can be anybody's.

Licences are those of the L2P paper (its appendix on data sets), where the home page of CIFAR names none. It knows none
for SVHN, whose home page says "for non-commercial use only", and none for notMNIST.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Remote:
    """A file that is published; `urls` are tried in their order.

    `holds` is what the file becomes when it is unpacked, here or by hand, and `unpack` whether we do that. More names
    in `holds` are versions of the same images that serve as well. One sum is enough; `blob` is git's.
    """

    name: str
    urls: tuple[str, ...]
    size: int | None
    md5: str = ""
    unpack: bool = False
    holds: tuple[str, ...] = ()
    sha256: str = ""
    blob: str = ""


@dataclass(frozen=True)
class Published:
    """A data set; `test` is 0 where the publisher made no split.

    `contents` reads the set in a folder whole, or lists it where it is large; where neither can be done it raises
    `BadFileError`.
    """

    title: str
    home: str
    licence: str
    classes: int
    train: int
    test: int
    files: tuple[Remote, ...]
    contents: Callable[[Path], Contents]


class Contents(NamedTuple):
    """How much there is; `test` is 0 where the publisher made no split."""

    train: int
    test: int
    classes: int


class Arrays(NamedTuple):
    """Images and their labels."""

    images: Images  # [n, H, W] or [n, H, W, 3]
    labels: Labels  # [n]


class Split(NamedTuple):
    """A published set as its publisher split it."""

    train: Arrays
    test: Arrays
    class_names: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...] = ()  # files that are no images, with the reason


def counted(found: Split) -> Contents:
    train, test = found.train.labels, found.test.labels
    return Contents(len(train), len(test), len({*train.tolist(), *test.tolist()}))
