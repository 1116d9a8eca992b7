"""The published files themselves, in one folder per set below PROMPTPOOL_REAL_DATA.

Checksums are of the files as unpacked, as public lists of them have it; where a set was written again in the
publisher's layout (other pickles, another cut of SVHN), counts and means stand for it.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from promptpool.data.sets.cifar import CIFAR10, CIFAR100, read_cifar10, read_cifar100
from promptpool.data.sets.mnist import read_mnist
from promptpool.data.sets.published import Arrays
from promptpool.data.sets.svhn import read_svhn

pytestmark = pytest.mark.real

MD5 = {
    "cifar10": {
        "cifar-10-batches-bin/data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "cifar-10-batches-bin/data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "cifar-10-batches-bin/data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "cifar-10-batches-bin/data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "cifar-10-batches-bin/data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "cifar-10-batches-bin/test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    "mnist": {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
    "fashion-mnist": {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
}
SVHN_COUNTS = {
    73257: [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659],
    26032: [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595],
}


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> Path:
    """Where the set lies that the test's name ends with."""
    name = str(request.node.originalname).removeprefix("test_").replace("_", "-")
    if not os.environ.get("PROMPTPOOL_REAL_DATA"):
        pytest.skip("PROMPTPOOL_REAL_DATA names no folder")
    path = Path(os.environ["PROMPTPOOL_REAL_DATA"]) / name
    if not path.is_dir():
        pytest.skip(f"{path} is not there")
    return path


def means(part: Arrays) -> list[float]:
    """Of each channel, from 0 to 1."""
    return [float(mean) / 255 for mean in np.atleast_1d(part.images.mean((0, 1, 2)))]


def counts(part: Arrays) -> list[int]:
    return [int(count) for count in np.bincount(part.labels)]


def check_sums(folder: Path) -> None:
    for name, wanted in MD5[folder.name].items():
        path = folder / name
        content = path.read_bytes() if path.exists() else gzip.decompress(path.with_name(name + ".gz").read_bytes())
        assert hashlib.md5(content, usedforsecurity=False).hexdigest() == wanted, name


def test_cifar100(folder: Path) -> None:
    found = read_cifar100(folder)
    assert found.train.images.shape == (50000, 32, 32, 3)
    assert found.test.images.shape == (10000, 32, 32, 3)
    assert counts(found.train) == [500] * 100
    assert counts(found.test) == [100] * 100
    assert means(found.train) == pytest.approx([0.5071, 0.4865, 0.4409], abs=5e-4)
    assert means(found.test) == pytest.approx([0.5089, 0.4874, 0.4419], abs=5e-4)
    assert found.class_names == CIFAR100.class_names


def test_cifar10(folder: Path) -> None:
    check_sums(folder)
    found = read_cifar10(folder)
    assert found.train.images.shape == (50000, 32, 32, 3)
    assert found.test.images.shape == (10000, 32, 32, 3)
    assert counts(found.train) == [5000] * 10
    assert counts(found.test) == [1000] * 10
    assert means(found.train) == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)
    assert found.class_names == CIFAR10.class_names


def test_mnist(folder: Path) -> None:
    check_sums(folder)
    found = read_mnist(folder, "mnist")
    assert found.train.images.shape == (60000, 28, 28)
    assert found.test.images.shape == (10000, 28, 28)
    assert counts(found.train) == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert counts(found.test) == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert means(found.train) == pytest.approx([0.1307], abs=1e-4)
    assert found.train.labels[:5].tolist() == [5, 0, 4, 1, 9]


def test_fashion_mnist(folder: Path) -> None:
    check_sums(folder)
    found = read_mnist(folder, "fashion-mnist")
    assert found.train.images.shape == (60000, 28, 28)
    assert counts(found.train) == [6000] * 10
    assert counts(found.test) == [1000] * 10
    assert means(found.train) == pytest.approx([0.2860], abs=1e-4)
    assert found.class_names[found.train.labels[0]] == "Ankle boot"


def test_svhn(folder: Path) -> None:
    found = read_svhn(folder)
    for part in (found.train, found.test):
        assert part.images.shape[1:] == (32, 32, 3)
        assert counts(part) == SVHN_COUNTS.get(len(part.labels), counts(part))
        assert len(counts(part)) == 10
        assert counts(part)[1] == max(counts(part))  # house numbers begin with one most often
        assert min(counts(part)) > 0.05 * len(part.labels)
    assert means(found.train) == pytest.approx([0.4377, 0.4438, 0.4728], abs=5e-3)
