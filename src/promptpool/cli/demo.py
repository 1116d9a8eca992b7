"""`promptpool demo`: the paper in miniature, on one hundred drawn characters in ten tasks."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from promptpool.backbones.products import suited
from promptpool.cli.display import together
from promptpool.cli.errors import user_errors
from promptpool.cli.reproduce import at_once, stoppable
from promptpool.experiments.config import ConfigError, load_config
from promptpool.experiments.identity import run_folder
from promptpool.experiments.runner import device, is_finished
from promptpool.metrics import average_accuracy
from promptpool.report.comparison import terminal_tables
from promptpool.report.names import METHODS
from promptpool.report.report import write_report
from promptpool.reproduce.jobs import Job
from promptpool.reproduce.workers import with_processes
from promptpool.training.run_folder import Run, read_run

SHOWN = ("ft-seq", "masked-linear", "nearest-mean", "l2p", "closed-form", "upper-bound")
LONGEST = ("l2p", "upper-bound", "ft-seq")  # these begin first, so that all processes end together


def demo(
    runs: Annotated[Path, typer.Option(help="Where run folders go.")] = Path("runs/demo"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget earlier runs of the demo.")] = False,
) -> None:
    """The paper in miniature: six methods learn one hundred characters in ten tasks, offline, in about two minutes."""
    begin = time.monotonic()
    with user_errors():
        console = Console()
        configs = {method: load_config(f"glyphs100-{method}", scale="demo") for method in SHOWN}
        if device().type == "cpu":
            for config in configs.values():
                config["backbone"]["products"] = suited()
        jobs = {
            method: Job(METHODS[method], config, run_folder(runs.resolve(), METHODS[method], config))
            for method, config in configs.items()
        }
        for job in jobs.values():
            if fresh and job.folder.exists():
                shutil.rmtree(job.folder)
        _take_to_the_end(console, jobs)
        finished = [read_run(job.folder) for job in jobs.values()]
        page = write_report(finished, runs / "report")
    for table in terminal_tables(finished):
        console.print(table)
    console.print(verdict(finished), highlight=False)
    console.print(f"The demo took {time.monotonic() - begin:.0f} s. The page of plots: {page}", highlight=False)


def _take_to_the_end(console: Console, jobs: Mapping[str, Job]) -> None:
    """Carry out what is not finished yet, a run on each core or GPU at a time."""
    order = [*LONGEST, *(method for method in jobs if method not in LONGEST)]
    left = [job for job in map(jobs.__getitem__, order) if not is_finished(job.folder, job.config)]
    if not left:
        return
    tasks = max(job.config["scenario"]["tasks"] for job in left)
    statuses = with_processes(left, workers=at_once())
    with closing(statuses), stoppable():
        for status in together(console, {job.name: job for job in jobs.values()}, statuses, tasks):
            if status.state == "failed":
                raise ConfigError(f"{status.job.name}: {status.reason}")


def verdict(runs: Sequence[Run]) -> str:
    """What the demo showed, whatever it is, and what to type next."""
    joint = next(run for run in runs if run.config["scenario"].get("joint"))
    average = {run.config["learner"]["name"]: 100 * average_accuracy(run.accuracy) for run in runs if run is not joint}
    first = {run.config["learner"]["name"]: 100 * float(run.accuracy[-1, 0]) for run in runs if run is not joint}
    l2p, tuned, exact = average["l2p"], average["ft-seq"], average["closed-form"]
    plain = max(average["masked-linear"], average["nearest-mean"])
    why = "" if l2p > plain else "; why that is more, docs/results.md says"
    return (
        f"After ten tasks, none of them seen again, fine-tuning is right on {tuned:.0f} % of all characters, and on "
        f"{first['ft-seq']:.0f} % of the first task's; L2P on {l2p:.0f} % and {first['l2p']:.0f} %. Heads on the same "
        f"frozen model without prompts have up to {plain:.0f} %{why}. "
        f"The closed form, which we recommend, has {exact:.0f} %; fine-tuning on all data at once "
        f"{100 * average_accuracy(joint.accuracy):.0f} %.\n"
        "Next: promptpool learn NAME FOLDER teaches your own pictures, promptpool list shows every method and stream."
    )
