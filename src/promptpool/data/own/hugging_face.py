"""A folder of pictures as the package `datasets` saves it or the Hugging Face hub holds it; the extra `hugging-face`.

The files note which column holds images and what the classes are called. Images stay in the files until they are read,
one at a time. No code is run, and nothing of `datasets` is needed.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from promptpool.data.images import Entry
from promptpool.data.own.hugging_face_layouts import (
    Part,
    features_of,
    find_parts,
    is_hugging_face,
    parse,
    split_word,
)
from promptpool.data.own.splits import meanings
from promptpool.data.stores import LARGEST_FILE, Folder, Store
from promptpool.errors import BadFileError

if TYPE_CHECKING:
    from promptpool.data.own.arrow_files import Header, Rows

__all__ = ["Pictures", "is_hugging_face", "read_hugging_face"]

LABELS = ("label", "labels", "fine_label")
GROUPS = ("task", "domain")


class Split(NamedTuple):
    """The rows of a split, file by file, and what is said about each."""

    name: str
    files: list[Rows]
    labels: list[str]
    groups: list[str]


class Column(NamedTuple):
    """A column of labels; the names are those of a ClassLabel."""

    name: str
    names: list[str]


def read_hugging_face(path: Path) -> tuple[Store, list[Entry]]:
    """The pictures of a folder with their labels.

    Validation pictures test where there is no test split, and are left out beside one; so is a split without any label,
    as a withheld test set is, and a split whose name says nothing beside one that does.
    """
    splits = [split for part in find_parts(path) if any((split := _read(part)).labels)]
    words = {split.name: split_word(split.name) for split in splits}
    meant = meanings(words.values())
    used = [split for split in splits if meant[words[split.name]] is not None]
    if not used:
        raise BadFileError(f"{path}: no picture with a label")
    if len({bool(split.groups[0]) for split in used}) > 1:
        raise BadFileError(f"{path}: {' or '.join(GROUPS)} in some splits only")
    store = Pictures(path, {split.name: split.files for split in used})
    said = [
        (label, group, meant[words[split.name]] or "")
        for split in used
        for label, group in zip(split.labels, split.groups, strict=True)
    ]
    return store, [Entry(name, *about) for name, about in zip(store.names(), said, strict=True)]


class Pictures:
    """The pictures of all splits, named by split and row: train/00000123."""

    def __init__(self, where: Path, splits: dict[str, list[Rows]]) -> None:
        self.where = where
        self._folder = Folder(where)
        self._splits = splits
        self._starts = {split: list(accumulate(map(len, files), initial=0)) for split, files in splits.items()}

    def names(self) -> list[str]:
        return [f"{split}/{row:08d}" for split, starts in self._starts.items() for row in range(starts[-1])]

    def stamp(self, name: str) -> str:
        file, row = self._place(name)
        return f"{file.stamp}-{row}"

    def read(self, name: str) -> bytes:
        file, row = self._place(name)
        picture = file.picture(row)
        if picture.content is not None:
            if len(picture.content) > LARGEST_FILE:
                raise BadFileError(f"{self.where}: {name}: more bytes than a file here may have")
            return picture.content
        if picture.path is None:
            raise BadFileError(f"{self.where}: {name}: neither an image nor the path of one")
        return self._folder.read(picture.path)

    def _place(self, name: str) -> tuple[Rows, int]:
        split, _, row = name.rpartition("/")
        file = bisect_right(self._starts[split], int(row)) - 1
        return self._splits[split][file], int(row) - self._starts[split][file]


def _read(part: Part) -> Split:
    """The files of a split, opened, with labels and groups as text."""
    try:
        from promptpool.data.own.arrow_files import open_rows, read_header
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{part.files[0]}: needs one more package: pip install 'promptpool[hugging-face]'"
        ) from error
    split = Split(part.split, [], [], [])
    for path in part.files:
        picture, label, group = _columns(path, read_header(path), part.features)
        rows = open_rows(path, picture, [column.name for column in (label, group) if column])
        split.files.append(rows)
        split.labels.extend(_texts(path, label, rows))
        split.groups.extend(_texts(path, group, rows) if group else [""] * len(rows))
    for what, texts in (("label", split.labels), (" or ".join(GROUPS), split.groups)):
        if any(texts) and not all(texts):
            starts = list(accumulate(map(len, split.files), initial=0))
            file = bisect_right(starts, texts.index("")) - 1
            row = texts.index("") - starts[file]
            raise BadFileError(f"{part.files[file]}: row {row}: no {what}, while other rows have one")
    return split


def _columns(path: Path, header: Header, beside: dict[str, Any]) -> tuple[str, Column, Column | None]:
    """The columns of pictures, labels and groups."""
    features = beside | features_of(path, parse(path, header.notes).get("info"))
    types = {name: features.get(name, {}).get("_type") for name in header.kinds}
    pictures = [name for name, kind in header.kinds.items() if kind == "picture" and types[name] in ("Image", None)]
    labels = [name for name, kind in header.kinds.items() if kind == "label"]
    classes = [name for name in labels if types[name] == "ClassLabel"]
    label = next((name for name in LABELS if name in labels), classes[0] if len(classes) == 1 else None)
    group = next((name for name in GROUPS if name in labels and name != label), None)
    if not pictures:
        raise BadFileError(f"{path}: no column of images (bytes and path) among {', '.join(header.kinds)}")
    if label is None:
        raise BadFileError(f"{path}: no column label (text or whole numbers) among {', '.join(header.kinds)}")

    def column(name: str) -> Column:
        names = features[name].get("names") if types[name] == "ClassLabel" else None
        return Column(name, [str(text) for text in names] if isinstance(names, list) else [])

    picture = next((name for name in pictures if types[name] == "Image"), pictures[0])
    return picture, column(label), column(group) if group else None


def _texts(path: Path, column: Column, rows: Rows) -> list[str]:
    """The column as text; empty where there is no value, or the -1 with which a ClassLabel says so."""
    values = rows.values(column.name)
    if len(values) != len(rows):
        raise BadFileError(f"{path}: column {column.name} has {len(values)} of {len(rows)} rows")
    texts: dict[Any, str] = {None: ""}
    for row, value in enumerate(values):
        if value in texts:
            continue
        if not column.names or isinstance(value, str):
            texts[value] = str(value).strip()
        elif not -1 <= value < len(column.names):
            raise BadFileError(f"{path}: row {row}: {column.name} {value}, but there are {len(column.names)} names")
        else:
            texts[value] = column.names[value].strip() if value >= 0 else ""
    return [texts[value] for value in values]
