"""A quadratic penalty that pulls parameters towards earlier values.

    1/2 sum_t sum_i F_ti (theta_i - theta_ti)^2

A sum of parabolas is a parabola. So any number of anchors takes one weight and one centre per parameter, and one
number for the height of the vertex:

    A (theta - a)^2 + F (theta - b)^2 = (A + F) (theta - c)^2 + A F / (A + F) (a - b)^2,   c = (A a + F b) / (A + F)

This is exact, and numbers of like size are never subtracted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from promptpool.learners.head import with_rows


class Anchor:
    """Weights and centres by parameter name; there are none until `add` or `move` is called.

    Rows that a parameter has gained since have no weight.
    """

    def __init__(self) -> None:
        self.weights: dict[str, Tensor] = {}
        self.centres: dict[str, Tensor] = {}
        self.height = 0.0

    def __bool__(self) -> bool:
        return bool(self.weights)

    def __call__(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """The sum above, with its gradient; 0 if there is no anchor yet."""
        parts = []
        for name, weight in self.weights.items():
            parameter = parameters[name]
            centre = self.centres[name].to(parameter)
            parts.append((weight.to(parameter) * (parameter[: len(weight)] - centre).square()).sum())
        return (torch.stack(parts).sum() + self.height) / 2 if parts else torch.zeros(())

    @torch.no_grad()
    def add(self, parameters: Mapping[str, Tensor], fisher: Mapping[str, Tensor]) -> None:
        """Add an anchor at the present parameters."""
        for name, parameter in parameters.items():
            new = fisher[name]
            weight, centre = (
                with_rows(present[name].to(new), len(new)) if name in present else torch.zeros_like(new)
                for present in (self.weights, self.centres)
            )
            share = new / (weight + new).clamp(min=torch.finfo(new.dtype).tiny)
            between = weight * share * (centre - parameter).square()
            self.height += float(between.cpu().sum(dtype=torch.float64))  # mps has no float64
            self.weights[name] = weight + new
            self.centres[name] = torch.lerp(centre, parameter, share)

    def move(self, parameters: Mapping[str, Tensor], fisher: Mapping[str, Tensor]) -> None:
        """Replace all anchors by one at the present parameters."""
        self.weights = {name: fisher[name] for name in parameters}
        self.centres = {name: parameter.detach()[: len(fisher[name])].clone() for name, parameter in parameters.items()}
        self.height = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.weights, "centres": self.centres, "height": self.height}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        shapes = [{name: value.shape for name, value in state[part].items()} for part in ("weights", "centres")]
        if shapes[0] != shapes[1]:
            raise ValueError("the weights and centres of an anchor do not match")
        self.weights, self.centres = dict(state["weights"]), dict(state["centres"])
        self.height = float(state["height"])
