"""What a run is thought to cost, and what is said of it."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from promptpool.cli.display import Watch, duration, watched
from promptpool.experiments.build import SharedCache, build
from promptpool.experiments.config import load_config
from promptpool.experiments.cost import PASSES, seconds_per_pass, work
from promptpool.learners import LEARNERS
from promptpool.reproduce.jobs import Job, JobStatus, carry_out, share_done
from promptpool.reproduce.plan import checked
from reproduce_runs import LONG, made_jobs, tiny

JOBS = [Job(name, {}, Path(name), cost) for name, cost in (("a", 10.0), ("b", 30.0))]


def test_every_learner_has_its_passes() -> None:
    assert {*LEARNERS} == {*PASSES, "gdumb"}


def test_more_epochs_cost_more_and_a_pass_takes_time() -> None:
    costs = [work(build(load_config(str(tiny()), [f"plan.epochs={epochs}"]), SharedCache())) for epochs in (2, 4, 8)]
    assert costs[2] - costs[1] == pytest.approx(2 * (costs[1] - costs[0]))
    assert costs[0] > 0
    assert seconds_per_pass(build(load_config(str(tiny())), SharedCache())) > 0


def test_what_is_done_of_a_run_is_not_paid_again(tmp_path: Path) -> None:
    (job,) = made_jobs(tmp_path / "runs", epochs=LONG)
    assert share_done(job) == 0
    steps = carry_out(job, SharedCache())
    for share in steps:
        if share > 0.5:
            break
    steps.close()
    done = share_done(job)
    assert 0 < done < 1
    (costed,), seconds = checked([job])
    assert seconds == pytest.approx((1 - done) * costed.work)


def test_time_left_is_that_of_the_rest_at_this_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("promptpool.cli.display.time.monotonic", lambda: now)
    watch = Watch(JOBS)
    assert watch.left is None
    watch.note(JobStatus(JOBS[1], "runs", 0.5))  # it was there before we began
    now = 110.0
    watch.note(JobStatus(JOBS[0], "runs", 0.0))
    watch.note(JobStatus(JOBS[0], "done", 1.0))
    assert watch.done == pytest.approx(25 / 40)
    assert watch.left == pytest.approx(15.0)  # 10 of work took 10 seconds, 15 are left


def test_each_end_is_a_line_with_the_time_left() -> None:
    console = Console(file=io.StringIO(), width=200)
    news = [JobStatus(JOBS[0], "failed", reason="no such file"), replace(JobStatus(JOBS[1], "done"), share=1.0)]
    assert list(watched(console, JOBS, news, 120)) == news
    assert isinstance(console.file, io.StringIO)
    first, second = console.file.getvalue().splitlines()
    assert first.startswith("1 of 2, a failed: no such file, ")
    assert second == "2 of 2, b done, 0 s left"
    assert [duration(seconds) for seconds in (5, 600, 7200)] == ["5 s", "10 min", "2.0 h"]
