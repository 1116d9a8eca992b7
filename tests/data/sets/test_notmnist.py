"""notMNIST in its publisher's layout, packed and unpacked."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from image_files import pack_tar
from promptpool.data.sets.notmnist import LETTERS, notmnist_files, read_notmnist
from promptpool.errors import BadFileError

UNREADABLE = (
    "A/RGVtb2NyYXRpY2FCb2xkT2xkc3R5bGUgQm9sZC50dGY=.png",
    "F/Q3Jvc3NvdmVyIEJvbGRPYmxpcXVlLnR0Zg==.png",
)
PER_LETTER = 5


def grey(letter: str, number: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    return np.random.default_rng([ord(letter), number]).integers(0, 256, (28, 28), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The small set with five images a letter, and the two that are none."""
    for letter in LETTERS:
        place = tmp_path / "data/notMNIST_small" / letter
        place.mkdir(parents=True)
        for number in range(PER_LETTER):
            file = io.BytesIO()
            Image.fromarray(grey(letter, number)).save(file, "PNG")
            (place / f"image{number}.png").write_bytes(file.getvalue())
    for name in UNREADABLE:
        (tmp_path / "data/notMNIST_small" / name).write_bytes(b"")
    return tmp_path / "data"


def test_letters_in_order_and_to_the_bit(folder: Path) -> None:
    split = read_notmnist(folder)
    assert [name for name, _ in split.skipped] == list(UNREADABLE)
    assert split.class_names == LETTERS
    assert split.train.images.shape == (40, 28, 28)
    assert split.test.images.shape == (10, 28, 28)
    assert np.bincount(split.train.labels).tolist() == [4] * 10
    assert np.bincount(split.test.labels).tolist() == [1] * 10
    for part in split[:2]:
        for image, label in zip(part.images, part.labels, strict=True):
            assert any(np.array_equal(image, grey(LETTERS[label], number)) for number in range(PER_LETTER))
    together = np.concatenate([split.train.images, split.test.images])
    assert len(np.unique(together, axis=0)) == 50


def test_the_split_is_always_the_same(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "packed").mkdir()
    pack_tar(folder / "notMNIST_small", tmp_path / "packed/notMNIST_small.tar.gz", "notMNIST_small/")
    splits = [read_notmnist(place) for place in (folder, folder, tmp_path / "packed")]
    for split in splits[1:]:
        for one, other in zip(splits[0][:2], split[:2], strict=True):
            assert np.array_equal(one.images, other.images)
            assert np.array_equal(one.labels, other.labels)


def test_what_is_missing_is_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BadFileError, match=r"put notMNIST_small\.tar\.gz into this folder"):
        notmnist_files(tmp_path / "nowhere")
    for path in (folder / "notMNIST_small/G").iterdir():
        path.unlink()
    with pytest.raises(BadFileError, match="no images of the letter G"):
        notmnist_files(folder)


@pytest.mark.real
@pytest.mark.skipif("PROMPTPOOL_REAL_DATA" not in os.environ, reason="PROMPTPOOL_REAL_DATA names no folder")
def test_the_published_files() -> None:
    split = read_notmnist(Path(os.environ["PROMPTPOOL_REAL_DATA"]) / "notmnist")
    counts = np.bincount(split.train.labels) + np.bincount(split.test.labels)
    assert counts.tolist() == [1872, 1873, 1873, 1873, 1873, 1872, 1872, 1872, 1872, 1872]
    assert counts.sum() == 18_724
    assert len(split.test.images) == 3744
    assert split.train.images.mean() == pytest.approx(108.48, abs=0.01)
