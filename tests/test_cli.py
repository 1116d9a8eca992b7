"""What a person types."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from runpy import run_module
from types import ModuleType

import pytest
from typer.testing import CliRunner

from promptpool import __version__
from promptpool.cli import app
from promptpool.data.glyphs.sets import glyphs100
from promptpool.data.scenarios import SCENARIOS
from promptpool.experiments.catalogue import benchmarks, methods
from promptpool.learners import LEARNERS
from promptpool.learners.profiles import PROFILES

ROOT = Path(__file__).parents[1]


def test_list_names_everything_there_is() -> None:
    result = CliRunner().invoke(app, ["list"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    for name in (*LEARNERS, *SCENARIOS, *PROFILES, *benchmarks(), *methods(), "promptpool weights list"):
        assert name in result.output


def test_a_list_may_be_of_some_alone() -> None:
    listed = CliRunner().invoke(app, ["list", "methods", "--like", "l2p*"], env={"COLUMNS": "200"}).output
    assert "l2p-r" in listed
    assert "benchmarks" not in listed
    assert "ft-seq" not in listed
    wrong = CliRunner().invoke(app, ["list", "method"])
    assert (wrong.exit_code, wrong.stderr.strip()) == (2, "promptpool: 'method': did you mean 'methods'?")


def test_a_list_of_methods_says_which_to_choose_when() -> None:
    listed = CliRunner().invoke(app, ["list", "methods"], env={"COLUMNS": "200"}).output
    assert listed.count("choose it when: ") == listed.count("trained: ") == listed.count("old data: ") == len(methods())
    lines = CliRunner().invoke(app, ["list", "methods", "--like", "er"], env={"COLUMNS": "200"}).output.splitlines()
    assert [line.strip() for line in lines[1:5]] == [
        "er  Experience replay: images from a memory join every batch.",
        "old data: a memory of images, as many as learner.capacity says",
        "trained: the whole model",
        "choose it when: a few images may be kept and you want the simplest rehearsal",
    ]
    benchmarks_alone = CliRunner().invoke(app, ["list", "benchmarks"], env={"COLUMNS": "200"}).output
    assert all(name in benchmarks_alone for name in benchmarks())
    assert "choose it when" not in CliRunner().invoke(app, ["list"], env={"COLUMNS": "200"}).output


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.output.strip() == __version__


def test_the_installed_command_starts() -> None:
    command = str(Path(sys.executable).with_name("promptpool"))
    assert "list" in subprocess.run([command, "--help"], capture_output=True, text=True, check=True).stdout


def example(name: str) -> ModuleType:
    """A script of the folder `examples`, not yet run."""
    spec = spec_from_file_location(f"example_{name}", ROOT / f"examples/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_quickstart_shows_who_forgets(capsys: pytest.CaptureFixture[str]) -> None:
    quickstart = example("quickstart")
    quickstart.CLASSES = 10  # a third: two a task
    quickstart.main()
    lines = capsys.readouterr().out.splitlines()
    averages = {line.split()[0]: float(line.split()[-2]) for line in lines[1:]}
    assert averages["l2p"] > averages["ft-seq"] + 30


def test_the_classifier_example_learns_in_lessons(capsys: pytest.CaptureFixture[str]) -> None:
    classifier = example("classifier")
    classifier.glyphs100 = lambda **_: glyphs100(train_per_class=20, test_per_class=3)  # instead of ten
    classifier.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["January", "February", "March"]
    assert int(lines[3].split()[-3]) > 90
    assert "14 classes" in lines[-1]


def test_the_package_runs_as_a_module(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["promptpool", "--help"])
    with pytest.raises(SystemExit) as ended:
        run_module("promptpool", run_name="__main__", alter_sys=True)
    assert ended.value.code == 0
    assert "Usage: promptpool" in capsys.readouterr().out
