"""What a person sees while something runs.

`reading`: how far data are read or downloaded. `show`: a few runs in turn, with a table that fills task by task.
`together`: the same of a few runs at once in other processes. `watched`: many runs at once, one bar for all with the
time left and one for each under way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from rich.console import Console, Group
from rich.filesize import decimal
from rich.live import Live
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from promptpool.errors import BadFileError
from promptpool.experiments.runner import is_finished
from promptpool.progress import heard_by
from promptpool.reproduce.jobs import Job, JobStatus
from promptpool.training.loop import Step
from promptpool.training.record import Record
from promptpool.training.run_folder import read_records


class Watched(NamedTuple):
    """A run to show: its name, the records it already has, and how to go on with it."""

    name: str
    records: Sequence[Record]
    go_on: Callable[[], Iterator[Step]]
    joint: bool = False  # all data at once: its one number belongs to the end


@contextmanager
def reading(console: Console, *, in_bytes: bool = False) -> Iterator[None]:
    """Show how far work is meanwhile: bars, or lines where there is no terminal.

    `in_bytes` is for downloads: bars that stay, with their speed, and a line whenever another tenth is done.
    """
    amounts = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) if in_bytes else (MofNCompleteColumn(),)
    bars = Progress(TextColumn("{task.description}"), BarColumn(), *amounts, console=console, transient=not in_bytes)
    known: dict[str, TaskID] = {}
    said: dict[str, tuple[int, int | None]] = {}

    def line(what: str, done: int, total: int | None) -> None:
        tenth = 10 * done // total if total and in_bytes else 0
        if said.get(what) != (tenth, total):
            said[what] = tenth, total
            amount = f"{10 * tenth} % of {decimal(total or 0)}" if in_bytes else f"{total or 0:,}"
            console.print(f"{what}: {amount}" if total else what, highlight=False, markup=False, soft_wrap=True)

    def bar(what: str, done: int, total: int | None) -> None:
        if what not in known:
            bars.start()
            known[what] = bars.add_task(escape(what), total=total, completed=done)  # a download may begin half-way
        bars.update(known[what], completed=done, total=total)

    try:
        with heard_by(bar if console.is_terminal else line):
            yield
    finally:
        if known:
            bars.stop()


def show(console: Console, runs: Sequence[Watched], experiences: int) -> Generator[Step, None, None]:
    """Take each run to its end and show how far it is; yields every step, so that the caller can stop."""
    joint = [run.name for run in runs if run.joint]
    with Board(console, {run.name: run.records for run in runs}, experiences, joint) as board:
        for run in runs:
            board.at(run.name, 0.0)
            steps = run.go_on()
            while True:
                with heard_by(partial(board.hear, run.name)):  # not while the caller has the turn
                    step = next(steps, None)
                if step is None:
                    break
                board.at(run.name, step.step / step.steps)
                if step.record is not None:
                    board.add(run.name, step.record)
                yield step
            board.at(run.name, 1.0)


def together(
    console: Console, jobs: Mapping[str, Job], statuses: Iterable[JobStatus], experiences: int
) -> Iterator[JobStatus]:
    """Pass on each status of runs that go on in other processes, and show how far each is."""
    names = {job.folder: name for name, job in jobs.items()}
    joint = [name for name, job in jobs.items() if job.config["scenario"].get("joint")]
    with Board(console, {name: read_records(job.folder) for name, job in jobs.items()}, experiences, joint) as board:
        for name, job in jobs.items():
            if is_finished(job.folder, job.config):
                board.at(name, 1.0)
        for status in statuses:
            name = names[status.job.folder]
            known = len(board.records[name])
            if status.state in ("runs", "done"):
                board.at(name, status.share)
            if status.share * experiences >= known + 1 or status.state == "done":  # there is another record
                for record in read_records(status.job.folder)[known:]:
                    board.add(name, record)
            yield status


class Board:
    """A table of accuracies that fills task by task, and a bar for each run; a line for each record in a log."""

    def __init__(
        self, console: Console, records: Mapping[str, Sequence[Record]], experiences: int, joint: Sequence[str]
    ) -> None:
        self.records = {name: list(known) for name, known in records.items()}
        self.console, self.experiences, self.joint = console, experiences, joint
        self._live = Live(console=console, refresh_per_second=8, vertical_overflow="visible")
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            expand=True,
        )
        self._bars = {name: self._progress.add_task(name, total=1.0, start=False) for name in records}
        self._heard = "", ""  # the last line of `hear`

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start()
            self._draw()
        return self

    def __exit__(self, *ended: object) -> None:
        self._live.stop()

    def at(self, name: str, share: float) -> None:
        """Say that this share of a run is done."""
        bar = self._bars[name]
        if not self._progress.tasks[bar].started:
            self._progress.start_task(bar)
        self._progress.update(bar, completed=share, description=name)

    def hear(self, name: str, what: str, done: int, total: int | None) -> None:
        """Say what a run does between its steps: beside its bar, or in a line where there is no terminal."""
        if self.console.is_terminal:
            amount = f" {done:,}" if total is None else f" {done:,} of {total:,}"
            self._progress.update(self._bars[name], description=f"{name}: {escape(what)}{amount}")
        elif self._heard != (name, what):
            self._heard = name, what
            self.console.print(f"{name}: {what}", highlight=False, markup=False, soft_wrap=True)

    def add(self, name: str, record: Record) -> None:
        """Say what is known at the end of an experience."""
        self.records[name].append(record)
        if self.console.is_terminal:
            self._draw()
        else:
            self.console.print(line(name, record, self.experiences), highlight=False)

    def _draw(self) -> None:
        self._live.update(Group(table(self.records, self.experiences, self.joint), self._progress))


def table(records: Mapping[str, Sequence[Record]], experiences: int, joint: Sequence[str] = ()) -> Table:
    """The average accuracy over the test sets known so far, after each experience."""
    grid = Table(title="average accuracy after each task, %", title_justify="left", box=None, pad_edge=False)
    grid.add_column("method", style="cyan", no_wrap=True)
    for t in range(experiences):
        grid.add_column(str(t + 1), justify="right", min_width=4)
    for name, known in records.items():
        cells = [_percent(record) for record in known]
        if name in joint:
            cells = [""] * (experiences - len(cells)) + cells
        grid.add_row(name, *cells)
    return grid


def line(name: str, record: Record, experiences: int) -> str:
    """One record in one line, for output that is not a terminal."""
    loss = "" if record.loss is None else f", loss {record.loss:.3f}"
    part = "task" if len(record.total) > 1 else "experience"  # one test set for all of them: domains, or no tasks
    place = f"{part} {record.experience + 1} of {experiences}"
    accuracy = _percent(record)
    return f"{name}: {place}, {'not tested' if accuracy == '-' else f'accuracy {accuracy} %'}{loss}"


def _percent(record: Record) -> str:
    """The mean accuracy over the test sets that were tried."""
    known = [share for share in record.accuracy if share is not None]
    return f"{100 * sum(known) / len(known):.1f}" if known else "-"


def pairs_table(title: str, rows: dict[str, str]) -> Table:
    """Names and what is said of each."""
    grid = Table(title_justify="left", title_style="bold", show_header=False, box=None, pad_edge=False)
    grid.title = escape(title)
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column()
    for name, text in rows.items():
        grid.add_row(escape(name), escape(text))
    return grid


def labels_table() -> Table:
    """The head of a table of pictures that look like another class than their label says."""
    title = "labels to look at first, if any are wrong"
    return Table("picture", "its label", "looks like", box=None, title=title, title_justify="left")


def listed(labels: Sequence[str], most: int = 12) -> str:
    """The first of some labels, and how many more there are."""
    return ", ".join(labels[:most]) + (f" and {len(labels) - most} more" if len(labels) > most else "") or "-"


def page_place(out: Path | None, usual: str) -> Path:
    """Where a page goes: what was said, or a file of the usual name here."""
    if out is not None and out.is_dir():
        raise BadFileError(f"--out {out}: is a folder; say which file in it, such as {out / usual}")
    return out or Path(usual)


class Watch:
    """How much of the work is done, and the time that the rest will take."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.work = {job.folder: job.work for job in jobs}
        self.total = sum(self.work.values())
        self.shares: dict[Path, float] = {}
        self.first: dict[Path, float] = {}  # what was done before this watch began
        self.begin = time.monotonic()

    def note(self, status: JobStatus) -> None:
        if status.state == "busy":
            return
        share = 1.0 if status.state in ("done", "failed") else status.share
        self.first.setdefault(status.job.folder, status.share if status.state == "runs" else 0.0)
        self.shares[status.job.folder] = max(share, self.shares.get(status.job.folder, 0.0))

    @property
    def done(self) -> float:
        """The share of all work."""
        return sum(share * self.work[folder] for folder, share in self.shares.items()) / self.total

    @property
    def left(self) -> float | None:
        """Seconds, if the rest goes at the pace so far; None before there is a pace."""
        since = sum((share - self.first[folder]) * self.work[folder] for folder, share in self.shares.items())
        rest = (1 - self.done) * self.total
        return rest * (time.monotonic() - self.begin) / since if since > 0.005 * self.total else None


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
            said = estimate if watch.left is None else f"{duration(watch.left)} left"
            bars.update(whole, completed=watch.done, left=said)
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


def in_words(seconds: float) -> str:
    """A time as one would say it: "about 40 seconds", "about 3 minutes", "about 2 h 10 min", "about 3 days"."""
    if seconds < 1:
        return "less than a second"
    if seconds < 90:
        return f"about {_counted(round(seconds), 'second')}"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"about {_counted(minutes, 'minute')}"
    if minutes < 48 * 60:
        return f"about {minutes // 60} h {minutes % 60} min"
    return f"about {_counted(round(minutes / 1440), 'day')}"


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
