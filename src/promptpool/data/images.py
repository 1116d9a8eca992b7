"""Sets of image files: which there are, which can be read, and their pixels when they are needed.

What is particular here:
- Every file is decoded once before anything runs, on threads. One that is no image is skipped and named, or with
  `strict` ends it all; so nothing breaks hours later.
- A small set stays in memory. A large one is never held whole: rows are decoded when a batch asks for them, and what
  the first pass found is kept in the cache folder, so that the next start decodes only files that changed.
- An example's id is the hash of its pixels. It is the same whichever way the set is held and wherever it lies, and
  two copies of one image share it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import PIL
import torch
from torch import Tensor

from promptpool import distributed
from promptpool.data.decoding import Pixels, check, decode
from promptpool.data.stores import Folder, Store, Tar
from promptpool.data.stream import Examples, Source, content_id
from promptpool.data.workers import in_advance, threads_here
from promptpool.errors import BadFileError, skipped_text
from promptpool.files import cache_folder, write_whole
from promptpool.progress import track

LARGEST_IN_MEMORY = 2**30  # bytes of pixels
LARGEST_FILE = 2**28  # bytes of one file; a film among the images is not read whole to find that it is none
VERSION = 1  # changes whenever the same file would give other pixels
NO_LABEL = "lies in no class folder"


class ImageFile(NamedTuple):
    """One file of a set; a file without a label belongs to no class and is skipped."""

    name: str
    label: str
    group: str = ""  # the task or domain
    split: str = ""  # "train", "test", or nothing when it is not said


class DecodedImages(NamedTuple):
    """The images of a set that can be read, and the names of the files that cannot, each with the reason."""

    entries: tuple[ImageFile, ...]
    source: Source
    rows: Tensor  # int64 [n]
    ids: Tensor  # int64 [n]
    skipped: tuple[tuple[str, str], ...] = ()

    def examples(self, class_names: Sequence[str]) -> Examples:
        """All of them, labelled by the place of their class in `class_names`."""
        place = {name: number for number, name in enumerate(class_names)}
        labels = torch.tensor([place[entry.label] for entry in self.entries], dtype=torch.long)
        return Examples(self.source, self.rows, labels, self.ids)


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Raw inputs that are decoded when asked for, on threads."""

    store: Store
    names: tuple[str, ...]
    ids: tuple[int, ...]
    size: int
    fit: str

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: Tensor, /) -> Tensor:
        pixels = torch.empty(len(index), 3, self.size, self.size, dtype=torch.uint8)
        for place, found in enumerate(in_advance(self._decoded, index.tolist(), threads=threads_here())):
            pixels[place] = torch.from_numpy(found)
        return pixels

    def _decoded(self, row: int) -> Pixels:
        what = f"{self.store.where}: {self.names[row]}"
        pixels = decode(self.store.read(self.names[row]), what, self.size, self.fit)
        if content_id(pixels) != self.ids[row]:
            raise BadFileError(f"{what}: changed after it was first read")
        return pixels


def read_images(
    store: Store, entries: Sequence[ImageFile], *, size: int, fit: str = "whole", strict: bool = False
) -> DecodedImages:
    """The entries whose files are images, at `size` x `size`; `fit` as in `decode`.

    Files that are none are named in `skipped`; with `strict` the first is a `BadFileError`, and so it is when nothing
    is left.
    """
    check(size, fit)
    if 3 * size * size * len(entries) > LARGEST_IN_MEMORY:
        found, source = _indexed(store, entries, size, fit, strict)
    else:
        found, source = _held(store, entries, size, fit, strict)
    reasons = zip(entries, found, strict=True)
    skipped = tuple((printable(entry.name), reason) for entry, reason in reasons if isinstance(reason, str))
    kept = {row: identity for row, identity in enumerate(found) if isinstance(identity, int)}
    if not kept:
        raise BadFileError(f"{store.where}: has no image that can be read; {skipped_text(skipped)}")
    return DecodedImages(
        tuple(entries[row] for row in kept),
        source,
        torch.tensor(list(kept), dtype=torch.long),
        torch.tensor(list(kept.values()), dtype=torch.long),
        skipped,
    )


def printable(name: str) -> str:
    """A name as text that changes nothing on a terminal, even where its bytes are no text."""
    text = name.encode(errors="replace").decode()
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


Found = list[int | str]  # for each entry its id, or why it was skipped


