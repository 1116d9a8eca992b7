"""The vision transformer written out: one image at a time, one head at a time, from nothing but its weights.

Written from Dosovitskiy et al. (2021), Eqs. 1 to 4; the two forms of GELU from Hendrycks and Gimpel (2016).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

Weights = dict[str, Tensor]  # by timm's names


def embed(weights: Weights, image: Tensor) -> list[Tensor]:
    """The tokens of an image [3, S, S] with their positions, [class] first; then registers, which have none."""
    kernel, positions = weights["patch_embed.proj.weight"], weights["pos_embed"][0]
    patch = kernel.shape[-1]
    tokens = [weights["cls_token"][0, 0]]
    for top in range(0, image.shape[1], patch):
        for left in range(0, image.shape[2], patch):
            part = image[:, top : top + patch, left : left + patch]
            tokens.append((kernel * part).sum(dim=(1, 2, 3)) + weights["patch_embed.proj.bias"])
    placed = [token + position for token, position in zip(tokens, positions, strict=True)]
    registers = [*weights["reg_token"][0]] if "reg_token" in weights else []
    return [placed[0], *registers, *placed[1:]]


def encode(weights: Weights, tokens: list[Tensor], *, heads: int, gelu: str, first: int = 0) -> Tensor:
    """The features of all tokens, which come in at block `first`: [L, D]."""
    x, block = torch.stack(tokens), first
    while f"blocks.{block}.norm1.weight" in weights:
        x = through(weights, x, block, heads=heads, gelu=gelu)
        block += 1
    return normed(x, weights["norm.weight"], weights["norm.bias"])


def through(weights: Weights, x: Tensor, block: int, *, heads: int, gelu: str) -> Tensor:
    """What a block makes of tokens: [L, D]."""
    own = {name.removeprefix(f"blocks.{block}."): w for name, w in weights.items() if f"blocks.{block}." in name}
    x = x + attention(own, normed(x, own["norm1.weight"], own["norm1.bias"]), heads)
    hidden = normed(x, own["norm2.weight"], own["norm2.bias"]) @ own["mlp.fc1.weight"].T + own["mlp.fc1.bias"]
    return x + GELUS[gelu](hidden) @ own["mlp.fc2.weight"].T + own["mlp.fc2.bias"]


def attention(own: Weights, x: Tensor, heads: int) -> Tensor:
    query, key, value = (x @ own["attn.qkv.weight"].T + own["attn.qkv.bias"]).chunk(3, dim=1)
    width = x.shape[1] // heads
    mixed = []
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        scores = (query[:, part] @ key[:, part].T / math.sqrt(width)).exp()
        mixed.append(scores / scores.sum(dim=1, keepdim=True) @ value[:, part])
    return torch.cat(mixed, dim=1) @ own["attn.proj.weight"].T + own["attn.proj.bias"]


def normed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean(dim=1, keepdim=True)
    return centred / (centred.square().mean(dim=1, keepdim=True) + 1e-6).sqrt() * weight + bias


def exact(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def tanh(x: Tensor) -> Tensor:
    return x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


GELUS = {"exact": exact, "tanh": tanh}
