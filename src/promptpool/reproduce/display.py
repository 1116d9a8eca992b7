"""What a person sees while many runs go: a bar for all with the time left, and one for each that is under way."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from promptpool.reproduce.jobs import Job, News


class Watch:
    """How much is done, and what is left at this pace."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.total = sum(job.work for job in jobs)
        self.shares: dict[Path, float] = {}
        self.first: dict[Path, float] = {}  # what was done before we began
        self.begin = time.monotonic()

    def note(self, news: News) -> None:
        if news.state == "busy":
            return
        share = 1.0 if news.state in ("done", "failed") else news.share
        self.first.setdefault(news.job.folder, news.share if news.state == "runs" else 0.0)
        self.shares[news.job.folder] = max(share, self.shares.get(news.job.folder, 0.0))

    def done(self, jobs: Sequence[Job]) -> float:
        return sum(self.shares.get(job.folder, 0.0) * job.work for job in jobs) / self.total if self.total else 1.0

    def left(self, jobs: Sequence[Job]) -> float | None:
        """Seconds, if the rest goes as what was done since the beginning."""
        since = sum((share - self.first[folder]) * _work(jobs, folder) for folder, share in self.shares.items())
        rest = sum((1 - self.shares.get(job.folder, 0.0)) * job.work for job in jobs)
        elapsed = time.monotonic() - self.begin
        return rest * elapsed / since if since > 0.005 * self.total else None


def watched(console: Console, jobs: Sequence[Job], news: Iterable[News], expected: float) -> Iterator[News]:
    """The news, shown as they come; `expected` are the seconds thought of before anything ran."""
    watch = Watch(jobs)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[left]}"),
        console=console, disable=not console.is_terminal, transient=True,
    ) as bars:  # fmt: skip
        thought = f"about {duration(expected)} in all"
        whole = bars.add_task(f"{len(jobs)} runs", total=1.0, left=thought)
        own = {job.folder: bars.add_task(job.name, total=1.0, visible=False, left="") for job in jobs}
        ended = 0
        for word in news:
            watch.note(word)
            left = watch.left(jobs)
            said = thought if left is None else f"{duration(left)} left"
            bars.update(whole, completed=watch.done(jobs), left=said)
            over = word.state in ("done", "failed")
            visible = word.state == "runs"
            bars.update(own[word.job.folder], completed=watch.shares.get(word.job.folder, 0.0), visible=visible)
            ended += over
            if over or word.state == "died":
                reason = f": {word.reason}" if word.reason else ""
                told = f"{ended} of {len(jobs)}, {word.job.name} {word.state}{reason}, {said}"
                console.print(told, highlight=False, markup=False)
            yield word


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _work(jobs: Sequence[Job], folder: Path) -> float:
    return next(job.work for job in jobs if job.folder == folder)
