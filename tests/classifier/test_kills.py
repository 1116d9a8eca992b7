"""Whoever is killed or stopped while at work on a classifier leaves it whole: the old version, or the new one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from failing_disk import FailingDisk
from image_files import write_images
from promptpool import ContinualClassifier
from promptpool.classifier import files, teaching
from promptpool.cli import app
from small_runs import write_weights

TESTS = Path(__file__).parents[1]


def killed(what: str, folder: Path, *rest: object) -> dict[str, int]:
    """How often whom; the script fails if what a dead one left is not whole."""
    command = [sys.executable, str(TESTS / "classifier/kill_classifier.py"), what, str(folder), *map(str, rest)]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    counts: dict[str, int] = json.loads(ended.stdout.splitlines()[-1])
    return counts


@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")
def test_killed_at_every_operation_of_saving_and_of_undo(tmp_path: Path) -> None:
    counts = killed("operations", tmp_path)
    assert min(counts.values()) > 10


@pytest.mark.slow
@pytest.mark.parametrize("method", ["closed-form", "l2p"])
def test_killed_at_every_operation_of_a_lesson(method: str, tmp_path: Path) -> None:
    assert killed("lessons", tmp_path, method)["learn"] > 40


@pytest.mark.slow
@pytest.mark.parametrize(("method", "kills"), [("closed-form", 100), ("l2p", 30)])
def test_killed_at_random_moments_of_a_lesson(method: str, kills: int, tmp_path: Path) -> None:
    counts = killed("moments", tmp_path, method, kills)
    assert counts["killed"] >= kills
    assert counts["old"] > 0


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    classifier = ContinualClassifier(write_weights(tmp_path / "vit.safetensors"), projections=30)
    classifier.learn(write_images(tmp_path / "first", [f"{label}/{n}.png" for label in "ab" for n in range(3)]))
    classifier.save(tmp_path / "shop")
    write_images(tmp_path / "more", [f"c/{n}.png" for n in range(3)], first=40)
    return tmp_path / "shop"


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_ctrl_c_in_a_lesson_leaves_the_classifier_as_it_was(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    before = content(shop)
    monkeypatch.setattr(teaching, "report", stopped)
    result = CliRunner().invoke(app, ["learn", str(shop), str(shop.with_name("more"))])
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == "promptpool: stopped; the classifier is as it was"
    assert content(shop) == before


def test_ctrl_c_at_any_moment_of_saving(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The classifier is as it was, and that is said; or it has changed, and that is said."""
    before, disk = content(shop), FailingDisk(monkeypatch, lambda _: KeyboardInterrupt(), stays=False)
    refusals = 0
    for disk.left in range(100):
        result = CliRunner().invoke(app, ["rename", str(shop), "a", "c"])
        if result.exit_code != 130:
            break
        assert "the classifier is as it was" in result.stderr
        assert content(shop) == before
        refusals += 1
    assert refusals > 5
    assert result.exit_code == 0
    assert "knows 2 classes: c, b" in result.stdout
    assert ContinualClassifier.load(shop).labels == ("c", "b")
    assert files.versions(shop) == [1, 2]
