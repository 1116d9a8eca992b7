"""Pre-trained weights from the files that people publish, by path or hub name.

- Google's official `.npz` (ViT-B_16.npz, which the paper uses),
- timm's names in `.safetensors`, or in `.pth`, `.pt`, `.bin` (read as tensors only, never as code),
- folders of transformers' ViT, DeiT and DINOv2, with and without registers, or of timm's ViTs (config.json and
  model.safetensors),
- a hub name such as facebook/dinov2-small (see `hub` and `known`),
- `vit-glyphs`, the small ViT that comes with the package.

Sizes come from the shapes in the file, checked against all that it says of itself before anything is allocated.
A file that does not fit to the last tensor is refused: weights are never swapped, skipped or left random.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import torch

from promptpool.backbones.compilation import check_compiler
from promptpool.backbones.descriptions import Description, from_folder, from_metadata
from promptpool.backbones.hub import TENSORS, fetch, is_hub_name
from promptpool.backbones.known import hint
from promptpool.backbones.layouts import OFFICIAL, TIMM, Layout, stored_names, stored_shape, turned
from promptpool.backbones.positions import place_tokens, resize_positions
from promptpool.backbones.products import check_products
from promptpool.backbones.sizes import Sizes, read_heads, read_sizes
from promptpool.backbones.tensors import FLOATS, READERS, TensorEntry, TensorFile, open_tensor_file
from promptpool.backbones.vit import GELUS, PRECISIONS, ViT
from promptpool.checks import one_of
from promptpool.errors import BadFileError

SHIPPED = {"vit-glyphs": "vit_glyphs.safetensors"}  # what comes with the package, see assets/README.md


def load_backbone(
    name_or_path: str | Path,
    *,
    image_size: int | None = None,
    heads: int | None = None,
    gelu: str | None = None,
    precision: str = "single",
    products: str = "torch",
    compile: bool = False,  # noqa: A002
    checkpointing: bool = False,
) -> ViT:
    """The ViT in a weights file, a Hugging Face folder, or on the hub, in float32.

    `image_size` is by default that of the images the model is meant for, as a folder's preprocessor_config.json says
    (224 for DINOv2, whose positions are for 518), or else that of the file's positions; these are resized where it
    differs, as timm does, or transformers for its folders. The file's SHA-256 is in `origin`, and its
    mean and deviation, if it gives them, in `values`. A timm checkpoint without `heads` in its metadata gets one
    head per 64 channels, as ViT-Ti, -S, -B and -L have (the widths of ViT-H, -g and -G get their 16); `heads` says
    otherwise. `gelu` is "exact" or "tanh" (see `ViT`); None is what the file says, and exact where it says nothing.
    `precision` is that of the products, "single" or "bfloat16"; the weights themselves are in float32 in any case.
    `products` says who computes those of single precision on a CPU, "torch" or "onednn" (see `products`).
    `compile` runs the blocks by code that torch compiles for this machine, which needs a C++ compiler and some time at
    first; `checkpointing` computes them a second time in the backward pass, in less memory.
    """
    if gelu is not None:
        one_of(GELUS, gelu=gelu)
    one_of(PRECISIONS, precision=precision)
    check_products(products, compiled=compile, precision=precision)
    if compile:
        check_compiler()  # before a large file is read
    with _opened(_located(name_or_path)) as (archive, layout, description):
        model = _built(archive, layout, description, image_size, heads, gelu)
    model.compute(precision=precision, products=products, compiled=compile, checkpointing=checkpointing)
    return model


def describe(path: Path) -> ViT:
    """The ViT that `load_backbone` reads from a file or folder, of shapes without numbers."""
    with _opened(path) as (archive, layout, description):
        model = _planned(archive, layout, description, None, None, None).model
    model.values = description.values
    return model


@contextmanager
def _opened(path: Path) -> Iterator[tuple[TensorFile, Layout, Description]]:
    """The tensors at a path, how they are laid out, and what is said of them; open until the block ends."""
    if path.is_dir():
        layout, description = from_folder(path)
        with open_tensor_file(path / TENSORS) as archive:
            yield archive, layout, description
        return
    with open_tensor_file(path) as archive:
        if path.suffix == ".npz":
            yield archive, OFFICIAL, Description(path)
        else:
            yield archive, TIMM, from_metadata(path, archive.metadata)


def _located(name_or_path: str | Path) -> Path:
    if name_or_path in SHIPPED:
        return Path(str(files("promptpool.backbones") / "assets" / SHIPPED[str(name_or_path)]))
    path = Path(name_or_path)
    if path.exists() or isinstance(name_or_path, Path) or path.suffix in READERS:
        return path
    if is_hub_name(name_or_path):
        return fetch(name_or_path)
    kinds = ", ".join(READERS)
    raise BadFileError(
        f"{name_or_path}: there is no such file; expected a weights file ({kinds}), "
        f"a folder with config.json and model.safetensors, or a hub name such as owner/name{hint(str(name_or_path))}"
    )


def _built(
    archive: TensorFile,
    layout: Layout,
    description: Description,
    image_size: int | None,
    heads: int | None,
    gelu: str | None,
) -> ViT:
    plan = _planned(archive, layout, description, image_size, heads, gelu)
    state = {}
    for name, parameter in plan.stored.named_parameters():
        if name in plan.absent:
            state[name] = torch.zeros(parameter.shape)
        else:
            parts = [turned(layout, name, plan.archive.read(theirs)) for theirs in stored_names(layout, name)]
            state[name] = torch.cat(parts).contiguous()
    first, grid = 1 + plan.model.distilled, plan.model.image_size // plan.model.patch_size
    place_tokens(state, first=first, placed=plan.sizes.placed)
    state["pos_embed"] = resize_positions(state["pos_embed"], grid, first=first, antialias=layout.antialias)
    plan.model.load_state_dict(state, assign=True)
    plan.model.values = description.values
    with archive.path.open("rb") as file:
        plan.model.origin = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    return plan.model


class _Plan(NamedTuple):
    """A file that fits: its tensors by the layout's names, the ViT they are of, and the ViT that is wanted of them."""

    archive: TensorFile
    sizes: Sizes
    stored: ViT
    model: ViT
    absent: tuple[str, ...]  # parameters that the file has not and that are zero


