"""Algorithm 1 of "Learning to Prompt for Continual Learning" (Wang et al., CVPR 2022), as slow as it is printed.

Loops over images, prompts, tokens and subsets, in double precision. What public code does otherwise than the
paper (token order, positions, a vote, clipping) is a value here too, after the table of named profiles.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from promptpool.backbones.vit import ViT


class Parameters(NamedTuple):
    """What Algorithm 1 trains; without keys each prompt's mean is its key."""

    prompts: Tensor  # [M, L_p, D]
    keys: Tensor | None  # [M, D]
    weight: Tensor  # [C, D]
    bias: Tensor  # [C]

    def tensors(self) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in self._asdict().items() if tensor is not None}


class Result(NamedTuple):
    """The loss of a batch, the prompts of each image, and the gradients, of frozen weights too."""

    loss: float
    chosen: list[list[int]]
    gradients: dict[str, Tensor]
    frozen: list[Tensor]


def algorithm_1(
    backbone: ViT,
    x: Tensor,
    y: Tensor,
    parameters: Parameters,
    classes: tuple[int, ...],
    *,
    top_k: int,
    pull: float,
    order: str = "prompts-first",
    position: str = "none",
    vote: int = 0,
    frequency: list[float] | None = None,
    query: Tensor | None = None,
    original: ViT | None = None,
) -> Result:
    """One batch: inputs as the model reads them [B, 3, S, S], labels, and the classes that the loss sees.

    `frequency` is h of Eq. 4; without it Eq. 3 chooses. `query` replaces the inputs that make q(x), `original` the
    model that makes it.
    """
    asked = copy.deepcopy(original or backbone).double()
    backbone = copy.deepcopy(backbone).double().requires_grad_(True)
    leaves = {name: tensor.detach().double().requires_grad_(True) for name, tensor in parameters.tensors().items()}
    prompts, weight, bias = leaves["prompts"], leaves["weight"], leaves["bias"]
    keys = [leaves["keys"][j] if "keys" in leaves else mean(list(prompts[j])) for j in range(len(prompts))]

    queries = []
    for image in x if query is None else query:
        with torch.no_grad():  # q is a deterministic function without learnable parameters
            queries.append(asked.encode(asked.embed(image.double()[None]))[0, 0])

    chosen = [look_up(q, keys, top_k, frequency) for q in queries]
    if vote:
        chosen = majority(chosen, vote, top_k)

    losses = []
    for i, q in enumerate(queries):
        x_e = list(backbone.embed(x[i].double()[None])[0])  # tokens, [class] first
        rows = [row for s in chosen[i] for row in prompts[s]]
        if position == "class":
            rows = [row + backbone.pos_embed[0, 0] for row in rows]
        if order == "class-first":
            x_p, begin = [x_e[0], *rows, *x_e[1:]], 1
        else:
            x_p, begin = [*rows, *x_e], 0
        outputs = backbone.encode(torch.stack(x_p)[None])[0]
        z = mean([outputs[begin + r] for r in range(len(rows))])
        scores = {c: (weight[c] * z).sum() + bias[c] for c in classes}
        log_sum = torch.stack([score.exp() for score in scores.values()]).sum().log()
        loss = log_sum - scores[int(y[i])]
        for s in chosen[i]:
            loss = loss + pull * gamma(q, keys[s])
        losses.append(loss)

    total = mean(losses)
    frozen = list(backbone.parameters())
    gradients = torch.autograd.grad(total, [*leaves.values(), *frozen])
    named = dict(zip(leaves, gradients, strict=False))
    return Result(float(total.detach()), chosen, named, list(gradients[len(leaves) :]))


def gamma(q: Tensor, k: Tensor) -> Tensor:
    """The cosine distance."""
    return 1 - (q * k).sum() / ((q * q).sum().sqrt() * (k * k).sum().sqrt())


def mean(tensors: list[Tensor]) -> Tensor:
    total = torch.zeros_like(tensors[0])
    for tensor in tensors:
        total = total + tensor
    return total / len(tensors)


def look_up(q: Tensor, keys: list[Tensor], top_k: int, frequency: list[float] | None) -> list[int]:
    """Eq. 3, or Eq. 4 with a frequency: the subset of least sum, the first of equal ones."""
    scores = [float(gamma(q, k).detach()) for k in keys]
    if frequency is not None:
        scores = [score * h for score, h in zip(scores, frequency, strict=True)]
    best = min(combinations(range(len(keys)), top_k), key=lambda subset: sum(scores[s] for s in subset))
    return list(best)


def majority(chosen: list[list[int]], vote: int, top_k: int) -> list[list[int]]:
    """Each group of `vote` images in turn gets the prompts that most of its images chose."""
    voted = []
    for begin in range(0, len(chosen), vote):
        group = chosen[begin : begin + vote]
        votes = Counter(s for subset in group for s in subset)
        winners = sorted(votes, key=lambda s: (-votes[s], s))[:top_k]
        voted += [winners for _ in group]
    return voted


def clipped(gradients: dict[str, Tensor], others: list[Tensor], limit: float) -> dict[str, Tensor]:
    """Gradients scaled so that their norm, together with that of `others`, is at most `limit`."""
    squares = 0.0
    for gradient in [*gradients.values(), *others]:
        squares += float(gradient.square().sum())
    scale = min(1.0, limit / math.sqrt(squares))
    return {name: gradient * scale for name, gradient in gradients.items()}


def first_adam_step(start: Tensor, gradient: Tensor, learning_rate: float) -> Tensor:
    """Kingma and Ba (2015), Algorithm 1 at t = 1 with moments that start at zero."""
    beta_1, beta_2, epsilon = 0.9, 0.999, 1e-8
    first, second = (1 - beta_1) * gradient, (1 - beta_2) * gradient**2
    first, second = first / (1 - beta_1), second / (1 - beta_2)
    return start.detach().double() - learning_rate * first / (second.sqrt() + epsilon)
