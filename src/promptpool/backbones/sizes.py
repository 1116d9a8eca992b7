"""How large the ViT in an open weights file is, from the shapes of its tensors alone."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from promptpool.backbones.layouts import OFFICIAL, TIMM, Layout, Shape, block_pattern, stored_names
from promptpool.backbones.tensors import TensorFile
from promptpool.errors import BadFileError

HEAD_DIM = 64
GATED = re.compile(r"\.mlp\.(w12|w3|weights_in|weights_out|fc1_g|fc1_x)\.")
NO_GATES = "a gated MLP (SwiGLU), which is not computed here; the small, base and large DINOv2 models have none"
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
    registers: int
    placed: int  # tokens that have a position and are no patches: not [class] in some of timm's, registers in others


def read_sizes(archive: TensorFile, layout: Layout) -> Sizes:
    dim = _shape(archive, layout, "cls_token", 3)[2]
    # Patch weights are 3 x patch x patch x dim in whichever order.
    patch_size = math.isqrt(math.prod(_shape(archive, layout, "patch_embed.proj.weight", 4)) // (3 * dim))
    distilled = _has(archive, layout, "dist_token")
    registers = _shape(archive, layout, "reg_token", 3)[1] if _has(archive, layout, "reg_token") else 0
    placed, grid = _placed(archive, layout, 1 + distilled, registers)
    _refuse_gates(archive, layout)
    pattern = block_pattern(layout)
    return Sizes(
        image_size=grid * patch_size,
        patch_size=patch_size,
        dim=dim,
        depth=len({match[1] for match in map(pattern.match, archive.entries) if match}),
        mlp_dim=_shape(archive, layout, "blocks.0.mlp.fc1.bias", 1)[0],
        layer_scale=_has(archive, layout, "blocks.0.ls1.gamma"),
        distilled=distilled,
        registers=registers,
        placed=placed,
    )


def _placed(archive: TensorFile, layout: Layout, usual: int, registers: int) -> tuple[int, int]:
    """How many positions are of no patch, and how many patches are on a side: the rest must be a square."""
    rows = _shape(archive, layout, "pos_embed", 3)[1]
    for placed in (usual, 0, usual + registers) if layout is TIMM else (usual,):
        grid = math.isqrt(max(0, rows - placed))
        if grid > 0 and rows == placed + grid**2:
            return placed, grid
    name = stored_names(layout, "pos_embed")[0]
    raise BadFileError(f"{archive.path}: tensor {name}: {rows} rows, expected {usual} more than a square")


def _refuse_gates(archive: TensorFile, layout: Layout) -> None:
    """A gated MLP (SwiGLU) has names of its own, or in timm's files a first layer twice as wide as the second reads."""
    gated = next((name for name in archive.entries if GATED.search(name)), None)
    if gated is None and layout is TIMM:
        first, second = (archive.entries.get(f"blocks.0.mlp.{layer}.weight") for layer in ("fc1", "fc2"))
        if first and second and len(second.shape) == 2 and first.shape[:1] == (2 * second.shape[1],):
            gated = "blocks.0.mlp.fc1.weight"
    if gated is not None:
        raise BadFileError(f"{archive.path}: tensor {gated}: {NO_GATES}")


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
