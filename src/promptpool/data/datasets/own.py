"""Images of one's own: class folders, a table of paths and labels, or a Hugging Face data set on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch

from promptpool.data.archives import Store
from promptpool.data.pictures import Album, Entry, read_pictures
from promptpool.data.readers.class_folders import natural, read_class_folders
from promptpool.data.sets import OwnSet
from promptpool.data.stream import Examples
from promptpool.errors import BadFileError

TABLES = (".csv", ".tsv")


def own(
    *,
    folder: str = "",
    held_out: float = 0.2,
    size: int = 224,
    fit: str = "whole",
    strict: bool = False,
    seed: int = 0,
) -> OwnSet:
    """Your own images: a folder, zip or tar of class folders, a table (CSV), or a Hugging Face folder.

    Images become squares of `size` pixels, by `fit` as in `decode`. Where nothing says which images are for testing,
    the share `held_out` of every class in every group is, drawn with `seed`. A file that is no image is skipped and
    named, or with `strict` an error.
    """
    if not folder:
        raise ValueError("folder is missing: give --data FOLDER, a folder that holds a folder of images per class")
    if not 0 < held_out < 1:
        raise ValueError(f"held_out = {held_out}: must lie between 0 and 1")
    where = Path(folder).expanduser()
    store, entries = entries_of(where)
    album = read_pictures(store, entries, size=size, fit=fit, strict=strict)
    tested = _tested(album, held_out, seed)
    train = [entry for entry, is_test in zip(album.entries, tested, strict=True) if not is_test]
    test = [entry for entry, is_test in zip(album.entries, tested, strict=True) if is_test]
    if not train:
        raise BadFileError(f"{where}: none of {len(entries):,} files is an image to train on")
    _check(train, test, where)
    class_names = tuple(sorted({entry.label for entry in train}, key=natural))
    group_names = tuple(sorted({entry.group for entry in train} - {""}, key=natural))
    pictures = album.examples(class_names)

    def part(of_test: bool, group: str | None) -> Examples:
        pairs = zip(album.entries, tested, strict=True)
        return pictures.select(torch.tensor([is_test is of_test and group in (None, e.group) for e, is_test in pairs]))

    every = [None]
    apart = {entry.group for entry in test} <= set(group_names)
    return OwnSet(
        tuple(part(False, group) for group in group_names or every),
        tuple(part(True, group) for group in (group_names if apart else every)),
        class_names,
        group_names,
    )


def entries_of(path: Path) -> tuple[Store, list[Entry]]:
    """The files of a set, in whichever of the layouts it is."""
    from promptpool.data.readers.hugging_face import is_hugging_face, read_hugging_face
    from promptpool.data.readers.table import read_table

    if is_hugging_face(path):
        return read_hugging_face(path)
    return read_table(path) if path.suffix.lower() in TABLES else read_class_folders(path)


def _tested(album: Album, held_out: float, seed: int) -> list[bool]:
    """Which of the pictures are to test on: those that say so, or where none does, a share of every class.

    Lots are drawn from the content of a picture, so that a set that grows, moves or is packed keeps its test images.
    """
    if any(entry.split == "test" for entry in album.entries):
        return [entry.split == "test" for entry in album.entries]
    lots = [hashlib.sha256(f"{seed} {identity}".encode()).digest() for identity in album.ids.tolist()]
    classes: dict[tuple[str, str], list[int]] = {}
    for place, entry in enumerate(album.entries):
        classes.setdefault((entry.group, entry.label), []).append(place)
    tested = [False] * len(lots)
    for places in classes.values():
        count = min(max(round(held_out * len(places)), 1), len(places) - 1)
        for place in sorted(places, key=lots.__getitem__)[:count]:
            tested[place] = True
    return tested


def _check(train: Sequence[Entry], test: Sequence[Entry], where: Path) -> None:
    """Refuse a set that nothing can be learned from, or tested on."""
    labels = {entry.label for entry in train}
    if not test:
        raise BadFileError(f"{where}: no image is left to test on: a class needs at least two")
    if unknown := {entry.label for entry in test} - labels:
        raise BadFileError(f"{where}: test label {min(unknown)!r} occurs in no training image")
    if len(labels) < 2:
        raise BadFileError(f"{where}: only one class, {min(labels)!r}: there is nothing to tell apart")
    if len({bool(entry.group) for entry in train}) > 1:
        lost = next(entry.name for entry in train if not entry.group)
        raise BadFileError(f"{where}: {lost} belongs to no task or domain, and others do")
