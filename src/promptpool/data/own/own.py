"""Images of one's own: class folders, a table of paths and labels, or a Hugging Face data set on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from promptpool.checks import inside_zero_one
from promptpool.data.images import DecodedImages, ImageFile, read_images
from promptpool.data.own.class_folders import natural, read_class_folders
from promptpool.data.own.hugging_face import read_hugging_face
from promptpool.data.own.hugging_face_files import is_hugging_face
from promptpool.data.own.table import TABLES, Listed, read_table
from promptpool.data.scenarios import OwnSet
from promptpool.data.stores import Store
from promptpool.data.stream import Examples, Notes
from promptpool.errors import MOST_NAMED, BadFileError

USUAL_SIZE = 224  # what most backbones look at


def own(
    *,
    folder: str = "",
    held_out: float = 0.2,
    size: int | None = None,
    fit: str = "whole",
    strict: bool = False,
    seed: int = 0,
) -> OwnSet:
    """Your own images: a folder, zip or tar of class folders, a table (CSV), or a Hugging Face folder.

    Images become squares of `size` pixels, by `fit` as in `decode`; in a run, None is as large as its backbone looks at
    them, and elsewhere 224. Where nothing says which images are for testing, the share `held_out` of every class in
    every group is, drawn with `seed`. A file that is no image is skipped and named, or with `strict` an error.
    """
    if not folder:
        raise ValueError("folder is missing: give --data FOLDER, a folder that holds a folder of images per class")
    inside_zero_one(held_out=held_out)
    if size is not None and size < 1:
        raise ValueError(f"size = {size}: must be at least 1, or none for as large as the backbone looks at them")
    where = Path(folder).expanduser()
    store, entries = entries_of(where)
    decoded = read_images(store, entries, size=USUAL_SIZE if size is None else size, fit=fit, strict=strict)
    tested = _tested(decoded, held_out, seed)
    pairs = list(zip(decoded.entries, tested, strict=True))
    train, test = ([entry for entry, is_test in pairs if is_test is wanted] for wanted in (False, True))
    _check(train, test, where)
    class_names = tuple(sorted({entry.label for entry in train}, key=natural))
    group_names = tuple(sorted({entry.group for entry in train} - {""}, key=natural))
    found = decoded.examples(class_names)

    def part(of_test: bool, group: str | None) -> Examples:
        return found.select(torch.tensor([is_test is of_test and group in (None, e.group) for e, is_test in pairs]))

    every = [None]
    columns = store.notes if isinstance(store, Listed) else ()
    apart = {entry.group for entry in test} <= set(group_names)
    return OwnSet(
        tuple(part(False, group) for group in group_names or every),
        tuple(part(True, group) for group in (group_names if apart else every)),
        class_names,
        group_names,
        Notes(decoded.skipped, (*columns, *_lost(entries, train, test), *_copies(decoded, tested))),
    )


def entries_of(path: Path) -> tuple[Store, list[ImageFile]]:
    """The files of a set, in whichever of the layouts it is."""
    if is_hugging_face(path):
        return read_hugging_face(path)
    return read_table(path) if path.suffix.lower() in TABLES else read_class_folders(path)


def _tested(decoded: DecodedImages, held_out: float, seed: int) -> list[bool]:
    """Which of the images are to test on: those that say so, or where none does, a share of every class.

    Lots are drawn from the content of an image, so that a set that moves or is packed keeps its test images, one
    that grows nearly all of them, and copies of one image stay together.
    """
    if any(entry.split == "test" for entry in decoded.entries):
        return [entry.split == "test" for entry in decoded.entries]
    lots = [hashlib.sha256(f"{seed} {identity}".encode()).digest() for identity in decoded.ids.tolist()]
    classes: dict[tuple[str, str], set[bytes]] = {}
    for entry, lot in zip(decoded.entries, lots, strict=True):
        classes.setdefault((entry.group, entry.label), set()).add(lot)
    drawn = {
        key: set(sorted(found)[: min(max(round(held_out * len(found)), 1), len(found) - 1)])
        for key, found in classes.items()
    }
    pairs = zip(decoded.entries, lots, strict=True)
    return [lot in drawn[entry.group, entry.label] for entry, lot in pairs]


def _lost(entries: Sequence[ImageFile], train: Sequence[ImageFile], test: Sequence[ImageFile]) -> Iterator[str]:
    """Classes that are not what one would think."""
    trained, tested = {entry.label for entry in train}, {entry.label for entry in test}
    for labels, what in (
        ({entry.label for entry in entries if entry.label} - trained - tested, "no image that can be read"),
        (trained - tested, "no image to test on"),
    ):
        if labels:
            named = ", ".join(sorted(labels, key=natural)[:MOST_NAMED])
            yield f"{len(labels):,} of the classes have {what}: {named}{', ...' if len(labels) > MOST_NAMED else ''}"


def _copies(decoded: DecodedImages, tested: Sequence[bool]) -> Iterator[str]:
    """Images that are there more than once, where that spoils what is measured."""
    ids = decoded.ids.tolist()
    labels: dict[int, set[str]] = {}
    for entry, identity in zip(decoded.entries, ids, strict=True):
        labels.setdefault(identity, set()).add(entry.label)
    trained = {identity for identity, is_test in zip(ids, tested, strict=True) if not is_test}
    leaked = sum(is_test and identity in trained for identity, is_test in zip(ids, tested, strict=True))
    if leaked:
        yield f"{leaked:,} of the {sum(tested):,} test images are copies of training images"
    if twice := sum(len(found) > 1 for found in labels.values()):
        yield f"{twice:,} of the images are there under more than one label"


def _check(train: Sequence[ImageFile], test: Sequence[ImageFile], where: Path) -> None:
    """Refuse a set that nothing can be learned from, or tested on."""
    labels = {entry.label for entry in train}
    if not train:
        raise BadFileError(f"{where}: no image is left to train on: all are to test on")
    if not test:
        raise BadFileError(f"{where}: no image is left to test on: a class needs at least two")
    if unknown := {entry.label for entry in test} - labels:
        raise BadFileError(f"{where}: test label {min(unknown)!r} occurs in no training image")
    if len(labels) < 2:
        raise BadFileError(f"{where}: only one class, {min(labels)!r}: there is nothing to tell apart")
    if len({bool(entry.group) for entry in train}) > 1:
        lost = next(entry.name for entry in train if not entry.group)
        raise BadFileError(f"{where}: {lost} belongs to no task or domain, and others do")
