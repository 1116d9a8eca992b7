"""The verbs of a classifier: learn, predict, show, evaluate, forget, rename, merge, history, undo."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from promptpool.classifier import files
from promptpool.classifier.classifier import METHOD, ContinualClassifier, Lesson, Prediction
from promptpool.classifier.pictures import UNKNOWN, labelled
from promptpool.cli.display import in_words, pairs_table, reading
from promptpool.cli.errors import user_errors
from promptpool.cli.serve import send_lesson
from promptpool.errors import BadFileError, skipped_text
from promptpool.experiments.config import ConfigError
from promptpool.serve.address import server_of

Name = Annotated[Path, typer.Argument(help="The classifier: a folder.")]
PHOTOGRAPHS = (
    "the model of the package knows drawn characters only; for photographs begin with "
    "--backbone facebook/dinov2-small (promptpool weights list shows others)"
)


def learn(
    name: Name,
    data: Annotated[Path, typer.Argument(help="A folder with a folder of pictures per class, a zip of it, a CSV.")],
    backbone: Annotated[str | None, typer.Option(help="Pre-trained weights: a hub name or a file.")] = None,
    method: Annotated[str | None, typer.Option(help=f"How it learns; {METHOD} if nothing is said.")] = None,
    image_size: Annotated[int | None, typer.Option(help="Pixels of a side that the model looks at.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at a file that is no picture.")] = False,
    send: Annotated[bool, typer.Option("--send", help="Send it to the server, if the classifier is served.")] = False,
) -> None:
    """Teach a classifier, new or known, from a folder of class folders."""
    with _errors():
        if (server := server_of(name)) is not None:
            send_lesson(server, name, data, send=send)
            return
    with _errors(), files.alone(name):
        if files.is_classifier(name):
            classifier = _reopened(name, backbone, method, image_size)
        else:
            files.check_place(name)
            classifier = ContinualClassifier(backbone or "vit-glyphs", method=method or METHOD, image_size=image_size)
        if classifier.knows_drawings_only:
            typer.echo(f"note: {PHOTOGRAPHS}", err=True)
        with reading(Console(stderr=True)):
            lesson = classifier.learn(data, strict=strict)
        files.save(classifier, name)
        _tell(lesson, classifier, name)


def _reopened(name: Path, backbone: str | None, method: str | None, image_size: int | None) -> ContinualClassifier:
    header = files.read_header(name)
    for what, given, known in (
        ("--method", method, header["method"]),
        ("--image-size", image_size, header["backbone"]["image_size"]),
    ):
        if given is not None and given != known:
            raise ConfigError(f"{what} {given}: {name} was taught with {known}, which cannot be changed")
    return files.load(name, backbone=backbone)


def _tell(lesson: Lesson, classifier: ContinualClassifier, name: Path) -> None:
    known = [label for label in lesson.counts if label not in lesson.new]
    share = "-" if lesson.accuracy is None else f"{100 * lesson.accuracy:.1f} % of {lesson.held_out} pictures held out"
    rows = {
        "pictures": f"{lesson.pictures:,} in {in_words(lesson.seconds)}",
        "new classes": _listed(lesson.new),
        "known classes": _listed(known),
        "right": share,
    }
    if lesson.before is not None and lesson.after is not None:
        rows["earlier pictures"] = f"{100 * lesson.before:.1f} % right before, {100 * lesson.after:.1f} % now"
    if lesson.skipped:
        rows["files"] = skipped_text(lesson.skipped)
    if lesson.duplicates:
        rows["copies"] = f"{lesson.duplicates:,} of pictures that it had already, not learned again"
    if lesson.left_out:
        rows["test folder"] = f"{lesson.left_out:,} pictures left out; promptpool evaluate {name} FOLDER judges on them"
    Console().print(pairs_table(f"lesson {lesson.number}", rows))
    if lesson.doubtful:
        table = Table("picture", "its label", "looks like", box=None, title="labels to look at", title_justify="left")
        for row in lesson.doubtful:
            table.add_row(*map(escape, row))
        Console().print(table)
    typer.echo(f"{name} knows {len(classifier.labels)} classes; promptpool predict {name} PICTURES asks it")


def _listed(labels: tuple[str, ...] | list[str], most: int = 12) -> str:
    return ", ".join(labels[:most]) + (f" and {len(labels) - most} more" if len(labels) > most else "") or "-"


def predict(
    name: Name,
    pictures: Annotated[Path, typer.Argument(help="A picture, or a folder of pictures.")],
    top: Annotated[int, typer.Option(min=1, help="How many classes to name.")] = 1,
    sure: Annotated[float | None, typer.Option(help="Answer only where so large a share is right: 0.99.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated lines, with a line of names.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object per line.")] = False,
    backbone: Annotated[str | None, typer.Option(help="Where the backbone lies now, if that changed.")] = None,
) -> None:
    """Ask a classifier about pictures; "unknown" is an answer."""
    with _errors():
        if as_csv and as_json:
            raise ConfigError("--csv, --json: give one of them")
        classifier = files.load(name, backbone=backbone)
        if sure is not None and classifier.known.calibration.least_confidence(sure) is None:
            typer.echo(f"note: too few examples were learned to be {100 * sure:g} % sure of anything", err=True)
        answers = classifier.predictions(pictures, top=top, sure=sure)
        if as_csv:
            _write_csv(answers)
            return
        for answer in answers:
            typer.echo(json.dumps(_as_json(answer), ensure_ascii=False) if as_json else _line(answer, top))


def _write_csv(answers: Iterator[Prediction]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["file", "label", "confidence", "guess", "error"])
    for answer in answers:
        writer.writerow([answer.name, answer.label, f"{answer.confidence:.4f}", answer.guess, answer.error])


def _as_json(answer: Prediction) -> dict[str, object]:
    top = [{"label": label, "confidence": round(share, 4)} for label, share in answer.top]
    found: dict[str, object] = {"file": answer.name, "label": answer.label, "confidence": round(answer.confidence, 4)}
    return found | {"top": top} | ({"error": answer.error} if answer.error else {})


def _line(answer: Prediction, top: int) -> str:
    if answer.error:
        return f"{answer.name}: {answer.error}"
    if top > 1:
        named = ", ".join(f"{label} {100 * share:.1f} %" for label, share in answer.top)
        return f"{answer.name}: {f'{UNKNOWN}; ' if answer.label == UNKNOWN else ''}{named}"
    if answer.label == UNKNOWN:
        return f"{answer.name}: {UNKNOWN} (nearest: {answer.guess})"
    return f"{answer.name}: {answer.label} {100 * answer.confidence:.1f} %"


def evaluate(
    name: Name,
    data: Annotated[Path, typer.Argument(help="A folder with a folder of pictures per class.")],
    backbone: Annotated[str | None, typer.Option(help="Where the backbone lies now, if that changed.")] = None,
) -> None:
    """Ask a classifier about pictures whose labels are known, and count."""
    with _errors():
        classifier = files.load(name, backbone=backbone)
        with reading(Console(stderr=True)):
            found = labelled(data, None, size=classifier.backbone.image_size)
        images = [found.examples.source[found.examples.rows[n : n + 1]][0] for n in range(len(found.examples))]
        answers = list(classifier.predictions(images, top=1))
        table = Table("class", "pictures", "right", "unknown", "most often taken for", box=None)
        right = 0
        for place, label in enumerate(found.labels):
            own = [answer for answer, y in zip(answers, found.examples.y.tolist(), strict=True) if y == place]
            hits = sum(answer.label == label for answer in own)
            right += hits
            wrong = [answer.label for answer in own if answer.label not in (label, UNKNOWN)]
            worst = max(sorted(set(wrong)), key=wrong.count) if wrong else "-"
            refused = sum(answer.label == UNKNOWN for answer in own)
            share = f"{100 * hits / len(own):.1f} %"
            table.add_row(escape(label), f"{len(own):,}", share, f"{refused:,}", escape(worst))
        Console().print(table)
        strange = [label for label in found.labels if label not in classifier.labels]
        if strange:
            typer.echo(f"not among its classes, where only unknown could be right: {_listed(strange)}")
            known = sum(found.labels[y] not in strange for y in found.examples.y.tolist())
            typer.echo(f"{100 * right / max(known, 1):.1f} % of the {known:,} pictures of known classes are right")
        typer.echo(f"{100 * right / len(answers):.1f} % of {len(answers):,} pictures are right")


def show(name: Name) -> None:
    """What a classifier is: its classes, how well it knows them, and how large it is."""
    with _errors():
        header = files.read_header(name)
        classifier = files.load(name)
        size = sum(path.stat().st_size for path in name.rglob("*") if path.is_file())
        rows = {
            "method": header["method"],
            "backbone": f"{header['backbone']['name']} at {header['backbone']['image_size']} pixels",
            "lessons": f"{len(classifier.lessons)}, version {header['version']}",
            "model": decimal((name / files.MODEL).stat().st_size) + f" ({decimal(size)} with earlier versions)",
        }
        error = classifier.known.calibration.error
        if error is not None:
            rows["confidence"] = f"off by {100 * error:.1f} points on average (expected calibration error)"
        Console().print(pairs_table(str(name), rows))
        table = Table("class", "pictures", "right", box=None)
        shares, counts = classifier.accuracies(), classifier.counts()
        for label in classifier.labels:
            share = f"{100 * shares[label]:.1f} %" if label in shares else "-"
            table.add_row(escape(label), f"{counts[label]:,}", share)
        Console().print(table)


def forget(name: Name, label: Annotated[str, typer.Argument(help="The class to take out.")]) -> None:
    """Take a class out, as if it had never been learned."""
    with _changed(name) as classifier:
        classifier.forget(label)


def rename(
    name: Name,
    old: Annotated[str, typer.Argument(help="The class.")],
    new: Annotated[str, typer.Argument(help="Its new name; that of another class makes one of the two.")],
) -> None:
    """Give a class another name."""
    with _changed(name) as classifier:
        classifier.rename(old, new)


def merge(
    first: Name,
    second: Annotated[Path, typer.Argument(help="Another classifier on the same backbone.")],
    into: Annotated[Path, typer.Option(help="The folder of the new classifier.")],
) -> None:
    """Make one classifier of two: it has learned what both have."""
    with _errors(), files.alone(into):
        if files.is_classifier(into):
            raise BadFileError(f"{into}: a classifier is here already")
        files.check_place(into)
        classifier = files.load(first)
        classifier.merge(files.load(second))
        files.save(classifier, into)
        typer.echo(f"{into} knows {len(classifier.labels)} classes")


def history(name: Name) -> None:
    """The lessons of a classifier."""
    with _errors():
        table = Table("lesson", "when", "pictures", "new classes", "right, held out", box=None)
        for lesson in files.read_header(name)["lessons"]:
            share = "-" if lesson["accuracy"] is None else f"{100 * lesson['accuracy']:.1f} %"
            pictures = f"{sum(lesson['counts'].values()):,}"
            table.add_row(str(lesson["number"]), lesson["when"], pictures, escape(_listed(lesson["new"], 6)), share)
        Console().print(table)


def undo(name: Name) -> None:
    """Go back to the version before the last change."""
    with _errors():
        files.read_header(name)
        with files.alone(name):
            number = files.undo(name)
        header = files.read_header(name)
        labels = [label for label in header["labels"] if label]
        lessons = len(header["lessons"])
        typer.echo(f"{name} is version {number} again: {lessons} lessons, {len(labels)} classes: {_listed(labels)}")


@contextmanager
def _changed(name: Path) -> Iterator[ContinualClassifier]:
    with _errors():
        files.read_header(name)
        with files.alone(name):
            classifier = files.load(name)
            yield classifier
            files.save(classifier, name)
            typer.echo(f"{name} knows {len(classifier.labels)} classes: {_listed(list(classifier.labels))}")


@contextmanager
def _errors() -> Iterator[None]:
    """What is wrong with a value is for the user too."""
    with user_errors():
        try:
            yield
        except ValueError as error:
            raise ConfigError(str(error)) from error
        except KeyboardInterrupt:
            typer.echo("promptpool: stopped; the classifier is as it was", err=True)
            raise typer.Exit(130) from None
        except BrokenPipeError:  # whoever reads has read enough
            raise typer.Exit(0) from None
