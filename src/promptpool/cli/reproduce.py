"""`promptpool reproduce`: a table or figure of the paper by one command."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from promptpool.cli.display import duration, reading, watched
from promptpool.cli.errors import user_errors
from promptpool.cores import core_count
from promptpool.experiments.config import ConfigError
from promptpool.experiments.runner import is_finished
from promptpool.files import locked
from promptpool.progress import report
from promptpool.report.table import markdown, terminal
from promptpool.reproduce.claims import claims, claims_table
from promptpool.reproduce.expected import stored
from promptpool.reproduce.jobs import Job
from promptpool.reproduce.latex import latex
from promptpool.reproduce.output import study_tables, write_results
from promptpool.reproduce.plan import Request, checked, collect, names_of
from promptpool.reproduce.results import Results, filled_from, read_results, read_some_results, shares_to_csv, to_csv
from promptpool.reproduce.studies import SCALES
from promptpool.reproduce.workers import with_processes
from promptpool.training.run_folder import is_run, read_records

FORMS = ("terminal", "markdown", "latex", "csv")
ENGINES = ("processes", "ray")


def reproduce(
    target: Annotated[str, typer.Argument(help="table1 to table5, figure3, figure4, buffers, batches, or all.")],
    scale: Annotated[
        str, typer.Option(help="mini: drawn characters, offline; small, small-dinov2: photographs on two cores; paper.")
    ] = "mini",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each configuration, with seeds 0, 1, ...")] = 1,
    only: Annotated[str, typer.Option(help='Methods by name, such as "L2P*", or "Split* L2P*".')] = "*",
    show: Annotated[bool, typer.Option("--list", help="Say which runs there are and how far, and stop.")] = False,
    no_runs: Annotated[bool, typer.Option("--no-runs", help="Tables of what is finished; run nothing.")] = False,
    workers: Annotated[int, typer.Option(min=0, help="Runs at the same time; 0: one for each GPU or core.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each; the last digits depend on it.")] = 1,
    engine: Annotated[str, typer.Option(help="processes, or ray: the machines of a Ray cluster.")] = "processes",
    runs: Annotated[Path | None, typer.Option(help="Where run folders go.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where tables, figures and the page go.")] = None,
    backbone: Annotated[str | None, typer.Option(help="Pre-trained weights instead of the scale's own.")] = None,
    precision: Annotated[
        str | None, typer.Option(help="Of the transformer's products: single, or bfloat16 where the processor has it.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Images per class, to try the whole path.")] = None,
    data: Annotated[Path | None, typer.Option(help="The folder of the published data sets.")] = None,
    form: Annotated[str, typer.Option("--format", help="terminal, markdown, latex or csv.")] = "terminal",
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Print what the CSV files of this folder hold; stored: those of the package."),
    ] = None,
    fill: Annotated[
        Path | None,
        typer.Option(
            "--fill",
            help="Take cells and seeds of tables that were run elsewhere from CSV files in this folder, or stored.",
        ),
    ] = None,
) -> None:
    """Measure a table or figure of the paper; finished runs are kept, and one that was cut short goes on."""
    console, log = Console(), Console(stderr=True)  # a table can go into a file
    with user_errors():
        for name, value, allowed in (
            ("--scale", scale, tuple(SCALES)),
            ("--engine", engine, ENGINES),
            ("--format", form, FORMS),
        ):
            if value not in allowed:
                raise ConfigError(f"{name} {value}: must be one of {', '.join(allowed)}")
        names = names_of(target, scale)
        if target == "figure3" and form == "latex":
            raise ConfigError("figure3 is a picture: its numbers are had with --format csv")
        if source is not None:
            for name, given in (
                ("--fill", fill is not None),
                ("--only", only != "*"),
                ("--list", show),
                ("--limit", limit),
                ("--backbone", backbone),
                ("--precision", precision),
            ):
                if given:
                    raise ConfigError(f"--from prints what its folder holds: {name} has no say there")
            _print(console, read_results(_place(source, scale), names), form)
            return
        if data is not None:
            os.environ["PROMPTPOOL_DATA"] = str(data.expanduser().resolve())
        where = runs or Path("runs") / f"reproduce-{scale}"
        request = Request(names, scale, seeds, where.resolve(), only, limit, backbone, precision)
        if backbone is not None and fill == Path("stored"):
            raise ConfigError(f"--fill stored has the numbers of the scale's own weights, not of {backbone}")
        if fill is not None and fill != Path("stored") and not fill.is_dir():
            raise ConfigError(f"--fill {fill}: there is no such folder")
        earlier = None if fill is None else read_some_results(_place(fill, scale), names)
        jobs = request.jobs(earlier)
        if not next(request.items(), None):
            there = dict.fromkeys(item.method for item in replace(request, only="*").items())
            raise ConfigError(f"--only {only}: no method of {target} is called so; there are {', '.join(there)}")
        if show:
            console.print(_listed(jobs))
            return
        failed = 0 if no_runs else _carry_out(log, jobs, engine, workers or at_once(), threads)
        with reading(log):
            # A table has all its rows, whichever were run just now.
            results = collect(replace(request, only="*"), test_again=not no_runs)
        tried = "" if limit is None and backbone is None else "-tried"  # not to be taken for results
        folder = out or Path("reproduced") / f"{scale}{tried}"
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / ".lock", waiting=report):
            if fill is not None:  # read again: other processes may have added to it meanwhile
                results = filled_from(results, read_some_results(_place(fill, scale), names))
            page = write_results(results, folder, where)
    _print(console, results, form)
    typer.echo(f"tables, figures and the page: {page}", err=True)
    if failed:
        raise typer.Exit(1)


def _place(folder: Path, scale: str) -> Path:
    """A folder of CSV files; "stored" are those of the package."""
    return stored(scale) if folder == Path("stored") else folder


def _carry_out(console: Console, jobs: Sequence[Job], engine: str, workers: int, threads: int) -> int:
    """Carry out all runs; returns how many failed."""
    open_jobs = [job for job in jobs if not is_finished(job.folder, job.config)]
    with reading(console):
        costed, seconds = checked(open_jobs)
    console.print(f"{len(jobs)} runs, {len(jobs) - len(open_jobs)} of them finished", highlight=False)
    if not open_jobs:
        return 0
    workers = min(workers, len(costed))
    expected = seconds / workers
    console.print(f"estimate: {duration(expected)} with {workers} at a time", highlight=False)
    if engine == "ray":
        from promptpool.reproduce.ray import with_ray

        statuses = with_ray(costed, workers=workers, threads=threads)
    else:
        statuses = with_processes(costed, workers=workers, threads=threads)
    begin, failed = time.monotonic(), 0
    with closing(statuses), stoppable():
        for status in watched(console, costed, statuses, expected):
            failed += status.state == "failed"
    console.print(f"took {duration(time.monotonic() - begin)}", highlight=False)
    return failed


def at_once() -> int:
    """One run for each GPU, or for each core that this process may use where there is none."""
    if torch.cuda.is_available():
        return torch.cuda.device_count()
    if torch.backends.mps.is_available():
        return 1
    return core_count()


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM ends as Ctrl-C does: workers leave their checkpoints."""

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _listed(jobs: Sequence[Job]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("run", "state", "folder"):
        table.add_column(name, overflow="fold")
    for job in jobs:
        done = len(read_records(job.folder)) if is_run(job.folder) else 0
        state = "finished" if is_finished(job.folder, job.config) else f"{done} records" if done else "-"
        table.add_row(Text(job.name), state, Text(job.folder.name))
    return table


def _print(console: Console, results: Results, form: str) -> None:
    studies = [found for name, found in results.studies.items() if found and name != "figure3"]
    claimed = claims(results)
    if form == "csv":
        texts = [to_csv(found) for found in studies] + ([shares_to_csv(results.shares)] if results.shares else [])
    elif form == "latex":
        texts = [latex(study_tables(found)) for found in studies]
    elif form == "markdown":
        texts = [markdown([*study_tables(found).values()]) for found in studies]
        texts += [markdown([claims_table(claimed)])] if claimed else []
    else:
        for table in [table for found in studies for table in study_tables(found).values()]:
            console.print(terminal(table))
        for claim in claimed:
            said = f"{claim.verdict}: {claim.text} ({claim.stream}; seeds: {claim.seeds}). {claim.numbers}"
            console.print(said, highlight=False, markup=False)
        return
    typer.echo("\n".join(texts), nl=False)
