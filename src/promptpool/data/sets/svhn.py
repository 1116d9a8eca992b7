"""SVHN (Netzer et al., 2011): cropped digits of house numbers, from its two MATLAB files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from promptpool.data.sets.mat import read_mat
from promptpool.data.sets.published import Arrays, Published, Remote, Split, counted
from promptpool.data.stores import Folder
from promptpool.errors import BadFileError

SIDE = 32


def read_svhn(folder: Path) -> Split:
    """The cropped digits; the publisher's label 10 is digit 0."""
    return Split(_digits(folder, "train_32x32.mat"), _digits(folder, "test_32x32.mat"), tuple("0123456789"))


def _digits(folder: Path, name: str) -> Arrays:
    path = folder / name
    if not path.is_file():
        raise BadFileError(f"{folder}: {name} is not there; `promptpool data get svhn` gets it")
    arrays = read_mat(Folder(folder).read(name), str(path))
    images, labels = arrays.get("X"), arrays.get("y")
    if images is None or labels is None:
        raise BadFileError(f"{path}: holds {', '.join(sorted(arrays))[:80] or 'no arrays'}, not X and y")
    if images.ndim == 3:
        images = images[..., None]  # MATLAB drops a last dimension of one
    if images.dtype != np.uint8 or images.shape[:-1] != (SIDE, SIDE, 3):
        raise BadFileError(f"{path}: X is {images.dtype} {[*images.shape]}, not uint8 [{SIDE}, {SIDE}, 3, n]")
    if labels.size != images.shape[-1] or not np.isin(labels, np.arange(1, 11)).all():
        raise BadFileError(f"{path}: y is not {images.shape[-1]} numbers from 1 to 10")
    return Arrays(np.ascontiguousarray(images.transpose(3, 0, 1, 2)), labels.ravel().astype(np.int64) % 10)


ADDRESSES = ("http://ufldl.stanford.edu/housenumbers", "https://cseweb.ucsd.edu/~weijian/static/datasets/svhn")
PUBLISHED = {
    "svhn": Published(
        title="SVHN",
        home="http://ufldl.stanford.edu/housenumbers/",
        licence="non-commercial use (home page)",
        classes=10,
        train=73_257,
        test=26_032,
        files=(
            Remote(
                "train_32x32.mat",
                tuple(f"{folder}/train_32x32.mat" for folder in ADDRESSES),
                182_040_794,
                "e26dedcc434d2e4c54c9b2d4a06d8373",
            ),
            Remote(
                "test_32x32.mat",
                tuple(f"{folder}/test_32x32.mat" for folder in ADDRESSES),
                64_275_384,
                "eb5a983be6a315427106f1b164d9cef3",
            ),
        ),
        contents=lambda folder: counted(read_svhn(folder)),
    ),
}
