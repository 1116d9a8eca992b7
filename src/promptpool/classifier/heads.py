"""The heads of exported classifiers: features to the scores of the known classes, by tensors alone.

Each gives a tuple: scores [n, C] and, if it can tell, how far each picture is from every class [n]. Weights that were
solved for stay in double precision. The closed form rounds features to half precision, because its sums are of such.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from promptpool.learners.closed_form import ClosedForm
from promptpool.learners.sums import Gaussian


class Linear(nn.Module):
    """Linear scores of features, in the precision of the weights; of projections of them where there are directions."""

    weight: Tensor
    bias: Tensor
    directions: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor, directions: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.register_buffer("directions", directions)

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        features = features.to(self.weight.dtype)
        if self.directions is not None:
            features = F.relu(features @ self.directions)
        return (F.linear(features, self.weight, self.bias),)


class Nearest(nn.Module):
    """The cosine to each mean, or the Euclidean distance below zero."""

    means: Tensor

    def __init__(self, means: Tensor, distance: str) -> None:
        super().__init__()
        self.distance = distance
        self.register_buffer("means", F.normalize(means, dim=-1) if distance == "cosine" else means)

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        if self.distance == "cosine":
            return (F.linear(F.normalize(features, dim=-1), self.means),)
        return (-torch.linalg.vector_norm(features[:, None] - self.means, dim=2),)


class Solved(nn.Module):
    """The scores of the closed form and, with Gaussian classes, how far a picture is from the nearest of them."""

    weight: Tensor
    bias: Tensor
    directions: Tensor | None

    def __init__(self, learner: ClosedForm, known: list[int]) -> None:
        super().__init__()
        self.on_rows, self.on_projections = learner.sums.width > 0, learner.projected.width > 0
        self.register_buffer("weight", learner.head.weight[known])
        self.register_buffer("bias", learner.head.bias[known])
        used = learner.projections and self.on_projections
        self.register_buffer("directions", learner.directions if used else None)
        self.far = None if learner.gaussian is None else Far(learner.gaussian, known)

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        x = features.half().double()
        h = x if self.directions is None else F.relu(x @ self.directions)
        parts = [part for part, used in ((x, self.on_rows), (h, self.on_projections)) if used]
        scores = F.linear(torch.cat(parts, dim=1), self.weight, self.bias)
        return (scores,) if self.far is None else (scores, self.far(x))


class Far(nn.Module):
    """The distance to the nearest class less that to the background, x Q x + b x + c - 2 max_c score_c: [n]."""

    weight: Tensor
    bias: Tensor
    quadratic: Tensor
    linear: Tensor
    constant: Tensor

    def __init__(self, gaussian: Gaussian, known: list[int]) -> None:
        super().__init__()
        quadratic, linear, constant = gaussian.above_background()
        self.register_buffer("weight", gaussian.weight[known])
        self.register_buffer("bias", gaussian.bias[known])
        self.register_buffer("quadratic", quadratic)
        self.register_buffer("linear", linear)
        self.register_buffer("constant", constant)

    def forward(self, x: Tensor) -> Tensor:
        nearest = F.linear(x, self.weight, self.bias).amax(dim=1)
        return ((x @ self.quadratic + self.linear) * x).sum(dim=1) + self.constant - 2 * nearest
