"""The results after an experience."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from promptpool.metrics import Matrix

COUNTED_CLASSES = 1_000  # of a stream with more, the last record alone has counts of each class


class ClassCount(NamedTuple):
    """How often the test images of a class are predicted right, and the class that they are most often taken for."""

    label: int
    correct: int
    total: int
    taken_for: int | None = None  # the lowest of several; None if every image is right
    times: int = 0


@dataclass(frozen=True)
class Record:
    """Counts of right predictions by test set, None for one that was not tried, mostly as it has no class seen yet.

    Of a stream with more than `COUNTED_CLASSES` classes only the last record has `by_class`, which is the one that a
    report shows: a thousand records of twenty thousand classes would take gigabytes.
    """

    experience: int
    step: int  # steps taken since the stream began
    classes_seen: int
    loss: float | None  # mean over the last epoch, None for a learner without a loss
    correct: tuple[int | None, ...]
    total: tuple[int, ...]
    correct_given_task: tuple[int | None, ...] | None = None  # predicting among each test set's own classes
    facts: dict[str, Any] = field(default_factory=dict)  # the learner's diagnostics, and what a report must know
    by_class: tuple[ClassCount, ...] | None = None  # over all test sets together; records of earlier versions have none

    @property
    def accuracy(self) -> tuple[float | None, ...]:
        return tuple(None if c is None else c / n for c, n in zip(self.correct, self.total, strict=True))

    @property
    def accuracy_given_task(self) -> float | None:
        """The mean accuracy over test sets with the task given; None if that was not measured."""
        pairs = zip(self.correct_given_task or (), self.total, strict=self.correct_given_task is not None)
        shares = [right / total for right, total in pairs if right is not None]
        return statistics.fmean(shares) if shares else None

    def to_json(self) -> str:
        """One line; the same record always gives the same bytes."""
        return self._line

    @cached_property
    def _line(self) -> str:
        """Made once, as the files with all records are written anew after every experience."""
        values = asdict(self)
        if self.by_class is None:  # a record of an earlier version keeps its bytes
            del values["by_class"]
        return json.dumps(values, sort_keys=True)

    @classmethod
    def from_json(cls, line: str) -> Record:
        values = json.loads(line)
        for name in ("correct", "total", "correct_given_task"):
            values[name] = None if values[name] is None else tuple(values[name])
        if values.get("by_class") is not None:
            values["by_class"] = tuple(_class_count(row) for row in values["by_class"])
        return cls(**values)


def _class_count(row: Any) -> ClassCount:
    """A row of a file, if it can be one."""
    count = ClassCount(*row)
    numbers = [*count[:3], 0 if count.taken_for is None else count.taken_for, count.times]
    whole = all(type(value) is int and value >= 0 for value in numbers)
    if not whole or not 0 < count.total >= count.correct + count.times:
        raise ValueError(f"{row}: no counts of a class")
    return count


def accuracy_matrix(records: Sequence[Record], *, task_given: bool = False) -> Matrix:
    """R[t, i]: the accuracy on test set i after experience t, NaN where it was not measured."""
    rows = []
    for record in records:
        correct = record.correct_given_task if task_given else record.correct
        if correct is None:
            raise ValueError("accuracy with the task given was not measured: set task_given in the plan")
        pairs = zip(correct, record.total, strict=True)
        rows.append([np.nan if right is None else right / total for right, total in pairs])
    return np.array(rows, dtype=np.float64)
