"""The command line: verbs only."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from promptpool import __version__
from promptpool.data.scenarios import SCENARIOS
from promptpool.learners import LEARNERS
from promptpool.learners.profiles import PROFILES

BACKBONES = {
    "FILE.npz": "a ViT in the official layout, such as ViT-B_16.npz",
    "FILE.safetensors, FILE.pth": "a ViT with timm's parameter names",
    "FOLDER": "a Hugging Face ViT, DeiT or DINOv2: config.json and model.safetensors",
    "owner/name": "the same from the Hugging Face hub, with the extra promptpool[hub]",
}

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Continual learning with a pool of prompts.")


@app.callback(invoke_without_command=True)
def main(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command("list")
def show() -> None:
    """List methods, profiles of L2P, scenarios and the kinds of backbone that can be read."""
    console = Console()
    console.print(_table("methods", {name: _described(make) for name, make in LEARNERS.items()}))
    profiles = {name: ", ".join(f"{k}={v}" for k, v in values.learner.items()) for name, values in PROFILES.items()}
    console.print(_table("profiles of L2P", profiles))
    console.print(_table("scenarios", {name: _described(make) for name, make in SCENARIOS.items()}))
    console.print(_table("backbones, as load_backbone reads them", BACKBONES))


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
