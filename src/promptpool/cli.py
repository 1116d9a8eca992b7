"""The command line: verbs only."""

from __future__ import annotations

import fnmatch
import inspect
import os
import shutil
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from promptpool import __version__, distributed
from promptpool.backbones.weights import SHIPPED
from promptpool.complaints import complaints
from promptpool.data.datasets import DATASETS
from promptpool.data.scenarios import SCENARIOS
from promptpool.data_commands import app as data_app
from promptpool.errors import BadFileError, DataWarning, skipped_text
from promptpool.experiments.build import Stock, build
from promptpool.experiments.config import (
    UNTRAINED,
    Config,
    ConfigError,
    keywords,
    load_config,
    nearest,
    presets,
    to_toml,
)
from promptpool.experiments.demo import demo_configs, verdict
from promptpool.experiments.display import Watched, reading, show
from promptpool.experiments.estimate import estimate
from promptpool.experiments.identity import run_folder
from promptpool.experiments.runner import is_finished, run
from promptpool.learners import LEARNERS
from promptpool.learners.profiles import PROFILES
from promptpool.report.comparison import terminal_tables
from promptpool.report.report import write_report
from promptpool.report.tensorboard import write_tensorboard
from promptpool.reproduce_commands import reproduce
from promptpool.training.folder import Run, is_run, read_records, read_run

BACKBONES = {
    ", ".join(SHIPPED): "comes with the package: a small ViT pre-trained on drawn characters",
    ", ".join(UNTRAINED): "fresh weights, to be trained from nothing: width, stem, image_size, seed",
    "FILE.npz": "a ViT in the official layout, such as ViT-B_16.npz",
    "FILE.safetensors, FILE.pth": "a ViT with timm's parameter names",
    "FOLDER": "a Hugging Face ViT, DeiT or DINOv2: config.json and model.safetensors",
    "owner/name": "the same from the Hugging Face hub, with the extra promptpool[hub]",
}

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Continual learning with a pool of prompts.",
)
app.add_typer(data_app, name="data")
app.command()(reproduce)


