"""Pure loss functions, each with its equation."""

from __future__ import annotations

import torch
from torch import Tensor


def only(logits: Tensor, classes: Tensor) -> Tensor:
    """Logits with every class but `classes` at minus infinity: the softmax then sees those classes alone."""
    if len(classes) == 0:
        raise ValueError("a softmax needs at least one class")
    hidden = torch.ones(logits.shape[-1], dtype=torch.bool, device=logits.device)
    hidden[classes] = False
    return logits.masked_fill(hidden, -torch.inf)


def logit_distance(logits: Tensor, then: Tensor) -> Tensor:
    """The mean over examples of mean_c (logits_c - then_c)^2 over the classes c whose logit `then` is finite."""
    known = then.isfinite()
    gap = (logits - torch.where(known, then, 0.0)) * known
    return (gap.square().sum(dim=1) / known.sum(dim=1)).mean()
