"""The verb `review`: which pictures to label first, which look new, which labels look wrong; here and on a page."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from promptpool.classifier import files
from promptpool.classifier.classifier import ContinualClassifier
from promptpool.classifier.findings import Doubts, ToLabel, labelled_findings, unlabelled_findings
from promptpool.classifier.looking import Seen, has_labels, look, with_labels, without_labels
from promptpool.classifier.review import margins
from promptpool.classifier.review_page import labelled_page, learned_text, nearest, new_text, unlabelled_page
from promptpool.cli.classifier import Name
from promptpool.cli.display import labels_table, page_place, pairs_table, reading
from promptpool.cli.errors import classifier_errors
from promptpool.errors import skipped_text
from promptpool.files import write_whole

LINES = 20  # of each table in the terminal; the page has the rest
CSV = ("file", "label", "reason", "group", "guess", "confidence", "margin")


def review(
    name: Name,
    pictures: Annotated[Path, typer.Argument(help="A folder of pictures, or of class folders; a zip, a CSV.")],
    out: Annotated[Path | None, typer.Option(help="The page; NAME-review.html here if nothing is said.")] = None,
    most: Annotated[int, typer.Option(min=1, max=1000, help="How many pictures to name.")] = 100,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated lines in place of the tables.")] = False,
    unlabelled: Annotated[
        bool,
        typer.Option("--unlabelled", help="Folders in the folder are no classes: take all pictures without labels."),
    ] = False,
    backbone: Annotated[str | None, typer.Option(help="Where the backbone lies now, if that changed.")] = None,
) -> None:
    """Say which pictures to label first and which look new; of pictures with labels, which labels look wrong."""
    with classifier_errors():
        console, title = Console(stderr=True), name.resolve().name
        page = page_place(out, f"{title}-review.html")
        classifier = files.load(name, backbone=backbone)
        if unlabelled or not has_labels(pictures):
            with reading(console):
                given = without_labels(pictures, classifier.backbone.image_size)
                seen = look(classifier, given, features=True)
            chosen = unlabelled_findings(seen, classifier, most)
            lines, tell = _unlabelled_lines(seen, chosen), partial(_tell_unlabelled, seen, chosen)
            content = unlabelled_page(title, str(pictures), seen, chosen)
        else:
            seen, doubts = _labelled(classifier, pictures, console)
            lines, tell = _labelled_lines(seen, doubts), partial(_tell_labelled, seen, doubts)
            content = labelled_page(title, str(pictures), seen, doubts, most)
        if as_csv:
            _write(lines)
        else:
            tell()
        write_whole(page, content.encode())
        typer.echo(f"page: {page}", err=as_csv)


def _labelled(classifier: ContinualClassifier, path: Path, console: Console) -> tuple[Seen, Doubts]:
    given, said = with_labels(path, classifier.backbone.image_size)
    for text in said:
        typer.echo(f"note: {text}", err=True)
    with reading(console):
        seen = look(classifier, given, as_if_new=True)
    found = labelled_findings(seen, classifier)
    if not found.judged:
        hint = "none of its folders is called like a class that is known; if they are no classes say --unlabelled"
        typer.echo(f"note: {path}: {hint}", err=True)
    return seen, found


def _tell_unlabelled(seen: Seen, found: ToLabel) -> None:
    rows = {"pictures": f"{len(seen):,}", "look new": new_text(found)}
    rows |= {"learned already": f"{found.learned:,}, left out"} if found.learned else {}
    rows |= {"copies": f"{found.copies:,}, left out"} if found.copies else {}
    rows |= {"files": skipped_text(seen.skipped)} if seen.skipped else {}
    Console().print(pairs_table("review", rows))
    if found.first:
        table = Table("picture", "looks like", "or", box=None, title="label these first", title_justify="left")
        for row in found.first[:LINES]:
            best = seen.shares[row].argsort(descending=True)[:2].tolist()
            texts = [f"{escape(seen.classes[n])} {100 * float(seen.shares[row, n]):.0f} %" for n in best]
            table.add_row(escape(seen.names[row]), *texts)
        _print(table, len(found.first))
    if found.new:
        table = Table("group", "pictures", "nearest to", "the first", box=None, title="look new", title_justify="left")
        for number, group in enumerate(found.new[:LINES], start=1):
            table.add_row(str(number), f"{len(group):,}", escape(nearest(seen, group)), escape(seen.names[group[0]]))
        _print(table, len(found.new))
    if found.missing:
        typer.echo(f"note: {found.missing}", err=True)


def _tell_labelled(seen: Seen, found: Doubts) -> None:
    rows = {
        "pictures": f"{len(seen):,}, {found.judged:,} of known classes",
        "labels that look wrong": f"{len(found.wrong):,}",
        "classes not known yet": f"{len(found.unknown):,}",
    }
    rows |= {"files": skipped_text(seen.skipped)} if seen.skipped else {}
    Console().print(pairs_table("review", rows))
    if found.wrong:
        table = labels_table()
        for row, other in found.wrong[:LINES]:
            share = float(seen.shares[row, seen.classes.index(other)])
            table.add_row(escape(seen.names[row]), escape(seen.labels[row]), f"{escape(other)} {100 * share:.0f} %")
        _print(table, len(found.wrong))
    if found.unknown:
        table = Table("class", "pictures", "unknown", "most often taken for", box=None)
        table.title, table.title_justify = "classes not known yet", "left"
        for each in found.unknown[:LINES]:
            taken_for = escape(each.taken_for) or "-"
            table.add_row(escape(each.label), f"{each.pictures:,}", f"{each.refused:,}", taken_for)
        _print(table, len(found.unknown))
    for text in filter(None, (learned_text(found), found.missing)):
        typer.echo(f"note: {text}", err=True)


def _print(table: Table, total: int) -> None:
    Console().print(table)
    if total > LINES:
        typer.echo(f"and {total - LINES:,} more")


def _write(lines: Iterable[tuple[str, ...]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(CSV)
    writer.writerows(lines)


def _unlabelled_lines(seen: Seen, found: ToLabel) -> Iterator[tuple[str, ...]]:
    for row in found.first:
        yield _line(seen, row, "", "label first")
    for number, group in enumerate(found.new, start=1):
        for row in group:
            yield _line(seen, row, "", "looks new", str(number))


def _labelled_lines(seen: Seen, found: Doubts) -> Iterator[tuple[str, ...]]:
    for row, other in found.wrong:
        yield _line(seen, row, seen.labels[row], f"looks like {other}")
    unknown = {each.label for each in found.unknown}
    for row, label in enumerate(seen.labels):
        if label in unknown:
            yield _line(seen, row, label, "class not known")


def _line(seen: Seen, row: int, label: str, reason: str, group: str = "") -> tuple[str, ...]:
    """The column label is for a person to fill in or to mend; `promptpool learn` reads such a file."""
    margin = float(margins(seen.shares[row : row + 1])[0])
    file = str(seen.paths[row] or seen.names[row])
    return file, label, reason, group, seen.guess(row), f"{seen.confidence(row):.4f}", f"{margin:.4f}"
