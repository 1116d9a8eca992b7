"""Where other people's files keep each parameter of our ViT: three tables, and nothing that reads a file.

A table maps our name to theirs; `*` stands for the block's number, and `{}` for query, key and value where a layout
keeps the three apart. timm's names are ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

Shape = tuple[int, ...]
PARTS = ("query", "key", "value")


class Turn(NamedTuple):
    """One tensor that is stored turned: the shape it has there, given ours and the heads, and the way back."""

    shape: Callable[[Shape, int], Shape]
    back: Callable[[Tensor], Tensor]


class Layout(NamedTuple):
    """`names` is None where theirs are ours, but for those `renamed`. `dropped` and `refused` are beginnings of their
    names; what is refused changes the features in a way that our ViT does not compute. `antialias` is whether the
    library that has the layout smooths positions when it resizes them."""

    names: dict[str, str] | None
    dropped: tuple[str, ...]
    refused: dict[str, str]
    prefixes: tuple[str, ...]
    turns: dict[str, Turn]
    renamed: dict[str, str] = {}  # noqa: RUF012  # never changed
    antialias: bool = True


TIMM = Layout(
    names=None,
    dropped=("head.", "head_dist.", "pre_logits.", "mask_token"),
    refused={
        "fc_norm.": "it averages patches and has no final norm for [class]",
        "norm_pre.": "a norm before the first block, as CLIP's models have, is not computed here",
    },
    prefixes=("module.", "timm_model."),
    turns={},
    renamed={"register_tokens": "reg_token"},  # as Meta's own files of DINOv2 call them
)

_HUGGING_FACE_NAMES = {
    "cls_token": "embeddings.cls_token",
    "dist_token": "embeddings.distillation_token",
    "reg_token": "embeddings.register_tokens",
    "pos_embed": "embeddings.position_embeddings",
    "patch_embed.proj.weight": "embeddings.patch_embeddings.projection.weight",
    "patch_embed.proj.bias": "embeddings.patch_embeddings.projection.bias",
    "blocks.*.norm1.weight": "encoder.layer.*.layernorm_before.weight",
    "blocks.*.norm1.bias": "encoder.layer.*.layernorm_before.bias",
    "blocks.*.attn.qkv.weight": "encoder.layer.*.attention.attention.{}.weight",
    "blocks.*.attn.qkv.bias": "encoder.layer.*.attention.attention.{}.bias",
    "blocks.*.attn.proj.weight": "encoder.layer.*.attention.output.dense.weight",
    "blocks.*.attn.proj.bias": "encoder.layer.*.attention.output.dense.bias",
    "blocks.*.norm2.weight": "encoder.layer.*.layernorm_after.weight",
    "blocks.*.norm2.bias": "encoder.layer.*.layernorm_after.bias",
    "blocks.*.mlp.fc1.weight": "encoder.layer.*.intermediate.dense.weight",
    "blocks.*.mlp.fc1.bias": "encoder.layer.*.intermediate.dense.bias",
    "blocks.*.mlp.fc2.weight": "encoder.layer.*.output.dense.weight",
    "blocks.*.mlp.fc2.bias": "encoder.layer.*.output.dense.bias",
    "norm.weight": "layernorm.weight",
    "norm.bias": "layernorm.bias",
}

HUGGING_FACE = Layout(
    names=_HUGGING_FACE_NAMES,
    dropped=(
        "pooler.",
        "classifier.",
        "cls_classifier.",
        "distillation_classifier.",
        "decoder.",
        "embeddings.mask_token",
    ),
    refused={},
    prefixes=("vit.", "deit.", "dinov2.", "dinov2_with_registers."),
    turns={},
    antialias=False,
)

DINOV2 = HUGGING_FACE._replace(
    names=_HUGGING_FACE_NAMES
    | {
        "blocks.*.norm1.weight": "encoder.layer.*.norm1.weight",
        "blocks.*.norm1.bias": "encoder.layer.*.norm1.bias",
        "blocks.*.ls1.gamma": "encoder.layer.*.layer_scale1.lambda1",
        "blocks.*.norm2.weight": "encoder.layer.*.norm2.weight",
        "blocks.*.norm2.bias": "encoder.layer.*.norm2.bias",
        "blocks.*.mlp.fc1.weight": "encoder.layer.*.mlp.fc1.weight",
        "blocks.*.mlp.fc1.bias": "encoder.layer.*.mlp.fc1.bias",
        "blocks.*.mlp.fc2.weight": "encoder.layer.*.mlp.fc2.weight",
        "blocks.*.mlp.fc2.bias": "encoder.layer.*.mlp.fc2.bias",
        "blocks.*.ls2.gamma": "encoder.layer.*.layer_scale2.lambda1",
    }
)
DINOV2_WITH_REGISTERS = DINOV2._replace(antialias=True)

_LINEAR = Turn(lambda shape, _: (shape[1], shape[0]), lambda stored: stored.T)

OFFICIAL = Layout(
    names={
        "cls_token": "cls",
        "pos_embed": "Transformer/posembed_input/pos_embedding",
        "patch_embed.proj.weight": "embedding/kernel",
        "patch_embed.proj.bias": "embedding/bias",
        "blocks.*.norm1.weight": "Transformer/encoderblock_*/LayerNorm_0/scale",
        "blocks.*.norm1.bias": "Transformer/encoderblock_*/LayerNorm_0/bias",
        "blocks.*.attn.qkv.weight": "Transformer/encoderblock_*/MultiHeadDotProductAttention_1/{}/kernel",
        "blocks.*.attn.qkv.bias": "Transformer/encoderblock_*/MultiHeadDotProductAttention_1/{}/bias",
        "blocks.*.attn.proj.weight": "Transformer/encoderblock_*/MultiHeadDotProductAttention_1/out/kernel",
        "blocks.*.attn.proj.bias": "Transformer/encoderblock_*/MultiHeadDotProductAttention_1/out/bias",
        "blocks.*.norm2.weight": "Transformer/encoderblock_*/LayerNorm_2/scale",
        "blocks.*.norm2.bias": "Transformer/encoderblock_*/LayerNorm_2/bias",
        "blocks.*.mlp.fc1.weight": "Transformer/encoderblock_*/MlpBlock_3/Dense_0/kernel",
        "blocks.*.mlp.fc1.bias": "Transformer/encoderblock_*/MlpBlock_3/Dense_0/bias",
        "blocks.*.mlp.fc2.weight": "Transformer/encoderblock_*/MlpBlock_3/Dense_1/kernel",
        "blocks.*.mlp.fc2.bias": "Transformer/encoderblock_*/MlpBlock_3/Dense_1/bias",
        "norm.weight": "Transformer/encoder_norm/scale",
        "norm.bias": "Transformer/encoder_norm/bias",
    },
    dropped=("head/", "pre_logits/"),
    refused={},
    prefixes=(),
    turns={
        "patch_embed.proj.weight": Turn(
            lambda shape, _: (shape[2], shape[3], shape[1], shape[0]),
            lambda stored: stored.permute(3, 2, 0, 1),
        ),
        "blocks.*.attn.qkv.weight": Turn(
            lambda shape, heads: (shape[1], heads, shape[0] // heads), lambda stored: stored.flatten(1).T
        ),
        "blocks.*.attn.qkv.bias": Turn(
            lambda shape, heads: (heads, shape[0] // heads), lambda stored: stored.flatten()
        ),
        "blocks.*.attn.proj.weight": Turn(
            lambda shape, heads: (heads, shape[1] // heads, shape[0]), lambda stored: stored.flatten(0, 1).T
        ),
        "blocks.*.mlp.fc1.weight": _LINEAR,
        "blocks.*.mlp.fc2.weight": _LINEAR,
    },
)


def general(name: str) -> str:
    """Our name with `*` for the block's number."""
    return re.sub(r"^blocks\.\d+\.", "blocks.*.", name)


