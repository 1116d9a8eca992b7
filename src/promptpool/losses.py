"""Pure loss functions, each with its equation."""

from __future__ import annotations

from collections.abc import Sequence

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


def columns(logits: Tensor, classes: Sequence[int]) -> Tensor:
    """The logits of these classes alone, with a gradient that is added up in one order: [B, len(classes)]."""
    return logits.index_select(1, torch.tensor(classes, device=logits.device))


def off_diagonal(square: Tensor) -> Tensor:
    """The rows of a square matrix without their diagonal elements: [n, n - 1]."""
    n = len(square)
    return square.flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)


def asymmetric_contrast(z: Tensor, y: Tensor, anchors: Tensor, temperature: float) -> Tensor:
    """The supervised contrastive loss of Co2L with some rows as anchors only (Cha et al., 2021, Eq. 10).

        sum_{i in anchors} -1 / |P_i| sum_{j in P_i} log(exp(z_i z_j / t) / sum_{k != i} exp(z_i z_k / t)) / n

    `z` are unit vectors, [n, D]; P_i are the other rows with the label of row i; `anchors` says which rows are, [n].
    A row without positives adds nothing. The sum is divided by the number of all rows, as in the authors' code.
    """
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    shares = (z @ z.T / temperature).masked_fill(itself, -torch.inf).log_softmax(dim=1)  # [n, n]
    positive = (y[:, None] == y) & ~itself
    terms = -shares.where(positive, 0.0).sum(dim=1) / positive.sum(dim=1).clamp(min=1)
    return (terms * anchors).mean()


def relation_distillation(z: Tensor, past: Tensor, temperature: float, past_temperature: float) -> Tensor:
    """How far the similarities among rows have moved: Co2L's instance-wise relation distillation (Eqs. 11-13).

        p_ij = exp(z_i z_j / t) / sum_{k != i} exp(z_i z_k / t)        q_ij likewise, of `past` at `past_temperature`
        sum_i sum_{j != i} -q_ij log p_ij / n

    `z` and `past` are unit vectors, [n, D], of the same inputs by the present and the past model.
    """
    now = off_diagonal(z @ z.T / temperature).log_softmax(dim=1)  # [n, n - 1]
    then = off_diagonal(past @ past.T / past_temperature).softmax(dim=1)
    return -(then * now).sum(dim=1).mean()


def distillation(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """-sum_i p'_i log q'_i for each row: [B].

    p'_i = p_i^(1/T) / sum_j p_j^(1/T) of the teacher's softmax p, which is the softmax of its logits over T; q' of
    the student's alike (Li and Hoiem, 2017, Eqs. 2 to 4; Wu et al., 2019, Eq. 1). There is no factor T^2.
    """
    return F.cross_entropy(logits / temperature, (teacher / temperature).softmax(dim=-1), reduction="none")


def logit_distance(logits: Tensor, then: Tensor) -> Tensor:
    """The mean over examples of mean_c (logits_c - then_c)^2 over the classes c whose logit `then` is finite."""
    known = then.isfinite()
    gap = (logits - torch.where(known, then, 0.0)) * known
    return (gap.square().sum(dim=1) / known.sum(dim=1)).mean()


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
