"""A folder of images as the package `datasets` saves it or the Hugging Face hub holds it; the extra `datasets`.

Images stay in the files until they are read, one at a time; they come as bytes and are decoded by us.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from promptpool.data.images import ImageFile
from promptpool.data.own.hugging_face_files import open_splits, reading, split_word
from promptpool.data.own.splits import meanings
from promptpool.data.stores import LARGEST_FILE, Folder, Store
from promptpool.errors import BadFileError

if TYPE_CHECKING:
    from datasets import Dataset

LABELS = ("label", "labels", "fine_label")
GROUPS = ("task", "domain")
LABEL_TYPES = r"(large_)?string|u?int\d+|bool"


class Split(NamedTuple):
    """The images of a split, in the one column of a data set, and what is said about each."""

    images: Dataset
    labels: list[str]
    groups: list[str]


def read_hugging_face(path: Path) -> tuple[Store, list[ImageFile]]:
    """The images of a folder with their labels.

    Validation images test where there is no test split, and are left out beside one; so is a split without any label,
    as a withheld test set is, and a split whose name says nothing beside one that does.
    """
    with reading(path):
        opened = open_splits(path)
        splits = {name: _split(f"{path}: {name}", found, opened.features) for name, found in opened.splits.items()}
    words = {name: split_word(name) for name, split in splits.items() if any(split.labels)}
    meant = meanings(words.values())
    used = {name: splits[name] for name, word in words.items() if meant[word] is not None}
    if not used:
        raise BadFileError(f"{path}: no image with a label")
    if len({bool(split.groups[0]) for split in used.values()}) > 1:
        raise BadFileError(f"{path}: {' or '.join(GROUPS)} in some splits only")
    store = HuggingFaceImages(path, {name: split.images for name, split in used.items()}, opened.stamp)
    said = [
        (label, group, meant[words[name]] or "")
        for name, split in used.items()
        for label, group in zip(split.labels, split.groups, strict=True)
    ]
    return store, [ImageFile(name, *about) for name, about in zip(store.names(), said, strict=True)]


class HuggingFaceImages:
    """The images of all splits, named by split and row: train/00000123."""

    def __init__(self, where: Path, splits: dict[str, Dataset], stamp: str) -> None:
        self.where = where
        self._folder = Folder(where)
        self._splits = splits
        self._stamp = stamp

    def names(self) -> list[str]:
        return [f"{split}/{row:08d}" for split, images in self._splits.items() for row in range(len(images))]

    def stamp(self, name: str) -> str:
        return f"{self._stamp}-{name}"

    def read(self, name: str) -> bytes:
        split, _, row = name.rpartition("/")
        (image,) = self._splits[split][int(row)].values()
        content, path = (image.get("bytes"), image.get("path")) if image else (None, None)
        if content is not None:
            if len(content) > LARGEST_FILE:
                raise BadFileError(f"{self.where}: {name}: more bytes than a file here may have")
            return bytes(content)
        if not isinstance(path, str):
            raise BadFileError(f"{self.where}: {name}: neither an image nor the path of one")
        return self._folder.read(path)


def _split(what: str, found: Dataset, beside: dict[str, Any]) -> Split:
    """The images of a split, with labels and groups as text."""
    from datasets import Image

    image, label, group = _columns(what, found)
    images = found.select_columns([image])
    if isinstance(images.features[image], Image):
        images = images.cast_column(image, Image(decode=False))
    texts = [_texts(what, found, column, beside) if column else [""] * len(found) for column in (label, group)]
    for said, column in zip(texts, ("label", " or ".join(GROUPS)), strict=True):
        if any(said) and not all(said):
            raise BadFileError(f"{what}: row {said.index('')}: no {column}, while other rows have one")
    return Split(images, *texts)


def _columns(what: str, found: Dataset) -> tuple[str, str, str | None]:
    """The columns of images, labels and groups."""
    from datasets import ClassLabel, Image, Value

    def holds_bytes(feature: Any) -> bool:
        inner = feature.get("bytes") if isinstance(feature, dict) else None
        return isinstance(inner, Value) and inner.dtype in ("binary", "large_binary")

    features = found.features
    classes = [name for name, feature in features.items() if isinstance(feature, ClassLabel)]
    labels = classes + [
        name for name, kind in features.items() if isinstance(kind, Value) and re.fullmatch(LABEL_TYPES, kind.dtype)
    ]
    images = [name for name, feature in features.items() if isinstance(feature, Image)]
    images += [name for name, feature in features.items() if holds_bytes(feature)]
    label = next((name for name in LABELS if name in labels), classes[0] if len(classes) == 1 else None)
    if not images:
        raise BadFileError(f"{what}: no column of images (bytes and path) among {', '.join(features)}")
    if label is None:
        raise BadFileError(f"{what}: no column label (text or whole numbers) among {', '.join(features)}")
    return images[0], label, next((name for name in GROUPS if name in labels and name != label), None)


def _texts(what: str, found: Dataset, column: str, beside: dict[str, Any]) -> list[str]:
    """The column as text; empty where there is no value, or the -1 with which a ClassLabel says so."""
    from datasets import ClassLabel

    feature = next(
        (each for each in (found.features[column], beside.get(column)) if isinstance(each, ClassLabel)), None
    )
    values = found.select_columns([column])[:][column]
    texts: dict[Any, str] = {None: ""}
    for row, value in enumerate(values):
        if value in texts:
            continue
        if feature is None or isinstance(value, str):
            texts[value] = str(value).strip()
        elif not -1 <= value < feature.num_classes:
            raise BadFileError(f"{what}: row {row}: {column} {value}, but there are {feature.num_classes} names")
        else:
            texts[value] = feature.names[value].strip() if value >= 0 else ""
    return [texts[value] for value in values]
