"""A model small enough to differentiate by hand, and its Fisher information written out in loops.

h_j = tanh(sum_k w_jk x_k),   z_c = sum_j v_cj h_j + b_c,   p = softmax of z over the visible classes
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from promptpool.backbones.base import FeatureExtractor
from promptpool.data.stream import Batch
from promptpool.learners.base import Learner
from promptpool.learners.fisher import trained

INPUTS, DIM = 5, 3
Flat = dict[str, list[float]]


class Tiny(FeatureExtractor):
    """One layer over the first few values of an image, in double precision."""

    dim = DIM

    def __init__(self) -> None:
        super().__init__()
        noise = torch.Generator().manual_seed(3)
        self.weight = nn.Parameter(torch.randn(DIM, INPUTS, generator=noise, dtype=torch.float64))

    def features(self, x: Tensor) -> Tensor:
        return torch.tanh(4 * x.flatten(1)[:, :INPUTS].double() @ self.weight.T)


def shaken(learner: Learner, seed: int) -> Learner:
    """The learner in double precision with every trained parameter somewhere else."""
    learner.double()
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in learner.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=noise, dtype=torch.float64), alpha=0.5)
    return learner


def now(learner: Learner) -> Flat:
    """Every parameter of the model as plain numbers."""
    return {name: value.detach().flatten().tolist() for name, value in trained(learner).items()}


def slow_shares(learner: Learner, x: Sequence[float], visible: Sequence[int]) -> tuple[list[float], list[float]]:
    """The features of one input, and the probability of every class."""
    weight, head, bias = (value.tolist() for value in trained(learner).values())
    hidden = [math.tanh(sum(weight[j][k] * 4 * x[k] for k in range(INPUTS))) for j in range(DIM)]
    odds = [
        math.exp(sum(head[c][j] * hidden[j] for j in range(DIM)) + bias[c]) if c in visible else 0.0
        for c in range(len(bias))
    ]
    return hidden, [odd / sum(odds) for odd in odds]


def slow_gradient(learner: Learner, x: Sequence[float], y: int, visible: Sequence[int]) -> Flat:
    """d log p(y | x) / d theta of one example."""
    hidden, shares = slow_shares(learner, x, visible)
    head = learner.head.weight.tolist()
    error = [float(c == y) - shares[c] for c in range(len(shares))]
    back = [sum(error[c] * head[c][j] for c in range(len(error))) * (1 - hidden[j] ** 2) for j in range(DIM)]
    return {
        "backbone.weight": [back[j] * 4 * x[k] for j in range(DIM) for k in range(INPUTS)],
        "head.weight": [error[c] * hidden[j] for c in range(len(error)) for j in range(DIM)],
        "head.bias": error,
    }


def inputs_of(learner: Learner, batch: Batch) -> list[list[float]]:
    return learner.view.plain(batch.x).flatten(1)[:, :INPUTS].double().tolist()


def slow_fisher(learner: Learner, batch: Batch, visible: Sequence[int]) -> Flat:
    """The mean of the squares, with the examples' own labels."""
    total: Flat = {}
    for x, y in zip(inputs_of(learner, batch), batch.y.tolist(), strict=True):
        for name, gradient in slow_gradient(learner, x, y, visible).items():
            squares = [value**2 / len(batch.y) for value in gradient]
            total[name] = [a + b for a, b in zip(total.get(name, [0.0] * len(squares)), squares, strict=True)]
    return total


def flat(named: dict[str, Tensor]) -> Flat:
    return {name: value.flatten().tolist() for name, value in named.items()}
