"""MNIST (LeCun et al., 1998) and Fashion-MNIST (Xiao et al., 2017) from their IDX files, with or without gzip.

An IDX file is two zero bytes, the type of its numbers, how many dimensions it has, each of them as a big-endian
number of four bytes, then the numbers. These sets have bytes only.
"""

from __future__ import annotations

import gzip
import io
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from promptpool.data.sets.published import Arrays, Published, Remote, Split, counted
from promptpool.data.stores import BROKEN, LARGEST_RATIO, Folder
from promptpool.errors import BadFileError

LARGEST_IDX = 2**28  # bytes; MNIST's training images have 47 million
SIDE = 28
UNSIGNED_BYTES = b"\0\0\x08"
MOST_DIMENSIONS = 4
CLASS_NAMES = {
    "mnist": tuple("0123456789"),
    "fashion-mnist": (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
}


def read_mnist(folder: Path, name: str) -> Split:
    """`name` is mnist or fashion-mnist; their files have the same names."""
    return Split(_part(folder, "train", name), _part(folder, "t10k", name), CLASS_NAMES[name])


def read_idx(content: bytes, what: str) -> npt.NDArray[np.uint8]:
    """The array of an IDX file of bytes."""
    dimensions = content[3] if len(content) > 3 else 0
    begin = 4 + 4 * dimensions
    if content[:3] != UNSIGNED_BYTES or not 1 <= dimensions <= MOST_DIMENSIONS or len(content) < begin:
        raise BadFileError(f"{what}: not an IDX file of bytes; it begins with {content[:4].hex(' ') or 'nothing'}")
    shape = [int.from_bytes(content[place : place + 4], "big") for place in range(4, begin, 4)]
    if not all(shape) or math.prod(shape) != len(content) - begin:
        raise BadFileError(f"{what}: {len(content) - begin} bytes where {' x '.join(map(str, shape))} are declared")
    return np.frombuffer(content, np.uint8, offset=begin).reshape(shape)


def _part(folder: Path, part: str, name: str) -> Arrays:
    images_path, images = _find(folder, f"{part}-images", "idx3-ubyte", name)
    labels_path, labels = _find(folder, f"{part}-labels", "idx1-ubyte", name)
    if images.ndim != 3 or images.shape[1:] != (SIDE, SIDE):
        raise BadFileError(f"{images_path}: {[*images.shape]} is not [n, {SIDE}, {SIDE}]")
    if labels.shape != images.shape[:1]:
        raise BadFileError(f"{labels_path}: {[*labels.shape]} labels for {len(images)} images")
    if labels.max() >= len(CLASS_NAMES[name]):
        raise BadFileError(f"{labels_path}: label {labels.max()} is more than {len(CLASS_NAMES[name]) - 1}")
    return Arrays(images, labels.astype(np.int64))


def _find(folder: Path, stem: str, kind: str, name: str) -> tuple[Path, npt.NDArray[np.uint8]]:
    """The publishers write train-images-idx3-ubyte; some tools that unpack make train-images.idx3-ubyte of it."""
    choices = [f"{stem}{dash}{kind}{packed}" for packed in ("", ".gz") for dash in "-."]
    for choice in choices:
        if (folder / choice).is_file():
            content = Folder(folder).read(choice)
            if choice.endswith(".gz"):
                content = _unpacked(content, str(folder / choice))
            return folder / choice, read_idx(content, str(folder / choice))
    raise BadFileError(f"{folder}: none of {', '.join(choices)} is there; `promptpool data get {name}` gets it")


def _unpacked(content: bytes, what: str) -> bytes:
    """What a gzip holds, unless it is more than a file here may have."""
    limit = min(LARGEST_IDX, LARGEST_RATIO * len(content) + 2**24)
    try:
        unpacked = gzip.GzipFile(fileobj=io.BytesIO(content)).read(limit + 1)
    except BROKEN as error:
        raise BadFileError(f"{what}: cannot be unpacked: {error}") from error
    if len(unpacked) > limit:
        raise BadFileError(f"{what}: more than {limit} bytes when unpacked")
    return unpacked


def _remote(folders: tuple[str, ...], name: str, size: int, md5: str) -> Remote:
    return Remote(f"{name}.gz", tuple(f"{folder}/{name}.gz" for folder in folders), size, md5, holds=(name,))


MNIST = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
    "http://yann.lecun.com/exdb/mnist",  # the publisher's, which often refuses
)
FASHION = (
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
)
PUBLISHED = {
    "mnist": Published(
        title="MNIST",
        home="http://yann.lecun.com/exdb/mnist/",
        licence="CC BY-SA 3.0",
        classes=10,
        train=60_000,
        test=10_000,
        files=(
            _remote(MNIST, "train-images-idx3-ubyte", 9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            _remote(MNIST, "train-labels-idx1-ubyte", 28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
            _remote(MNIST, "t10k-images-idx3-ubyte", 1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
            _remote(MNIST, "t10k-labels-idx1-ubyte", 4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
        contents=lambda folder: counted(read_mnist(folder, "mnist")),
    ),
    "fashion-mnist": Published(
        title="Fashion-MNIST",
        home="https://github.com/zalandoresearch/fashion-mnist",
        licence="MIT",
        classes=10,
        train=60_000,
        test=10_000,
        files=(
            _remote(FASHION, "train-images-idx3-ubyte", 26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            _remote(FASHION, "train-labels-idx1-ubyte", 29_515, "25c81989df183df01b3e8a0aad5dffbe"),
            _remote(FASHION, "t10k-images-idx3-ubyte", 4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
            _remote(FASHION, "t10k-labels-idx1-ubyte", 5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
        contents=lambda folder: counted(read_mnist(folder, "fashion-mnist")),
    ),
}
