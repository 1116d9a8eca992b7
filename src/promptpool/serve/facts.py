"""What can be told of a classifier beside its answers; each is worked out once for a version."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from promptpool.classifier import files
from promptpool.classifier.classifier import ContinualClassifier
from promptpool.classifier.lessons import Lesson
from promptpool.learners.closed_form import ClosedForm
from promptpool.serve.answering import copy_to_change

DRAWINGS = (
    "This classifier looks through the small model of the package, which knows drawn characters only. "
    "For photographs begin another one with --backbone facebook/dinov2-small."
)


class Confusion(NamedTuple):
    """How often pictures of a class (rows) are taken for each class (columns)."""

    labels: list[str]
    counts: list[list[int]]


class Facts:
    """Of one version, which does not change."""

    def __init__(self, classifier: ContinualClassifier) -> None:
        self.classifier = classifier

    @cached_property
    def _judge(self) -> ContinualClassifier:
        """Who says how good it is: methods other than the closed form put other features in place for that."""
        exact = isinstance(self.classifier.learner, ClosedForm)
        return self.classifier if exact else copy_to_change(self.classifier)

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many pictures of each class were learned."""
        return self.classifier.counts()

    @cached_property
    def accuracies(self) -> dict[str, float]:
        """The share of a class's pictures that are right, each as if it had not been learned."""
        return self._judge.accuracies()

    @cached_property
    def confusion(self) -> Confusion | None:
        """Of pictures as if they had not been learned; None where that cannot be known."""
        found = self._judge.confusion()
        return None if found is None else Confusion(list(found[0]), found[1].tolist())

    @property
    def exact(self) -> bool:
        """True if a class can be taken out."""
        return isinstance(self.classifier.learner, ClosedForm) and self.classifier.learner.keep == "features"


def lesson_report(lesson: Lesson, version: int) -> dict[str, Any]:
    """What a lesson did, as the contract of the server has it."""
    return {
        "lesson": lesson.number,
        "version": version,
        "pictures": lesson.pictures,
        "new": list(lesson.new),
        "known": [label for label in lesson.counts if label not in lesson.new],
        "held_out": lesson.held_out,
        "accuracy": lesson.accuracy,
        "before": lesson.before,
        "after": lesson.after,
        "suffered": [change._asdict() for change in lesson.suffered],
        "doubtful": [{"picture": name, "label": own, "looks_like": other} for name, own, other in lesson.doubtful],
        "duplicates": lesson.duplicates,
        "known_as": [{"label": own, "learned_as": other} for own, other in lesson.known_as],
        "skipped": [{"name": name, "error": reason} for name, reason in lesson.skipped],
        "seconds": lesson.seconds,
    }


def history(folder: Path) -> list[dict[str, Any]]:
    """The versions that are kept, newest first, and what made each of them."""
    found: list[dict[str, Any]] = []
    before: dict[str, Any] | None = None
    for number in files.versions(folder):
        path = folder / files.VERSIONS / f"{number:04}.safetensors"
        try:
            with safe_open(path, framework="np") as file:
                header = json.loads((file.metadata() or {})["promptpool"])
            when = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
        except (SafetensorError, OSError, KeyError, ValueError):
            continue  # one that was never finished
        found.append({"version": number, "when": when, "what": _difference(before, header)})
        before = header
    return found[::-1]


def _difference(before: dict[str, Any] | None, header: dict[str, Any]) -> str:
    """What happened between two versions."""
    given = {each["number"]: each for each in header["lessons"]}
    earlier = {each["number"] for each in before["lessons"]} if before else set[int]()
    if new := sorted(given.keys() - earlier):
        last = given[new[-1]]
        classes = f", {_counted(len(last['new']), 'new class', 'new classes')}" if last["new"] else ""
        return f"lesson {last['number']}: {_counted(sum(last['counts'].values()), 'picture', 'pictures')}{classes}"
    if before is None:
        return "nothing was learned yet"
    if gone := sorted(earlier - given.keys()):
        return f"without lesson {', '.join(map(str, gone))}"
    pairs = list(zip(before["labels"], header["labels"], strict=False))
    renamed = [f"{old} is called {new}" for old, new in pairs if old and new and old != new]
    return "; ".join([*(f"without {old}" for old, new in pairs if old and not new), *renamed]) or "saved again"


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"
