"""The vision transformer (Dosovitskiy et al., 2021), cut in two halves where prompts go in.

What is particular here:
- Parameters carry timm's names, which most checkpoints share.
- `encode(tokens, rows=r)` computes the last block's queries, projection and MLP for the first r tokens only:
  the same numbers, for about 7 % less work in a ViT-B/16.
- `encode(begin(tokens, k), first=k)` is `encode(tokens)`: what the first k blocks make of an image can be kept.
- No dropout anywhere: the model is meant to be frozen, and fine-tuning a pre-trained ViT works without.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from promptpool.backbones.base import Backbone, Readout
from promptpool.backbones.compilation import check_compiler, compiled
from promptpool.backbones.products import PRODUCTS, Linear, check_products
from promptpool.checks import one_of, zero_or_more

GELUS = {"exact": "none", "tanh": "tanh"}  # and what torch calls them
PRECISIONS = ("single", "bfloat16")


class ViT(Backbone):
    """A ViT of any size.

    `layer_scale` adds the per-channel scales that DINOv2 checkpoints have, `distilled` the second token that
    distilled DeiT checkpoints have, after [class]. `registers` is how many register tokens follow (Darcet et al.,
    2024): they have no position, go through every block, and are no patches (`patches`). `gelu` is "exact",
    x * Phi(x), or "tanh", which has (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2 for Phi, as Google's code does
    (Hendrycks and Gimpel, 2016).

    With `precision="bfloat16"` the products of the blocks are computed in bfloat16, which has the range of single
    precision and 8 bits of its digits; weights, sums of residuals and norms stay in single precision. It pays where the
    processor has instructions for it. `products="onednn"` leaves those of single precision to oneDNN on a CPU, to the
    same numbers but for rounding (see `products`).

    `compute` sets these later, and whether blocks are compiled or computed a second time in the backward pass.
    """

    # On the instance only where they are others, so that fingerprints of earlier versions hold.
    gelu = "exact"
    registers = 0
    precision = "single"
    products = "torch"

    def __init__(
        self,
        *,
        image_size: int = 224,
        patch_size: int = 16,
        dim: int = 768,
        depth: int = 12,
        heads: int = 12,
        mlp_dim: int | None = None,
        layer_scale: bool = False,
        distilled: bool = False,
        registers: int = 0,
        norm_eps: float = 1e-6,
        gelu: str = "exact",
        precision: str = "single",
        products: str = "torch",
    ) -> None:
        super().__init__()
        for name, whole, part in (("image_size", image_size, patch_size), ("dim", dim, heads)):
            if part < 1 or whole < part or whole % part:
                other = "patch_size" if name == "image_size" else "heads"
                raise ValueError(f"{name} = {whole}: must be a multiple of {other} = {part}")
        if depth < 1:
            raise ValueError(f"depth = {depth}: must be at least 1")
        zero_or_more(registers=registers)
        one_of(GELUS, gelu=gelu)
        if gelu != self.gelu:
            self.gelu = gelu
        if registers != self.registers:
            self.registers = registers
        self.image_size, self.patch_size = image_size, patch_size
        self.dim, self.depth, self.heads = dim, depth, heads
        self.mlp_dim = 4 * dim if mlp_dim is None else mlp_dim
        self.layer_scale, self.distilled, self.norm_eps = layer_scale, distilled, norm_eps
        self.patch_embed = PatchEmbed(patch_size, dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.dist_token = nn.Parameter(torch.zeros(1, 1, dim)) if distilled else None
        self.reg_token = nn.Parameter(torch.zeros(1, registers, dim)) if registers else None
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + distilled + (image_size // patch_size) ** 2, dim))
        blocks = [Block(dim, heads, self.mlp_dim, layer_scale, norm_eps, gelu) for _ in range(depth)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(dim, eps=norm_eps)
        self.compute(precision=precision, products=products)

    def start(self, generator: torch.Generator) -> ViT:
        """Draw fresh weights, for training from nothing: truncated normal 0.02, zero biases."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.trunc_normal_(module.weight, std=0.02, generator=generator)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.trunc_normal_(self.pos_embed, std=0.02, generator=generator)
        nn.init.trunc_normal_(self.cls_token, std=0.02, generator=generator)
        for token in (self.dist_token, self.reg_token):
            if token is not None:
                nn.init.trunc_normal_(token, std=0.02, generator=generator)
        return self

    def compute(
        self,
        *,
        precision: str | None = None,
        products: str | None = None,
        compiled: bool | None = None,
        checkpointing: bool | None = None,
    ) -> None:
        """Run the blocks so from now on; what is not given stays as it is.

        `compiled` is by code that torch compiles for this machine (see `compilation`), which rounds otherwise. With
        `checkpointing` only the inputs of blocks are kept for the backward pass, and all else within them is computed
        a second time: the same numbers, in less memory and more time.
        """
        given = {"precision": precision, "products": products, "compiled": compiled, "checkpointing": checkpointing}
        chosen: dict[str, Any] = {
            name: getattr(self, name) if value is None else value for name, value in given.items()
        }
        one_of(PRECISIONS, precision=chosen["precision"])
        check_products(chosen["products"], compiled=chosen["compiled"], precision=chosen["precision"])
        if compiled:
            check_compiler()
        for name, value in chosen.items():
            vars(self).pop(name, None)
            if value != getattr(self, name):  # the default leaves no trace on the instance
                setattr(self, name, value)
        for module in self.modules():
            if isinstance(module, Linear):
                module.product = PRODUCTS[chosen["products"]]

    @contextmanager
    def plainly(self) -> Iterator[None]:
        chosen: dict[str, Any] = {name: getattr(self, name) for name in ("products", "compiled", "checkpointing")}
        self.compute(products="torch", compiled=False, checkpointing=False)
        try:
            yield
        finally:
            self.compute(**chosen)

    def _passed(self, block: nn.Module, tokens: Tensor, rows: int | None = None) -> Tensor:
        """What a block makes of tokens."""
        run = partial(compiled, block) if self.compiled else block
        if self.checkpointing and torch.is_grad_enabled():
            return checkpoint(run, tokens, rows, use_reentrant=False, preserve_rng_state=False)  # type: ignore[no-any-return]
        return run(tokens, rows)

    def _rounding(self, tokens: Tensor) -> AbstractContextManager[object]:
        """The context in which blocks compute."""
        if self.precision == "single":
            return nullcontext()
        return torch.autocast(tokens.device.type, torch.bfloat16)

    def embed(self, x: Tensor) -> Tensor:
        if x.shape[1:] != (3, self.image_size, self.image_size):
            raise ValueError(f"this ViT reads [B, 3, {self.image_size}, {self.image_size}], not {[*x.shape]}")
        first = [self.cls_token] if self.dist_token is None else [self.cls_token, self.dist_token]
        count = x.shape[0]  # not len(x), which an exporter takes for a constant
        tokens = [token.expand(count, -1, -1) for token in first]
        placed = torch.cat([*tokens, self.patch_embed(x)], dim=1) + self.pos_embed
        if self.reg_token is None:
            return placed  # [B, L, D]
        registers = self.reg_token.expand(count, -1, -1)
        return torch.cat([placed[:, : len(first)], registers, placed[:, len(first) :]], dim=1)

    def embedding(self) -> Iterator[nn.Parameter]:
        inside = {*self.blocks.parameters(), *self.norm.parameters()}
        return (parameter for parameter in self.parameters() if parameter not in inside)

    def check_first(self, first: int) -> None:
        if not 0 <= first < self.depth:
            raise ValueError(f"enter = {first}: must be one of this ViT's blocks, 0 to {self.depth - 1}")

    def begin(self, tokens: Tensor, blocks: int) -> Tensor:
        self.check_first(blocks)
        with self._rounding(tokens):
            for block in self.blocks[:blocks]:
                tokens = self._passed(block, tokens)
        return tokens

    def encode(self, tokens: Tensor, rows: int | None = None, first: int = 0) -> Tensor:
        self.check_first(first)
        with self._rounding(tokens):
            for block in self.blocks[first:-1]:
                tokens = self._passed(block, tokens)
            tokens = self._passed(self.blocks[-1], tokens, rows)
        return self.norm(tokens)  # type: ignore[no-any-return]

    @property
    def class_position(self) -> Tensor:
        return self.pos_embed[0, 0]

    @property
    def patches(self) -> int:
        return 1 + self.distilled + self.registers

    def check_readout(self, readout: Readout) -> None:
        if readout.blocks > self.depth:
            raise ValueError(f"readout_blocks = {readout.blocks}: this ViT has {self.depth}")

    def read(self, x: Tensor, readout: Readout) -> Tensor:
        self.check_readout(readout)
        if readout == Readout():
            return self.features(x)
        return self.read_tokens(self.embed(x), readout, self.patches)

    def read_with_features(self, x: Tensor, readout: Readout) -> tuple[Tensor, Tensor | None]:
        self.check_readout(readout)
        read, last = self._read_along(self.embed(x), readout, self.patches)
        return read, self.encode(last, rows=1, first=self.depth - 1)[:, 0]

    def read_tokens(self, tokens: Tensor, readout: Readout, patches: int) -> Tensor:
        """What a readout has of tokens [B, L, D] that begin with [class] and have patches from `patches` on."""
        return self._read_along(tokens, readout, patches)[0]

    def _read_along(self, tokens: Tensor, readout: Readout, patches: int) -> tuple[Tensor, Tensor]:
        """What a readout has of tokens, and the tokens that the last block gets."""
        first = self.depth - readout.blocks
        read, last = [], tokens
        for number, block in enumerate(self.blocks):
            last = tokens
            with self._rounding(tokens):
                tokens = self._passed(block, tokens)
            if number < first:
                continue
            rows = self.norm(tokens)
            if readout.rows != "patches":
                read.append(rows[:, 0])
            if readout.rows != "class":
                read.append(rows[:, patches:].mean(dim=1))
        return torch.cat(read, dim=1), last


class PatchEmbed(nn.Module):
    def __init__(self, patch_size: int, dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, dim, patch_size, stride=patch_size)

    def forward(self, x: Tensor) -> Tensor:
        projected: Tensor = self.proj(x)
        return projected.flatten(2).transpose(1, 2)


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); for the first `rows` tokens only when told."""

    def __init__(self, dim: int, heads: int, mlp_dim: int, layer_scale: bool, norm_eps: float, gelu: str) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=norm_eps)
        self.attn = Attention(dim, heads)
        self.ls1 = LayerScale(dim) if layer_scale else nn.Identity()
        self.norm2 = nn.LayerNorm(dim, eps=norm_eps)
        self.mlp = MLP(dim, mlp_dim, gelu)
        self.ls2 = LayerScale(dim) if layer_scale else nn.Identity()

    def forward(self, x: Tensor, rows: int | None = None) -> Tensor:
        kept = x[:, :rows] + self.ls1(self.attn(self.norm1(x), rows))
        return kept + self.ls2(self.mlp(self.norm2(kept)))  # type: ignore[no-any-return]


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = Linear(dim, 3 * dim)
        self.proj = Linear(dim, dim)

    def forward(self, x: Tensor, rows: int | None = None) -> Tensor:
        if rows is None or rows >= x.shape[1]:
            queries, keys, values = self.qkv(x).chunk(3, dim=-1)
        else:
            dim = x.shape[-1]
            queries = self.qkv.some(x[:, :rows], slice(dim))
            keys, values = self.qkv.some(x, slice(dim, None)).chunk(2, dim=-1)
        mixed = attend(self._split(queries), self._split(keys), self._split(values))
        return self.proj(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)  # [B, heads, L, D / heads]


def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(d)) v, for each head: [B, heads, L, d]."""
    if queries.dtype != torch.bfloat16 or queries.device.type != "cpu":
        return F.scaled_dot_product_attention(queries, keys, values)
    # On a CPU the backward pass of the fused operator is several times slower in bfloat16 than these products.
    scores = (queries / math.sqrt(queries.shape[-1])) @ keys.transpose(-2, -1)
    return scores.softmax(dim=-1) @ values


class MLP(nn.Module):
    def __init__(self, dim: int, hidden: int, gelu: str) -> None:
        super().__init__()
        self.approximate = GELUS[gelu]
        self.fc1 = Linear(dim, hidden)
        self.fc2 = Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x), approximate=self.approximate))  # type: ignore[no-any-return]


class LayerScale(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma
