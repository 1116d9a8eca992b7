"""Trials of a small run: all of its pieces, and the command itself; no time is judged."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from fake_compiler import FakeCompiler
from promptpool.cli import app
from promptpool.cli.tune import advice
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


def test_a_step_that_does_not_fit_is_advised_what_does(preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = build(load_config(str(preset)))
    monkeypatch.setattr(trials, "resident", lambda: 0)
    bench = trials.Bench(built)
    needed = bench.needed(bench.usual)
    assert needed is not None
    monkeypatch.setattr(trials, "memory_there", lambda: needed)
    outcome = trials.tune(build(built.config), 0.0)
    usual = outcome.trials[0]
    assert outcome.needed == usual.needed == pytest.approx(needed, rel=0.01)
    saving = [trial for trial in outcome.trials if trial.saves_memory(usual)]
    assert all(trial.needed is not None and trial.needed < needed for trial in saving)
    assert {trial.choice.micro_batch for trial in saving} == {None, 8}
    assert outcome.best.fits(needed)
    assert advice(outcome, ["it"]).startswith("memory is short, a step needs about 0.0 GiB of the 0.0 GiB there are: ")


def test_the_seconds_of_compiling_are_measured(preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPOOL_TOKENS_GB", "1")
    monkeypatch.setattr(trials, "check_compiler", lambda: None)
    compiler = FakeCompiler(monkeypatch)
    outcome = trials.tune(build(load_config(str(preset))), 0.0)
    found = [trial for trial in outcome.trials if trial.choice.compile]
    assert len(compiler.kinds) == 4
    assert found[0].compiling == pytest.approx(4 * compiler.seconds, rel=0.01)
    assert all(trial.compiling == found[0].compiling for trial in found)  # also where they found the code made
    assert all(trial.compiling == 0 for trial in outcome.trials if not trial.choice.compile)
    assert not outcome.best.choice.compile


def test_what_a_run_compiles_anyway_is_counted(preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "check_compiler", lambda: None)
    compiler = FakeCompiler(monkeypatch)
    outcome = trials.tune(build(load_config(str(preset), ["backbone.compile=true"])), 0.0)
    assert outcome.trials[0].choice.compile
    assert outcome.trials[0].compiling == pytest.approx(4 * compiler.seconds, rel=0.01)


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
