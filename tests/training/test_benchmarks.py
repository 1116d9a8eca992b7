"""The benchmarks whose tables stand in docs/performance.md, each from its words to its table, on little."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import enter
import profiled
import pytest
import ranks
import step_memory
import values
from profiled import CHOICE, OPTIMISER, PYTHON, REST
from typer.testing import CliRunner

from known_memory import holding
from promptpool import resident
from promptpool.cli import app
from small_runs import preset as preset_fixture

preset = preset_fixture


@pytest.fixture(autouse=True)
def whatever_else_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (profiled, ranks, values):
        monkeypatch.setattr(module, "refuse_if_busy", lambda *, anyway: None)
    monkeypatch.setattr("idle.Meanwhile.share", lambda _: 0.5)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that a benchmark starts; their runs take place in this process, which has torch already."""
    commands: list[list[str]] = []

    def run(command: Sequence[str], *, env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append([*command])
        words = [*command][command.index("promptpool") + 1 :]
        assert env["PROMPTPOOL_FEATURES_GB"] == "0"
        done = CliRunner().invoke(app, words, env={"PROMPTPOOL_FEATURES_GB": "0"})
        return subprocess.CompletedProcess(command, done.exit_code, done.stdout, done.stderr)

    monkeypatch.setattr(ranks, "subprocess", SimpleNamespace(run=run))
    return commands


@pytest.mark.parametrize(
    ("name", "around", "kind"),
    [
        ("aten::addmm", [], "matrix products"),
        ("autograd::engine::evaluate_function: AddmmBackward0", [], "matrix products"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", [], "attention"),
        ("aten::gelu_backward", [], "GELU"),
        ("aten::native_layer_norm", [], "layer norms"),
        ("aten::empty_strided", [], "memory"),
        ("aten::_to_copy", [], "copies"),
        ("aten::mul_", [], "sums and products of elements"),
        ("aten::mul_", ["aten::lerp_", "Optimizer.step#Adam.step"], OPTIMISER),
        ("aten::linalg_vector_norm", [], OPTIMISER),
        ("aten::topk", [], CHOICE),
        ("aten::mm", [CHOICE], CHOICE),
        ("aten::detach", [], REST),
    ],
)
def test_operators_have_a_kind(name: str, around: list[str], kind: str) -> None:
    event: Any = None
    for each in [*reversed(around), name]:
        event = SimpleNamespace(name=each, cpu_parent=event)
    assert profiled.kind_of(event) == kind


def test_the_time_of_a_step_and_of_a_run_is_split(
    preset: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = profiled.run_lines
    monkeypatch.setattr(profiled, "run_lines", lambda _, given, scale: whole(str(preset), given, scale))
    profiled.main(["--sizes", "mini", "--batch", "2", "--steps", "1", "--operators"])
    said = capsys.readouterr().out
    assert "batches of 2" in said
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in said.splitlines() if line.startswith("| ")}
    assert {*profiled.KINDS, REST, PYTHON, "all", "page faults"} <= rows.keys()
    assert "0.00 (0%)" not in rows["matrix products"] + rows[OPTIMISER]
    assert any(row.startswith("decoding, drawing and loading") for row in rows)
    assert "times do not count: other processes took 50% of the processors meanwhile" in said
    profiled.main(["--run", str(preset), "learner.top_k=1"])
    assert "milliseconds of a step" not in capsys.readouterr().out


def test_blocks_at_which_prompts_enter_are_lines_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "lines.csv"
    words = ["--enter", "0", "1", "--tasks", "1", "--images", "2", "--out", str(out), "plan.epochs=2"]
    words += ["dataset.test_per_class=1", "plan.batch_size=8"]
    enter.main(words)
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["enter"] for row in rows] == ["0", "1"]
    assert all(0 <= float(row["average accuracy"]) <= 100 and float(row["step"]) > 0 for row in rows)
    capsys.readouterr()
    before = out.read_bytes()
    enter.main(words)  # nothing is run again
    assert out.read_bytes() == before
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "  ".join(cell for cell in rows[0].values() if cell)
    assert said[-1].startswith("times do not count")


def test_a_second_process_stands_beside_the_first(
    preset: Path, launched: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    ranks.main([str(preset), "plan.epochs=1", "--rounds", "1"])
    assert ["--nproc-per-node" in command for command in launched] == [False, True]
    row = capsys.readouterr().out.splitlines()[2].split(" | ")
    assert row[0] == f"| {preset}"
    assert row[4] == row[5].removesuffix(" |")  # the accuracies, here of the same run twice
    with pytest.raises(ranks.Failed, match=r"plan\.epochs = 0"):
        ranks.main([str(preset), "plan.epochs=0", "--rounds", "1"])


def test_values_stand_beside_the_run_as_it_is(
    preset: Path, launched: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    tried = ["--values", "", "backbone.checkpointing=true", "plan.micro_batch=0"]
    values.main([str(preset), "plan.epochs=1", *tried])
    assert len(launched) == 3
    said = capsys.readouterr().out.splitlines()
    rows = [line.strip("| ").split(" | ") for line in said[2:4]]
    assert [row[1] for row in rows] == ["as it is", "backbone.checkpointing=true"]
    assert rows[0][3] == "1.00"
    assert float(rows[1][4]) == pytest.approx(float(rows[0][4]), rel=1e-2)
    assert said[5].startswith("promptpool: plan.micro_batch = 0: must be a whole number")
    assert said[-1].startswith("no verdict")


@pytest.mark.skipif(resident.resident() is None, reason="only Linux tells the highest value since a moment")
def test_the_memory_of_a_step_is_what_it_holds_at_a_time() -> None:
    found = step_memory.peak(partial(holding, 200), partial(holding, 1))
    assert found is not None
    assert 190 < found < 300
