"""Sums of rows, and the two classifiers that are functions of them.

    Sums        n_c, s_c = sum of x over class c, G = sum of x x^T over all

    Gaussian    m_c = s_c / n_c,   W = G - sum_c n_c m_c m_c^T,   S = W / (n - C)
                A = (1 - a) S + a tr(S) / d I
                score_c = x A^-1 m_c - m_c A^-1 m_c / 2

    Ridge       V = (G + r I)^-1 [s_1 ... s_C],   score_c = x V_c

Each class is a Gaussian with its own mean and the shared covariance A; a is the shrinkage. The ridge regresses on the
indicators of the classes. Where a or r is not given, the sums decide. a = d / (d + n - C): the sphere weighs as much as
d examples, the usual weight of a conjugate prior. r has the least error of generalised cross-validation (Golub et al.,
1979). Everything is in double precision.

`leave_one_out` is the score of an example of the sums as if it were not among them, by one update of rank one;
shrinkage, ridge, tr(S) and n - C stay as they are.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from promptpool.errors import UnfitError
from promptpool.learners.head import with_rows

NOTHING = 1e-12  # a variance that is rounding, as a share of the mean square
SAME = 1e-20  # the same of the scores of classes that are alike
RIDGES = tuple(10 ** (power / 4) for power in range(-24, 13))  # in units of the mean eigenvalue
JUDGED = 500


class Sums:
    """Sums of rows of a width; those of two sets of examples add up to those of both."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.counts = torch.zeros(0, dtype=torch.long)  # n_c
        self.sums = torch.zeros(0, width, dtype=torch.float64)  # s_c
        self.gram = torch.zeros(width, width, dtype=torch.float64)  # G

    def grow(self, class_count: int) -> None:
        self.counts, self.sums = with_rows(self.counts, class_count), with_rows(self.sums, class_count)

    def add(self, rows: Tensor, labels: Tensor, sign: int = 1) -> None:
        """Add rows [n, width] in double precision, or subtract them with sign -1."""
        self.counts += sign * torch.bincount(labels, minlength=len(self.counts))
        self.sums += sign * torch.zeros_like(self.sums).index_add_(0, labels, rows)
        self.gram += sign * (rows.T @ rows)

    def join(self, other: Sums, sign: int = 1) -> None:
        """Add the sums of other examples, or subtract them with sign -1."""
        if other.width != self.width:
            raise ValueError(f"the sums are of rows of {other.width} numbers, not of {self.width}")
        self.grow(len(other.counts))
        if sign < 0 and (self.counts[: len(other.counts)] < other.counts).any():
            raise ValueError("examples that are not in the sums cannot be subtracted from them")
        self.counts[: len(other.counts)] += sign * other.counts
        self.sums[: len(other.counts)] += sign * other.sums
        self.gram += sign * other.gram

    @property
    def known(self) -> Tensor:
        """The classes that have examples: [C], boolean."""
        return self.counts > 0

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    @property
    def means(self) -> Tensor:
        """m_c, zero where a class has no examples: [C, d]."""
        return self.sums / self.counts.clamp(min=1)[:, None]

    def state_dict(self) -> dict[str, Tensor]:
        return {"counts": self.counts, "sums": self.sums, "gram": self.gram}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        counts, sums, gram = state["counts"], state["sums"], state["gram"]
        if gram.shape != 2 * (self.width,) or sums.shape != (len(counts), self.width):
            raise ValueError(f"the state is of another learner: its sums are not of rows of {self.width} numbers")
        self.counts, self.sums, self.gram = counts.clone(), sums.clone(), gram.clone()


