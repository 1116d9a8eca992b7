"""The memory that a dry run tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from promptpool.backbones.vit import ViT
from promptpool.experiments import cost, probing
from promptpool.experiments.build import build
from promptpool.experiments.config import load_config
from small_runs import deep
from small_runs import preset as preset_fixture

preset = preset_fixture


def held(preset: Path, *values: str) -> float:
    """What a step holds at a time."""
    return probing.probe(build(load_config(str(preset), [*values])))[0].step_bytes


def test_more_images_hold_more_memory(preset: Path) -> None:
    sizes = [held(preset, f"plan.batch_size={size}") for size in (4, 8, 16)]
    assert sizes[2] - sizes[1] == pytest.approx(2 * (sizes[1] - sizes[0]))
    few, many = (held(preset, "learner.name=ft-seq", f"plan.batch_size={size}") for size in (4, 16))
    assert few < many < 2 * few  # gradients are as large for any number of images


def test_values_that_save_memory_hold_less(preset: Path) -> None:
    whole, part = held(preset), held(preset, "plan.micro_batch=4")
    assert part < whole / 2
    assert part == pytest.approx(held(preset, "plan.batch_size=4"), rel=0.2)  # the sum of gradients comes on top
    assert held(preset, "plan.micro_batch=100") == whole
    assert held(preset, "backbone.checkpointing=true") < whole


def test_a_deep_transformer_that_recomputes_holds_little_more_for_every_block(
    preset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for on in (False, True):
        for slow in (0.0, 1e9):
            monkeypatch.setattr(cost, "SLOW", slow)
            monkeypatch.setattr(cost, "peak_memory", lambda: 0)
            built = deep(preset)
            assert isinstance(built.learner.backbone, ViT)
            built.learner.backbone.compute(checkpointing=on)
            found[on, slow] = cost.estimate(built).memory or 0
        assert found[on, 0.0] == pytest.approx(found[on, 1e9], rel=0.1)
    assert found[True, 0.0] < found[False, 0.0] / 2


@pytest.mark.parametrize(("most", "expected"), [("2", 250 * (4 * 32 + 200)), ("0.00001", 10_000)])
def test_features_that_are_kept_are_a_part_of_the_memory(
    most: str, expected: int, preset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five tasks of ten classes, three images of each to train on and two to test on; 32 numbers for each."""
    probe = probing.Probe(step=1.0, test=1.0, feature=1.0, step_bytes=1e6, test_bytes=0.0)
    monkeypatch.setenv("PROMPTPOOL_MEMORY_GB", most)
    monkeypatch.setattr(cost, "peak_memory", lambda: 0)
    memory = []
    for stored in ((True, True), (False, False)):
        monkeypatch.setattr(cost, "probe", lambda built, stored=stored: (probe, stored))
        memory.append(cost.estimate(build(load_config(str(preset)))).memory or 0)
    assert memory[0] - memory[1] == expected


def test_a_wide_readout_has_the_plain_features_beside_it(preset: Path) -> None:
    learner = build(load_config(str(preset), ["learner.name=closed-form", "learner.projections=20"])).learner
    assert cost.feature_bytes(learner, 10) == 10 * (4 * 4 * 32 + 200) + 10 * (4 * 32 + 200)
