"""Published layouts give the features they should: against transformers, and against the ViT they were written from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers  # whose models are imported when they are first used

from promptpool.backbones.positions import resize_positions
from promptpool.backbones.weights import load_backbone
from promptpool.errors import BadFileError
from published import all_rows, images, random_vit, tensors_of, write_official, write_timm

SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "image_size": 32,
    "patch_size": 8,
}
MODELS = {
    "vit": lambda: transformers.ViTModel(transformers.ViTConfig(**SIZES, intermediate_size=80)),
    "vit without biases": lambda: transformers.ViTModel(
        transformers.ViTConfig(**SIZES, intermediate_size=80, qkv_bias=False)
    ),
    "vit with a classifier": lambda: transformers.ViTForImageClassification(
        transformers.ViTConfig(**SIZES, intermediate_size=80)
    ),
    "deit": lambda: transformers.DeiTModel(transformers.DeiTConfig(**SIZES, intermediate_size=80)),
    "dinov2": lambda: transformers.Dinov2Model(transformers.Dinov2Config(**SIZES, mlp_ratio=2)),
    "dinov2 gelu_new": lambda: transformers.Dinov2Model(
        transformers.Dinov2Config(**SIZES, mlp_ratio=2, hidden_act="gelu_new")
    ),
    "registers": lambda: transformers.Dinov2WithRegistersModel(
        transformers.Dinov2WithRegistersConfig(**SIZES, mlp_ratio=2)
    ),
    "two registers": lambda: transformers.Dinov2WithRegistersModel(
        transformers.Dinov2WithRegistersConfig(**SIZES, mlp_ratio=2, num_register_tokens=2)
    ),
    "registers with a classifier": lambda: transformers.Dinov2WithRegistersForImageClassification(
        transformers.Dinov2WithRegistersConfig(**SIZES, mlp_ratio=2)
    ),
    "gelu_new": lambda: transformers.ViTModel(
        transformers.ViTConfig(**SIZES, intermediate_size=80, hidden_act="gelu_new")
    ),
    "gelu_pytorch_tanh": lambda: transformers.ViTModel(
        transformers.ViTConfig(**SIZES, intermediate_size=80, hidden_act="gelu_pytorch_tanh")
    ),
    "gelu_fast": lambda: transformers.ViTModel(
        transformers.ViTConfig(**SIZES, intermediate_size=80, hidden_act="gelu_fast")
    ),
}


def save_random(model: transformers.PreTrainedModel, folder: Path) -> transformers.PreTrainedModel:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    model.save_pretrained(folder)
    return model.eval()


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
def test_equals_transformers(make: Callable[[], transformers.PreTrainedModel], tmp_path: Path) -> None:
    model = save_random(make(), tmp_path)
    with torch.no_grad():
        expected = model.base_model(images()).last_hidden_state
    loaded = load_backbone(tmp_path)
    torch.testing.assert_close(all_rows(loaded, images()), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(loaded.features(images()), expected[:, 0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", [24, 48, 56])
@pytest.mark.parametrize("name", ["vit", "deit", "dinov2", "registers"])
def test_equals_transformers_at_another_image_size(name: str, size: int, tmp_path: Path) -> None:
    model = save_random(MODELS[name](), tmp_path)
    asked = {} if name in ("dinov2", "registers") else {"interpolate_pos_encoding": True}
    with torch.no_grad():
        expected = model(images(size), **asked).last_hidden_state
    loaded = load_backbone(tmp_path, image_size=size)
    torch.testing.assert_close(all_rows(loaded, images(size)), expected, atol=1e-5, rtol=0)


def test_reads_the_official_npz(tmp_path: Path) -> None:
    vit = random_vit()
    loaded = load_backbone(write_official(tmp_path / "ViT.npz", vit))
    assert torch.equal(all_rows(loaded, images()), all_rows(vit, images()))


@pytest.mark.parametrize("option", ["layer_scale", "distilled"])
def test_reads_timm_safetensors(option: str, tmp_path: Path) -> None:
    vit = random_vit(layer_scale=option == "layer_scale", distilled=option == "distilled")
    loaded = load_backbone(write_timm(tmp_path / "timm.safetensors", tensors_of(vit), heads="3"))
    assert torch.equal(all_rows(loaded, images()), all_rows(vit, images()))


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".bin"])
@pytest.mark.parametrize("nest", [None, "model", "state_dict", "model_state"])
def test_reads_timm_pickles(suffix: str, nest: str | None, tmp_path: Path) -> None:
    vit = random_vit(dim=64, heads=1)
    tensors = {f"module.{name}": tensor for name, tensor in tensors_of(vit).items()}
    torch.save(tensors if nest is None else {nest: tensors, "epoch": 3}, tmp_path / f"timm{suffix}")
    loaded = load_backbone(tmp_path / f"timm{suffix}")
    assert torch.equal(all_rows(loaded, images()), all_rows(vit, images()))


def test_drops_what_plays_no_part_in_features(tmp_path: Path) -> None:
    extra = {name: torch.ones(2) for name in ("head.weight", "head_dist.bias", "pre_logits.fc.bias", "mask_token")}
    path = write_timm(tmp_path / "timm.safetensors", tensors_of(random_vit()) | extra, heads="3")
    assert torch.equal(all_rows(load_backbone(path), images()), all_rows(random_vit(), images()))


def test_half_precision_becomes_float32(tmp_path: Path) -> None:
    halves = {name: tensor.half() for name, tensor in tensors_of(random_vit()).items()}
    loaded = load_backbone(write_timm(tmp_path / "half.safetensors", halves, heads="3"))
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}
    assert torch.equal(loaded.norm.weight, halves["norm.weight"].float())


def test_parameters_can_be_trained(tmp_path: Path) -> None:
    loaded = load_backbone(write_timm(tmp_path / "timm.safetensors", tensors_of(random_vit()), heads="3"))
    assert all(parameter.requires_grad for parameter in loaded.parameters())


def test_one_head_per_64_channels_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    tensors = tensors_of(random_vit(dim=128, heads=2))
    assert load_backbone(write_timm(tmp_path / "silent.safetensors", tensors)).heads == 2
    assert load_backbone(write_timm(tmp_path / "says.safetensors", tensors, heads="8")).heads == 8


def test_keeps_the_hash_of_the_file(tmp_path: Path) -> None:
    path = write_official(tmp_path / "ViT.npz", random_vit())
    assert load_backbone(path).origin == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def test_keeps_mean_and_deviation_of_metadata(tmp_path: Path) -> None:
    path = tmp_path / "timm.safetensors"
    write_timm(path, tensors_of(random_vit()), heads="3", norm_eps="1e-5", mean="0.5,0.4,0.3", std="0.2,0.2,0.1")
    loaded = load_backbone(path)
    assert loaded.values == ((0.5, 0.4, 0.3), (0.2, 0.2, 0.1))
    assert loaded.norm_eps == 1e-5


def test_keeps_mean_and_deviation_of_a_folder(tmp_path: Path) -> None:
    save_random(MODELS["vit"](), tmp_path)
    assert load_backbone(tmp_path).values is None
    preprocessor = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.25, 0.25, 0.25]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    assert load_backbone(tmp_path).values == ((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


@pytest.mark.parametrize(
    ("preprocessor", "expected"),
    [
        ({"crop_size": {"height": 24, "width": 24}, "size": {"shortest_edge": 28}}, 24),  # as DINOv2's has it
        ({"size": {"height": 48, "width": 48}}, 48),  # as newer ViTs' has it
        ({"size": 48}, 48),  # as older ones' has it
        ({"crop_size": 24, "size": 48, "do_center_crop": True}, 24),
        ({"crop_size": 24, "size": 48, "do_center_crop": False}, 48),
        ({"size": {"shortest_edge": 48}}, 32),
        ({"size": {"height": 48, "width": 24}}, 32),
        ({"size": 50}, 32),  # patches of 8 do not fill it
        ({}, 32),
    ],
)
def test_the_image_size_is_what_the_preprocessor_makes(
    preprocessor: dict[str, object], expected: int, tmp_path: Path
) -> None:
    save_random(MODELS["dinov2"](), tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    assert load_backbone(tmp_path).image_size == expected
    assert load_backbone(tmp_path, image_size=40).image_size == 40


def test_a_preprocessor_that_makes_images_too_large(tmp_path: Path) -> None:
    save_random(MODELS["dinov2"](), tmp_path)
    (tmp_path / "preprocessor_config.json").write_text('{"crop_size": 800000}')
    with pytest.raises(BadFileError, match="crop_size = 800000: must be from 1 to 4096"):
        load_backbone(tmp_path)


@pytest.mark.parametrize("distilled", [False, True])
def test_positions_are_resized_to_the_image(distilled: bool, tmp_path: Path) -> None:
    vit = random_vit(distilled=distilled)
    path = write_timm(tmp_path / "timm.safetensors", tensors_of(vit), heads="3")
    loaded = load_backbone(path, image_size=48)
    assert loaded.image_size == 48
    assert loaded.pos_embed.shape == (1, 1 + distilled + 36, 48)
    assert torch.equal(loaded.pos_embed[:, : 1 + distilled], vit.pos_embed[:, : 1 + distilled])
    assert all_rows(loaded, images(48)).isfinite().all()


def test_positions_of_the_same_size_stay(tmp_path: Path) -> None:
    path = write_official(tmp_path / "ViT.npz", random_vit())
    assert torch.equal(load_backbone(path, image_size=32).pos_embed, random_vit().pos_embed)


def test_resizing_keeps_a_constant_and_its_direction() -> None:
    across = torch.linspace(0, 1, 4).expand(4, 4).reshape(1, 16, 1)
    positions = torch.cat([torch.full((1, 1, 2), 9.0), torch.cat([across, torch.ones(1, 16, 1)], dim=2)], dim=1)
    grid = resize_positions(positions, 8)[0, 1:].unflatten(0, (8, 8))
    torch.testing.assert_close(grid[..., 1], torch.ones(8, 8))
    torch.testing.assert_close(grid[0, :, 0], grid[7, :, 0])
    assert grid[0, :, 0].diff().ge(0).all()
    assert grid[0, 7, 0] > 0.9


def test_an_image_size_that_patches_do_not_fill_is_the_callers_mistake(tmp_path: Path) -> None:
    path = write_official(tmp_path / "ViT.npz", random_vit())
    with pytest.raises(ValueError, match="image_size = 33: must be a multiple of patch_size = 8"):
        load_backbone(path, image_size=33)


def test_gelu_is_the_files_unless_told(tmp_path: Path) -> None:
    save_random(MODELS["gelu_new"](), tmp_path / "folder")
    timm = write_timm(tmp_path / "timm.safetensors", tensors_of(random_vit()), heads="3", gelu="tanh")
    for path in (tmp_path / "folder", timm):
        assert [load_backbone(path, gelu=gelu).gelu for gelu in (None, "exact", "tanh")] == ["tanh", "exact", "tanh"]
    silent = write_official(tmp_path / "ViT.npz", random_vit())
    assert [load_backbone(silent, gelu=gelu).gelu for gelu in (None, "tanh")] == ["exact", "tanh"]
    expected = all_rows(random_vit(gelu="tanh"), images())
    assert torch.equal(all_rows(load_backbone(silent, gelu="tanh", image_size=32), images()), expected)
    with pytest.raises(ValueError, match=r"^gelu = 'quick': must be one of exact, tanh"):
        load_backbone(silent, gelu="quick")
