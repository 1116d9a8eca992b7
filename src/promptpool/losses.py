"""Pure loss functions, each with its equation."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def only(logits: Tensor, classes: Tensor) -> Tensor:
    """Logits with every class but `classes` at minus infinity: the softmax then sees those classes alone."""
    if len(classes) == 0:
        raise ValueError("a softmax needs at least one class")
    hidden = torch.ones(logits.shape[-1], dtype=torch.bool, device=logits.device)
    hidden[classes] = False
    return logits.masked_fill(hidden, -torch.inf)


def distillation(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """-sum_i p'_i log q'_i for each row: [B].

    p'_i = p_i^(1/T) / sum_j p_j^(1/T) of the teacher's softmax p, which is the softmax of its logits over T; q' of
    the student's alike (Li and Hoiem, 2017, Eqs. 2 to 4; Wu et al., 2019, Eq. 1). There is no factor T^2.
    """
    return F.cross_entropy(logits / temperature, (teacher / temperature).softmax(dim=-1), reduction="none")
