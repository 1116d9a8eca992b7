"""A run that a study needs, how to carry it out, and what is reported of it meanwhile."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from promptpool.errors import BadFileError
from promptpool.experiments.build import SharedCache
from promptpool.experiments.config import Config, ConfigError
from promptpool.experiments.runner import BusyError, run
from promptpool.training.run_folder import ENVIRONMENT, is_run, read_run

FEATURES = "features"  # a folder beside the runs, for the frozen features that they share


@dataclass(frozen=True)
class Job:
    """A run that a study needs; `work` is its expected cost, in seconds of one worker."""

    name: str
    config: Config
    folder: Path
    work: float = 1.0


@dataclass(frozen=True)
class JobStatus:
    """How far a job is."""

    job: Job
    state: str  # "runs", "done", "busy" (locked by another process), "died" (it will be resumed) or "failed"
    share: float = 0.0  # of its work, done so far
    reason: str = ""  # why it failed


def share_done(job: Job) -> float:
    """The part of a run that is done, from the records in its folder."""
    if not is_run(job.folder) or not (job.folder / ENVIRONMENT).exists():
        return 0.0
    run = read_run(job.folder)
    return len(run.records) / int(run.environment["experiences"])


def failure(job: Job, error: Exception) -> JobStatus:
    """The status of a job that raised: "busy" if another process has the run, else "failed" with the reason."""
    if isinstance(error, BusyError):
        return JobStatus(job, "busy")
    text = " ".join(str(error).split())
    expected = isinstance(error, ConfigError | BadFileError | ModuleNotFoundError | OSError)
    return JobStatus(job, "failed", reason=text if expected else f"{type(error).__name__}: {text}")


def carry_out(job: Job, cache: SharedCache) -> Generator[float, None, None]:
    """Carry out a run; yields the share that is done after every step. Closing it leaves a checkpoint."""
    with closing(run(job.config, job.folder, cache=cache)) as steps:
        for step in steps:
            yield step.step / step.steps
