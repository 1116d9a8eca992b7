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
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from promptpool.backbones.base import Backbone
from promptpool.backbones.features import FrozenFeatures
from promptpool.classifier.answers import Asked, Prediction, answered, ask_rows
from promptpool.classifier.classifier import ContinualClassifier
from promptpool.classifier.pictures import Picture
from promptpool.data.stream import Batch
from promptpool.learners.base import Learner
from promptpool.learners.closed_form import ClosedForm
from promptpool.learners.prompted import PromptedLearner

SIMILAR = 3  # learned pictures that an answer shows, where small versions of them are kept


class Wish(NamedTuple):
    """What is asked about one picture."""

    name: str
    top: int = 5
    sure: float | None = None


class PassingFeatures(FrozenFeatures):
    """Features that are computed for whoever asks, all of a batch in one pass; those of the last batch are kept.

    A store computes in chunks of eight, so that a feature has the same bits in every run. Nobody who asks a server
    needs that, and one picture alone would take the time of eight.
    """

    last: tuple[Tensor, Tensor] | None = None  # inputs, and what was read of them

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Tensor:
        known = self.last
        if known is None or known[0] is not batch.x:
            self.last = known = batch.x, self.backbone.read(self.view.plain(batch.x), self.readout)
        return known[1]

    @torch.no_grad()
    def with_tokens(self, batch: Batch, blocks: int = 0) -> tuple[Tensor, Tensor]:
        if not isinstance(self.backbone, Backbone):
            raise ValueError(f"{type(self.backbone).__name__} has no tokens")
        tokens = self.backbone.begin(self.backbone.embed(self.view.plain(batch.x)), blocks)
        self.last = batch.x, self.backbone.encode(tokens, rows=1, first=blocks)[:, 0]
        return self.last[1], tokens


Reads = TypeVar("Reads", ContinualClassifier, FrozenFeatures)


def ready_to_answer(classifier: ContinualClassifier) -> ContinualClassifier:
    """The classifier itself, as it answers single pictures quickly."""
    _read_through(classifier.learner, PassingFeatures)
    classifier.holds_features = True
    classifier.learner.eval()
    return classifier


def copy_to_change(classifier: ContinualClassifier) -> ContinualClassifier:
    """A classifier that can learn while this one answers; the frozen backbone is one for both."""
    copied = with_backbone(classifier, classifier.backbone)
    _read_through(copied.learner, FrozenFeatures)
    copied.holds_features = False
    return copied


def with_backbone(whole: Reads, backbone: nn.Module) -> Reads:
    """A copy of a classifier, or of a store of features, in which another module stands for the backbone."""
    return copy.deepcopy(whole, {id(whole.backbone): backbone})


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
    learner, nothing = classifier.learner, torch.zeros(len(images), dtype=torch.long)
    return learner.read(Batch(images, nothing, nothing)) if isinstance(learner, ClosedForm) else images


def answers(classifier: ContinualClassifier, rows: Tensor, wishes: Sequence[Wish]) -> list[Prediction]:
    """One answer for each row of `encoded`."""
    found: list[Prediction] = []
    for part, part_wishes in _parts(classifier.learner, rows, wishes):
        asked = _asked(classifier, part)
        for place, wish in enumerate(part_wishes):
            picture, one = Picture(wish.name, part[place]), _only(asked, slice(place, place + 1))
            found += answered([picture], one, classifier.known, top=wish.top, sure=wish.sure)
    return found


def _parts(learner: Learner, rows: Tensor, wishes: Sequence[Wish]) -> list[tuple[Tensor, Sequence[Wish]]]:
    """All at once; one by one where prompts are voted for, so that pictures of different people hold no vote."""
    if isinstance(learner, PromptedLearner) and learner.pool.vote:
        return [(rows[place : place + 1], [wish]) for place, wish in enumerate(wishes)]
    return [(rows, wishes)]


def _asked(classifier: ContinualClassifier, rows: Tensor) -> Asked:
    learner, similar = classifier.learner, SIMILAR if classifier.thumbnails else 0
    if isinstance(learner, ClosedForm):
        return ask_rows(learner, rows, classifier.known, similar=similar)
    return classifier.ask(rows, similar=similar)


def _only(asked: Asked, which: slice) -> Asked:
    """What was said of some of the pictures."""
    far = None if asked.far is None else asked.far[which]
    prompts = None if asked.prompts is None else asked.prompts[which]
    return Asked(asked.scores[which], far, prompts, None if asked.similar is None else asked.similar[which])
