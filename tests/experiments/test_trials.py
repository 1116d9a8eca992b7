"""Trials of a small run: all of its pieces, and the command itself; no time is judged."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from promptpool.cli import app
from promptpool.experiments import trials
from promptpool.experiments.build import build
from promptpool.experiments.config import load_config
from small_runs import preset as preset_fixture
from small_runs import small_preset

preset = preset_fixture


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ValueError("compile = True: needs a C++ compiler, and there is no g++")

    monkeypatch.setattr(trials, "check_compiler", missing)
    monkeypatch.setattr(trials, "core_count", lambda: 2)


@pytest.mark.parametrize("learner", ["l2p", "ft-seq", "ft-seq-frozen", "ranpac"])
def test_every_choice_starts_where_the_run_does(learner: str, tmp_path: Path) -> None:
    built = build(load_config(str(small_preset(tmp_path, learner))))
    threads = torch.get_num_threads()
    outcome = trials.tune(built, 0.0)
    usual, rounded = outcome.trials[:2]
    assert torch.get_num_threads() == threads  # as it was
    assert "precision" not in vars(built.learner.backbone)
    assert all(len(trial.timings) >= trials.LEAST_ROUNDS for trial in outcome.trials)
    assert rounded.choice.precision == "bfloat16"
    if learner == "ranpac":
        assert usual.losses == ()
    else:
        assert len(usual.losses) == trials.LOSSES
        assert rounded.losses == pytest.approx(usual.losses, rel=0.05)
    others = [trial for trial in outcome.trials if trial.choice.threads != threads]
    assert all(trial.losses == pytest.approx(usual.losses, rel=1e-3) for trial in others)
    assert outcome.not_tried == ["compile = True: needs a C++ compiler, and there is no g++"]


def test_parts_are_tried_where_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "memory_there", lambda: 1000)
    monkeypatch.setattr(trials, "resident", lambda: 500)
    monkeypatch.setattr(trials, "peak", lambda take: (take(), 4000))
    outcome = trials.tune(build(load_config(str(small_preset(tmp_path)))), 0.0)
    assert outcome.needed is not None
    assert outcome.needed > 1000
    words = [" ".join(trial.choice.words(outcome.trials[0].choice)) for trial in outcome.trials]
    assert "backbone.checkpointing=true" in words
    assert any(word.startswith("plan.micro_batch=") for word in words)
    for trial in outcome.trials:
        assert trial.losses == pytest.approx(outcome.trials[0].losses, rel=0.05)


def test_the_command_says_what_to_type(preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("promptpool.experiments.machine.Meanwhile.crowded", lambda _: 0.61)
    result = CliRunner().invoke(app, ["tune", str(preset), "seed=1", "--seconds", "0"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    for said in (
        "as it is",
        "backbone.precision=bfloat16",
        "images a second",
        "the machine is busy",
        "not tried: compile",
    ):
        assert said in result.output
    assert f"promptpool run {preset} seed=1" in result.output.replace("\n", "")
    assert not list(preset.parent.glob("runs*"))


def test_a_wrong_value_is_named_in_one_line(preset: Path) -> None:
    result = CliRunner().invoke(app, ["tune", str(preset), "plan.batchsize=3"])
    assert result.exit_code == 2
    assert result.stderr.strip() == "promptpool: plan.batchsize: no such key; did you mean 'batch_size'?"
