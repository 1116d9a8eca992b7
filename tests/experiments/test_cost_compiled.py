"""A dry run of compiled blocks: compiling is counted once, and no more is compiled than in a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch._dynamo as dynamo
from torch._dynamo.utils import counters

from fake_compiler import FakeCompiler
from promptpool.backbones import compilation, vit
from promptpool.backbones.vit import ViT
from promptpool.cli.run import time_of
from promptpool.experiments import cost
from promptpool.experiments.build import build
from promptpool.experiments.config import load_config
from small_runs import deep
from small_runs import preset as preset_fixture

# Warnings of torch about itself: it hides the first from users, and the second is about a module that it imports.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
]
preset = preset_fixture


def test_compiling_is_counted_once_and_is_no_pace(preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPOOL_TOKENS_GB", "1")
    compiler = FakeCompiler(monkeypatch)
    found = cost.estimate(build(load_config(str(preset), ["backbone.compile=true"])))
    assert len(compiler.kinds) == 4  # with gradients or without, all rows or some
    assert found.compiling == pytest.approx(240, rel=0.01)
    assert 240 < found.seconds < 300
    assert time_of(found) == "about 4 minutes, about 4 minutes of it to compile"
    assert cost.estimate(build(load_config(str(preset)))).compiling == 0


def test_blocks_of_which_two_are_measured_are_compiled_once(preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCompiler(monkeypatch)
    monkeypatch.setattr(cost, "SLOW", -1.0)
    built = deep(preset)
    assert isinstance(built.learner.backbone, ViT)
    built.learner.backbone.compute(compiled=True)
    found = cost.estimate(built)
    assert found.compiling == pytest.approx(240, rel=0.01)
    assert found.seconds < 400


@pytest.mark.parametrize("learner", ["l2p", "ft-seq"])
def test_a_dry_run_compiles_what_a_run_does(learner: str, preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch gives up on a block that it has compiled eight times, and warns."""
    monkeypatch.setattr(compilation, "BACKEND", "eager")
    monkeypatch.setattr(vit, "check_compiler", lambda: None)
    dynamo.reset()
    counters.clear()
    built = build(load_config(str(preset), ["backbone.compile=true", f"learner.name={learner}"]))
    cost.estimate(built)
    assert 0 < counters["stats"]["unique_graphs"] <= 6
    assert not counters["recompile_limit"]
    assert built.learner.backbone.compiled  # as it was
    dynamo.reset()


@pytest.mark.compiles
def test_a_dry_run_of_compiled_blocks_takes_minutes_and_not_days(preset: Path) -> None:
    dynamo.reset()
    found = cost.estimate(build(load_config(str(preset), ["backbone.compile=true"])))
    assert found.compiling > 0
    assert found.seconds < 600
    dynamo.reset()
