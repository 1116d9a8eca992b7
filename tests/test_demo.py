"""`promptpool demo`, with one image of each character."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from promptpool.cli import app, demo
from promptpool.cli.display import Board, Watched, line, show, together
from promptpool.experiments.config import load_config
from promptpool.progress import heard_by, report
from promptpool.report.names import METHODS
from promptpool.reproduce.jobs import Job, JobStatus
from promptpool.reproduce.workers import with_processes
from promptpool.training.loop import Step
from promptpool.training.record import Record
from promptpool.training.run_folder import read_records, read_run
from reproduce_runs import made_jobs, undisturbed

FEW = ["dataset.train_per_class=1", "dataset.test_per_class=1", "plan.epochs=1"]


def test_the_demo_fills_its_table_and_says_what_was_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "load_config", partial(load_config, overrides=FEW))
    monkeypatch.setattr(demo, "suited", lambda: "onednn")
    monkeypatch.setenv("COLUMNS", "200")
    words = ["demo", "--runs", str(tmp_path)]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    for method in demo.SHOWN:
        tasks = re.findall(rf"^{re.escape(METHODS[method])}: task (\d+) of 10", first.stdout, re.MULTILINE)
        assert tasks == (["1"] if method == "upper-bound" else [str(task) for task in range(1, 11)])
    assert re.search(r"fine-tuning is right on \d+ %", first.stdout)
    assert (tmp_path / "report" / "report.html").is_file()
    runs = [read_run(path.parent) for path in tmp_path.glob("*/records.jsonl")]
    assert {run.config["backbone"]["products"] for run in runs} == {"onednn"}
    again = CliRunner().invoke(app, words)
    assert "task 1 of 10" not in again.stdout  # all are finished
    assert re.search(r"fine-tuning is right on \d+ %", again.stdout)


def test_a_method_that_fails_ends_the_demo_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(jobs: list[Job], *, workers: int) -> Iterator[JobStatus]:
        del workers
        yield JobStatus(jobs[0], "failed", reason="no room")

    monkeypatch.setattr(demo, "with_processes", failing)
    result = CliRunner().invoke(app, ["demo", "--runs", str(tmp_path)])
    assert result.exit_code == 2
    assert "L2P: no room" in result.stderr


def test_a_demo_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "load_config", partial(load_config, overrides=FEW))

    def stopped(jobs: list[Job], *, workers: int) -> Iterator[JobStatus]:
        for status in with_processes(jobs, workers=workers):
            yield status
            if status.state == "done":
                raise KeyboardInterrupt

    words = ["demo", "--runs", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(demo, "with_processes", stopped)
        first = CliRunner().invoke(app, words)
    assert first.exit_code == 130
    assert "the same command goes on from here" in first.stderr
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 0, again.output
    finished = [line for line in first.stdout.splitlines() if "task 10 of 10" in line or "Upper bound: task 1" in line]
    assert finished
    assert not any(line in again.stdout for line in finished)  # what was finished is not run again


@pytest.mark.parametrize("terminal", [True, False])
def test_runs_in_other_processes_are_shown_as_their_records_come(terminal: bool, tmp_path: Path) -> None:
    (job,) = made_jobs(tmp_path / "runs")
    undisturbed([job], job.folder.parent)
    records = read_records(job.folder)
    console = Console(force_terminal=terminal, width=120, record=True)
    statuses = [
        JobStatus(job, "runs", 0.5),
        JobStatus(job, "busy"),
        JobStatus(job, "died"),
        JobStatus(job, "done", 1.0),
    ]
    assert list(together(console, {"a method": job}, statuses, len(records))) == statuses
    shown = console.export_text()
    assert "a method" in shown if terminal else shown == ""  # they were there before, so a log does not repeat them
    for record in records:
        assert not terminal or f"{100 * sum(filter(None, record.accuracy)) / (record.experience + 1):.1f}" in shown


def test_a_board_without_a_terminal_writes_a_line_for_each_record(tmp_path: Path) -> None:
    (job,) = made_jobs(tmp_path / "runs")
    undisturbed([job], job.folder.parent)
    console = Console(force_terminal=False, width=120, record=True)
    with Board(console, {"a method": ()}, 5, ()) as board:
        for record in read_records(job.folder):
            board.add("a method", record)
    lines = console.export_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == [f"a method: task {number} of 5" for number in range(1, 6)]


@pytest.mark.parametrize("terminal", [True, False])
def test_what_a_run_does_between_its_steps_is_told(terminal: bool) -> None:
    console = Console(force_terminal=terminal, width=120, record=True)
    record = Record(0, 10, 1, 0.5, (5,), (10,))

    def going_on() -> Iterator[Step]:
        for done in range(3):
            report("trying prompts", done, 3)
        yield Step(0, 0, 1, 2, None)
        report("trying prompts", 3, 3)
        yield Step(0, 0, 2, 2, None, record)

    steps = show(console, [Watched("a method", (), going_on)], 1)
    assert next(steps).step == 1
    with heard_by(lambda *_: None):
        report("reading images", 1, 1)  # of the caller, between two steps
    assert [step.step for step in steps] == [2]
    shown = console.export_text()
    if not terminal:
        assert shown.splitlines() == ["a method: trying prompts", line("a method", record, 1)]
    assert "reading images" not in shown


def test_a_task_after_which_nothing_was_tested_says_so() -> None:
    record = Record(0, 10, 2, 0.5, (None, None), (10, 10))
    assert line("l2p", record, 3) == "l2p: task 1 of 3, not tested, loss 0.500"
    assert line("l2p", replace(record, correct=(5, None)), 3) == "l2p: task 1 of 3, accuracy 50.0 %, loss 0.500"
