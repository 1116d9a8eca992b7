"""What the header of a classifier's file may say.

Whoever sends a file may have written anything into it. So each value is looked at before anything is made of it: kinds,
ranges and lengths, and that text can be printed. `check` raises what the first wrong value makes it raise, and the
caller says which file that was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import torch
from torch import Tensor

from promptpool.classifier.calibration import Calibration
from promptpool.classifier.classifier import LARGEST_SIDE, MOST_PROJECTIONS
from promptpool.classifier.lessons import Change, Lesson, Pictures
from promptpool.classifier.pictures import checked_label

FAULTS = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)  # what `check` raises
MOST_LABELS = 100_000
KINDS: dict[str, type | tuple[type, ...]] = {
    "method": str,
    "values": dict,
    "backbone": dict,
    "held_out": (int, float),
    "keep_held_out": bool,
    "seed": int,
    "labels": list,
    "lessons": list,
    "calibration": dict,
    "version": int,
    "learner": dict,
}


def check(header: dict[str, Any]) -> None:
    """Raise one of FAULTS unless what is about to be used can be meant; nothing large is made of a number before."""
    for key, kind in KINDS.items():
        if not isinstance(header[key], kind):
            raise TypeError(f"{key} is {type(header[key]).__name__}")
    _is(isinstance(header.get("thumbnails", False), bool), "thumbnails")
    backbone = header["backbone"]
    if not isinstance(backbone["origin"], str) or not isinstance(backbone["name"], str):
        raise TypeError("the backbone has no name or no hash")
    _whole(header["version"], "version", 10**9)
    _whole(backbone["image_size"], "image_size", LARGEST_SIDE)
    _whole(header["values"].get("projections", 1), "projections", MOST_PROJECTIONS)
    _is(len(header["labels"]) <= MOST_LABELS, f"{len(header['labels'])} labels")
    known = [label for label in labels_of(header) if label]
    _is(len(set(known)) == len(known), "a label is there twice")
    calibration_of(header)
    lessons = lessons_of(header)
    _is(len({lesson.number for lesson in lessons}) == len(lessons), "a lesson is there twice")


def labels_of(header: dict[str, Any]) -> list[str]:
    """The labels, with nothing where a class was forgotten."""
    return [label if label == "" else checked_label(label) for label in header["labels"]]


def calibration_of(header: dict[str, Any]) -> Calibration:
    values: dict[str, Any] = dict(header["calibration"])
    found = Calibration(**values | {name: tuple(values[name]) for name in ("confidences", "right")})
    _is(_share(found.temperature, math.inf) and found.temperature > 0, "temperature")
    for limit in (found.farthest, found.least):
        _is(limit is None or (_number(limit) and not math.isnan(limit)), "calibration")
    _is(all(_share(each) for each in found.confidences), "confidences")
    _is(all(isinstance(each, bool) for each in found.right), "answers that were right")
    _is(len(found.confidences) == len(found.right), "confidences and answers do not match")
    return found


def lessons_of(header: dict[str, Any]) -> list[Lesson]:
    return [_lesson(dict(each)) for each in header["lessons"]]


def _lesson(values: dict[str, Any]) -> Lesson:
    rows = {"doubtful": 3, "skipped": 2, "near": 2, "known_as": 2}
    texts = {name: tuple(_row(row, count) for row in values.get(name, ())) for name, count in rows.items()}
    suffered = tuple(Change(*each) for each in values.get("suffered", ()))
    lesson = Lesson(**{**values, **texts, "new": _texts(values["new"]), "suffered": suffered})
    _whole(lesson.number, "number of a lesson", 10**9)
    datetime.fromisoformat(lesson.when)
    _texts(list(lesson.counts))
    for name in ("held_out", "duplicates", "left_out"):
        _whole(getattr(lesson, name), name)
    for count in lesson.counts.values():
        _whole(count, "counts")
    for share in (lesson.accuracy, lesson.before, lesson.after):
        _is(share is None or _share(share), "accuracy")
    for change in suffered:
        _texts([change.label])
        _is(_share(change.before) and _share(change.after), "suffered")
    _is(_share(lesson.seconds, math.inf), "seconds")
    return lesson


def _texts(values: Any) -> tuple[str, ...]:
    """Texts that change nothing on a terminal."""
    found = _row(values, len(values))
    _is(all(text.isprintable() for text in found), "text of a lesson")
    return found


def _row(values: Any, count: int) -> tuple[str, ...]:
    """So many texts."""
    _is(isinstance(values, list) and all(isinstance(each, str) for each in values), "text of a lesson")
    _is(len(values) == count, "text of a lesson")
    return tuple(values)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _share(value: Any, most: float = 1.0) -> bool:
    return _number(value) and 0 <= value <= most + 1e-6 and math.isfinite(value)


def _whole(value: object, name: str, most: int = 2**62) -> None:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{name} = {str(value)[:40]}")


def _is(good: bool, what: str) -> None:
    if not good:
        raise ValueError(what)


def check_pictures(pictures: Pictures, class_count: int, lessons: Iterable[int]) -> None:
    """Raise a ValueError unless what is remembered of pictures fits together."""
    _is(len({len(column) for column in pictures}) == 1, "pictures do not match")
    check_numbers(pictures.ids, "ids of pictures")
    check_numbers(pictures.owners, "pictures", range(class_count))
    check_numbers(pictures.lessons, "lessons of pictures", {0, *lessons})
    _is(pictures.small.dtype == torch.uint8 and pictures.small.ndim == 2, "small versions")


def check_rows(rows: Tensor, labels: Tensor, width: int, class_count: int) -> None:
    """Raise a ValueError unless these are rows of features with their classes."""
    if rows.dtype != torch.half or rows.ndim != 2 or rows.shape != (len(labels), width) or not rows.isfinite().all():
        raise ValueError("rows and labels do not fit the method")
    check_numbers(labels, "labels of rows", range(class_count))


def check_numbers(numbers: Tensor, what: str, allowed: range | set[int] | None = None) -> None:
    """Raise a ValueError unless this is a list of whole numbers, each of the allowed ones."""
    if numbers.dtype != torch.long or numbers.ndim != 1:
        raise ValueError(f"{what} are no numbers")
    if allowed is not None and not set(numbers.unique().tolist()) <= set(allowed):
        raise ValueError(f"{what} lie beyond the classes or lessons")
