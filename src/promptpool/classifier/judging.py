"""How good a classifier is, from features of pictures that it has met, without the pictures.

Three kinds of methods, three answers:
- The closed form keeps the features of all that it learned and scores each example as if it had not been learned.
- Other methods that answer from features of the frozen model keep those of the pictures that were held out.
- Methods that need the picture itself (prompts, or a model that is trained) can judge held-out pictures only while the
  lesson has them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from promptpool.backbones.features import FrozenFeatures
from promptpool.classifier.calibration import MOST, Calibration, calibrated
from promptpool.classifier.lessons import Change, Knowledge
from promptpool.data.stream import Batch
from promptpool.learners.base import Learner
from promptpool.learners.closed_form import ClosedForm

WORSE = 2  # pictures that a class must lose to have suffered
NAMED = 5  # classes that suffered, of which a lesson tells


class Judged(NamedTuple):
    """Scores of examples that are as if they had not been learned."""

    scores: Tensor  # [n, C]
    labels: Tensor  # [n]
    distances: Tensor | None = None  # [n], how far each is from the nearest class, where the method can say

    @property
    def right(self) -> Tensor:
        return self.answers == self.labels

    @property
    def answers(self) -> Tensor:
        return self.scores.argmax(dim=1) if len(self.labels) else self.labels

    @property
    def accuracy(self) -> float | None:
        return float(self.right.double().mean()) if len(self.labels) else None

    def by_class(self) -> dict[int, float]:
        right = self.right
        return {c: float(right[self.labels == c].double().mean()) for c in self.labels.unique().tolist()}

    def confusion(self) -> Tensor:
        """How often examples of a class (rows) are taken for another (columns): [C, C]."""
        count = self.scores.shape[1]
        pairs = self.labels * count + self.answers
        return torch.bincount(pairs, minlength=count**2).reshape(count, count)


def kept(learner: Learner, known: Knowledge, seed: int) -> Tensor:
    """The places of the examples that are judged, at most `MOST` of those that are kept."""
    count = len(known.held_labels) if len(known.held_labels) else _learned(learner)
    if count <= MOST:
        return torch.arange(count)
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:MOST].sort().values


def judged(learner: Learner, known: Knowledge, places: Tensor, *, learned: bool) -> Judged:
    """The scores of kept examples at these places; `learned` if the closed form learned the held-out ones too."""
    held = len(known.held_labels) > 0
    if isinstance(learner, ClosedForm) and (held or _learned(learner)):
        rows, labels = (known.held_rows, known.held_labels) if held else (learner.rows, learner.labels)
        return _closed_form(learner, rows[places], labels[places], len(known.labels), as_new=held and not learned)
    if held:
        rows, labels = known.held_rows[places], known.held_labels[places]
        return Judged(score_rows(learner, rows, len(known.labels)), labels)
    return Judged(torch.zeros(0, len(known.labels)), torch.zeros(0, dtype=torch.long))


def _closed_form(learner: ClosedForm, rows: Tensor, labels: Tensor, class_count: int, *, as_new: bool) -> Judged:
    """The scores of examples; unless they are new to the learner, each as if it had not been learned."""
    if not as_new:
        several = learner.sums.counts[labels] > 1  # the only one of its class says nothing
        rows, labels = rows[several], labels[several]
    scores = seen_only(learner, learner.score(rows)) if as_new else learner.leave_one_out(rows, labels)
    far = None if learner.gaussian is None else learner.distance(rows, None if as_new else labels)
    return Judged(scores[:, :class_count], labels, far)


def _learned(learner: Learner) -> int:
    return len(learner.labels) if isinstance(learner, ClosedForm) else 0


@torch.no_grad()
def score_rows(learner: Learner, rows: Tensor, class_count: int) -> Tensor:
    """The scores of examples of which only the features are there: [n, C]."""
    store = learner.frozen
    learner.frozen = FrozenFeatures(store.backbone, store.view, store.readout)
    try:
        ids = torch.arange(len(rows))
        learner.frozen.put(ids.tolist(), rows.float())
        scores = learner.eval().logits(Batch(torch.zeros(len(rows), 0), ids, ids).to(learner.device)).cpu()
    finally:
        learner.frozen = store
    return seen_only(learner, scores[:, :class_count])


def seen_only(learner: Learner, scores: Tensor) -> Tensor:
    """Scores with minus infinity for classes that are not known."""
    missing = [number not in learner.seen for number in range(scores.shape[1])]
    return scores.masked_fill(torch.tensor(missing, dtype=torch.bool), -torch.inf)


def calibration(found: Judged, known_classes: int) -> Calibration:
    """How sure answers are; "unknown" is only an answer where examples of every class say how far known ones lie."""
    if len(set(found.labels.tolist())) < 2:
        return Calibration()
    return calibrated(found.scores, found.labels, found.distances, whole=len(found.by_class()) >= known_classes)


def suffered(before: Judged, after: Judged, labels: list[str]) -> tuple[Change, ...]:
    """The classes that lost most between two judgements of the same examples."""
    was, now, sizes = before.by_class(), after.by_class(), torch.bincount(before.labels).tolist()
    changes = [Change(labels[c], was[c], now[c]) for c in sorted(was.keys() & now.keys())]
    numbers = {labels[c]: size for c, size in enumerate(sizes)}
    lost = [each for each in changes if (each.before - each.after) * numbers[each.label] > WORSE - 0.5]
    return tuple(sorted(lost, key=lambda change: change.after - change.before)[:NAMED])
