"""A file that does not fit gives one BadFileError that names the file and the tensor or the value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from promptpool.backbones.weights import load_backbone
from promptpool.errors import BadFileError
from published import random_vit, refusal, tensors_of, write_timm

CONFIG: dict[str, object] = {
    "model_type": "vit",
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 80,
    "image_size": 32,
    "patch_size": 8,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "num_channels": 3,
}


def hugging_face_folder(folder: Path, **changed: object) -> Path:
    """A folder whose tensors are those of a ViT of 48 channels, as far as the checks of config.json look."""
    vit = random_vit()
    part = {f"encoder.layer.{n}.layernorm_before.weight": vit.norm.weight.detach().clone() for n in range(3)}
    tensors = tensors_of(vit)
    named = {
        "embeddings.cls_token": tensors["cls_token"],
        "embeddings.position_embeddings": tensors["pos_embed"],
        "embeddings.patch_embeddings.projection.weight": tensors["patch_embed.proj.weight"],
        "encoder.layer.0.intermediate.dense.bias": tensors["blocks.0.mlp.fc1.bias"],
    }
    save_file(named | part, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG | changed))
    return folder


CHANGES: dict[str, tuple[dict[str, Tensor | None], str]] = {
    "missing": ({"norm.bias": None}, "missing tensor norm.bias"),
    "no class token": ({"cls_token": None}, "no tensor cls_token"),
    "unknown": ({"blocks.0.attn.q_norm.weight": torch.ones(16)}, "unknown tensor blocks.0.attn.q_norm.weight"),
    "block without end": ({"blocks.7.norm1.weight": torch.ones(48)}, "missing tensor blocks.3.attn.proj.bias and"),
    "shape": ({"norm.bias": torch.ones(47)}, r"tensor norm.bias: shape [47], expected [48]"),
    "axes": ({"cls_token": torch.ones(48)}, "tensor cls_token: shape [48], expected 3 axes"),
    "empty": ({"cls_token": torch.ones(1, 1, 0)}, "tensor cls_token: shape [1, 1, 0], expected 3 axes, none empty"),
    "not square": ({"pos_embed": torch.ones(1, 15, 48)}, "tensor pos_embed: 15 rows, expected 1 more than a square"),
    "integers": ({"norm.bias": torch.ones(48, dtype=torch.int64)}, "tensor norm.bias: I64, expected floating"),
    "fc_norm": ({"fc_norm.weight": torch.ones(48)}, "tensor fc_norm.weight: it averages patches"),
    "norm_pre": ({"norm_pre.weight": torch.ones(48)}, "tensor norm_pre.weight: a norm before the first block"),
    "registers": ({"reg_token": torch.ones(1, 4, 47)}, "tensor reg_token: shape [1, 4, 47], expected [1, 4, 48]"),
    "registers without an axis": ({"reg_token": torch.ones(4, 48)}, "tensor reg_token: shape [4, 48], expected 3 axes"),
    "registers twice": (
        {"reg_token": torch.ones(1, 4, 48), "register_tokens": torch.ones(1, 4, 48)},
        "tensors reg_token and register_tokens are both reg_token",
    ),
    "gates in timm's names": ({"blocks.0.mlp.fc2.weight": torch.ones(48, 40)}, "blocks.0.mlp.fc1.weight: a gated MLP"),
    "gates in Meta's names": ({"blocks.0.mlp.w12.weight": torch.ones(1)}, "blocks.0.mlp.w12.weight: a gated MLP"),
}


@pytest.mark.parametrize(("changed", "expected"), CHANGES.values(), ids=CHANGES.keys())
def test_names_the_tensor(changed: dict[str, Tensor | None], expected: str, tmp_path: Path) -> None:
    tensors: dict[str, Tensor | None] = {**tensors_of(random_vit()), **changed}
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    assert expected in refusal(write_timm(tmp_path / "timm.safetensors", kept, heads="3"))


METADATA = {
    "dim = 48: must be a multiple of heads = 5": {"heads": "5"},
    "heads = 'many'": {"heads": "many"},
    "heads = '-3'": {"heads": "-3"},
    "patch_size = 16, but the tensors have 8": {"patch_size": "16"},
    "image_size = 1000000000, but the tensors have 32": {"image_size": "1000000000"},
    "norm_eps = 'nan'": {"norm_eps": "nan"},
    "gelu = 'quick': must be one of exact, tanh": {"gelu": "quick"},
    "mean = '1,2'": {"mean": "1,2", "std": "1,1,1"},
    "std = '1,1,0'": {"mean": "1,1,1", "std": "1,1,0"},
}


@pytest.mark.parametrize(("expected", "metadata"), METADATA.items())
def test_names_the_wrong_metadata(expected: str, metadata: dict[str, str], tmp_path: Path) -> None:
    path = write_timm(tmp_path / "timm.safetensors", tensors_of(random_vit()), **{"heads": "3"} | metadata)
    assert expected in refusal(path)


def test_heads_that_cannot_be_guessed_must_be_given(tmp_path: Path) -> None:
    path = write_timm(tmp_path / "timm.safetensors", tensors_of(random_vit()))
    assert "width 48 is not a multiple of 64: metadata must give heads" in refusal(path)


CONFIGS: list[tuple[str, object, str]] = [
    ("hidden_size", 10**9, "hidden_size = 1000000000, but the tensors have 48"),
    ("num_hidden_layers", 10**9, "num_hidden_layers = 1000000000, but the tensors have 3"),
    ("intermediate_size", 10**12, "intermediate_size = 1000000000000, but the tensors have 80"),
    ("image_size", 10**9, "image_size = 1000000000, but the tensors have 32"),
    ("patch_size", 0, "patch_size = 0: must be a whole number from 1"),
    ("hidden_size", 48.0, "hidden_size = 48.0: must be a whole number"),
    ("image_size", [32, 32], "image_size = [32, 32]: must be a whole number"),
    ("num_attention_heads", 7, "dim = 48: must be a multiple of heads = 7"),
    ("num_attention_heads", None, "num_attention_heads = None: must be a whole number"),
    ("layer_norm_eps", True, "layer_norm_eps = True: must be a number between 0 and 1"),
    ("qkv_bias", "yes", "qkv_bias = 'yes': must be true or false"),
    ("hidden_act", "relu", "hidden_act = 'relu': must be one of gelu, gelu_new, gelu_pytorch_tanh, gelu_fast"),
    ("hidden_act", ["gelu"], "hidden_act = ['gelu']: must be one of gelu"),
    ("num_channels", 1, "num_channels = 1: only 3 is supported"),
    ("use_swiglu_ffn", True, "use_swiglu_ffn = True: a gated MLP (SwiGLU), which is not computed here"),
    ("use_swiglu_ffn", None, "use_swiglu_ffn = None: a gated MLP"),
    ("model_type", "swin", "model_type = 'swin': must be one of vit, deit, dinov2, dinov2_with_registers"),
]


@pytest.mark.parametrize(("field", "value", "expected"), CONFIGS)
def test_names_the_wrong_value_in_config(field: str, value: object, expected: str, tmp_path: Path) -> None:
    assert expected in refusal(hugging_face_folder(tmp_path, **{field: value}))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"hidden_size": NaN', "\x00", "[" * 100_000, "\ud800"])
def test_a_config_that_is_no_json_object(text: str, tmp_path: Path) -> None:
    hugging_face_folder(tmp_path)
    (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    assert "config.json" in refusal(tmp_path)


def test_a_folder_without_config(tmp_path: Path) -> None:
    assert "a folder without config.json" in refusal(tmp_path)


def test_a_folder_without_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert "model.safetensors: there is no such file" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["weights.txt", "weights"])
def test_a_file_of_another_kind(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"x")
    assert "must end in one of .npz, .safetensors, .pth, .pt, .bin" in refusal(tmp_path / name)


@pytest.mark.parametrize("name", ["nothing here", "missing.npz", "owner/missing.safetensors", "../owner/name", ""])
def test_a_name_of_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadFileError, match=r"there is no such file|a folder without config\.json"):
        load_backbone(name)