class Classifier(Protocol):
    """Linear scores, score_c = weight_c x + bias_c, and those that examples would have without themselves."""

    weight: Tensor  # [C, d]
    bias: Tensor  # [C]

    def leave_one_out(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The scores of examples of the sums, each as if it were not among them: [n, C]."""


class Gaussian:
    """Gaussian classes with one covariance, that is linear discriminant analysis with equal priors."""

    def __init__(self, sums: Sums, shrinkage: float | None = None) -> None:
        self.counts, self.means, self.sums = sums.counts, sums.means, sums
        scatter = sums.gram - (self.means * self.counts[:, None]).T @ self.means  # W
        degrees = sums.count - int(sums.known.sum())
        if degrees < 1 or float(scatter.trace()) <= NOTHING * float(sums.gram.trace()):
            self.shrinkage, self.factor, floor = 1.0, 0.0, 1.0  # nothing is known of the spread: the nearest mean
        else:
            self.shrinkage = sums.width / (sums.width + degrees) if shrinkage is None else shrinkage
            self.factor = (1 - self.shrinkage) / degrees
            floor = self.shrinkage * float(scatter.trace()) / degrees / sums.width
        system = scatter.mul_(self.factor)  # in its place: at ten thousand dimensions a copy takes 800 MB
        system.diagonal().add_(floor)
        self._cholesky = factor("shrinkage", self.shrinkage, system)  # of A
        self.weight = torch.cholesky_solve(self.means.T, self._cholesky).T
        self.bias = -(self.weight * self.means).sum(dim=1) / 2

    @cached_property
    def precision(self) -> Tensor:
        """A^-1: [d, d]."""
        return torch.cholesky_inverse(self._cholesky)

    def distances(self, rows: Tensor) -> Tensor:
        """The squared Mahalanobis distance of rows to each class, (x - m_c) A^-1 (x - m_c): [n, C]."""
        own = (rows @ self.precision * rows).sum(dim=1, keepdim=True)
        return (own - 2 * (rows @ self.weight.T + self.bias)).clamp(min=0)

    def background(self, rows: Tensor) -> Tensor:
        """The squared Mahalanobis distance of rows to all examples as one Gaussian, shrunk alike: [n]."""
        mean, half = self._background
        apart: Tensor = torch.linalg.solve_triangular(half, (rows - mean).T, upper=False)
        return apart.square().sum(dim=0)

    def above_background(self) -> tuple[Tensor, Tensor, Tensor]:
        """Q [d, d], b [d] and c of x Q x + b x + c - 2 max_c score_c, the least distance less that to the background.

        Q = A^-1 - B, b = 2 B m, c = -m B m; m and B^-1 are the mean and the covariance of the background.
        """
        mean, half = self._background
        inverse = torch.cholesky_inverse(half)
        pulled = inverse @ mean
        return self.precision - inverse, 2 * pulled, -(mean @ pulled)

    def leave_one_out_background(self, rows: Tensor) -> Tensor:
        """The same for examples of the sums, each as if it were not among them: [n].

        The scatter of all loses n / (n - 1) u u^T, and their mean moves by u / (n - 1) away from x; u = x - mean.
        """
        count, plain = max(self.sums.count, 2), self.background(rows)
        return (count / (count - 1)) ** 2 * plain / (1 - (1 - self.shrinkage) / (count - 1) * plain)

    @cached_property
    def _background(self) -> tuple[Tensor, Tensor]:
        count = max(self.sums.count, 1)
        mean = self.sums.sums.sum(dim=0) / count
        covariance = (self.sums.gram - count * torch.outer(mean, mean)) / count
        floor = self.shrinkage * float(covariance.trace()) / self.sums.width
        covariance *= 1 - self.shrinkage
        covariance.diagonal().add_(floor if floor > 0 else 1.0)
        return mean, factor("shrinkage", self.shrinkage, covariance)

    def leave_one_out(self, rows: Tensor, labels: Tensor) -> Tensor:
        return self._left_out(rows, labels)[0]

    def leave_one_out_distances(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The distances of examples of the sums to each class, each as if it were not among them: [n, C]."""
        scores, own = self._left_out(rows, labels)
        return (own - 2 * scores).clamp(min=0)

    def _left_out(self, rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Scores [n, C] and x A^-1 x [n, 1] without x.

        W loses n_c / (n_c - 1) v v^T, and m_c moves by v / (n_c - 1) away from x; v = x - m_c.
        """
        counts = self.counts[labels].double()
        v = rows - self.means[labels]
        pv = v @ self.precision
        k = self.factor * counts / (counts - 1).clamp(min=1)
        k = (k / (1 - k * (v * pv).sum(dim=1)))[:, None]
        along, means = (rows * pv).sum(dim=1, keepdim=True), pv @ self.means.T  # x A^-1 v, v A^-1 m_c
        scores = rows @ self.weight.T + self.bias + k * (along * means - means.square() / 2)
        moved = self.means[labels] - v / (counts - 1).clamp(min=1)[:, None]
        p_moved, across = moved @ self.precision, (moved * pv).sum(dim=1, keepdim=True)
        own = ((rows - moved / 2) * p_moved).sum(dim=1, keepdim=True) + k * (along * across - across.square() / 2)
        scores = scores.scatter(1, labels[:, None], own.masked_fill(counts[:, None] < 2, -torch.inf))
        return scores, (rows @ self.precision * rows).sum(dim=1, keepdim=True) + k * along.square()


class Ridge:
    """Ridge regression on the indicators of the classes, without an intercept."""

    def __init__(self, sums: Sums, ridge: float | None = None) -> None:
        self.ridge = choose_ridge(sums.gram, sums.sums, sums.count) if ridge is None else ridge
        system = sums.gram.clone()
        system.diagonal().add_(self.ridge)
        self._cholesky = factor("ridge", self.ridge, system)
        self.weight = torch.cholesky_solve(sums.sums.T, self._cholesky).T
        self.bias = torch.zeros(len(sums.counts), dtype=torch.float64)

    def leave_one_out(self, rows: Tensor, labels: Tensor) -> Tensor:
        """(score - l y) / (1 - l), with the leverage l = x (G + r I)^-1 x."""
        half = torch.linalg.solve_triangular(self._cholesky, rows.T, upper=False)
        leverage = half.square().sum(dim=0)[:, None]
        own = F.one_hot(labels, len(self.bias))
        scores: Tensor = (rows @ self.weight.T - leverage * own) / (1 - leverage).clamp(min=NOTHING)
        return scores


def factor(name: str, value: float, system: Tensor) -> Tensor:
    """The Cholesky factor of a system that is only as definite as this value makes it."""
    try:
        return torch.linalg.cholesky(system)  # type: ignore[no-any-return]
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise UnfitError(f"{name} = {value}: too small for this data, choose a larger one or None") from error


def choose_ridge(gram: Tensor, sums: Tensor, count: int) -> float:
    """The ridge r with the least generalised cross-validation, error / (1 - l / n)^2, from G, the s_c and n.

    error is the squared error on the n examples, l the sum of their leverages; both follow from the sums. The first
    `JUDGED` columns decide for all, and never more of them than half the examples: with more columns than examples
    every ridge fits them and the least one wins. On the streams we tried r is then the best one of all columns too.
    """
    width = max(1, min(JUDGED, len(gram), count // 2))
    gram, sums = gram[:width, :width], sums[:, :width]
    scale = float(gram.trace()) / width
    if scale <= 0:
        return 1.0  # there is nothing to fit
    values, vectors = torch.linalg.eigh(gram)
    values = values.clamp(min=0)  # negative only by rounding
    power = (sums @ vectors).square().sum(dim=0)
    errors = []
    for ridge in (scale * share for share in RIDGES):
        inverse = 1 / (values + ridge)
        error = count - float((power * (2 * inverse - values * inverse.square())).sum())
        errors.append((max(error, 0.0) / (1 - float((values * inverse).sum()) / count) ** 2, ridge))
    return min(errors)[1]


def spread(classifier: Classifier, sums: Sums) -> float:
    """The root mean square, over examples and known classes, of scores less their mean over those classes.

    Zero if all classes have the same scores but for rounding: such a classifier has nothing to say.
    """
    weight, bias = classifier.weight[sums.known], classifier.bias[sums.known]
    squares = _squares(weight - weight.mean(dim=0), bias - bias.mean(), sums)
    if squares <= SAME * _squares(weight, bias, sums):
        return 0.0
    return math.sqrt(squares / (sums.count * len(weight)))


def _squares(weight: Tensor, bias: Tensor, sums: Sums) -> float:
    """The sum of the squares of scores x w + b over all examples."""
    across = (bias * (weight @ sums.sums.sum(dim=0))).sum()
    return max(float((weight @ sums.gram * weight).sum() + 2 * across + sums.count * bias.square().sum()), 0.0)