def stored_names(layout: Layout, name: str) -> tuple[str, ...]:
    """The names under which a layout keeps our parameter: three where it keeps query, key and value apart, none
    where it has no such parameter."""
    if layout.names is None:
        return (name,)
    if general(name) not in layout.names:
        return ()
    number = name.split(".")[1] if name.startswith("blocks.") else ""
    theirs = layout.names[general(name)].replace("*", number)
    return tuple(theirs.format(part) for part in PARTS) if "{}" in theirs else (theirs,)


def stored_shape(layout: Layout, name: str, shape: Shape, heads: int) -> Shape:
    """The shape that each of `stored_names` must have for our parameter to have `shape`."""
    if len(stored_names(layout, name)) > 1:
        shape = (shape[0] // len(PARTS), *shape[1:])
    turn = layout.turns.get(general(name))
    return shape if turn is None else turn.shape(shape, heads)


def turned(layout: Layout, name: str, stored: Tensor) -> Tensor:
    """A stored tensor, or one of the three, as our parameter has it."""
    turn = layout.turns.get(general(name))
    return stored if turn is None else turn.back(stored)


def block_pattern(layout: Layout) -> re.Pattern[str]:
    """What a tensor that every block has is called, with the block's number as the first group."""
    name = "blocks.*.norm1.weight"
    theirs = name if layout.names is None else layout.names[name]
    return re.compile(re.escape(theirs).replace(r"\*", r"(\d+)") + "$", re.ASCII)
