"""benchmarks/scale.py: what it keeps on the way, how it says how far it came, and what it judges."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
import scale
import scale_table
from idle import Meanwhile
from scale_table import Point, Size

from promptpool.backbones.features import memory_budget
from promptpool.backbones.token_store import token_budget

WORDS = ["--tasks", "3", "--images", "600", "--classes", "6", "--pool", "10", "--rounds", "1"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for budget in scale.BUDGETS:
        monkeypatch.setenv(budget, "1")  # so that they are what they were after the test
    monkeypatch.setattr(scale, "refuse_if_busy", lambda *, anyway: None)
    monkeypatch.setattr(scale, "POOLS", (10,))
    monkeypatch.setattr(scale, "CLASSES", (10,))


def at(path: Path) -> list[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return [f"{row['study']} {row['size']}" for row in csv.DictReader(file)]


@pytest.mark.usefixtures("small")
def test_all_tasks_are_learned_in_memory_that_is_bounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scale.main([*WORDS, "--out", str(tmp_path / "scale.csv")])
    assert at(tmp_path / "scale.csv") == ["pool 10", "classes 10", "tasks 1", "tasks 2", "tasks 3"]
    said = capsys.readouterr().out
    assert "kept in 0.05 GB each; all 3 tasks, 600 images, 6 classes\n" in said
    assert memory_budget() == token_budget() == 0.05e9


@pytest.mark.usefixtures("small")
def test_a_study_that_ends_early_says_how_far_it_came(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scale.main([*WORDS, "--minutes", "0", "--out", str(tmp_path / "scale.csv")])
    assert at(tmp_path / "scale.csv") == ["pool 10", "classes 10", "tasks 1"]
    assert "ended after 1 of 3 tasks, 200 of 600 images, 2 of 6 classes" in capsys.readouterr().out


@pytest.mark.usefixtures("small")
def test_a_study_that_is_killed_leaves_what_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "EVERY", 1)
    through = scale.through_all_tasks

    def killed(size: Size, pool_size: int) -> Iterator[Point]:
        points = through(size, pool_size)
        yield next(points)
        raise KeyboardInterrupt

    monkeypatch.setattr(scale, "through_all_tasks", killed)
    with pytest.raises(KeyboardInterrupt):
        scale.main([*WORDS, "--out", str(tmp_path / "scale.csv")])
    assert at(tmp_path / "scale.csv") == ["pool 10", "classes 10", "tasks 1"]


@pytest.mark.usefixtures("small")
def test_a_busy_machine_gets_no_verdict(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for share, verdict in ((0.05, True), (0.5, False)):
        monkeypatch.setattr(Meanwhile, "share", lambda _, share=share: share)
        scale.main(WORDS)
        said = capsys.readouterr().out
        assert ("times as long as" in said) is verdict
        assert ("no verdict: other processes took 50%" in said) is not verdict


def points(count: int) -> list[Point]:
    """Steps of one millisecond, and two in the last tenth; memory that stays."""
    others = [Point(study, size, 1.0, 0.5, None, None) for study in ("pool", "classes") for size in (10, 100)]
    return [
        *others,
        *(Point("tasks", t, 2.0 if t > 0.9 * count else 1.0, None, 1.0, 300.0) for t in range(1, count + 1)),
    ]


def test_the_end_is_judged_beside_the_middle() -> None:
    step, memory = "2.00 times as long as one of the middle tenth", "memory was 1.00 times as large"
    assert scale_table.judged(points(40)).endswith(f"a step of the last tenth took {step}, and {memory}")
    unknown = [point._replace(memory=None) for point in points(1)]
    assert scale_table.judged(unknown).endswith("took 1.00 times as long as one of the middle tenth")


def test_a_study_is_drawn_at_any_time(tmp_path: Path) -> None:
    for count in (0, 1, 40):
        scale_table.drawn(tmp_path / "scale.png", Size(40, 400, 80), points(count), "kept in little")
        assert (tmp_path / "scale.png").read_bytes().startswith(b"\x89PNG")
