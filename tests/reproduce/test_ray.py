"""A Ray cluster of two workers on this machine: one is killed, and its run goes on elsewhere."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from promptpool.experiments.runner import is_finished
from promptpool.reproduce.jobs import JobStatus
from promptpool.reproduce.ray import with_ray
from reproduce_runs import LONG, made_jobs, records, undisturbed

pytestmark = pytest.mark.ray


@pytest.fixture(autouse=True)
def _ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="no Ray; make ray-test installs it")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("PROMPTPOOL_CACHE", str(tmp_path / "cache"))


def holder(lock: Path) -> int | None:
    """The process that has a file locked, as the kernel says."""
    inode = lock.stat().st_ino if lock.exists() else None
    for line in Path("/proc/locks").read_text().splitlines():
        _, kind, _, _, pid, place, *_ = line.split()
        if kind == "FLOCK" and int(place.split(":")[-1]) == inode:
            return int(pid)
    return None


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_the_run_of_a_killed_worker_goes_on_in_another(tmp_path: Path) -> None:
    jobs = made_jobs(tmp_path / "runs", epochs=LONG, seeds=(0, 1, 2))
    words: list[JobStatus] = []
    killed: list[int] = []
    for word in with_ray(jobs, workers=2):
        words.append(word)
        if word.state == "runs" and not killed and (process := holder(word.job.folder / ".lock")):
            os.kill(process, signal.SIGKILL)
            killed.append(process)
            assert not is_finished(word.job.folder, word.job.config)
    assert len(killed) == 1
    assert sorted(word.job.name for word in words if word.state == "done") == [job.name for job in jobs]
    assert "failed" not in {word.state for word in words}
    assert records(jobs) == undisturbed(jobs, tmp_path / "whole")