def _planned(
    archive: TensorFile,
    layout: Layout,
    description: Description,
    image_size: int | None,
    heads: int | None,
    gelu: str | None,
) -> _Plan:
    archive = _trimmed(archive, layout)
    sizes = read_sizes(archive, layout)
    for size, field, value in description.claims:
        if getattr(sizes, size) != value:
            raise BadFileError(f"{description.source}: {field} = {value}, but the tensors have {getattr(sizes, size)}")
    if heads is not None and heads < 1:
        raise ValueError(f"heads = {heads}: must be at least 1")
    heads = heads or description.heads or read_heads(archive, layout, sizes.dim)
    gelu = gelu or description.gelu
    try:
        stored = _empty(sizes, heads, description.norm_eps, gelu, sizes.image_size)
    except ValueError as error:
        raise BadFileError(f"{description.source}: {error}") from error
    meant = description.image_size
    if image_size is None and meant is not None and meant % sizes.patch_size == 0:
        image_size = meant
    model = stored if image_size is None else _empty(sizes, heads, description.norm_eps, gelu, image_size)
    absent = () if description.qkv_bias else tuple(f"blocks.{i}.attn.qkv.bias" for i in range(sizes.depth))
    _check(archive, layout, stored, absent, sizes)
    return _Plan(archive, sizes, stored, model, absent)


def _trimmed(archive: TensorFile, layout: Layout) -> TensorFile:
    """The archive without a wrapper's prefix on the names, and without tensors that play no part in features."""
    entries: dict[str, TensorEntry] = {}
    originals: dict[str, str] = {}
    for original, entry in archive.entries.items():
        prefix = next((prefix for prefix in layout.prefixes if original.startswith(prefix)), "")
        name = original.removeprefix(prefix)
        name = layout.renamed.get(name, name)
        for beginning, reason in layout.refused.items():
            if name.startswith(beginning):
                raise BadFileError(f"{archive.path}: tensor {original}: {reason}")
        if name in entries:
            raise BadFileError(f"{archive.path}: tensors {originals[name]} and {original} are both {name}")
        if not name.startswith(layout.dropped):
            entries[name], originals[name] = entry, original
    return replace(archive, entries=entries, read=lambda name: archive.read(originals[name]))


def _empty(sizes: Sizes, heads: int, norm_eps: float, gelu: str, image_size: int) -> ViT:
    """A ViT of shapes without numbers."""
    with torch.device("meta"):
        return ViT(
            image_size=image_size,
            patch_size=sizes.patch_size,
            dim=sizes.dim,
            depth=sizes.depth,
            heads=heads,
            mlp_dim=sizes.mlp_dim,
            layer_scale=sizes.layer_scale,
            distilled=sizes.distilled,
            registers=sizes.registers,
            norm_eps=norm_eps,
            gelu=gelu,
        )


def _check(archive: TensorFile, layout: Layout, model: ViT, absent: tuple[str, ...], sizes: Sizes) -> None:
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters() if name not in absent}
    shapes["pos_embed"] = (1, sizes.placed + (sizes.image_size // sizes.patch_size) ** 2, sizes.dim)
    expected = {
        theirs: stored_shape(layout, name, shape, model.heads)
        for name, shape in shapes.items()
        for theirs in stored_names(layout, name)
    }
    for fault, names in (
        ("missing", expected.keys() - archive.entries),
        ("unknown", archive.entries.keys() - expected),
    ):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise BadFileError(f"{archive.path}: {fault} tensor {min(names)}{more}")
    for name, shape in expected.items():
        entry = archive.entries[name]
        if entry.shape != shape:
            raise BadFileError(f"{archive.path}: tensor {name}: shape {[*entry.shape]}, expected {[*shape]}")
        if entry.dtype not in FLOATS:
            raise BadFileError(f"{archive.path}: tensor {name}: {entry.dtype}, expected floating-point numbers")
