"""Runs spread over processes: deaths, other invocations, stopping."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

import dying_worker
from promptpool.experiments.runner import is_finished, run
from promptpool.reproduce import workers
from promptpool.reproduce.jobs import JobStatus
from promptpool.reproduce.workers import with_processes
from promptpool.training.run_folder import read_run
from reproduce_runs import LONG, features, made_jobs, records, undisturbed

TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPOOL_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The records of the long run that nothing disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROMPTPOOL_CACHE", str(folder / "cache"))
        return undisturbed(made_jobs(folder / "runs", epochs=LONG), folder / "whole")


def kill_workers() -> None:
    for process in multiprocessing.active_children():
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()


def test_a_killed_worker_is_replaced_and_its_run_goes_on_to_the_same_bytes(
    tmp_path: Path, expected: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROMPTPOOL_FEATURES_GB")
    jobs = made_jobs(tmp_path / "runs", epochs=LONG)
    (tmp_path / "file").write_text("")
    impossible = replace(jobs[0], folder=tmp_path / "file" / "run")
    words: list[JobStatus] = []
    for word in with_processes([impossible, *jobs], workers=1):
        if word.state == "runs" and word.share > 0.2 and not any(earlier.state == "died" for earlier in words):
            kill_workers()
        words.append(word)
    ends = [word for word in words if word.state != "runs"]
    assert [word.state for word in ends] == ["failed", "died", "done"]
    assert "file" in ends[0].reason
    assert ends[0].job == impossible
    assert any(word.state == "runs" and 0.2 < word.share < 1 for word in words)
    assert records(jobs) == expected
    assert len(features(jobs)) == 1
    assert multiprocessing.active_children() == []


def test_a_job_that_raises_is_not_tried_again_and_says_why(tmp_path: Path) -> None:
    (job,) = made_jobs(tmp_path / "runs")
    broken = replace(job, config=job.config | {"plan": job.config["plan"] | {"batch_size": 0}})
    unknown = replace(job, config={**job.config, "plan": None}, folder=tmp_path / "runs/unknown")
    words = [word for word in with_processes([broken, unknown], workers=1) if word.state != "runs"]
    assert [(word.job, word.state) for word in words] == [(broken, "failed"), (unknown, "failed")]
    assert "batch_size = 0" in words[0].reason
    assert re.match(r"\w+Error: ", words[1].reason)


def test_closing_leaves_a_checkpoint_and_no_process(tmp_path: Path, expected: list[bytes]) -> None:
    (job,) = made_jobs(tmp_path / "runs", epochs=LONG)
    with closing(with_processes([job], workers=1)) as news:
        for word in news:
            if word.share > 0:
                break
    assert multiprocessing.active_children() == []
    assert (job.folder / "checkpoint").exists()
    assert not is_finished(job.folder, job.config)
    for step in run(job.config, job.folder):
        assert step.step > 1  # it goes on, it does not begin
    assert records([job]) == expected


def test_a_job_that_another_process_has_is_put_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a worker that dies while it waits is no harm."""
    monkeypatch.setattr(workers, "PATIENCE", 0.1)
    (job,) = made_jobs(tmp_path / "runs")
    job.folder.mkdir()
    states = []
    with (job.folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for word in with_processes([job], workers=1):
            states.append(word.state)
            if states.count("busy") == 2 and "died" not in states:
                kill_workers()
            if word.state == "died":
                fcntl.flock(file, fcntl.LOCK_UN)
    ends = [state for state in states if state != "runs"]
    assert ends == ["busy", "busy", "died", "done"]
    assert is_finished(job.folder, job.config)


def test_a_job_that_every_worker_dies_of_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PATIENCE", 0.1)
    monkeypatch.setattr(workers, "_work", dying_worker.dies)
    (job,) = made_jobs(tmp_path / "runs")
    words = list(with_processes([job], workers=1))
    assert [word.state for word in words] == ["died"] * (workers.DEATHS - 1) + ["failed"]
    assert f"died {workers.DEATHS} times" in words[-1].reason
    assert multiprocessing.active_children() == []


def test_two_invocations_at_once_share_the_work(tmp_path: Path) -> None:
    jobs = made_jobs(tmp_path / "runs", seeds=(0, 1, 2))
    heard: list[list[JobStatus]] = [[], []]
    threads = [Thread(target=lambda words=words: words.extend(with_processes(jobs, workers=1))) for words in heard]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for words in heard:
        assert sorted(word.job.name for word in words if word.state == "done") == [job.name for job in jobs]
        assert {word.state for word in words} <= {"runs", "busy", "done"}
    assert records(jobs) == undisturbed(jobs, tmp_path / "whole")


ALONE = """
import sys
from pathlib import Path
from promptpool.reproduce.workers import with_processes
from reproduce_runs import LONG, made_jobs

if __name__ == "__main__":
    for word in with_processes(made_jobs(Path(sys.argv[1]), epochs=LONG), workers=1):
        print(word.share, flush=True)
"""


def test_workers_stop_with_a_checkpoint_when_whoever_started_them_is_killed(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text(ALONE)
    command = [sys.executable, str(tmp_path / "alone.py"), str(tmp_path / "runs")]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    (job,) = made_jobs(tmp_path / "runs", epochs=LONG)
    until = time.monotonic() + 60
    with (job.folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # once the worker has let go
    assert time.monotonic() < until
    assert (job.folder / "checkpoint").exists()
    assert not read_run(job.folder).finished
