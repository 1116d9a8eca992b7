"""A linear classifier that grows as classes appear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from promptpool.checks import one_of

STARTS = ("zeros", "truncated-normal")


class Head(nn.Module):
    """g: features to one score per class; new rows start at zero or as a truncated normal of deviation 0.02."""

    def __init__(self, dim: int, *, start: str = "zeros", class_count: int = 0, generator: torch.Generator) -> None:
        super().__init__()
        one_of(STARTS, head_start=start)
        self.dim, self.start = dim, start
        self.weight = nn.Parameter(torch.empty(0, dim))
        self.bias = nn.Parameter(torch.empty(0))
        self.grow(class_count, generator)

    def grow(self, class_count: int, generator: torch.Generator) -> None:
        """Add rows until there are `class_count`; the optimiser must be made anew afterwards."""
        added = class_count - len(self.bias)
        if added <= 0:
            return
        rows = torch.zeros(added, self.dim)
        if self.start == "truncated-normal":
            nn.init.trunc_normal_(rows, std=0.02, generator=generator)
        like = self.weight
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), rows.to(like)]), like.requires_grad)
        self.bias = nn.Parameter(torch.cat([self.bias.detach(), torch.zeros(added).to(like)]), like.requires_grad)

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(features, self.weight, self.bias)


class SolvedHead(Head):
    """A head that is solved for: in double precision, and on the CPU wherever its learner is, as mps has no float64."""

    def __init__(self, dim: int, *, generator: torch.Generator) -> None:
        super().__init__(dim, generator=generator)
        self.weight, self.bias = (
            nn.Parameter(values.detach().double(), requires_grad=False) for values in (self.weight, self.bias)
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Called by `to` and its like: leave the tensors as they are."""
        del fn, recurse
        return self


def with_rows(values: Tensor, row_count: int) -> Tensor:
    """A tensor with a row per class, with rows of zeros added for classes that the head has since gained."""
    missing = row_count - len(values)
    return torch.cat([values, values.new_zeros(missing, *values.shape[1:])]) if missing > 0 else values
