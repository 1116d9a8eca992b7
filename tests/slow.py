"""Losses as loops over plain numbers, written from the papers; each returns its value and the gradient by hand."""

from __future__ import annotations

import math

Rows = list[list[float]]


def softmax(scores: list[float]) -> list[float]:
    largest = max(scores)
    weights = [math.exp(score - largest) for score in scores]
    return [weight / math.fsum(weights) for weight in weights]


def cross_entropy(scores: list[float], label: int, classes: list[int]) -> tuple[float, list[float]]:
    """-log of the label's share in the softmax over `classes`."""
    shares = dict(zip(classes, softmax([scores[c] for c in classes]), strict=True))
    gradient = [0.0] * len(scores)
    for c in classes:
        gradient[c] = shares[c] - (c == label)
    return -math.log(shares[label]), gradient


def distillation(
    scores: list[float], teacher: list[float], classes: list[int], temperature: float
) -> tuple[float, list[float]]:
    """Li and Hoiem's Eqs. 3 and 4, with powers of probabilities as they are written there."""

    def smoothed(values: list[float]) -> list[float]:
        powers = [share ** (1 / temperature) for share in softmax([values[c] for c in classes])]
        return [power / math.fsum(powers) for power in powers]

    wanted, given = smoothed(teacher), smoothed(scores)
    gradient = [0.0] * len(scores)
    for c, p, q in zip(classes, wanted, given, strict=True):
        gradient[c] = (q - p) / temperature
    return -math.fsum(p * math.log(q) for p, q in zip(wanted, given, strict=True)), gradient


def linear(features: Rows, weight: Rows, bias: list[float]) -> Rows:
    """Scores of a linear head."""
    return [
        [math.fsum(w * f for w, f in zip(row, feature, strict=True)) + b for row, b in zip(weight, bias, strict=True)]
        for feature in features
    ]
