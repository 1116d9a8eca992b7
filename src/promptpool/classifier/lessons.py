"""What a classifier remembers beside its learner: lessons, labels, and a little of every picture."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from promptpool.classifier.calibration import Calibration

SIDE = 8  # of the small grey version by which near-copies are found
NEAR = 4.0  # how far two of them may be apart, in levels of 0 to 255
AT_ONCE = 1024


class Change(NamedTuple):
    """How a class fared in a lesson: the share of its earlier pictures that was right before, and is now."""

    label: str
    before: float
    after: float


@dataclass(frozen=True)
class Lesson:
    """What a lesson was, and what it did."""

    number: int  # 0 if all of its pictures were known: then nothing changed, and it is none of the lessons
    when: str
    counts: dict[str, int]  # pictures of each label
    new: tuple[str, ...]  # labels that were not known before
    held_out: int = 0
    accuracy: float | None = None  # of the pictures that were held out of this lesson
    before: float | None = None  # of earlier pictures, before it
    after: float | None = None  # and after it
    suffered: tuple[Change, ...] = ()  # classes whose earlier pictures it made worse, the worst first
    doubtful: tuple[tuple[str, str, str], ...] = ()  # picture, its label, and what it looks like
    duplicates: int = 0  # copies of pictures that were learned before, or stood earlier in the lesson
    near: tuple[tuple[str, str], ...] = ()  # pictures that are nearly the same, and what of: another, or a lesson
    known_as: tuple[tuple[str, str], ...] = ()  # labels, and as what else pictures of theirs had been learned
    left_out: int = 0  # pictures of a test folder
    skipped: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    source: str = ""  # the job of a server that it was, whose pictures are therefore not learned again

    @property
    def pictures(self) -> int:
        return sum(self.counts.values())


class Pictures(NamedTuple):
    """Every learned picture, as often as lessons had it: its content's id, class, lesson and a small grey version."""

    ids: Tensor  # int64 [n]
    owners: Tensor  # int64 [n], the class
    lessons: Tensor  # int64 [n]; 0 where it is not known
    small: Tensor  # uint8 [n, SIDE * SIDE]

    def with_more(self, more: Pictures) -> Pictures:
        return Pictures(*(torch.cat(pair) for pair in zip(self, more, strict=True)))

    def only(self, which: Tensor) -> Pictures:
        return Pictures(*(column[which] for column in self))

    def places(self) -> dict[tuple[int, int], int]:
        """Where each content and class stands."""
        pairs = zip(self.ids.tolist(), self.owners.tolist(), strict=True)
        return {pair: place for place, pair in enumerate(pairs)}

    def in_both(self, first: int, second: int) -> Tensor:
        """The ids of pictures that were learned as one class and as another."""
        own = self.ids[self.owners == first]
        return own[torch.isin(own, self.ids[self.owners == second])]


def no_pictures() -> Pictures:
    nothing = torch.zeros(0, dtype=torch.long)
    return Pictures(nothing, nothing, nothing, torch.zeros(0, SIDE**2, dtype=torch.uint8))


@dataclass
class Knowledge:
    """All that changes when a classifier learns, beside its learner."""

    labels: list[str] = field(default_factory=list)  # by the number of their class; "" for one that was forgotten
    lessons: list[Lesson] = field(default_factory=list)
    calibration: Calibration = field(default_factory=Calibration)
    pictures: Pictures = field(default_factory=no_pictures)
    held_rows: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.half))  # of pictures to judge by
    held_labels: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))
    held_lessons: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))

    @property
    def next_lesson(self) -> int:
        return max((lesson.number for lesson in self.lessons), default=0) + 1

    def learned_as(self, ids: Tensor, owners: Tensor) -> tuple[tuple[str, str], ...]:
        """Labels of pictures, and those under which the same pictures were learned; so it is after a rename."""
        before: dict[int, list[int]] = {}
        for identity, owner in self.pictures.places():
            before.setdefault(identity, []).append(owner)
        pairs = zip(ids.tolist(), owners.tolist(), strict=True)
        others = dict.fromkeys((own, owner) for one, own in pairs for owner in before.get(one, ()) if owner != own)
        return tuple((self.labels[own], self.labels[owner]) for own, owner in others)

    def drop_class(self, number: int) -> None:
        """Forget all that is remembered of a class."""
        self.labels[number] = ""
        self.pictures = self.pictures.only(self.pictures.owners != number)
        self._hold_only(self.held_labels != number)

    def _hold_only(self, stays: Tensor) -> None:
        self.held_rows, self.held_labels = self.held_rows[stays], self.held_labels[stays]
        self.held_lessons = self.held_lessons[stays]

    def join_class(self, number: int, into: int) -> None:
        """Remember all that was of one class as another's."""
        self.labels[number] = ""
        self.pictures = self.pictures._replace(owners=_renumbered(self.pictures.owners, number, into))
        self.held_labels = _renumbered(self.held_labels, number, into)

    def drop_lesson(self, number: int) -> set[tuple[int, int]]:
        """Forget a lesson; returns content and class of pictures that no other lesson had."""
        gone = self.pictures.lessons == number
        mine, others = self.pictures.only(gone).places(), self.pictures.only(~gone)
        self.pictures = others
        self._hold_only(self.held_lessons != number)
        self.lessons = [lesson for lesson in self.lessons if lesson.number != number]
        return mine.keys() - others.places().keys()

    def add_known(self, other: Knowledge, table: Tensor, numbers: dict[int, int]) -> None:
        """Remember another's pictures; its class c is table[c] here, its lesson n numbers[n]."""
        theirs = torch.tensor([numbers[each] for each in other.pictures.lessons.tolist()], dtype=torch.long)
        more = other.pictures._replace(owners=table[other.pictures.owners], lessons=theirs)
        self.pictures = self.pictures.with_more(more)
        if len(other.held_labels):
            held = torch.tensor([numbers[each] for each in other.held_lessons.tolist()], dtype=torch.long)
            rows = [self.held_rows, other.held_rows] if len(self.held_rows) else [other.held_rows]
            self.held_rows = torch.cat(rows)
            self.held_labels = torch.cat([self.held_labels, table[other.held_labels]])
            self.held_lessons = torch.cat([self.held_lessons, held])


def has_nonsense(value: Any) -> bool:
    """True if a tensor of a nested value has a number that is none, or infinite; minus infinity is a class unknown."""
    if isinstance(value, Tensor):
        return value.is_floating_point() and bool((value.isnan() | value.isposinf()).any())
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return any(has_nonsense(part) for part in parts)


def _renumbered(labels: Tensor, old: int, new: int) -> Tensor:
    return torch.where(labels == old, new, labels)


def small_grey(x: Tensor) -> Tensor:
    """A small grey version of raw inputs [n, C, H, W]: uint8 [n, SIDE * SIDE]."""
    grey = F.adaptive_avg_pool2d(x.float().mean(dim=1, keepdim=True), SIDE)
    return grey.round().to(torch.uint8).flatten(1)


def nearest(small: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest of others [m] for each small version [n], and how far it is, root mean square: [n] each."""
    distances, places = [], []
    for part in small.float().split(AT_ONCE):
        least = torch.cdist(part, others.float()).min(dim=1)
        distances.append(least.values / SIDE)
        places.append(least.indices)
    return torch.cat(places), torch.cat(distances)
