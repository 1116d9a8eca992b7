"""What the tests of weights share: random ViTs, writers of the layouts people publish, and the refusal of a file."""

from __future__ import annotations

import json
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


SHARED = {  # names of transformers, beside ours; {} is a block
    "cls_token": "embeddings.cls_token",
    "pos_embed": "embeddings.position_embeddings",
    "patch_embed.proj": "embeddings.patch_embeddings.projection",
    "norm": "layernorm",
    "attn.proj": "attention.output.dense",
}
VIT_BLOCK = {
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
}
DINOV2_BLOCK = {"ls1.gamma": "layer_scale1.lambda1", "ls2.gamma": "layer_scale2.lambda1"}


def transformers_names(vit: ViT) -> dict[str, Tensor]:
    """A ViT's tensors under the names that transformers gives them: DINOv2's if it has scales, else those of ViT."""
    block = DINOV2_BLOCK if vit.layer_scale else VIT_BLOCK
    named: dict[str, Tensor] = {}
    for name, tensor in tensors_of(vit).items():
        if name == "reg_token":
            named["embeddings.register_tokens"] = tensor
        elif not name.startswith("blocks."):
            stem, dot, end = name.rpartition(".")
            named[SHARED.get(name) or f"{SHARED[stem]}{dot}{end}"] = tensor
        else:
            _, number, rest = name.split(".", 2)
            stem, _, end = rest.rpartition(".")
            place = f"encoder.layer.{number}"
            if stem == "attn.qkv":
                for part, third in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                    named[f"{place}.attention.attention.{part}.{end}"] = third.clone()
            elif rest in block:
                named[f"{place}.{block[rest]}"] = tensor
            else:
                named[f"{place}.{block.get(stem) or SHARED.get(stem, stem)}.{end}"] = tensor
    extra = "embeddings.mask_token" if vit.layer_scale else "pooler.dense.bias"
    return named | {extra: torch.ones(1, vit.dim)}


def write_transformers(folder: Path, vit: ViT, *, crop: int | None = None) -> Path:
    """A folder as the hub has those of Google's ViT and of DINOv2, down to the fields of its JSON files."""
    save_file(transformers_names(vit), folder / "model.safetensors", {"format": "pt"})
    config: dict[str, object] = {
        "hidden_size": vit.dim,
        "num_hidden_layers": vit.depth,
        "num_attention_heads": vit.heads,
        "image_size": vit.image_size,
        "patch_size": vit.patch_size,
        "num_channels": 3,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-6,
        "qkv_bias": True,
    }
    if not vit.layer_scale:
        config |= {"architectures": ["ViTModel"], "model_type": "vit", "intermediate_size": vit.mlp_dim}
        described: dict[str, object] = {"image_processor_type": "ViTImageProcessor", "size": vit.image_size}
        described |= {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
    else:
        config |= {"architectures": ["Dinov2Model"], "model_type": "dinov2", "mlp_ratio": 4, "layerscale_value": 1.0}
        config |= {"use_swiglu_ffn": False, "drop_path_rate": 0.0}
        side = crop or vit.image_size
        described = {
            "image_processor_type": "BitImageProcessor",
            "do_center_crop": True,
            "size": {"shortest_edge": 256},
        }
        described |= {"crop_size": {"height": side, "width": side}}
        described |= {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
    if vit.registers:
        config |= {"model_type": "dinov2_with_registers", "num_register_tokens": vit.registers}
        config |= {"architectures": ["Dinov2WithRegistersModel"]}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps(described))
    return folder


TIMM_TRAINED: dict[str, object] = {
    "tag": "augreg_in21k_ft_in1k",
    "custom_load": True,
    "input_size": [3, 32, 32],
    "fixed_input_size": True,
    "interpolation": "bicubic",
    "crop_pct": 0.9,
    "crop_mode": "center",
    "mean": [0.5, 0.4, 0.3],
    "std": [0.5, 0.25, 0.5],
    "num_classes": 1000,
    "first_conv": "patch_embed.proj",
    "classifier": "head",
}
TIMM_CONFIG: dict[str, object] = {
    "architecture": "vit_tiny_patch16_224",
    "num_classes": 1000,
    "num_features": 64,
    "global_pool": "token",
    "pretrained_cfg": TIMM_TRAINED,
}


def write_timm_folder(folder: Path, tensors: dict[str, Tensor], **changed: object) -> Path:
    """A folder as timm 1.0 saves it for the hub, of a ViT that is 64 wide."""
    head = {"head.weight": torch.ones(5, 64), "head.bias": torch.ones(5)}
    write_timm(folder / "model.safetensors", tensors | head)
    (folder / "config.json").write_text(json.dumps(TIMM_CONFIG | changed))
    return folder
