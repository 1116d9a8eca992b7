"""Configurations that run in a second: a random ViT in a file, three characters a task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from promptpool.backbones.vit import ViT
from promptpool.experiments.build import Built, build
from promptpool.experiments.config import load_config
from promptpool.learners import LEARNERS

SIZES = {"image_size": "32", "patch_size": "16", "heads": "2", "norm_eps": "1e-6"}


def write_weights(path: Path) -> Path:
    """A small ViT as a timm checkpoint."""
    vit = ViT(image_size=32, patch_size=16, dim=32, depth=2, heads=2).start(torch.Generator().manual_seed(0))
    save_file({name: 4 * value for name, value in vit.state_dict().items()}, path, metadata=SIZES)
    return path


def small_preset(folder: Path, learner: str = "l2p", *, scenario: str = "tasks = 5", values: str = "") -> Path:
    """A configuration of one's own, as a user would write it."""
    path = folder / f"small-{learner}.toml"
    path.write_text(
        f"""# A small run
[dataset]
name = "glyph-five"
train_per_class = 3
test_per_class = 2
[scenario]
name = "class-incremental"
{scenario}
[backbone]
name = "{write_weights(folder / "vit.safetensors")}"
[learner]
name = "{learner}"
{values}
[plan]
epochs = 2
batch_size = 16
learning_rate = 0.01
"""
    )
    return path


@pytest.fixture
def preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROMPTPOOL_CACHE", str(tmp_path / "cache"))
    return small_preset(tmp_path)


def deep(preset: Path, *values: str) -> Built:
    """A run on a transformer of twelve blocks."""
    built = build(load_config(str(preset), list(values)))
    backbone = ViT(image_size=32, patch_size=16, dim=32, depth=12, heads=2).start(torch.Generator().manual_seed(0))
    name = built.config["learner"]["name"]
    keywords: dict[str, Any] = {key: value for key, value in built.config["learner"].items() if key != "name"}
    return built._replace(learner=LEARNERS[name](backbone, built.learner.view, **keywords))
