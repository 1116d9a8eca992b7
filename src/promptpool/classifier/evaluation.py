"""What a classifier's answers to pictures with labels are worth: counts, confusions, and how far confidence holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from promptpool.classifier.calibration import calibration_error
from promptpool.classifier.looking import Seen
from promptpool.classifier.pictures import UNKNOWN
from promptpool.data.own.class_folders import natural

BINS = 10


class ClassResult(NamedTuple):
    """How the pictures of one label were answered."""

    label: str
    known: bool  # to the classifier; where it is not, only "unknown" could be right
    pictures: int
    right: int
    refused: int  # answered with "unknown"
    taken_for: str  # the wrong answer that came most often; "" if none did
    times: int


class Bin(NamedTuple):
    """The answers whose confidence lies in one stretch."""

    low: float
    high: float
    answers: int
    confidence: float  # their mean; that of the stretch where there are none
    right: float  # the share that is right


@dataclass(frozen=True)
class Evaluation:
    """All that is told of answers; places are rows of what was seen."""

    classes: tuple[ClassResult, ...]  # in natural order, known ones first
    confusion: dict[tuple[str, str], int]  # by label and answer
    answers: tuple[str, ...]  # the columns of the confusion matrix: known labels, others that were answered, unknown
    wrong: tuple[int, ...]  # pictures with another answer than their label, the surest first
    refused: tuple[int, ...]  # pictures of known classes that were answered with "unknown"
    bins: tuple[Bin, ...]  # of pictures of known classes that got an answer
    error: float | None  # the expected calibration error over these; None without any
    learned: int  # pictures that the classifier has learned

    @property
    def pictures(self) -> int:
        return sum(each.pictures for each in self.classes)

    @property
    def right(self) -> int:
        return sum(each.right for each in self.classes)

    @property
    def of_known(self) -> int:
        return sum(each.pictures for each in self.classes if each.known)

    @property
    def strange(self) -> tuple[ClassResult, ...]:
        """The classes that the classifier does not know."""
        return tuple(each for each in self.classes if not each.known)


def evaluated(seen: Seen) -> Evaluation:
    """Count the answers to pictures with labels."""
    answers = [seen.answer(row) for row in range(len(seen))]
    confusion = Counter(zip(seen.labels, answers, strict=True))
    labels = sorted(set(seen.labels), key=lambda label: (label not in seen.classes, natural(label)))
    known = [label for label in labels if label in seen.classes]
    others = sorted({*answers} - {*known, UNKNOWN}, key=natural)
    confidence = seen.shares.max(dim=1).values
    wrong = [row for row, answer in enumerate(answers) if answer not in (seen.labels[row], UNKNOWN)]
    answered = [row for row, answer in enumerate(answers) if answer != UNKNOWN and seen.labels[row] in seen.classes]
    right = torch.tensor([answers[row] == seen.labels[row] for row in answered], dtype=torch.bool)
    return Evaluation(
        classes=tuple(_class(label, confusion, label in seen.classes) for label in labels),
        confusion=dict(confusion),
        answers=(*known, *others, UNKNOWN),
        wrong=tuple(sorted(wrong, key=lambda row: -float(confidence[row]))),
        refused=tuple(row for row, each in enumerate(answers) if each == UNKNOWN and seen.labels[row] in seen.classes),
        bins=tuple(_bins(confidence[answered], right)),
        error=calibration_error(confidence[answered], right, BINS) if answered else None,
        learned=int((seen.owners >= 0).sum()),
    )


def mixed_up(found: Evaluation, most: int) -> list[tuple[str, str, int]]:
    """Labels with the wrong answers that were given to them, the most frequent first."""
    pairs = [(label, answer, count) for (label, answer), count in found.confusion.items()]
    wrong = [pair for pair in pairs if pair[1] not in (pair[0], UNKNOWN)]
    return sorted(wrong, key=lambda pair: (-pair[2], natural(pair[0]), natural(pair[1])))[:most]


def _class(label: str, confusion: Counter[tuple[str, str]], known: bool) -> ClassResult:
    own = {answer: count for (given, answer), count in confusion.items() if given == label}
    wrong = {answer: count for answer, count in own.items() if answer not in (label, UNKNOWN)}
    worst = min(wrong, key=lambda answer: (-wrong[answer], natural(answer))) if wrong else ""
    right = own.get(label, 0) if known else 0
    return ClassResult(label, known, sum(own.values()), right, own.get(UNKNOWN, 0), worst, wrong.get(worst, 0))


def _bins(confidence: torch.Tensor, right: torch.Tensor) -> Iterable[Bin]:
    place = (confidence * BINS).long().clamp(0, BINS - 1)
    for number in range(BINS):
        here, low, high = place == number, number / BINS, (number + 1) / BINS
        if here.any():
            yield Bin(low, high, int(here.sum()), float(confidence[here].mean()), float(right[here].double().mean()))
        else:
            yield Bin(low, high, 0, (low + high) / 2, 0.0)
