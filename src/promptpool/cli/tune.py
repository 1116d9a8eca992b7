"""`promptpool tune`: which values make a run faster on the device at hand."""

from __future__ import annotations

import shlex
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from promptpool.cli.display import in_words, reading
from promptpool.cli.errors import user_errors
from promptpool.cli.run import with_data
from promptpool.experiments.build import build
from promptpool.experiments.choices import GAIN, LOSS, SURE, gain, gains
from promptpool.experiments.config import complete, overridden, read_config
from promptpool.experiments.machine import Meanwhile
from promptpool.experiments.trials import Outcome
from promptpool.experiments.trials import tune as tried
from promptpool.files import data_in


def tune(
    name: Annotated[str, typer.Argument(help="BENCHMARK-METHOD (promptpool list), or a TOML file.")] = "glyphs100-l2p",
    overrides: Annotated[list[str] | None, typer.Argument(help="Values to set, such as learner.top_k=4")] = None,
    scale: Annotated[str | None, typer.Option(help="The benchmark's size, where it comes in several.")] = None,
    data: Annotated[Path | None, typer.Option(help="Your own images, or the folder of the published sets.")] = None,
    seconds: Annotated[float, typer.Option(min=0.0, help="How long to measure; first steps come on top.")] = 60.0,
) -> None:
    """Try for a minute which precision, products, threads and batches make a run faster here; say what to type."""
    with user_errors():
        config = complete(with_data(overridden(read_config(name, scale=scale), overrides or []), data, strict=False))
        meanwhile, console = Meanwhile(), Console()
        with data_in(None if "folder" in config["dataset"] else data), reading(console):
            outcome = tried(build(config), seconds)
    options = [
        word for option, value in (("--scale", scale), ("--data", data)) if value for word in (option, str(value))
    ]
    console.print(table(outcome))
    for line in (*remarks(outcome, meanwhile.crowded()), advice(outcome, [name, *options, *(overrides or [])])):
        typer.echo(line)


def table(outcome: Outcome) -> Table:
    """A row for everything that was tried."""
    usual = outcome.trials[0]
    grid = Table(title="images a second", title_justify="left", box=None, pad_edge=False)
    for heading in ("value", "training", "evaluation", "run", "memory", "loss differs"):
        grid.add_column(heading, justify="left" if heading == "value" else "right")
    for trial in outcome.trials:
        training, evaluation = (
            1 / median(getattr(timing, part) for timing in trial.timings) for part in ("training", "evaluation")
        )
        grid.add_row(
            trial.choice.named(usual.choice),
            f"{training:,.1f}",
            f"{evaluation:,.1f}",
            f"{gain(trial, usual, outcome.images):.2f}x",
            "-" if trial.memory is None else f"{trial.memory / 2**20:,.0f} MiB",
            _share(trial.difference(usual)),
        )
    return grid


def _share(difference: float | None) -> str:
    if difference is None:
        return "-"
    return "0" if difference == 0 else f"{100 * difference:.2g} %"


def remarks(outcome: Outcome, taken: float | None) -> list[str]:
    """What is to be known of the figures; others took a share of the processors meanwhile."""
    found = [f"measured in steps of {outcome.step_images} images, {len(outcome.trials[0].timings)} rounds"]
    compiling = max(trial.compiling for trial in outcome.trials)
    once = f", and {in_words(compiling)} to compile where it does" if compiling else ""
    found.append(f"a run is all its training and tests here{once}; a first pass for queries and tokens is left out")
    if taken is not None:
        found.append(
            f"note: the machine is busy, others take {taken:.0%} of it: these figures are rough, and may be others "
            "when it is idle"
        )
    found += [f"not tried: {reason}" for reason in outcome.not_tried]
    usual = outcome.trials[0]
    for trial in outcome.trials[1:]:
        difference, words = trial.difference(usual), trial.choice.named(usual.choice)
        ratios = gains(trial, usual, outcome.images)
        faster = sum(ratio > 1 for ratio in ratios)
        if difference is not None and difference > LOSS:
            found.append(f"not advised: {words}, with which the loss differs by {_share(difference)}")
        elif median(ratios) >= GAIN and faster < SURE * len(ratios):
            found.append(f"not advised: {words}, faster in {faster} of {len(ratios)} rounds only")
    return found


def advice(outcome: Outcome, typed: list[str]) -> str:
    """What to type, in words."""
    usual, chosen = outcome.trials[0], outcome.best
    threads = chosen.choice.threads if chosen.choice.threads != usual.choice.threads else None
    command = _command(typed, chosen.choice.words(usual.choice), threads)
    if outcome.needed is not None and outcome.room is not None:
        need = f"a step needs about {outcome.needed / 2**30:.1f} GiB of the {outcome.room / 2**30:.1f} GiB there are"
        left = "; nothing that was tried fits, and a smaller plan.batch_size takes less, but learns otherwise"
        return f"memory is short, {need}{'' if chosen.fits(outcome.room) else left}: {command}"
    if chosen is usual:
        return f"nothing that was tried is worth it: {command}"
    return f"use, for a run {gain(chosen, usual, outcome.images):.1f} times as fast: {command}"


def _command(typed: list[str], words: list[str], threads: int | None) -> str:
    before = [] if threads is None else [f"OMP_NUM_THREADS={threads}"]
    return " ".join([*before, "promptpool run", shlex.join([*typed, *words])])
