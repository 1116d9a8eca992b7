"""Positions of published ViTs as our ViT has them: of its first tokens, never of registers, and of its patches."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def place_tokens(state: dict[str, Tensor], *, first: int, placed: int) -> None:
    """Give positions to the `first` tokens and to no register, where a file has positions of `placed` tokens instead.

    A token without a position gets zeros; the position of a register becomes part of it. Both change no sum.
    """
    positions = state["pos_embed"]
    if placed < first:
        zeros = positions.new_zeros(1, first - placed, positions.shape[2])
        state["pos_embed"] = torch.cat([zeros, positions], dim=1)
    elif placed > first:
        state["reg_token"] = state["reg_token"] + positions[:, first:placed]
        state["pos_embed"] = torch.cat([positions[:, :first], positions[:, placed:]], dim=1)


def resize_positions(positions: Tensor, grid: int, first: int = 1, antialias: bool = True) -> Tensor:
    """Positions [1, first + n^2, D] for grid x grid patches, bicubic; the `first` rows are no patches and stay."""
    patches = positions[:, first:]
    side = math.isqrt(patches.shape[1])
    if side == grid:
        return positions
    square = patches.transpose(1, 2).unflatten(2, (side, side))  # [1, D, n, n]
    resized = F.interpolate(square, size=(grid, grid), mode="bicubic", antialias=antialias, align_corners=False)
    return torch.cat([positions[:, :first], resized.flatten(2).transpose(1, 2)], dim=1)
