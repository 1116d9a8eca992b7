"""What the readers of sets that live in memory return."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


class Arrays(NamedTuple):
    """Images and their labels."""

    images: Images  # [n, H, W] or [n, H, W, 3]
    labels: Labels  # [n]


class Split(NamedTuple):
    """A published set as its publisher split it."""

    train: Arrays
    test: Arrays
    class_names: tuple[str, ...]
