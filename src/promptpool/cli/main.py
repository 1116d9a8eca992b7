"""The command itself, and the verbs that only read: list and report."""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from promptpool import __version__
from promptpool.backbones.weights import SHIPPED
from promptpool.cli import classifier
from promptpool.cli.data import app as data_app
from promptpool.cli.demo import demo
from promptpool.cli.display import pairs_table
from promptpool.cli.errors import user_errors
from promptpool.cli.evaluate import evaluate
from promptpool.cli.export import export
from promptpool.cli.reproduce import reproduce
from promptpool.cli.review import review
from promptpool.cli.run import run_one
from promptpool.cli.serve import serve
from promptpool.cli.tune import tune
from promptpool.cli.weights import app as weights_app
from promptpool.data.scenarios import SCENARIOS
from promptpool.data.sets import DATASETS
from promptpool.errors import BadFileError
from promptpool.experiments.catalogue import Benchmark, Method, benchmarks, guide, methods
from promptpool.experiments.config import UNTRAINED, Config, ConfigError, nearest, typed
from promptpool.learners import LEARNERS
from promptpool.learners.profiles import PROFILES
from promptpool.report.classes import worst_lines
from promptpool.report.comparison import terminal_tables
from promptpool.report.report import write_report
from promptpool.report.tensorboard import write_tensorboard
from promptpool.reproduce.expected import expected
from promptpool.training.run_folder import Run, is_run, read_run

BACKBONES = {
    ", ".join(SHIPPED): "comes with the package: a small ViT pre-trained on drawn characters",
    ", ".join(UNTRAINED): "fresh weights, to be trained from nothing: width, stem, image_size, seed",
    "FILE.npz": "a ViT in the official layout, such as ViT-B_16.npz",
    "FILE.safetensors, FILE.pth": "a ViT with timm's parameter names",
    "FOLDER": "a ViT, DeiT or DINOv2 as transformers or timm saves it: config.json and model.safetensors",
    "owner/name": "the same from the Hugging Face hub, fetched once: promptpool weights list",
}

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Continual learning with a pool of prompts.",
)
for verb in (
    *(classifier.learn, classifier.predict, review, evaluate, classifier.show, classifier.forget),
    *(classifier.rename, classifier.merge, classifier.history, classifier.undo),
):
    app.command()(verb)
app.command()(export)
app.command()(serve)
app.command()(demo)
app.command("run")(run_one)
app.command()(tune)
app.command()(reproduce)
app.add_typer(data_app, name="data")
app.add_typer(weights_app, name="weights")


@app.callback(invoke_without_command=True)
def main(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[Path, typer.Option(help="Where the page, the tables and the plots go.")] = Path("report"),
    tensorboard: Annotated[Path | None, typer.Option(help="Also write TensorBoard logs into this folder.")] = None,
) -> None:
    """Compare runs: a table here, and a page with plots; seeds of one configuration become mean and deviation."""
    with user_errors():
        found = _read_all(runs)
        page = write_report(found, out)
        if tensorboard is not None:
            write_tensorboard(found, tensorboard)
    for table in terminal_tables(found):
        Console().print(table)
    for line in worst_lines(found):
        typer.echo(line)
    typer.echo(f"page: {page}")


@app.command("list")
def show_all(
    what: Annotated[str, typer.Argument(help="Only these: benchmarks, methods, measured, profiles, ...")] = "",
    like: Annotated[str, typer.Option(help='Only names like this, such as "cifar100-*".')] = "*",
) -> None:
    """List benchmarks and methods (any two make a run), measured pairs, profiles, learners, data, backbones.

    `promptpool list methods` also says of each what it keeps and trains, and when to choose it.
    """
    every = {
        "benchmarks": {name: _sized(benchmark) for name, benchmark in benchmarks().items()},
        "methods": {name: _guided(method) if what else method.about for name, method in methods().items()},
        "measured": expected(),
        "learners": {name: _described(make) for name, make in LEARNERS.items()},
        "profiles": {name: _set(values._asdict()) for name, values in PROFILES.items()},
        "datasets": {name: _described(make) for name, make in DATASETS.items()},
        "scenarios": {name: _described(make) for name, make in SCENARIOS.items()},
        "backbones": BACKBONES,
    }
    if what and what not in every:
        with user_errors():
            raise ConfigError(f"{what!r}: {nearest(what, every)}")
    for kind, rows in every.items():
        found = {name: row for name, row in rows.items() if fnmatch.fnmatchcase(name, like)}
        if found and what in ("", kind):
            Console().print(pairs_table(kind, found))


def _guided(method: Method) -> str:
    """What a method is, keeps and trains, and when to choose it."""
    return "\n".join([f"{method.about}.", *(f"{name}: {text}" for name, text in guide(method).items()), ""])


def _set(tables: dict[str, Config]) -> str:
    """Values as they would be typed."""
    return ", ".join(
        f"{table}.{key}={typed(value)}" for table, values in tables.items() for key, value in values.items()
    )


def _read_all(folders: list[Path]) -> list[Run]:
    """The runs among some folders; others are named and passed over."""
    for folder in folders:
        if not is_run(folder):
            typer.echo(f"promptpool: {folder} is not a run folder, passed over", err=True)
    found = [read_run(folder) for folder in folders if is_run(folder)]
    if not found:
        raise BadFileError(f"{folders[0]}: not a run folder")
    return found


def _described(make: Callable[..., Any]) -> str:
    """The first line of what something says of itself, with the values that were set beforehand."""
    values = make.keywords if isinstance(make, partial) else {}
    source = make.func if isinstance(make, partial) else make
    line = (inspect.getdoc(source) or "").split("\n")[0]
    return f"{line} ({', '.join(f'{k}={v!r}' for k, v in values.items())})" if values else line


def _sized(benchmark: Benchmark) -> str:
    """What a benchmark is, and the scales it comes in where there are several."""
    return benchmark.about + (f" (--scale {', '.join(benchmark.scales)})" if len(benchmark.scales) > 1 else "")
