"""The weights that come with the package are what their card says."""

from __future__ import annotations

import hashlib
import re
from importlib import resources
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from promptpool.backbones.vit import ViT
from promptpool.backbones.weights import load_backbone
from promptpool.data.glyphs import glyphs100

SIZE_LIMIT = 6_000_000


@pytest.fixture(scope="module")
def assets() -> Path:
    return Path(str(resources.files("promptpool.backbones"))) / "assets"


@pytest.fixture(scope="module")
def weights(assets: Path) -> Path:
    return assets / "vit_glyphs.safetensors"


@pytest.fixture(scope="module")
def card(assets: Path) -> str:
    return (assets / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def model(weights: Path) -> ViT:
    return load_backbone(weights).requires_grad_(False)


def test_the_card_has_the_hash_of_the_file(weights: Path, card: str) -> None:
    assert f"`{hashlib.sha256(weights.read_bytes()).hexdigest()}`" in card


def test_the_file_is_small_and_in_half_precision(weights: Path) -> None:
    assert weights.stat().st_size < SIZE_LIMIT
    assert {value.dtype for value in load_file(weights).values()} == {torch.float16}


def test_the_metadata_say_how_to_build_and_feed_the_model(weights: Path) -> None:
    with safe_open(weights, framework="pt") as file:
        assert file.metadata() == {
            "patch_size": "8",
            "norm_eps": "1e-6",
            "heads": "6",
            "mean": "0.5,0.5,0.5",
            "std": "0.5,0.5,0.5",
            "image_size": "32",
        }


def test_it_loads_as_the_small_vit(model: ViT) -> None:
    assert (model.image_size, model.patch_size, model.dim, model.depth, model.heads) == (32, 8, 192, 6, 6)
    assert sum(parameter.numel() for parameter in model.parameters()) == 2_710_080


def test_nearest_class_mean_is_what_the_card_says(
    model: ViT, card: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMPTPOOL_CACHE", str(tmp_path))
    train, test, *_ = glyphs100(train_per_class=20, test_per_class=50)

    def features(x: torch.Tensor) -> torch.Tensor:
        encoded = [model.encode(model.embed(part / 127.5 - 1), rows=1)[:, 0] for part in x.float().split(500)]
        return torch.nn.functional.normalize(torch.cat(encoded), dim=1)

    learned, tested = train.batch(slice(None)), test.batch(slice(None))
    means = torch.nn.functional.normalize(features(learned.x).view(100, 20, -1).mean(1), dim=1)
    accuracy = 100 * float(((features(tested.x) @ means.T).argmax(1) == tested.y).float().mean())
    found = re.search(r"nearest class mean, `glyphs100` \| ([0-9.]+) \|", card)
    assert found is not None
    assert accuracy == pytest.approx(float(found.group(1)), abs=0.3)
    assert 75 <= accuracy <= 92
