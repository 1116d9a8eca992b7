"""Folders as timm saves them for the hub: config.json says the architecture, and of its images what is to be known.

Fields are those that timm 1.0 writes; tensors are of small random ViTs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from promptpool.backbones.vit import ViT
from promptpool.backbones.weights import load_backbone
from published import TIMM_TRAINED as TRAINED
from published import all_rows, images, random_vit, refusal, tensors_of, write_timm_folder


def vit(**values: bool | int) -> ViT:
    return random_vit(dim=64, heads=1, **values)  # type: ignore[arg-type]


def test_reads_the_model_and_what_its_images_are(tmp_path: Path) -> None:
    loaded = load_backbone(write_timm_folder(tmp_path, tensors_of(vit())))
    assert torch.equal(all_rows(loaded, images()), all_rows(vit(), images()))
    assert loaded.values == ((0.5, 0.4, 0.3), (0.5, 0.25, 0.5))
    assert (loaded.image_size, loaded.norm_eps, loaded.gelu) == (32, 1e-6, "exact")


def test_as_transformers_wraps_it(tmp_path: Path) -> None:
    tensors = {f"timm_model.{name}": value for name, value in tensors_of(vit(layer_scale=True)).items()}
    loaded = load_backbone(write_timm_folder(tmp_path, tensors, model_type="timm_wrapper"))
    assert torch.equal(all_rows(loaded, images()), all_rows(vit(layer_scale=True), images()))


def test_heads_that_the_architecture_was_made_with(tmp_path: Path) -> None:
    folder = write_timm_folder(tmp_path, tensors_of(vit()), model_args={"num_heads": 4})
    assert load_backbone(folder).heads == 4


@pytest.mark.parametrize("registers", [0, 4])
def test_positions_without_one_of_the_class_token(registers: int, tmp_path: Path) -> None:
    """As in timm's DeiT III, FlexiViT and DINOv2 with registers (`no_embed_class`)."""
    model = vit(registers=registers)
    with torch.no_grad():
        model.pos_embed[:, 0] = 0
    tensors = tensors_of(model)
    tensors["pos_embed"] = tensors["pos_embed"][:, 1:].clone()
    loaded = load_backbone(write_timm_folder(tmp_path, tensors))
    assert loaded.registers == registers
    assert torch.equal(all_rows(loaded, images()), all_rows(model, images()))
    smaller = load_backbone(tmp_path, image_size=24)
    assert smaller.embed(images(24)).shape == (2, 1 + registers + 9, 64)


def test_positions_of_registers_too(tmp_path: Path) -> None:
    """As timm has them where `reg_tokens` is set and `no_embed_class` is not."""
    model, apart = vit(registers=4), torch.randn(1, 4, 64, generator=torch.Generator().manual_seed(2))
    tensors = tensors_of(model)
    assert model.reg_token is not None
    with torch.no_grad():
        model.reg_token.add_(apart)
    first, patches = tensors["pos_embed"].split([1, 16], dim=1)
    tensors["pos_embed"] = torch.cat([first, apart, patches], dim=1)
    loaded = load_backbone(write_timm_folder(tmp_path, tensors))
    assert torch.equal(all_rows(loaded, images()), all_rows(model, images()))


def test_registers_by_the_name_that_meta_gives_them(tmp_path: Path) -> None:
    tensors = tensors_of(vit(registers=4))
    tensors["register_tokens"] = tensors.pop("reg_token")
    torch.save(tensors, tmp_path / "dinov2_reg4.pth")
    loaded = load_backbone(tmp_path / "dinov2_reg4.pth")
    assert torch.equal(all_rows(loaded, images()), all_rows(vit(registers=4), images()))


def test_an_image_size_that_was_set_differs_from_the_published_one(tmp_path: Path) -> None:
    published = TRAINED | {"input_size": [3, 224, 224]}
    folder = write_timm_folder(tmp_path, tensors_of(vit()), model_args={"img_size": 32}, pretrained_cfg=published)
    assert load_backbone(folder).image_size == 32


WRONG: list[tuple[dict[str, object], str]] = [
    (
        {"architecture": "swin_tiny_patch4_window7_224"},
        "architecture = 'swin_tiny_patch4_window7_224': not a plain ViT",
    ),
    ({"architecture": "vit_base_patch16_rope_224"}, "architecture = 'vit_base_patch16_rope_224': not a plain ViT"),
    ({"architecture": None}, "architecture = None: not a plain ViT"),
    ({"num_features": 192}, "num_features = 192, but the tensors have 64"),
    ({"num_features": "many"}, "num_features = 'many': must be a whole number"),
    ({"pretrained_cfg": TRAINED | {"input_size": [3, 224, 224]}}, "input_size = 224, but the tensors have 32"),
    ({"pretrained_cfg": TRAINED | {"input_size": [1, 32, 32]}}, "input_size = [1, 32, 32]: must be [3, side, side]"),
    ({"pretrained_cfg": TRAINED | {"input_size": 32}}, "input_size = 32: must be [3, side, side]"),
    ({"pretrained_cfg": TRAINED | {"mean": [0.5]}}, "mean = [0.5]: must be three numbers"),
    ({"pretrained_cfg": []}, "pretrained_cfg = []: must be an object with fields"),
    ({"model_args": {"num_heads": 5}}, "dim = 64: must be a multiple of heads = 5"),
]


@pytest.mark.parametrize(("changed", "expected"), WRONG)
def test_names_the_wrong_value(changed: dict[str, object], expected: str, tmp_path: Path) -> None:
    assert expected in refusal(write_timm_folder(tmp_path, tensors_of(vit()), **changed))
