"""What the tests of weights share: random ViTs, writers of the layouts people publish, and the refusal of a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from promptpool.backbones.vit import ViT
from promptpool.backbones.weights import load_backbone
from promptpool.errors import BadFileError


def random_vit(
    *,
    dim: int = 48,
    heads: int = 3,
    layer_scale: bool = False,
    distilled: bool = False,
    registers: int = 0,
    gelu: str = "exact",
) -> ViT:
    """Every parameter random, so that no mistake hides behind a zero or a one."""
    vit = ViT(
        image_size=32,
        patch_size=8,
        dim=dim,
        depth=3,
        heads=heads,
        mlp_dim=80,
        layer_scale=layer_scale,
        distilled=distilled,
        registers=registers,
        gelu=gelu,
    )
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in vit.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return vit


def images(size: int = 32) -> Tensor:
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))


def all_rows(vit: ViT, x: Tensor) -> Tensor:
    with torch.no_grad():
        return vit.encode(vit.embed(x))


def tensors_of(vit: ViT) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in vit.state_dict().items()}


def write_timm(path: Path, tensors: dict[str, Tensor], **metadata: str) -> Path:
    save_file(tensors, path, metadata)
    return path


def write_official(path: Path, vit: ViT, **changed: np.ndarray) -> Path:
    """Google's layout: flax's axes, and attention kernels with an axis for the heads."""
    tensors = tensors_of(vit)
    split = (vit.heads, vit.dim // vit.heads)
    arrays = {
        "cls": tensors["cls_token"],
        "Transformer/posembed_input/pos_embedding": tensors["pos_embed"],
        "embedding/kernel": tensors["patch_embed.proj.weight"].permute(2, 3, 1, 0),
        "embedding/bias": tensors["patch_embed.proj.bias"],
        "Transformer/encoder_norm/scale": tensors["norm.weight"],
        "Transformer/encoder_norm/bias": tensors["norm.bias"],
        "head/kernel": torch.zeros(vit.dim, 10),
        "head/bias": torch.zeros(10),
        "pre_logits/kernel": torch.zeros(vit.dim, vit.dim),
        "pre_logits/bias": torch.zeros(vit.dim),
    }
    for number in range(vit.depth):
        ours, theirs = f"blocks.{number}", f"Transformer/encoderblock_{number}"
        attention = f"{theirs}/MultiHeadDotProductAttention_1"
        for norm, layer_norm in (("norm1", "LayerNorm_0"), ("norm2", "LayerNorm_2")):
            arrays[f"{theirs}/{layer_norm}/scale"] = tensors[f"{ours}.{norm}.weight"]
            arrays[f"{theirs}/{layer_norm}/bias"] = tensors[f"{ours}.{norm}.bias"]
        weights = tensors[f"{ours}.attn.qkv.weight"].chunk(3)
        biases = tensors[f"{ours}.attn.qkv.bias"].chunk(3)
        for part, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
            arrays[f"{attention}/{part}/kernel"] = weight.T.reshape(vit.dim, *split)
            arrays[f"{attention}/{part}/bias"] = bias.reshape(split)
        arrays[f"{attention}/out/kernel"] = tensors[f"{ours}.attn.proj.weight"].T.reshape(*split, vit.dim)
        arrays[f"{attention}/out/bias"] = tensors[f"{ours}.attn.proj.bias"]
        for layer, dense in (("fc1", "Dense_0"), ("fc2", "Dense_1")):
            arrays[f"{theirs}/MlpBlock_3/{dense}/kernel"] = tensors[f"{ours}.mlp.{layer}.weight"].T
            arrays[f"{theirs}/MlpBlock_3/{dense}/bias"] = tensors[f"{ours}.mlp.{layer}.bias"]
    stored = {name: tensor.numpy() for name, tensor in arrays.items()} | changed
    np.savez(path, **stored)  # type: ignore[arg-type]  # mypy takes them for allow_pickle
    return path


def refusal(path: Path | str) -> str:
    with pytest.raises(BadFileError) as caught:
        load_backbone(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message
