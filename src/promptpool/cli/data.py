"""`promptpool data`: get the published data sets, check what is here, list what there is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from promptpool.cli.display import reading
from promptpool.cli.errors import user_errors
from promptpool.data import downloads
from promptpool.data.sets import PUBLISHED
from promptpool.data.sets.five import FIVE
from promptpool.data.sets.published import Contents, Published
from promptpool.errors import BadFileError
from promptpool.experiments.config import ConfigError, nearest
from promptpool.files import data_folder

Folder = Annotated[
    Path | None, typer.Option("--data", help="The folder of all data sets, instead of PROMPTPOOL_DATA or the default.")
]

GROUPS = {"all": tuple(PUBLISHED), "5-datasets": tuple(FIVE)}

app = typer.Typer(no_args_is_help=True, help="Get and check the published data sets.")


@app.command()
def get(
    names: Annotated[list[str], typer.Argument(help="Data sets (promptpool data list), 5-datasets, or all.")],
    data: Folder = None,
) -> None:
    """Download data sets, check them and unpack them; the same command goes on with a download that was stopped."""
    with user_errors():
        for name in _known(names):
            with reading(Console(stderr=True), in_bytes=True):
                folder = downloads.get(name, _root(data))
            typer.echo(f"{name}: {folder} (licence: {PUBLISHED[name].licence})")


@app.command()
def check(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets; without one, all that are here.")] = None,
    data: Folder = None,
) -> None:
    """Compare what is here with the published sizes and checksums, and read it.

    Exit code 1 if something is missing, wrong or unreadable.
    """
    root, good = _root(data), True
    with user_errors():
        wanted = _known(names) if names else [name for name in PUBLISHED if (root / name).is_dir()]
        if not wanted:
            typer.echo(f"no data set is in {root}")
        for name in wanted:
            with reading(Console(stderr=True), in_bytes=True):
                findings = downloads.check(name, root)
            for finding in findings:
                typer.echo(f"{name}: {finding.path}: {finding.state}{finding.text and f' ({finding.text})'}")
                good = good and finding.good
            if any(finding.state not in ("missing", "in part") for finding in findings):
                readable, text = _read(name, root / name)
                typer.echo(f"{name}: {text}")
                good = good and readable
    if not good:
        raise typer.Exit(1)


@app.command("list")
def show_all(data: Folder = None) -> None:
    """List the published data sets: classes, images, licence, how much there is to download, and what is here."""
    root = _root(data)
    title = f"data sets, in {escape(str(root))}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for head in ("name", "title", "licence", "here"):
        table.add_column(head, no_wrap=head == "name", overflow="fold")
    for head in ("classes", "train", "test", "download"):
        table.add_column(head, justify="right", no_wrap=True)
    with user_errors():
        for name, published in PUBLISHED.items():
            texts = (name, published.title, published.licence, _here(name, root))
            images = (f"{published.train:,}", f"{published.test:,}" if published.test else "-")
            table.add_row(*map(escape, texts), str(published.classes), *images, _download_size(published))
    Console().print(table, highlight=False)


def _root(data: Path | None) -> Path:
    return data_folder() if data is None else data.expanduser()


def _known(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in (*PUBLISHED, *GROUPS):
            raise ConfigError(f"{name!r}: no such data set; {nearest(name, PUBLISHED)}; promptpool data list shows all")
    return list(dict.fromkeys(member for name in names for member in GROUPS.get(name, (name,))))


def _read(name: str, folder: Path) -> tuple[bool, str]:
    """True if a reader finds here what was published, and in words what it finds."""
    published = PUBLISHED[name]
    try:
        found = published.contents(folder)
    except BadFileError as error:
        return False, f"cannot be read: {error}"
    said = f"reads as {found.train:,} + {found.test:,} images of {found.classes} classes"
    if found == Contents(published.train, published.test, published.classes):
        return True, f"{said}, as published"
    return False, f"{said}; published are {published.train:,} + {published.test:,} of {published.classes}"


def _download_size(published: Published) -> str:
    sizes = [remote.size for remote in published.files]
    return decimal(sum(size for size in sizes if size)) if all(sizes) else "?"


def _here(name: str, root: Path) -> str:
    """At a glance, without reading the files."""
    findings = downloads.check(name, root, sums=False)
    if all(finding.good for finding in findings):
        return "unpacked only" if any(finding.state == "unpacked only" for finding in findings) else "yes"
    if any(finding.state == "wrong size" for finding in findings):
        return "wrong size"
    return "in part" if any(finding.good or finding.state == "in part" for finding in findings) else "no"
