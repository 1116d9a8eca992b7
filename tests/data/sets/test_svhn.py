"""SVHN in its publisher's MATLAB files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from array_files import Matlab
from damage import damaged, outcome
from promptpool.data.sets.svhn import read_svhn

WRITERS = [
    pytest.param(Matlab(order, compress, small), id=f"{order}{'packed' if compress else 'plain'}{'-small' * small}")
    for order in "<>"
    for compress in (True, False)
    for small in (True, False)
]


def digits(count: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (32, 32, 3, count), dtype=np.uint8)


def svhn(folder: Path, writer: Matlab) -> None:
    labels = np.array([[1], [10], [9]], np.uint8)
    (folder / "train_32x32.mat").write_bytes(writer.dumps({"X": digits(3), "y": labels}))
    (folder / "test_32x32.mat").write_bytes(writer.dumps({"X": digits(3, seed=1), "y": labels[::-1]}))


@pytest.mark.parametrize("writer", WRITERS)
def test_svhn(writer: Matlab, tmp_path: Path) -> None:
    svhn(tmp_path, writer)
    found = read_svhn(tmp_path)
    assert found.train.images.shape == (3, 32, 32, 3)
    assert found.train.images.dtype == np.uint8
    for index in range(3):
        np.testing.assert_array_equal(found.train.images[index], digits(3)[..., index])
    assert found.train.labels.tolist() == [1, 0, 9]
    assert found.test.labels.tolist() == [9, 0, 1]
    assert found.train.labels.dtype == np.int64
    assert found.class_names == tuple("0123456789")


def test_one_image_and_labels_of_other_types(tmp_path: Path) -> None:
    (tmp_path / "train_32x32.mat").write_bytes(Matlab().dumps({"X": digits(1)[..., 0], "y": np.array([[10.0]])}))
    (tmp_path / "test_32x32.mat").write_bytes(Matlab().dumps({"X": digits(2), "y": np.array([[1, 2]], "i8")}))
    found = read_svhn(tmp_path)
    assert found.train.labels.tolist() == [0]
    assert found.train.images.shape == (1, 32, 32, 3)
    assert found.test.labels.tolist() == [1, 2]


def test_a_missing_file_is_named_with_the_way_to_get_it(tmp_path: Path) -> None:
    assert outcome(read_svhn, tmp_path) == (
        f"{tmp_path}: train_32x32.mat is not there; `promptpool data get svhn` gets it"
    )


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({}, "holds no arrays, not X and y"),
        ({"X": digits(2)}, "holds X, not X and y"),
        ({"X": digits(2).astype("f8"), "y": np.ones((2, 1))}, "X is float64 [32, 32, 3, 2], not uint8"),
        ({"X": digits(2)[:31], "y": np.ones((2, 1))}, "not uint8 [32, 32, 3, n]"),
        ({"X": digits(2)[..., 0, :], "y": np.ones((2, 1))}, "not uint8 [32, 32, 3, n]"),
        ({"X": digits(2), "y": np.ones((3, 1))}, "y is not 2 numbers from 1 to 10"),
        ({"X": digits(2), "y": np.array([[1], [0]])}, "y is not 2 numbers from 1 to 10"),
        ({"X": digits(2), "y": np.array([[1], [11]])}, "y is not 2 numbers from 1 to 10"),
        ({"X": digits(2), "y": np.array([[1], [1.5]])}, "y is not 2 numbers from 1 to 10"),
        ({"X": digits(2), "y": np.array([[1], [np.nan]])}, "y is not 2 numbers from 1 to 10"),
    ],
)
def test_arrays_that_are_not_svhn(arrays: dict[str, npt.NDArray[np.generic]], says: str, tmp_path: Path) -> None:
    path = tmp_path / "train_32x32.mat"
    path.write_bytes(Matlab().dumps(arrays))
    message = outcome(read_svhn, tmp_path)
    assert message.startswith(f"{path}: ")
    assert says in message


@pytest.mark.parametrize("writer", WRITERS)
def test_damaged_files_are_read_or_refused(writer: Matlab, tmp_path: Path) -> None:
    svhn(tmp_path, writer)
    path = tmp_path / "test_32x32.mat"
    for content in damaged(path.read_bytes(), 200, seed=3, fields=250):
        path.write_bytes(content)
        outcome(read_svhn, tmp_path)