@app.callback(invoke_without_command=True)
def main(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command()
def demo(
    runs: Annotated[Path, typer.Option(help="Where run folders go.")] = Path("runs/demo"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget earlier runs of the demo.")] = False,
) -> None:
    """The paper in miniature: six methods learn one hundred characters in ten tasks, offline, in about two minutes."""
    begin = time.monotonic()
    with complaints():
        jobs = {name: (config, run_folder(runs, name, config)) for name, config in demo_configs().items()}
        for _, folder in jobs.values():
            if fresh and folder.exists():
                shutil.rmtree(folder)
        folders = watch(jobs)
        finished = [read_run(folder) for folder in folders]
        page = write_report(finished, runs / "report")
    console = Console()
    for table in terminal_tables(finished):
        console.print(table)
    console.print(verdict(finished), highlight=False)
    console.print(f"The demo took {time.monotonic() - begin:.0f} s. The page of plots: {page}", highlight=False)


@app.command("run")
def run_preset(
    preset: Annotated[str, typer.Argument(help="A preset (promptpool list) or a TOML file.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Values to set, such as learner.top_k=4")] = None,
    runs: Annotated[Path, typer.Option(help="Where run folders go.")] = Path("runs"),
    folder: Annotated[Path | None, typer.Option(help="This run's folder, instead of one named by its values.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done and what it costs.")] = False,
    data: Annotated[Path | None, typer.Option(help="Your own images, or the folder of the published sets.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at a file that is no image.")] = False,
) -> None:
    """Run one configuration; the same command goes on with a run that was stopped, to the same numbers."""
    with complaints(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # said at the end
        distributed.start()
        config = load_config(preset, overrides or [])
        _take_data(config["dataset"], data, strict)
        path = run_folder(runs, preset, config) if folder is None else folder
        if dry_run:
            describe(config)
            return
        if is_finished(path, config):
            own = "folder" in config["dataset"]
            typer.echo(f"{path} is finished{'; for images that changed, --folder starts a new run' if own else ''}")
        else:
            watch({config["learner"]["name"]: (config, path)})
        if distributed.rank() == 0:
            finished = read_run(path)
            for table in terminal_tables([finished]):
                Console().print(table)
            if skipped := finished.environment.get("skipped"):
                typer.echo(skipped_text(skipped))
            for note in finished.environment.get("notes", []):
                typer.echo(f"note: {note}")
            typer.echo(f"records: {path}, page: promptpool report {path}")
        distributed.stop()


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[Path, typer.Option(help="Where the page, the tables and the plots go.")] = Path("report"),
    tensorboard: Annotated[Path | None, typer.Option(help="Also write TensorBoard logs into this folder.")] = None,
) -> None:
    """Compare runs: a table here, and a page with plots; seeds of one configuration become mean and deviation."""
    with complaints():
        found = _read_all(runs)
        page = write_report(found, out)
        if tensorboard is not None:
            write_tensorboard(found, tensorboard)
    for table in terminal_tables(found):
        Console().print(table)
    typer.echo(f"page: {page}")


@app.command("list")
def show_all(
    what: Annotated[str, typer.Argument(help="Only these: presets, methods, profiles, datasets, ...")] = "",
    like: Annotated[str, typer.Option(help='Only names like this, such as "cifar100-*".')] = "*",
) -> None:
    """List presets, methods, profiles of L2P, data sets, scenarios and backbones."""
    every = {
        "presets": {name: _first_comment(path) for name, path in presets().items()},
        "methods": {name: _described(make) for name, make in LEARNERS.items()},
        "profiles": {name: _set(values._asdict()) for name, values in PROFILES.items()},
        "datasets": {name: _described(make) for name, make in DATASETS.items()},
        "scenarios": {name: _described(make) for name, make in SCENARIOS.items()},
        "backbones": BACKBONES,
    }
    if what and what not in every:
        with complaints():
            raise ConfigError(f"{what!r}: {nearest(what, every)}")
    for kind, rows in every.items():
        found = {name: row for name, row in rows.items() if fnmatch.fnmatchcase(name, like)}
        if found and what in ("", kind):
            Console().print(_table(kind, found))


def _set(tables: dict[str, Config]) -> str:
    """Values as they would be typed."""
    lines = [f"{table}.{line}" for table, values in tables.items() for line in to_toml(values).splitlines()]
    return ", ".join(line.replace(" = ", "=", 1) for line in lines)


def _take_data(dataset: Config, data: Path | None, strict: bool) -> None:
    """Where the data are, and whether a file that cannot be read ends the run."""
    known = keywords(DATASETS[dataset["name"]])
    if data is not None and "folder" in known:
        dataset["folder"] = str(data.expanduser().resolve())
    elif data is not None:
        if not data.expanduser().is_dir():
            raise ConfigError(f"--data {data}: no such folder")
        os.environ["PROMPTPOOL_DATA"] = str(data)
    if strict and "strict" not in known:
        raise ConfigError(f"--strict: the data set {dataset['name']} has no files of one's own to stop at")
    if strict:
        dataset["strict"] = True


def watch(jobs: dict[str, tuple[Config, Path]]) -> list[Path]:
    """Take runs to their end with bars and a table; Ctrl-C stops after a step, and they can go on."""
    stock, console = Stock(), Console(quiet=distributed.rank() > 0)
    with reading(console):
        experiences = max(len(build(config, stock).stream.experiences) for config, _ in jobs.values())
    watched = [
        Watched(name, read_records(path), partial(_go_on, config, path, stock), config["scenario"].get("joint", False))
        for name, (config, path) in jobs.items()
    ]
    with interruptible() as asked, closing(show(console, watched, experiences)) as steps:
        for _ in steps:
            if asked():
                raise KeyboardInterrupt
    return [path for _, path in jobs.values()]


def _go_on(config: Config, path: Path, stock: Stock) -> Iterator[Any]:
    return iter(()) if is_finished(path, config) else run(config, path, stock=stock)


def _read_all(folders: list[Path]) -> list[Run]:
    """The runs among some folders; others are named and passed over."""
    for folder in folders:
        if not is_run(folder):
            typer.echo(f"promptpool: {folder} is not a run folder, passed over", err=True)
    found = [read_run(folder) for folder in folders if is_run(folder)]
    if not found:
        raise BadFileError(f"{folders[0]}: not a run folder")
    return found


def describe(config: Config) -> None:
    """What a configuration would do, and what it costs on this machine."""
    with reading(Console()):
        built = build(config)
    cost = estimate(built)
    stream, later = built.stream, built.learner.at_the_end
    sizes = ", ".join(str(len(experience.train)) for experience in stream.experiences)
    rows = {
        "stream": f"experiences: {len(stream.experiences)}, classes: {len(stream.class_names)}",
        "training images": sizes,
        "test images": ", ".join(str(len(test)) for test in stream.tests),
        **({"files": skipped_text(tuple(built.notes.skipped))} if built.notes.skipped else {}),
        **({"note": "; ".join(built.notes.texts)} if built.notes.texts else {}),
        "learner": f"{config['learner']['name']}, {cost.trained_parameters:,} trained parameters",
        "backbone": f"{config['backbone']['name']}, {built.learner.backbone.origin}",
        "steps": f"{cost.steps:,} of {built.plan.batch_size} images",
        "estimated time": f"{cost.seconds:.0f} s" + (f", and more where {later} after each task" if later else ""),
        **({} if cost.memory is None else {"memory": f"{cost.memory / 2**20:.0f} MiB"}),
    }
    Console().print(_table("this run would be", rows))


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed; a second one interrupts at once."""
    pressed: list[int] = []

    def press(number: int, frame: FrameType | None) -> None:
        del frame
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def _table(title: str, rows: dict[str, str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, text in rows.items():
        table.add_row(name, escape(text))
    return table


def _described(make: Callable[..., Any]) -> str:
    """The first line of what something says of itself, with the values that were set beforehand."""
    values = make.keywords if isinstance(make, partial) else {}
    source = make.func if isinstance(make, partial) else make
    line = (inspect.getdoc(source) or "").split("\n")[0]
    return f"{line} ({', '.join(f'{k}={v!r}' for k, v in values.items())})" if values else line


def _first_comment(path: Path) -> str:
    return path.read_text(encoding="utf-8").split("\n")[0].removeprefix("#").strip()
