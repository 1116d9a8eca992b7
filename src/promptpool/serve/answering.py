"""From pictures to answers in two steps, so that the two can be done in different places.

    rows = encoded(classifier, images)         the frozen model: nearly all of the work
    answers(classifier, rows, wishes)          what was learned: small, and new with every version

With the closed form rows are those of `ClosedForm.read`, and `is_frozen` says that they are the same for all versions:
many copies of the encoder need not hear of a new one. Other methods look at pictures with what they learned, and their
rows are the pictures themselves.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from promptpool.backbones.features import FrozenFeatures
from promptpool.classifier.answers import Prediction
from promptpool.classifier.classifier import ContinualClassifier
from promptpool.classifier.pictures import UNKNOWN
from promptpool.data.stream import Batch
from promptpool.learners.base import Learner
from promptpool.learners.closed_form import ClosedForm
from promptpool.learners.l2p import L2P


class Wish(NamedTuple):
    """What is asked about one picture."""

    name: str
    top: int = 5
    sure: float | None = None


class Answer(NamedTuple):
    """A prediction, and the prompts that were chosen for it, nearest first."""

    prediction: Prediction
    prompts: tuple[int, ...] | None = None


class PassingFeatures(FrozenFeatures):
    """Features that are computed for whoever asks, all of a batch in one pass, and not kept.

    A store computes in chunks of eight, so that a feature has the same bits in every run. Nobody who asks a server
    needs that, and one picture alone would take the time of eight.
    """

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Tensor:
        return self.backbone.read(self.view.plain(batch.x), self.readout)


def ready_to_answer(classifier: ContinualClassifier) -> ContinualClassifier:
    """The classifier itself, as it answers single pictures quickly."""
    _read_through(classifier.learner, PassingFeatures)
    classifier.learner.eval()
    return classifier


def copy_to_change(classifier: ContinualClassifier) -> ContinualClassifier:
    """A classifier that can learn while this one answers; the frozen backbone is one for both."""
    copied = copy.deepcopy(classifier, {id(classifier.backbone): classifier.backbone})
    _read_through(copied.learner, FrozenFeatures)
    return copied


def _read_through(learner: Learner, store: type[FrozenFeatures]) -> None:
    if learner.reads_frozen:
        known = learner.frozen
        learner.frozen = store(known.backbone, known.view, known.readout)
    if isinstance(learner, ClosedForm) and learner.prompted is not None:
        known = learner.prompted
        learner.prompted = store(known.backbone, known.view, known.readout)


def is_frozen(classifier: ContinualClassifier) -> bool:
    """True if `encoded` gives the same for every version of this classifier."""
    return isinstance(classifier.learner, ClosedForm) and classifier.learner.adapt == "none"


@torch.no_grad()
def encoded(classifier: ContinualClassifier, images: Tensor) -> Tensor:
    """What `answers` needs of pictures, uint8 [n, 3, size, size]: rows [n, d] with the closed form, else themselves."""
    learner = classifier.learner
    return learner.read(_batch(images)) if isinstance(learner, ClosedForm) else images


@torch.no_grad()
def answers(classifier: ContinualClassifier, rows: Tensor, wishes: Sequence[Wish]) -> list[Answer]:
    """One answer for each row of `encoded`."""
    scores, far, prompts = _scored(classifier, rows)
    found = []
    for place, wish in enumerate(wishes):
        prediction = _prediction(classifier, scores[place], bool(far[place]), wish)
        found.append(Answer(prediction, None if prompts is None else tuple(prompts[place].tolist())))
    return found


def _scored(classifier: ContinualClassifier, rows: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """The score of each class [n, C], True for rows like no class [n], and the chosen prompts [n, N] if there are."""
    learner, known = classifier.learner, classifier.known
    far, prompts = torch.zeros(len(rows), dtype=torch.bool), None
    if isinstance(learner, ClosedForm):
        scores = learner.score(rows)
        if known.calibration.farthest is not None and learner.gaussian is not None:
            far = learner.distance(rows) > known.calibration.farthest
    elif isinstance(learner, L2P):
        alone = rows.split(1 if learner.pool.vote else len(rows))  # pictures of different people hold no vote
        parts = [_prompted(learner, _batch(part).to(learner.device)) for part in alone]
        scores, prompts = (torch.cat(each) for each in zip(*parts, strict=True))
    else:
        scores = learner.logits(_batch(rows).to(learner.device))
    scores = scores.cpu()[:, : len(known.labels)]
    missing = torch.tensor([number not in learner.seen for number in range(scores.shape[1])], dtype=torch.bool)
    return scores.masked_fill(missing, -torch.inf), far, prompts


def _prompted(learner: L2P, batch: Batch) -> tuple[Tensor, Tensor]:
    features, chosen = learner.prompted(batch, learner.inputs(batch))
    return learner.head(features), chosen.indices


def _prediction(classifier: ContinualClassifier, scores: Tensor, is_far: bool, wish: Wish) -> Prediction:
    known = classifier.known
    least = 0.0 if wish.sure is None else known.calibration.least_confidence(wish.sure)
    shares = known.calibration.probabilities(scores[None])[0]
    places = [place for place in shares.argsort(descending=True, stable=True).tolist() if known.labels[place]]
    best = tuple((known.labels[place], float(shares[place])) for place in places[: wish.top])
    unknown = is_far or least is None or best[0][1] < least
    return Prediction(wish.name, UNKNOWN if unknown else best[0][0], best[0][1], best)


def _batch(images: Tensor) -> Batch:
    nothing = torch.zeros(len(images), dtype=torch.long)
    return Batch(images, nothing, nothing)
