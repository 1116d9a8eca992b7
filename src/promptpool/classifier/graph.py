"""A classifier as one function of tensors, which can be traced.

    pixels           uint8 [n, 3, S, S], S the size that the backbone reads
    logits           a score for each class that is known: [n, C]
    probabilities    softmax(logits / T), T the temperature that calibration found: [n, C]
    distance         how far a picture is from every class, where the closed form can say it: [n]

The numbers are those of `ContinualClassifier.predict` up to rounding. What learners do beside, such as keeping features
and counting chosen prompts, is left out. Classes that were forgotten have no column.

A graph is what is read of the backbone, and a head (`heads.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from promptpool.backbones.base import FeatureExtractor, Readout
from promptpool.classifier.heads import Linear, Nearest, Solved
from promptpool.data.views import ImageView
from promptpool.learners import LEARNERS
from promptpool.learners.base import Learner
from promptpool.learners.bic import BiC
from promptpool.learners.closed_form import ClosedForm
from promptpool.learners.der import DER
from promptpool.learners.er import ER
from promptpool.learners.ewc import EWC
from promptpool.learners.ewc_online import OnlineEWC
from promptpool.learners.gdumb import GDumb
from promptpool.learners.l2p import L2P, encoded
from promptpool.learners.linear_head import LinearHead
from promptpool.learners.lwf import LwF
from promptpool.learners.nearest_mean import NearestMean
from promptpool.learners.ranpac import RanPAC

if TYPE_CHECKING:
    from promptpool.classifier.classifier import ContinualClassifier


class Graph(nn.Module):
    """Pixels to logits, probabilities and, if the head has one, the distance; all in single precision."""

    def __init__(self, view: ImageView, read: nn.Module, head: nn.Module, temperature: float) -> None:
        super().__init__()
        self.view, self.read, self.head, self.temperature = view, read, head, temperature

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        scores, *distance = self.head(self.read(self.view.scaled(pixels.float())))
        probabilities = torch.softmax(scores.double() / self.temperature, dim=1)
        return tuple(each.float() for each in (scores, probabilities, *distance))


class Read(nn.Module):
    """What a readout has of one or more backbones, side by side: [n, d]."""

    def __init__(self, backbones: Sequence[FeatureExtractor], readout: Readout) -> None:
        super().__init__()
        self.backbones, self.readout = nn.ModuleList(backbones), readout

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([backbone.read(x, self.readout) for backbone in self.backbones], dim=1)  # type: ignore[operator]


class ReadPrompts(nn.Module):
    """L2P's feature: the mean of the rows of the prompts that the frozen model's query chooses: [n, D]."""

    def __init__(self, learner: L2P) -> None:
        super().__init__()
        self.backbone, self.frozen, self.pool = learner.backbone, learner.frozen.backbone, learner.pool
        self.order, self.position, self.enter = learner.order, learner.position, learner.enter

    def forward(self, x: Tensor) -> Tensor:
        prompts = self.pool.select(self.frozen.features(x)).prompts
        tokens = self.backbone.begin(self.backbone.embed(x), self.enter)
        return encoded(self.backbone, tokens, prompts, order=self.order, position=self.position, enter=self.enter)


class Parts(NamedTuple):
    """How a method reads, and what its head is for the classes of these numbers."""

    read: Callable[[Any], nn.Module]
    head: Callable[[Any, list[int]], nn.Module]


def _read(learner: Learner) -> nn.Module:
    return Read([learner.backbone], learner.readout)


def _read_both(learner: ClosedForm) -> nn.Module:
    prompted = [] if learner.prompted is None else [learner.prompted.backbone]
    return Read([learner.backbone, *prompted], learner.readout)


def _read_prompts(learner: L2P) -> nn.Module:
    if learner.vote:
        raise ValueError(
            f"vote = {learner.vote}: groups of pictures choose prompts together, and ONNX answers each by itself; "
            "only vote = 0 can be exported, which l2p has"
        )
    return ReadPrompts(learner)


def _linear(learner: Learner, known: list[int]) -> nn.Module:
    return Linear(learner.head.weight[known], learner.head.bias[known])


def _corrected(learner: BiC, known: list[int]) -> nn.Module:
    scale, shift = learner.scale[known], learner.shift[known]
    weight, bias = learner.head.weight[known], learner.head.bias[known]
    return Linear(weight * scale[:, None], bias * scale + shift)


def _projected(learner: RanPAC, known: list[int]) -> nn.Module:
    directions = learner.directions if learner.projections else None
    return Linear(learner.head.weight[known], learner.head.bias[known], directions)


def _means(learner: NearestMean, known: list[int]) -> nn.Module:
    means = learner.sums[known] / learner.counts[known].clamp(min=1)[:, None]
    return Nearest(means.float(), learner.distance)


PARTS: dict[type[Learner], Parts] = {
    BiC: Parts(_read, _corrected),
    ClosedForm: Parts(_read_both, Solved),
    DER: Parts(_read, _linear),
    ER: Parts(_read, _linear),
    EWC: Parts(_read, _linear),
    GDumb: Parts(_read, _linear),
    L2P: Parts(_read_prompts, _linear),
    Learner: Parts(_read, _linear),
    LinearHead: Parts(_read, _linear),
    LwF: Parts(_read, _linear),
    NearestMean: Parts(_read, _means),
    OnlineEWC: Parts(_read, _linear),
    RanPAC: Parts(_read, _projected),
}


@torch.no_grad()
def graph_of(classifier: ContinualClassifier) -> Graph:
    """The graph of a classifier as it now is, on the CPU and with nothing in it that the classifier holds."""
    learner = classifier.learner
    if type(learner) not in PARTS:
        can = [name for name, make in LEARNERS.items() if _class_of(make) in PARTS]
        raise ValueError(f"method = {classifier.method!r}: cannot be exported to ONNX; {', '.join(can)} can")
    known = known_classes(classifier)
    if not known:
        raise ValueError("nothing was learned yet: learn first")
    parts, temperature = PARTS[type(learner)], classifier.known.calibration.temperature
    graph = Graph(classifier.view, parts.read(learner), parts.head(learner, known), temperature)
    return copy.deepcopy(graph).cpu().eval().requires_grad_(False)


def known_classes(classifier: ContinualClassifier) -> list[int]:
    """The classes that can be answers, by their numbers; those that were forgotten cannot."""
    seen = set(classifier.learner.seen)
    return [number for number, label in enumerate(classifier.known.labels) if label and number in seen]


def _class_of(make: Callable[..., Learner]) -> object:
    return make.func if isinstance(make, partial) else make
