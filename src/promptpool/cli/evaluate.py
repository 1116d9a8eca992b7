"""The verb `evaluate`: how many answers are right, here and on a page with the pictures that got a wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from promptpool.classifier import files
from promptpool.classifier.evaluation import Evaluation, evaluated
from promptpool.classifier.evaluation_page import evaluation_page, notes
from promptpool.classifier.looking import look, with_labels
from promptpool.cli.classifier import Name
from promptpool.cli.display import listed, page_place, reading
from promptpool.cli.errors import classifier_errors
from promptpool.errors import skipped_text
from promptpool.files import write_whole


def evaluate(
    name: Name,
    data: Annotated[Path, typer.Argument(help="A folder with a folder of pictures per class, a zip of it, a CSV.")],
    out: Annotated[Path | None, typer.Option(help="The page; NAME-evaluation.html here if nothing is said.")] = None,
    most: Annotated[int, typer.Option(min=1, max=1000, help="Pictures with wrong answers on the page.")] = 100,
    backbone: Annotated[str | None, typer.Option(help="Where the backbone lies now, if that changed.")] = None,
) -> None:
    """Ask a classifier about pictures whose labels are known, and count; a page shows what it got wrong.

    Where the folder has a part to test on, only that part is asked about.
    """
    with classifier_errors():
        title = name.resolve().name
        page = page_place(out, f"{title}-evaluation.html")
        classifier = files.load(name, backbone=backbone)
        pictures, said = with_labels(data, classifier.backbone.image_size, test=True)
        with reading(Console(stderr=True)):
            seen = look(classifier, pictures)
        found = evaluated(seen)
        _tell(found)
        for text in (*said, *notes(found), *([skipped_text(seen.skipped)] if seen.skipped else [])):
            typer.echo(f"note: {text}", err=True)
        write_whole(page, evaluation_page(title, str(data), seen, found, most).encode())
        typer.echo(f"page: {page}")


def _tell(found: Evaluation) -> None:
    table = Table("class", "pictures", "right", "unknown", "most often taken for", box=None)
    for each in found.classes:
        share = f"{100 * each.right / each.pictures:.1f} %"
        taken_for = escape(each.taken_for) or "-"
        table.add_row(escape(each.label), f"{each.pictures:,}", share, f"{each.refused:,}", taken_for)
    Console().print(table)
    if found.strange:
        strange = [each.label for each in found.strange]
        typer.echo(f"not among its classes, where only unknown could be right: {listed(strange)}")
        known = 100 * found.right / max(found.of_known, 1)
        typer.echo(f"{known:.1f} % of the {found.of_known:,} pictures of known classes are right")
    typer.echo(f"{100 * found.right / found.pictures:.1f} % of {found.pictures:,} pictures are right")
    if found.error is not None:
        typer.echo(f"confidence is off by {100 * found.error:.1f} points on average (expected calibration error)")
