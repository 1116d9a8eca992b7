"""`promptpool weights`: get pre-trained weights by name, and list those that people use with what is here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from promptpool.backbones import hub
from promptpool.backbones.known import KNOWN, Known, hint
from promptpool.backbones.vit import ViT
from promptpool.backbones.weights import SHIPPED, describe
from promptpool.cli.display import reading
from promptpool.cli.errors import user_errors
from promptpool.errors import BadFileError
from promptpool.experiments.config import ConfigError
from promptpool.files import weights_folder

app = typer.Typer(no_args_is_help=True, help="Get and list pre-trained weights.")


@app.command()
def get(
    names: Annotated[list[str], typer.Argument(help="Names on the Hugging Face hub, such as facebook/dinov2-small.")],
) -> None:
    """Download weights and say their licence; the same command goes on with a download that was stopped."""
    with user_errors():
        for name in names:
            if name in SHIPPED:
                raise ConfigError(f"{name!r}: comes with the package, there is nothing to get")
            if not hub.is_hub_name(name):
                raise ConfigError(f"{name!r}: no name of the hub, which reads owner/name{hint(name)}")
        for name in dict.fromkeys(names):
            folder = hub.find(name)
            if folder is None:
                offer = hub.look_up(name)
                typer.echo(f"{name}: licence {offer.licence}, {decimal(offer.size)} from {hub.home(name)}")
                with reading(Console(stderr=True), in_bytes=True):
                    folder = hub.download(offer)
            typer.echo(f"{name}: {folder} (licence: {hub.licence(name)})")
            typer.echo(f"{name}: {_said(describe(folder))}; backbone.name={name} uses it")


@app.command("list")
def show_all() -> None:
    """List weights that people use, and others that were fetched: what they are and are good for, and what is here."""
    root = weights_folder()
    console = Console()
    with user_errors():
        title = f"[bold]weights[/], from {hub.HUB}/NAME, in {escape(str(root))}"
        console.print(title, highlight=False, soft_wrap=True)
        for name in (*KNOWN, *_others(root)):
            console.print(f"\n[cyan]{escape(name)}[/]", highlight=False, soft_wrap=True)
            grid = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
            grid.add_column(no_wrap=True, style="dim")
            grid.add_column(overflow="fold")
            for label, text in _rows(name).items():
                grid.add_row(f"  {label}", escape(text))
            console.print(grid, highlight=False)
        console.print(f"\nOther ViTs of the hub work by name too; {', '.join(SHIPPED)} comes with the package.")


class _Here(NamedTuple):
    """What there is of a model on this disk."""

    text: str
    model: ViT | None


def _rows(name: str) -> dict[str, str]:
    here, known = _here(name), KNOWN.get(name)
    rows = {"what": known.origin, "good for": known.good_for} if known else {}
    if here.model is not None:
        rows["size"] = _said(here.model)
    elif known is not None:
        rows["size"] = f"{_said(known)}, {known.megabytes} MB"
    return rows | {"licence": hub.licence(name), "here": here.text}


def _said(model: ViT | Known) -> str:
    """The sizes of a ViT in words."""
    registers = f", {model.registers} registers" if model.registers else ""
    patches = f"patches of {model.patch_size}, images of {model.image_size} px"
    return f"width {model.dim}, {model.depth} blocks{registers}, {patches}"


def _here(name: str) -> _Here:
    folder = hub.find(name)
    if folder is None:
        part = weights_folder() / name / f"{hub.TENSORS}.part"
        got = part.stat().st_size if part.is_file() else 0
        return _Here(f"in part, {decimal(got)}: promptpool weights get {name} goes on" if got else "no", None)
    held = decimal(sum(file.stat().st_size for file in folder.iterdir() if file.is_file()))
    try:
        return _Here(f"{held}, {folder}", describe(folder))
    except BadFileError as error:
        return _Here(f"{held}, {folder}, which cannot be used: {error}", None)


def _others(root: Path) -> list[str]:
    """Names that have a folder here and are not among the known ones."""
    found = [f"{path.parent.parent.name}/{path.parent.name}" for path in root.glob(f"*/*/{hub.CONFIG}")]
    return sorted(name for name in found if name not in KNOWN and hub.is_hub_name(name))
