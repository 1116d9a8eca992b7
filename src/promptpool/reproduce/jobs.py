"""Runs to be made, and one of them carried out."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from promptpool.errors import BadFileError
from promptpool.experiments.build import SharedCache
from promptpool.experiments.config import Config, ConfigError
from promptpool.experiments.runner import BusyError, is_finished, run
from promptpool.training.folder import ENVIRONMENT, is_run, read_run

FEATURES = "features"  # a folder beside the runs, for what all of them read


@dataclass(frozen=True)
class Job:
    """A run that a study needs; `work` is what it is thought to cost, in seconds of one worker."""

    name: str
    config: Config
    folder: Path
    work: float = 1.0


@dataclass(frozen=True)
class News:
    """What a worker has to say of its job."""

    job: Job
    state: str  # "runs", "done", "busy" (another process has it), "died" (it will go on) or "failed"
    share: float = 0.0  # of the work that is done
    reason: str = ""  # why it failed


def share_done(job: Job) -> float:
    """How much of a run is done, from the records in its folder."""
    if not is_run(job.folder) or not (job.folder / ENVIRONMENT).exists():
        return 0.0
    run = read_run(job.folder)
    return len(run.records) / int(run.environment["experiences"])


def failure(job: Job, error: Exception) -> News:
    """The last word on a job that raised: another has it, or it would raise again however often it is tried."""
    if isinstance(error, BusyError):
        return News(job, "busy")
    text = " ".join(str(error).split())
    expected = isinstance(error, ConfigError | BadFileError | ModuleNotFoundError | OSError)
    return News(job, "failed", reason=text if expected else f"{type(error).__name__}: {text}")


def carry_out(job: Job, cache: SharedCache) -> Generator[float, None, None]:
    """Take a run to its end; yields the share that is done after every step. Closing it leaves a checkpoint."""
    if is_finished(job.folder, job.config):
        return
    with closing(run(job.config, job.folder, cache=cache)) as steps:
        for step in steps:
            yield step.step / step.steps
    cache.keep()
