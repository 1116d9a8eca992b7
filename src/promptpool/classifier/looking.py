"""One pass over pictures: what a classifier says of each, and a small copy of it to show.

Every file is decoded once, and no more than a batch is in memory at a time. What stays of a picture is a row of
confidences, a small JPEG of what the model saw, and its features where they are asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from promptpool.classifier.classifier import AT_ONCE, ContinualClassifier
from promptpool.classifier.looks import thumbnail
from promptpool.classifier.pictures import UNKNOWN, unlabelled
from promptpool.data.decoding import image_suffixes
from promptpool.data.images import in_turn, printable
from promptpool.data.own.hugging_face_files import is_hugging_face
from promptpool.data.own.own import entries_of
from promptpool.data.own.table import Listed
from promptpool.data.stores import Folder
from promptpool.data.stream import Batch, content_id
from promptpool.errors import BadFileError, skipped_text
from promptpool.learners.closed_form import ClosedForm
from promptpool.progress import report


class Given(NamedTuple):
    """A picture as it comes from a folder."""

    place: int  # among all of them
    name: str
    pixels: Tensor | None  # uint8 [3, size, size]; None where the file is no picture
    reason: str = ""
    label: str = ""
    path: Path | None = None  # None where it lies in an archive


@dataclass(frozen=True)
class Seen:
    """What was found out about pictures, row by row in one order."""

    names: tuple[str, ...]
    paths: tuple[Path | None, ...]
    labels: tuple[str, ...]  # "" for pictures without
    small: tuple[bytes, ...]  # JPEG
    classes: tuple[str, ...]  # that the classifier knows, the columns of `shares`
    shares: Tensor  # calibrated confidences [n, C]
    far: Tensor  # True for those that are like no class [n]
    ids: Tensor  # equal for copies [n]
    owners: Tensor  # the class that a copy was learned as, or -1 [n]
    rows: Tensor | None  # features [n, d]
    skipped: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    def guess(self, row: int) -> str:
        return self.classes[int(self.shares[row].argmax())]

    def answer(self, row: int) -> str:
        return UNKNOWN if self.far[row] else self.guess(row)

    def confidence(self, row: int) -> float:
        return float(self.shares[row].max())


def has_labels(path: Path) -> bool:
    """True for whatever `learn` reads; False for a picture, or a folder that has pictures right in it."""
    if path.is_file():
        return path.suffix.lower() not in image_suffixes()
    if not path.is_dir():
        raise BadFileError(f"{path}: no such file or folder")
    if is_hugging_face(path):
        return True
    suffixes = image_suffixes()
    found = [each.relative_to(path).parts for each in path.rglob("*") if each.suffix.lower() in suffixes]
    depths = {len(parts) for parts in found if not any(part.startswith(".") for part in parts)}
    if 1 in depths and len(depths) > 1:
        raise BadFileError(f"{path}: pictures lie in it and in folders; --unlabelled takes them all without labels")
    return depths != {1}


def without_labels(path: Path, size: int) -> Iterator[Given]:
    """The picture at a path, or those of a folder and its folders."""
    begin = printable(str(path)) + os.sep
    for place, (name, pixels, reason) in enumerate(unlabelled(path, size=size)):
        report("looking at pictures", place)
        yield Given(place, name.removeprefix(begin), pixels, reason, path=Path(name))


def with_labels(path: Path, size: int, *, test: bool = False) -> tuple[Iterator[Given], tuple[str, ...]]:
    """The pictures of a labelled set, in the order in which they are quickest to read, and what is to be known of it.

    With `test` only those that are to test on, where any are.
    """
    if not path.exists():
        raise BadFileError(f"{path}: no such file or folder")
    store, entries = entries_of(path)
    if test:
        entries = [entry for entry in entries if entry.split == "test"] or entries

    def given() -> Iterator[Given]:
        for row, found, pixels in in_turn(store, entries, range(len(entries)), size, "whole", False):
            name, label = printable(entries[row].name), printable(entries[row].label)
            there = store.where / entries[row].name if isinstance(store, Folder) else None
            seen = None if pixels is None else torch.from_numpy(pixels)
            yield Given(row, name, seen, found if isinstance(found, str) else "", label, there)

    return given(), store.notes if isinstance(store, Listed) else ()


class _Part(NamedTuple):
    """What was found out about a batch."""

    given: list[Given]
    small: list[bytes]
    scores: Tensor
    far: Tensor
    ids: Tensor
    owners: Tensor
    rows: Tensor


def look(
    classifier: ContinualClassifier,
    pictures: Iterable[Given],
    *,
    features: bool = False,
    as_if_new: bool = False,
) -> Seen:
    """Ask about all pictures. With `features` keep them, where the method has any.

    With `as_if_new` a picture that was learned is judged as if it had not been, where the method can: the closed form.
    """
    if not classifier.labels:
        raise ValueError("nothing was learned yet: learn first")
    skipped: list[tuple[str, str]] = []
    parts = [_part(classifier, some, features, as_if_new) for some in _batches(pictures, skipped)]
    if not parts:
        raise BadFileError(f"there is no picture that can be read; {skipped_text(skipped)}")
    every = [given for part in parts for given in part.given]
    order = sorted(range(len(every)), key=lambda row: every[row].place)
    small = [each for part in parts for each in part.small]
    known = [number for number, label in enumerate(classifier.known.labels) if label]
    columns = {number: column for column, number in enumerate(known)}
    owners = [columns.get(owner, -1) for part in parts for owner in part.owners.tolist()]
    scores, far, ids, rows = (
        torch.cat([getattr(part, name) for part in parts])[order] for name in ("scores", "far", "ids", "rows")
    )
    return Seen(
        names=tuple(every[row].name for row in order),
        paths=tuple(every[row].path for row in order),
        labels=tuple(every[row].label for row in order),
        small=tuple(small[row] for row in order),
        classes=classifier.labels,
        shares=classifier.known.calibration.probabilities(scores)[:, known],
        far=far,
        ids=ids,
        owners=torch.tensor(owners, dtype=torch.long)[order],
        rows=rows if rows.shape[1] else None,
        skipped=tuple(skipped),
    )


def _batches(pictures: Iterable[Given], skipped: list[tuple[str, str]]) -> Iterator[list[Given]]:
    """Those that can be read, some at a time; the others are noted."""
    waiting: list[Given] = []
    for given in pictures:
        if given.pixels is None:
            skipped.append((given.name, given.reason))
            continue
        waiting.append(given)
        if len(waiting) == AT_ONCE:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _part(classifier: ContinualClassifier, given: list[Given], features: bool, as_if_new: bool) -> _Part:
    images = torch.stack([each.pixels for each in given if each.pixels is not None])
    ids = torch.tensor([content_id(image.numpy()) for image in images], dtype=torch.long)
    pictures = classifier.known.pictures
    learned = dict(zip(pictures.ids.tolist(), pictures.owners.tolist(), strict=True))
    owners = torch.tensor([learned.get(identity, -1) for identity in ids.tolist()])
    asked = classifier.ask(images)
    scores, far = asked.scores, classifier.strange(asked)
    rows, learner = torch.zeros(len(images), 0), classifier.learner
    if isinstance(learner, ClosedForm) and (features or as_if_new):
        rows = learner.read(Batch(images, torch.zeros(len(images), dtype=torch.long), ids))
        several = (owners >= 0) & (learner.sums.counts[owners.clamp(min=0)] > 1)  # else nothing of its class is left
        if as_if_new and several.any():
            scores = scores.double()
            scores[several] = learner.leave_one_out(rows[several], owners[several])[:, : scores.shape[1]]
    given = [each._replace(pixels=None) for each in given]
    return _Part(
        given, [thumbnail(image) for image in images], scores, far, ids, owners, rows if features else rows[:, :0]
    )