def _held(store: Store, entries: Sequence[ImageFile], size: int, fit: str, strict: bool) -> tuple[Found, Source]:
    """All images in one tensor; rows of files that are no images stay empty and unused."""
    found: Found = [""] * len(entries)
    pixels = torch.zeros(len(entries), 3, size, size, dtype=torch.uint8)
    for row, identity, decoded in in_turn(store, entries, range(len(entries)), size, fit, strict):
        found[row] = identity
        if decoded is not None:
            pixels[row] = torch.from_numpy(decoded)
    return found, pixels


def _indexed(store: Store, entries: Sequence[ImageFile], size: int, fit: str, strict: bool) -> tuple[Found, Source]:
    """Images that stay in their files; what an earlier pass found holds for files that have not changed."""
    if isinstance(store, Tar) and store.packed:
        needed = 3 * size * size * len(entries) / 2**30
        raise BadFileError(
            f"{store.where}: unpack it first: its images take {needed:.1f} GiB, more than is held in memory, "
            "and files in a compressed tar can only be read one after the other"
        )
    path = _index_path(store, size, fit)
    index = _read_index(path)
    stamps = [_stamp(store, entry) for entry in entries]
    found: Found = [""] * len(entries)
    changed = []
    for row, (entry, stamp) in enumerate(zip(entries, stamps, strict=True)):
        before, identity = index.get(entry.name, ("", ""))
        if stamp and before == stamp and not (strict and isinstance(identity, str)):
            found[row] = identity
        else:
            changed.append(row)
    try:
        for row, identity, _ in in_turn(store, entries, changed, size, fit, strict):
            found[row] = identity
            if stamps[row]:
                index[entries[row].name] = (stamps[row], identity)
    finally:  # one who is stopped goes on from there
        if changed and distributed.rank() == 0:
            with suppress(OSError):  # without an index, all is decoded again next time
                write_whole(path, json.dumps(index).encode())
    ids = tuple(identity if isinstance(identity, int) else 0 for identity in found)
    return found, ImageFiles(store, tuple(entry.name for entry in entries), ids, size, fit)


def in_turn(
    store: Store, entries: Sequence[ImageFile], rows: Sequence[int], size: int, fit: str, strict: bool
) -> Iterator[tuple[int, int | str, Pixels | None]]:
    """Each of the rows with its id and pixels, or with the reason why it has none.

    Files are read on this thread, in the order in which the store is quickest, and decoded on others.
    """
    place = {name: number for number, name in enumerate(store.names())} if rows else {}
    order = sorted(rows, key=lambda row: place.get(entries[row].name, len(place)))
    contents = ((row, _content(store, entries[row])) for row in order)

    def decoded(read: tuple[int, bytes | str]) -> tuple[int, int | str, Pixels | None]:
        row, content = read
        if isinstance(content, str):
            return row, content, None
        try:
            pixels = decode(content, entries[row].name, size, fit)
        except BadFileError as error:
            return row, _without(error, store, entries[row]), None
        return row, content_id(pixels), pixels

    done = in_advance(decoded, contents, threads=threads_here())
    for row, found, pixels in track(done, "reading images", len(order)):
        if strict and isinstance(found, str):
            raise BadFileError(f"{store.where}: {printable(entries[row].name)}: {found}")
        yield row, found, pixels


def _content(store: Store, entry: ImageFile) -> bytes | str:
    """The bytes of a file, or why there are none."""
    if not entry.label:
        return NO_LABEL
    try:
        if isinstance(store, Folder) and (store.where / entry.name).stat().st_size > LARGEST_FILE:
            return f"more than {LARGEST_FILE:,} bytes"
        return store.read(entry.name)
    except OSError as error:
        return error.strerror or str(error)
    except BadFileError as error:
        return _without(error, store, entry)


def _without(error: BadFileError, store: Store, entry: ImageFile) -> str:
    """What is wrong with a file, without its name: that is told apart."""
    text = str(error)
    for prefix in (f"{store.where / entry.name}: ", f"{store.where}: {entry.name}: ", f"{entry.name}: "):
        text = text.removeprefix(prefix)
    return text


def _stamp(store: Store, entry: ImageFile) -> str:
    """When a file last changed, empty where that cannot be told."""
    try:
        return store.stamp(entry.name) if entry.label else ""
    except BadFileError:
        return ""


def _index_path(store: Store, size: int, fit: str) -> Path:
    described = json.dumps([VERSION, PIL.__version__, str(store.where.resolve()), size, fit])
    return cache_folder() / "pictures" / f"{hashlib.sha256(described.encode()).hexdigest()[:16]}.json"


def _read_index(path: Path) -> dict[str, tuple[str, int | str]]:
    """By name, when a file last changed and what it was; nothing where the index is not there or damaged."""
    try:
        read: Any = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(name): (str(stamp), found)
            for name, (stamp, found) in read.items()
            if type(found) is int or type(found) is str
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
