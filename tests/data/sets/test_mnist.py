"""MNIST's files: plain or gzipped, as published or as unpacking tools call them."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from array_files import idx, zeros_packed
from damage import damaged, outcome
from promptpool.data.sets.mnist import CLASS_NAMES, read_idx, read_mnist

PARTS = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}


def images(seed: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (4, 28, 28), dtype=np.uint8)


def files() -> dict[str, bytes]:
    return {
        "train-images-idx3-ubyte": idx(images(0)),
        "train-labels-idx1-ubyte": idx(np.array([5, 0, 4, 9])),
        "t10k-images-idx3-ubyte": idx(images(1)),
        "t10k-labels-idx1-ubyte": idx(np.array([7, 2, 1, 0])),
    }


def write(folder: Path, packed: bool = False, dotted: bool = False) -> None:
    for name, content in files().items():
        name = name.replace("-idx", ".idx") if dotted else name
        (folder / (name + ".gz" if packed else name)).write_bytes(gzip.compress(content) if packed else content)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dotted", [False, True])
@pytest.mark.parametrize("name", CLASS_NAMES)
def test_every_spelling_gives_the_same(packed: bool, dotted: bool, name: str, tmp_path: Path) -> None:
    write(tmp_path, packed, dotted)
    found = read_mnist(tmp_path, name)
    np.testing.assert_array_equal(found.train.images, images(0))
    np.testing.assert_array_equal(found.test.images, images(1))
    assert found.train.labels.tolist() == [5, 0, 4, 9]
    assert found.test.labels.tolist() == [7, 2, 1, 0]
    assert found.train.images.dtype == np.uint8
    assert found.train.labels.dtype == np.int64
    assert found.class_names == CLASS_NAMES[name]


def test_the_published_names() -> None:
    assert CLASS_NAMES["mnist"][7] == "7"
    assert CLASS_NAMES["fashion-mnist"][9] == "Ankle boot"
    assert {len(names) for names in CLASS_NAMES.values()} == {10}


@pytest.mark.parametrize("missing", sorted(PARTS))
def test_a_missing_file_is_named_with_the_way_to_get_it(missing: str, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / missing).unlink()
    message = outcome(read_mnist, tmp_path, "fashion-mnist")
    assert message.startswith(f"{tmp_path}: none of {missing}, ")
    assert f"{missing}.gz" in message
    assert "`promptpool data get fashion-mnist`" in message


def test_an_array_of_any_shape() -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    np.testing.assert_array_equal(read_idx(idx(array), "x"), array)
    assert read_idx(bytes.fromhex("00000801 00000003 070809"), "x").tolist() == [7, 8, 9]


WRONG = {
    "empty": b"",
    "a start only": b"\0\0\x08",
    "no dimension": b"\0\0\x08\0a",
    "cut off in a dimension": b"\0\0\x08\x01\0\0\0",
    "too many dimensions": bytes([0, 0, 8, 255]) + bytes(4 * 255),
    "another type": idx(np.zeros(4)).replace(b"\x08", b"\x0d", 1),
    "another start": b"\1" + idx(np.zeros(4))[1:],
    "a byte too few": idx(np.zeros(4))[:-1],
    "a byte too many": idx(np.zeros(4)) + b"\0",
    "twice": idx(np.zeros(4)) * 2,
    "nothing of much": b"\0\0\x08\x03" + struct.pack(">III", 0, 2**32 - 1, 2**32 - 1),
    "much of nothing": b"\0\0\x08\x03" + struct.pack(">III", 2**32 - 1, 2**32 - 1, 2**32 - 1),
    "a product that wraps": b"\0\0\x08\x04" + struct.pack(">IIII", 2**16, 2**16, 2**16, 2**16),
    "text": b"<html>404 not found</html>",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_that_is_no_idx(wrong: str) -> None:
    assert outcome(read_idx, WRONG[wrong], "labels").startswith("labels: ")


@pytest.mark.parametrize(
    ("name", "wrong", "says"),
    [
        ("train-images-idx3-ubyte", idx(np.zeros((4, 28))), "is not [n, 28, 28]"),
        ("train-images-idx3-ubyte", idx(np.zeros((4, 27, 28))), "is not [n, 28, 28]"),
        ("train-images-idx3-ubyte", idx(np.zeros((5, 28, 28))), "[4] labels for 5 images"),
        ("t10k-labels-idx1-ubyte", idx(np.zeros((4, 1))), "[4, 1] labels for 4 images"),
        ("t10k-labels-idx1-ubyte", idx(np.array([0, 1, 10, 2])), "label 10 is more than 9"),
    ],
)
def test_files_that_do_not_fit_each_other(name: str, wrong: bytes, says: str, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / name).write_bytes(wrong)
    assert says in outcome(read_mnist, tmp_path, "mnist")


PACKED = gzip.compress(files()["t10k-labels-idx1-ubyte"], mtime=0)


@pytest.mark.parametrize(
    "wrong",
    [b"", b"no gzip", PACKED[:-1], PACKED[:12], PACKED + b"rubbish", PACKED + PACKED, PACKED[:-8] + bytes(8)],
)
def test_a_gzip_that_is_damaged(wrong: bytes, tmp_path: Path) -> None:
    write(tmp_path, packed=True)
    path = tmp_path / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(wrong)
    assert outcome(read_mnist, tmp_path, "mnist").startswith(f"{path}: ")


def test_a_gzip_that_would_fill_memory_is_refused(tmp_path: Path) -> None:
    write(tmp_path, packed=True)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(zeros_packed(64))
    tracemalloc.start()
    try:
        assert "bytes when unpacked" in outcome(read_mnist, tmp_path, "mnist")
        assert tracemalloc.get_traced_memory()[1] < 2**29
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("packed", [False, True])
def test_damaged_files_are_read_or_refused(packed: bool, tmp_path: Path) -> None:
    write(tmp_path, packed)
    for seed, path in enumerate(sorted(tmp_path.iterdir())):
        whole = path.read_bytes()
        for content in damaged(whole, 150, seed, fields=16):
            path.write_bytes(content)
            outcome(read_mnist, tmp_path, "mnist")
        path.write_bytes(whole)
