"""benchmarks/scale.py: what it keeps on the way, how it says how far it came, and what it judges."""

from __future__ import annotations

import csv
from collections.abc import Generator
from pathlib import Path

import pytest
import scale
import scale_table
import torch
from idle import Meanwhile
from scale_table import Point, Size

from promptpool.backbones.features import memory_budget
from promptpool.backbones.token_store import token_budget
from promptpool.training.checkpoint import load_checkpoint
from promptpool.training.loop import Session
from promptpool.training.run_folder import read_records

WORDS = ["--tasks", "3", "--images", "600", "--classes", "6", "--pool", "10", "--rounds", "1"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for budget in scale.BUDGETS:
        monkeypatch.setenv(budget, "1")  # so that they are what they were after the test
    monkeypatch.setattr(scale, "refuse_if_busy", lambda *, anyway: None)
    monkeypatch.setattr(Meanwhile, "share", lambda _: 0.0)
    monkeypatch.setattr(scale, "POOLS", (10,))
    monkeypatch.setattr(scale, "CLASSES", (10,))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


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
    assert names(tmp_path) == ["scale.csv"]


def test_every_task_is_tested_on_and_test_sets_are_shared() -> None:
    size = Size(50, 10_000, 1_000)
    stream = scale.long_stream(size)
    assert [len(test) for test in stream.tests] == [40, 40, 20]
    for number, experience in enumerate(stream.experiences):
        assert len(set(stream.tests[number // 20].classes) & set(experience.classes)) == 2
    everything = torch.cat([part.ids for part in (*stream.tests, *(each.train for each in stream.experiences))])
    assert len(everything.unique()) == 10_000 + 100


def test_what_a_run_writes_is_in_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "TOGETHER", 1)
    folders, counted = [], scale.seconds_of_files

    def noted(folder: Path, session: Session) -> float:
        taken = counted(folder, session)
        assert names(folder) == ["checkpoint", "records.jsonl"]
        assert read_records(folder) == tuple(session.records)
        again = Session(scale.learner_of(10), session.stream, session.plan)
        load_checkpoint(folder / "checkpoint", again)
        assert again.records == session.records
        folders.append(folder)
        return taken

    monkeypatch.setattr(scale, "seconds_of_files", noted)
    found = list(scale.through_all_tasks(Size(3, 600, 6), 10))
    assert all(point.files and point.files > 0 for point in found)
    assert len(folders) == 3
    assert not folders[0].exists()


@pytest.mark.usefixtures("small")
def test_a_study_that_ends_early_says_how_far_it_came(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scale.main([*WORDS, "--minutes", "0", "--out", str(tmp_path / "scale.csv")])
    assert at(tmp_path / "scale.csv") == ["pool 10", "classes 10", "tasks 1"]
    assert "ended after 1 of 3 tasks, 200 of 600 images, 2 of 6 classes" in capsys.readouterr().out


@pytest.mark.usefixtures("small")
def test_a_study_that_is_killed_leaves_what_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "EVERY", 1)
    through = scale.through_all_tasks

    def killed(size: Size, pool_size: int) -> Generator[Point, None, None]:
        points = through(size, pool_size)
        yield next(points)
        raise KeyboardInterrupt

    monkeypatch.setattr(scale, "through_all_tasks", killed)
    (tmp_path / "scale.csv").write_text("an earlier result")
    with pytest.raises(KeyboardInterrupt):
        scale.main([*WORDS, "--out", str(tmp_path / "scale.csv")])
    assert at(tmp_path / "scale-unfinished.csv") == ["pool 10", "classes 10", "tasks 1"]
    assert (tmp_path / "scale.csv").read_text() == "an earlier result"


@pytest.mark.usefixtures("small")
def test_a_busy_machine_gets_no_verdict_and_keeps_earlier_results(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "scale.csv").write_text("an earlier result")
    for share, verdict in ((0.5, False), (0.05, True)):
        monkeypatch.setattr(Meanwhile, "share", lambda _, share=share: share)
        scale.main([*WORDS, "--out", str(tmp_path / "scale.csv")])
        said = capsys.readouterr().out
        assert ("times as long as" in said) is verdict
        busy = "no verdict: other processes took 50% of the processors meanwhile; what was measured is in"
        assert (f"{busy} scale-busy.csv\n" in said) is not verdict
        assert ((tmp_path / "scale.csv").read_text() == "an earlier result") is not verdict
        assert names(tmp_path) == ["scale-busy.csv", "scale.csv"]
    assert at(tmp_path / "scale-busy.csv") == at(tmp_path / "scale.csv")


def points(count: int) -> list[Point]:
    """Steps of one millisecond, and two in the last tenth; memory that stays."""
    others = [Point(study, size, 1.0, 0.5, None, None, None) for study in ("pool", "classes") for size in (10, 100)]
    return [
        *others,
        *(Point("tasks", t, 2.0 if t > 0.9 * count else 1.0, None, 1.0, 0.5 * t, 300.0) for t in range(1, count + 1)),
    ]


def test_the_end_is_judged_beside_the_middle() -> None:
    step, memory = "2.00 times as long as one of the middle tenth", "memory was 1.00 times as large"
    files = "checkpoint and records took 11 ms a task in the middle and 19 in the end"
    assert scale_table.judged(points(40)).endswith(f"a step of the last tenth took {step}, and {memory}; {files}")
    unknown = [point._replace(memory=None) for point in points(40)]
    assert scale_table.judged(unknown).endswith(f"took {step}; {files}")


def test_a_study_is_drawn_at_any_time(tmp_path: Path) -> None:
    for count in (0, 1, 40):
        scale_table.drawn(tmp_path / "scale.png", Size(40, 400, 80), points(count), "kept in little")
        assert (tmp_path / "scale.png").read_bytes().startswith(b"\x89PNG")
