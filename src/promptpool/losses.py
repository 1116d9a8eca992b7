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


def entropy(logits: Tensor) -> Tensor:
    """H(p) = - sum_c p_c log p_c of p = softmax(logits): [B]."""
    return -(logits.softmax(dim=-1) * logits.log_softmax(dim=-1)).sum(dim=-1)


def barlow_twins(first: Tensor, second: Tensor, *, redundancy: float) -> Tensor:
    """Two views' embeddings [B, D] should agree in each dimension and no two dimensions say the same.

        C_ij = sum_b u_bi v_bj / (|u_i| |v_j|),  u and v the embeddings minus their means over the batch
        loss = sum_i (1 - C_ii)^2 + redundancy * sum_i sum_(j != i) C_ij^2

    Zbontar et al., 2021, Eqs. 1 and 2. A dimension without any spread correlates with nothing.
    """
    u, v = (F.normalize(z - z.mean(dim=0), dim=0) for z in (first, second))
    squares = (u.T @ v - torch.eye(u.shape[1], device=u.device, dtype=u.dtype)).square()
    return (squares * torch.full_like(squares, redundancy).fill_diagonal_(1.0)).sum()
