"""What can be told of a classifier beside its answers; each is worked out once for a version."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open

from promptpool.classifier import files
from promptpool.classifier.calibration import MOST
from promptpool.classifier.classifier import ContinualClassifier
from promptpool.classifier.lessons import Lesson
from promptpool.learners.closed_form import ClosedForm
from promptpool.learners.prompted import PromptedLearner

DRAWINGS = (
    "This classifier looks through the small model of the package, which knows drawn characters only. "
    "For photographs begin another one with --backbone facebook/dinov2-small."
)
SUFFERED = 0.01  # a class whose share of right answers fell by more is named
MOST_NAMED = 10


class Confusion(NamedTuple):
    """How often pictures of a class (rows) are taken for each class (columns)."""

    labels: list[str]
    counts: list[list[int]]


class Facts:
    """Of one version, which does not change."""

    def __init__(self, classifier: ContinualClassifier) -> None:
        self.classifier = classifier

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many pictures of each class were learned."""
        return self.classifier.counts()

    @cached_property
    def accuracies(self) -> dict[str, float]:
        """The share of a class's learned pictures that are right, each as if it had not been learned."""
        return self.classifier.accuracies() if self.classifier.labels else {}

    @cached_property
    def confusion(self) -> Confusion | None:
        """Of learned pictures, each as if it had not been learned; None where that cannot be known."""
        learner, known = self.classifier.learner, self.classifier.known
        if not isinstance(learner, ClosedForm) or learner.keep != "features" or len(learner.labels) == 0:
            return None
        lots = torch.Generator().manual_seed(self.classifier.seed)
        kept = torch.randperm(len(learner.labels), generator=lots)[:MOST]
        kept = kept[learner.sums.counts[learner.labels[kept]] > 1]  # the only one of a class says nothing
        numbers = [number for number, label in enumerate(known.labels) if label]
        table = torch.zeros(len(known.labels), len(known.labels), dtype=torch.long)
        if len(kept):
            labels = learner.labels[kept]
            answers = learner.leave_one_out(learner.rows[kept], labels)[:, : len(table)].argmax(dim=1)
            table.index_put_((labels, answers), torch.tensor(1), accumulate=True)
        return Confusion([known.labels[number] for number in numbers], table[numbers][:, numbers].tolist())

    @property
    def exact(self) -> bool:
        """True if a class can be taken out."""
        return isinstance(self.classifier.learner, ClosedForm) and self.classifier.learner.keep == "features"

    @property
    def prompt_counts(self) -> list[int] | None:
        """How often each prompt was chosen in training; None without prompts."""
        learner = self.classifier.learner
        return learner.pool.counts.tolist() if isinstance(learner, PromptedLearner) else None


def lesson_report(lesson: Lesson, version: int, before: Facts, after: Facts) -> dict[str, Any]:
    """What a lesson did, as the contract of the server has it."""
    fell = [
        {"label": label, "before": share, "after": after.accuracies[label]}
        for label, share in before.accuracies.items()
        if label in after.accuracies and after.accuracies[label] < share - SUFFERED
    ]
    fell.sort(key=lambda each: each["after"] - each["before"])  # type: ignore[operator]
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
        "suffered": fell[:MOST_NAMED],
        "doubtful": [{"picture": name, "label": own, "looks_like": other} for name, own, other in lesson.doubtful],
        "duplicates": lesson.duplicates,
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
    lessons, labels = header["lessons"], header["labels"]
    if lessons and (before is None or len(lessons) > len(before["lessons"])):
        last = lessons[-1]
        new = f", {_counted(len(last['new']), 'new class', 'new classes')}" if last["new"] else ""
        return f"lesson {last['number']}: {_counted(sum(last['counts'].values()), 'picture', 'pictures')}{new}"
    if before is None:
        return "nothing was learned yet"
    pairs = list(zip(before["labels"], labels, strict=False))
    gone = [old for old, new in pairs if old and not new]
    renamed = [f"{old} is called {new}" for old, new in pairs if old and new and old != new]
    return "; ".join([*(f"without {label}" for label in gone), *renamed]) or "saved again"


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"
