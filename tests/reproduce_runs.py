"""Jobs and results for the tests of `promptpool reproduce`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from promptpool.experiments.build import SharedCache
from promptpool.experiments.config import load_config
from promptpool.experiments.runner import run
from promptpool.reproduce.jobs import FEATURES, Job
from promptpool.reproduce.paper import Reported
from promptpool.reproduce.results import Result
from promptpool.reproduce.studies import NO_BUFFER, Item
from small_runs import small_preset

LONG, SHORT = 30, 2  # epochs
WEIGHTS = TemporaryDirectory()  # written once: a file of weights has its time in it, and a record has its hash


@cache
def tiny() -> Path:
    return small_preset(Path(WEIGHTS.name))


def made_jobs(folder: Path, *, epochs: int = SHORT, seeds: Sequence[int] = (0,)) -> list[Job]:
    """Runs of L2P on five tasks of three images a class, in folders that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    configs = [load_config(str(tiny()), [f"plan.epochs={epochs}", f"seed={seed}"]) for seed in seeds]
    return [Job(f"seed {config['seed']}", config, folder / f"run-{config['seed']}") for config in configs]


def undisturbed(jobs: Sequence[Job], folder: Path) -> list[bytes]:
    """The records of the same runs, each made at once in this process."""
    cache = SharedCache()
    for job in jobs:
        for _ in run(job.config, folder / job.folder.name, cache=cache):
            pass
    return records([replace(job, folder=folder / job.folder.name) for job in jobs])


def records(jobs: Sequence[Job]) -> list[bytes]:
    return [(job.folder / "records.jsonl").read_bytes() for job in jobs]


def features(jobs: Sequence[Job]) -> list[Path]:
    """The folders of features that runs share."""
    return sorted((jobs[0].folder.parent / FEATURES).glob("*"))


def made_item(
    name: str = "ft-seq",
    *,
    method: str = "FT-seq",
    study: str = "table1",
    at: int | None = None,
    reported: Reported | None = None,
    **learner: Any,
) -> Item:
    return Item(study, "a stream", NO_BUFFER, method, {"learner": {"name": name, **learner}}, at, reported)


def made_result(
    method: str,
    accuracy: float | None = None,
    group: str = NO_BUFFER,
    *,
    study: str = "table1",
    stream: str = "glyphs",
    **more: str,
) -> Result:
    return Result(study, stream, group, method, accuracy="" if accuracy is None else f"{accuracy:.2f}", **more)
