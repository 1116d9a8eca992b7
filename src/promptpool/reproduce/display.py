"""Progress of many runs: one bar for all with the time left, and one for each run under way."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from promptpool.reproduce.jobs import Job, JobStatus


class Watch:
    """How much of the work is done, and the time that the rest will take."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.total = sum(job.work for job in jobs)
        self.shares: dict[Path, float] = {}
        self.first: dict[Path, float] = {}  # what was done before this watch began
        self.begin = time.monotonic()

    def note(self, status: JobStatus) -> None:
        if status.state == "busy":
            return
        share = 1.0 if status.state in ("done", "failed") else status.share
        self.first.setdefault(status.job.folder, status.share if status.state == "runs" else 0.0)
        self.shares[status.job.folder] = max(share, self.shares.get(status.job.folder, 0.0))

    def done(self, jobs: Sequence[Job]) -> float:
        return sum(self.shares.get(job.folder, 0.0) * job.work for job in jobs) / self.total if self.total else 1.0

    def left(self, jobs: Sequence[Job]) -> float | None:
        """Seconds, if the rest goes at the pace so far; None before there is a pace."""
        since = sum((share - self.first[folder]) * _work(jobs, folder) for folder, share in self.shares.items())
        rest = sum((1 - self.shares.get(job.folder, 0.0)) * job.work for job in jobs)
        elapsed = time.monotonic() - self.begin
        return rest * elapsed / since if since > 0.005 * self.total else None


def watched(
    console: Console, jobs: Sequence[Job], statuses: Iterable[JobStatus], expected: float
) -> Iterator[JobStatus]:
    """Pass on each status and show it; `expected` is the estimate in seconds from before anything ran."""
    watch = Watch(jobs)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[left]}"),
        console=console, disable=not console.is_terminal, transient=True,
    ) as bars:  # fmt: skip
        estimate = f"about {duration(expected)} in all"
        whole = bars.add_task(f"{len(jobs)} runs", total=1.0, left=estimate)
        own = {job.folder: bars.add_task(job.name, total=1.0, visible=False, left="") for job in jobs}
        ended = 0
        for status in statuses:
            watch.note(status)
            left = watch.left(jobs)
            said = estimate if left is None else f"{duration(left)} left"
            bars.update(whole, completed=watch.done(jobs), left=said)
            over = status.state in ("done", "failed")
            visible = status.state == "runs"
            bars.update(own[status.job.folder], completed=watch.shares.get(status.job.folder, 0.0), visible=visible)
            ended += over
            if over or status.state == "died":
                reason = f": {status.reason}" if status.reason else ""
                line = f"{ended} of {len(jobs)}, {status.job.name} {status.state}{reason}, {said}"
                console.print(line, highlight=False, markup=False)
            yield status


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _work(jobs: Sequence[Job], folder: Path) -> float:
    return next(job.work for job in jobs if job.folder == folder)
