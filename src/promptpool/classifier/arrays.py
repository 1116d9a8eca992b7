"""What scikit-learn hands over as X, as a list of pictures.

An array of uint8 is pictures as it is. Other numbers are pictures by a range that is given, never by one that is
guessed: numbers from 0 to 1 may be all of a picture, or a dark one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def pictures_of(data: Any, *, pixel_range: tuple[float, float] | None) -> list[Any]:
    """Paths, PIL images or uint8 arrays, one for each picture."""
    if isinstance(data, str | Path):
        raise ValueError(f"X = {str(data)!r}: must be a list of pictures; ContinualClassifier.learn reads folders")
    pictures = data if isinstance(data, list | tuple) else _checked(np.asarray(data), pixel_range)
    if len(pictures) == 0:
        raise ValueError("X has no picture")
    return list(pictures)


def images_of(rows: Array, shape: tuple[int, ...]) -> Array:
    """Rows of flattened images [n, d] as images [n, *shape]; one of the shape's numbers may be -1."""
    try:
        return rows.reshape(len(rows), *shape)
    except ValueError:
        raise ValueError(f"image_shape = {tuple(shape)}: X has {rows.shape[1]} numbers in a row") from None


def _checked(data: Array, pixel_range: tuple[float, float] | None) -> Array:
    if data.ndim == 1 and data.dtype.kind in "UO":
        return data
    if data.ndim not in (3, 4):
        hint = "; rows of pixels need image_shape, such as (28, 28)" if data.ndim == 2 else ""
        raise ValueError(f"X has the shape {[*data.shape]}: must be [n, H, W], [n, H, W, C] or [n, C, H, W]{hint}")
    return data if data.dtype == np.uint8 else _scaled(data, pixel_range)


def _scaled(data: Array, pixel_range: tuple[float, float] | None) -> npt.NDArray[np.uint8]:
    """Numbers as uint8, the first of the range as black and the second as white."""
    if data.dtype.kind not in "biuf" or pixel_range is None:
        raise ValueError(f"X has {data.dtype}: must be uint8, or give pixel_range, such as (0, 1) or (0, 255)")
    black, white = pixel_range
    if not black < white:
        raise ValueError(f"pixel_range = {pixel_range}: the first number must be below the second")
    if data.size and not (data.min() >= black and data.max() <= white):  # also if one is not a number
        raise ValueError(f"pixel_range = {pixel_range}: X has numbers from {data.min()} to {data.max()}")
    return np.rint((data.astype(np.float64) - black) * (255 / (white - black))).astype(np.uint8)
