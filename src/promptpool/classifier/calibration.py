"""How sure an answer is, from the scores of examples that were not learned from.

    p_c = exp(score_c / T) / sum over known classes       T with the least negative log-likelihood (Guo et al., 2017)
    unknown                                                farther than all but a twentieth of the examples, or where
                                                           there are no distances, less sure than those
    sure                                                   the least p with which enough answers were right

Where the examples come from: `judging.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

TEMPERATURES = tuple(10 ** (power / 20) for power in range(-60, 61))
KEPT = 0.95  # the share of known pictures that "unknown" must not refuse
MOST = 5000  # examples that are looked at


@dataclass(frozen=True)
class Calibration:
    """What was found out about scores."""

    temperature: float = 1.0
    farthest: float | None = None  # the distance beyond which a picture is like no known class
    least: float | None = None  # or the confidence below which it is, where there are no distances
    confidences: tuple[float, ...] = ()  # of the examples, the surest first
    right: tuple[bool, ...] = ()  # and whether that answer was right

    def probabilities(self, scores: Tensor) -> Tensor:
        """Of scores [n, C], minus infinity for a class that is not known: [n, C]."""
        return torch.softmax(scores.double() / self.temperature, dim=1)

    def least_confidence(self, sure: float) -> float | None:
        """The least confidence above which the share `sure` of answers is right; None if that cannot be said.

        One example that was right and one that was wrong are added to those that were counted, so that few examples
        make nobody sure.
        """
        least, correct = None, 0
        for number, (confidence, is_right) in enumerate(zip(self.confidences, self.right, strict=True), start=1):
            correct += is_right
            if (correct + 1) / (number + 2) >= sure:
                least = confidence
        return least

    def is_strange(self, confidence: float, distance: float | None) -> bool:
        """True if a picture is like none that was learned, as far as these numbers say."""
        if self.farthest is not None and distance is not None:
            return distance > self.farthest
        return self.least is not None and confidence < self.least

    @property
    def error(self) -> float | None:
        """The expected calibration error, in ten bins of equal width; None without examples."""
        return calibration_error(torch.tensor(self.confidences), torch.tensor(self.right)) if self.right else None


def calibrated(scores: Tensor, labels: Tensor, distances: Tensor | None = None, *, whole: bool = True) -> Calibration:
    """The calibration that examples [n, C] ask for; nothing is changed where there are none.

    Unless they are of the `whole` of the classes, they do not say how unsure an answer for a known picture may be.
    """
    usable = scores.gather(1, labels[:, None])[:, 0].isfinite()  # the only example of its class says nothing
    scores, labels = scores[usable].double(), labels[usable]
    if len(labels) == 0 or len(scores[0].isfinite().nonzero()) < 2:
        return Calibration()
    losses = {each: _loss(scores[:, scores[0].isfinite()] / each, _among(scores[0], labels)) for each in TEMPERATURES}
    temperature = min(losses, key=losses.__getitem__)
    confidence, answer = torch.softmax(scores / temperature, dim=1).max(dim=1)
    order = confidence.argsort(descending=True, stable=True)
    farthest = least = None
    if distances is not None:
        farthest = float(distances[usable].sort().values[math.ceil(KEPT * len(labels)) - 1])
    elif whole:
        least = float(confidence[order[math.ceil(KEPT * len(labels)) - 1]])
    return Calibration(
        temperature,
        farthest,
        least,
        tuple(confidence[order].tolist()),
        tuple((answer == labels)[order].tolist()),
    )


def _among(scores: Tensor, labels: Tensor) -> Tensor:
    """Labels as places among the known classes."""
    known = scores.isfinite().nonzero().flatten()
    return torch.searchsorted(known, labels)


def _loss(scores: Tensor, labels: Tensor) -> float:
    """The negative log-likelihood, as if one example more had been of another class (after Platt, 1999).

    Without it examples that are all right would make every answer entirely sure.
    """
    return float(torch.nn.functional.cross_entropy(scores, labels, label_smoothing=1 / (len(labels) + 2)))


def calibration_error(confidence: Tensor, right: Tensor, bins: int = 10) -> float:
    """The mean difference between confidence and share of right answers, over bins of equal width."""
    place = (confidence * bins).long().clamp(0, bins - 1)
    total = 0.0
    for number in range(bins):
        here = place == number
        if here.any():
            total += float(here.double().mean()) * abs(
                float(confidence[here].mean()) - float(right[here].double().mean())
            )
    return total
