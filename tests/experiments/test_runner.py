"""A run in its folder: what is written, going on, stopping, finishing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from promptpool.backbones.vit import ViT
from promptpool.cli import app
from promptpool.cli.run import faster
from promptpool.experiments.config import ConfigError, load_config
from promptpool.experiments.identity import run_folder
from promptpool.experiments.runner import device, is_finished, run
from promptpool.training.run_folder import read_run
from small_runs import preset as preset_fixture
from small_runs import small_preset
from two_ranks import torchrun

preset = preset_fixture
COMMAND = str(Path(sys.executable).with_name("promptpool"))


def test_a_run_leaves_all_that_is_known_of_it(preset: Path, tmp_path: Path) -> None:
    config = load_config(str(preset))
    folder = tmp_path / "run"
    for _ in run(config, folder):
        pass
    found = read_run(folder)
    assert found.finished
    assert is_finished(folder, config)
    with pytest.raises(ConfigError, match="seed = 0 there, 1 here"):
        is_finished(folder, load_config(str(preset), ["seed=1"]))
    assert len(found.records) == len(found.seconds) == 5
    assert found.config["learner"]["top_k"] == 5
    assert found.config["view"]["size"] == 32
    assert found.environment["backbone"].startswith("sha256:")
    assert found.environment["trained_parameters"] == 10 * 6 * 32 + 50 * 33
    assert len(found.environment["class_names"]) == 50
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoint",
        "config.toml",
        "environment.json",
        "records.jsonl",
        "times.json",
    ]


def test_the_folder_is_named_by_all_values(preset: Path, tmp_path: Path) -> None:
    first = run_folder(tmp_path, "a preset", load_config(str(preset)))
    assert first == run_folder(tmp_path, "a preset", load_config(str(preset)))
    assert first != run_folder(tmp_path, "a preset", load_config(str(preset), ["seed=1"]))
    assert first.parent == tmp_path


def test_a_stopped_run_goes_on_to_the_same_bytes(preset: Path, tmp_path: Path) -> None:
    config = load_config(str(preset))
    for _ in run(config, tmp_path / "whole"):
        pass
    for stop in (3, 9):
        for step in run(config, tmp_path / "parts", seconds=0):
            if step.step == stop:
                break
    for _ in run(config, tmp_path / "parts"):
        pass
    for name in ("records.jsonl", "config.toml", "environment.json"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_two_processes_do_not_share_a_run(preset: Path, tmp_path: Path) -> None:
    config = load_config(str(preset))
    first = run(config, tmp_path / "run")
    next(first)
    with pytest.raises(ConfigError, match="another process"):
        next(run(config, tmp_path / "run"))
    first.close()
    next(run(config, tmp_path / "run"))


def test_the_same_command_says_when_a_run_is_finished(preset: Path, tmp_path: Path) -> None:
    typed = ["run", str(preset), "--folder", str(tmp_path / "run")]
    first = CliRunner().invoke(app, typed)
    assert first.exit_code == 0, first.output
    assert "task 5 of 5" in first.output
    second = CliRunner().invoke(app, typed)
    assert second.exit_code == 0
    assert "is finished" in second.output


def test_a_folder_of_another_configuration_is_refused_and_left_alone(preset: Path, tmp_path: Path) -> None:
    typed = ["run", str(preset), "learner.name=nearest-mean", "--folder", str(tmp_path / "run")]
    assert CliRunner().invoke(app, [*typed]).exit_code == 0
    before = (tmp_path / "run/config.toml").read_bytes()
    result = CliRunner().invoke(app, ["run", str(preset), "--folder", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert 'other values: learner.name = "nearest-mean" there, "l2p" here' in result.stderr
    assert (tmp_path / "run/config.toml").read_bytes() == before


def test_a_report_passes_over_what_is_no_run(preset: Path, tmp_path: Path) -> None:
    folders = [str(tmp_path / "run"), str(tmp_path)]
    assert CliRunner().invoke(app, ["report", *folders, "--out", str(tmp_path / "page")]).exit_code == 2
    typed = ["run", str(preset), "learner.name=nearest-mean", "--folder", folders[0]]
    assert CliRunner().invoke(app, typed).exit_code == 0
    result = CliRunner().invoke(app, ["report", *folders, "--out", str(tmp_path / "page")])
    assert result.exit_code == 0, result.output
    assert "passed over" in result.stderr
    assert (tmp_path / "page/report.html").exists()
    (tmp_path / "run/times.json").write_text('["a"]')
    result = CliRunner().invoke(app, ["report", *folders, "--out", str(tmp_path / "page")])
    assert result.exit_code == 2
    assert "times.json" in result.stderr


@pytest.mark.parametrize("change", ["drop", "text", "short"])
def test_damaged_records_are_one_line(change: str, preset: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for _ in run(load_config(str(preset)), folder):
        pass
    lines = (folder / "records.jsonl").read_text().splitlines()
    if change == "drop":
        del lines[2]
    elif change == "text":
        lines[0] = lines[0].replace('"correct": [', '"correct": ["x", ')
    else:
        lines[1] = lines[1][:50]
    (folder / "records.jsonl").write_text("\n".join(lines))
    result = CliRunner().invoke(app, ["report", str(folder), "--out", str(tmp_path / "page")])
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert "records.jsonl" in result.stderr


def test_a_place_that_cannot_be_written_is_one_line(preset: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["run", str(preset), "--folder", str(tmp_path / "file" / "run")])
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_dry_run_writes_nothing_and_says_what_it_costs(preset: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["run", str(preset), "--dry-run", "--runs", str(tmp_path / "runs")])
    assert result.exit_code == 0, result.output
    for part in ("experiences: 5, classes: 50", "3,570 trained parameters", "20 of 16 images", "estimated time", "MiB"):
        assert part in result.output
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("values", "said"), [([], True), (["backbone.precision=bfloat16"], False)])
def test_a_dry_run_says_which_products_are_likely_faster(
    preset: Path, monkeypatch: pytest.MonkeyPatch, values: list[str], said: bool
) -> None:
    monkeypatch.setattr("promptpool.cli.run.suited", lambda: "onednn")
    found = CliRunner().invoke(app, ["run", str(preset), *values, "--dry-run"], env={"COLUMNS": "160"})
    assert ("backbone.products=onednn (promptpool tune measures it)" in found.output) == said
    found = CliRunner().invoke(app, ["run", str(preset), "backbone.products=onednn", "--dry-run"])
    assert found.exit_code == 0, found.output
    assert "promptpool tune" not in found.output


def test_a_dry_run_advises_nothing_that_compiled_code_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("promptpool.cli.run.suited", lambda: "onednn")
    built = SimpleNamespace(learner=SimpleNamespace(backbone=ViT(image_size=8, patch_size=4, dim=4, depth=1, heads=1)))
    assert faster(built)  # type: ignore[arg-type]
    built.learner.backbone.compiled = True
    assert not faster(built)  # type: ignore[arg-type]


def test_control_c_leaves_a_run_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPOOL_CACHE", str(tmp_path / "cache"))
    preset = small_preset(tmp_path)
    folder = tmp_path / "run"
    typed = [COMMAND, "run", str(preset), "plan.epochs=400", "--folder", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(typed, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    while not (folder / "environment.json").exists():
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "the same command goes on" in said
    assert (folder / "checkpoint").exists()
    assert "Traceback" not in said


def test_runs_under_torchrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPOOL_CACHE", str(tmp_path / "cache"))
    preset = small_preset(tmp_path, "nearest-mean")
    typed = ["--no-python", COMMAND, "run", str(preset), "--folder", str(tmp_path / "two")]
    torchrun(typed, {**os.environ, "OMP_NUM_THREADS": "1"})
    for _ in run(load_config(str(preset)), tmp_path / "one"):
        pass
    assert read_run(tmp_path / "two").environment["ranks"] == 2
    assert [r.correct for r in read_run(tmp_path / "two").records] == [
        r.correct for r in read_run(tmp_path / "one").records
    ]


def test_a_dry_run_says_what_its_time_leaves_out(preset: Path) -> None:
    values = ["learner.name=gdumb", "learner.capacity=100", "learner.epochs=2"]
    result = CliRunner().invoke(app, ["run", str(preset), *values, "--dry-run"], env={"COLUMNS": "160"})
    assert "and more where a fresh model is fitted after a task" in result.stdout


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"), [(True, True, "cuda:1"), (False, True, "mps"), (False, False, "cpu")]
)
def test_the_device_is_a_gpu_of_nvidia_or_apple_or_the_cpu(
    cuda: bool, mps: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: cuda)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 1)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: mps)
    assert str(device()) == expected


@pytest.mark.parametrize("typed", ["learner.ridge=1e-300", "learner.shrinkage=1e-300"])
def test_a_value_that_does_not_fit_the_data_ends_a_run_in_one_line(typed: str, tmp_path: Path) -> None:
    preset = small_preset(tmp_path, "closed-form")
    result = CliRunner().invoke(app, ["run", str(preset), typed, "--runs", str(tmp_path / "runs")])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    assert line == f"promptpool: {typed.replace('=', ' = ')}: too small for this data, choose a larger one or None"
