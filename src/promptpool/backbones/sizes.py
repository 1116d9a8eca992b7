"""How large the ViT in an open weights file is, from the shapes of its tensors alone."""

from __future__ import annotations

import math
from typing import NamedTuple

from promptpool.backbones.layouts import OFFICIAL, Layout, Shape, block_pattern, stored_names
from promptpool.backbones.tensors import TensorFile
from promptpool.errors import BadFileError

HEAD_DIM = 64
HEADS = {1280: 16, 1408: 16, 1664: 16}  # ViT-H, -g and -G (Zhai et al., 2022), whose heads are wider


class Sizes(NamedTuple):
    """What the shapes of the tensors say."""

    image_size: int
    patch_size: int
    dim: int
    depth: int
    mlp_dim: int
    layer_scale: bool
    distilled: bool


def read_sizes(archive: TensorFile, layout: Layout) -> Sizes:
    dim = _shape(archive, layout, "cls_token", 3)[2]
    # Patch weights are 3 x patch x patch x dim in whichever order.
    patch_size = math.isqrt(math.prod(_shape(archive, layout, "patch_embed.proj.weight", 4)) // (3 * dim))
    distilled = _has(archive, layout, "dist_token")
    rows = _shape(archive, layout, "pos_embed", 3)[1]
    grid = math.isqrt(max(0, rows - 1 - distilled))
    if grid == 0 or rows != 1 + distilled + grid**2:
        name = stored_names(layout, "pos_embed")[0]
        raise BadFileError(f"{archive.path}: tensor {name}: {rows} rows, expected {1 + distilled} more than a square")
    pattern = block_pattern(layout)
    return Sizes(
        image_size=grid * patch_size,
        patch_size=patch_size,
        dim=dim,
        depth=len({match[1] for match in map(pattern.match, archive.entries) if match}),
        mlp_dim=_shape(archive, layout, "blocks.0.mlp.fc1.bias", 1)[0],
        layer_scale=_has(archive, layout, "blocks.0.ls1.gamma"),
        distilled=distilled,
    )


def read_heads(archive: TensorFile, layout: Layout, dim: int) -> int:
    """The heads, which only the official layout shows in its shapes; else one per 64 channels, with exceptions."""
    if layout is OFFICIAL:
        return _shape(archive, layout, "blocks.0.attn.qkv.bias", 2)[0]
    if dim % HEAD_DIM:
        raise BadFileError(f"{archive.path}: width {dim} is not a multiple of {HEAD_DIM}: metadata must give heads")
    return HEADS.get(dim, dim // HEAD_DIM)


def _has(archive: TensorFile, layout: Layout, name: str) -> bool:
    return any(theirs in archive.entries for theirs in stored_names(layout, name))


def _shape(archive: TensorFile, layout: Layout, name: str, axes: int) -> Shape:
    theirs = stored_names(layout, name)[0]
    if theirs not in archive.entries:
        raise BadFileError(f"{archive.path}: no tensor {theirs}: not a ViT in the layout expected of this file")
    shape = archive.entries[theirs].shape
    if len(shape) != axes or 0 in shape:
        raise BadFileError(f"{archive.path}: tensor {theirs}: shape {[*shape]}, expected {axes} axes, none empty")
    return shape
