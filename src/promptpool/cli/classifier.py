"""The verbs of a classifier: learn, predict, show, forget, rename, merge, history, undo."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from promptpool.classifier import files
from promptpool.classifier.answers import Prediction
from promptpool.classifier.classifier import METHOD, ContinualClassifier
from promptpool.classifier.lessons import Lesson
from promptpool.classifier.pictures import UNKNOWN
from promptpool.cli.display import in_words, labels_table, pairs_table, reading
from promptpool.cli.display import listed as _listed
from promptpool.cli.errors import classifier_errors as _errors
from promptpool.cli.serve import NOTHING_NEW, send_lesson
from promptpool.data.images import printable
from promptpool.data.own.table import table_notes
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
    rehearse: Annotated[int | None, typer.Option(help="Pictures of each class to keep, if the method does.")] = None,
    keep_held_out: Annotated[bool | None, typer.Option("--keep-held-out", help="Do not learn held-out ones.")] = None,
    thumbnails: Annotated[bool | None, typer.Option("--thumbnails", help="Keep a small version of pictures.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at a file that is no picture.")] = False,
    send: Annotated[bool, typer.Option("--send", help="Send it to the server, if the classifier is served.")] = False,
) -> None:
    """Teach a classifier, new or known, from a folder of class folders; the same command goes on if it was killed."""
    given = {"method": method, "image_size": image_size, "rehearse": rehearse}
    given |= {"keep_held_out": keep_held_out, "thumbnails": thumbnails}
    with _errors():
        if (server := server_of(name)) is not None:
            send_lesson(server, name, data, send=send)
            return
    with _errors(), files.alone(name):
        if files.is_classifier(name):
            _check_same(name, given)
            classifier = files.load(name, backbone=backbone)
        else:
            files.check_place(name)
            values: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
            classifier = ContinualClassifier(backbone or "vit-glyphs", **values)
        if classifier.knows_drawings_only:
            typer.echo(f"note: {PHOTOGRAPHS}", err=True)
        for note in table_notes(data):
            typer.echo(f"note: {note}", err=True)
        with reading(Console(stderr=True)):
            lesson = classifier.learn(data, strict=strict, progress=files.progress_folder(name))
        if lesson.number:
            files.save(classifier, name)
        _tell(lesson, classifier, name)


def _check_same(name: Path, given: dict[str, Any]) -> None:
    """Refuse other values than a classifier was made with."""
    header = files.read_header(name)
    made = header | {"image_size": header["backbone"]["image_size"]}
    for key, value in given.items():
        if value is not None and value != made.get(key):
            text = f"--{key.replace('_', '-')}" + ("" if value is True else f" {value}")
            had = made.get(key) if made.get(key) not in (None, False) else "none"
            raise ConfigError(f"{text}: {name} was made with {had}, which cannot be changed")


def _tell(lesson: Lesson, classifier: ContinualClassifier, name: Path) -> None:
    known = [label for label in lesson.counts if label not in lesson.new]
    share = "-" if lesson.accuracy is None else f"{100 * lesson.accuracy:.1f} % of {lesson.held_out} pictures held out"
    rows = {
        "pictures": f"{lesson.pictures:,} in {in_words(lesson.seconds)}",
        "new classes": _listed(lesson.new),
        "known classes": _listed(known),
        "right": share,
    }
    if lesson.number and len(classifier.lessons) == 1 and (said := classifier.about_prompts()):
        rows["prompts"] = said
    if lesson.before is not None and lesson.after is not None:
        rows["earlier pictures"] = f"{100 * lesson.before:.1f} % right before, {100 * lesson.after:.1f} % now"
    for label, before, after in lesson.suffered:
        rows[f"worse: {label}"] = f"{100 * before:.1f} % of its earlier pictures before, {100 * after:.1f} % now"
    if lesson.near:
        first, other = lesson.near[0]
        rows["near-copies"] = f"{len(lesson.near):,}, such as {first}, nearly the same as {other}"
    if lesson.skipped:
        rows["files"] = skipped_text(lesson.skipped)
    if lesson.duplicates:
        rows["copies"] = f"{lesson.duplicates:,} of pictures that it had already, not learned again"
    for label, other in lesson.known_as:
        more = f": promptpool rename {name} {quote(label)} {quote(other)} makes one class of the two"
        rows[f"known: {label}"] = f"has pictures that were learned as {other} before{more}"
    if lesson.left_out:
        rows["test folder"] = f"{lesson.left_out:,} pictures left out; promptpool evaluate judges on them"
    Console().print(pairs_table(f"lesson {lesson.number}" if lesson.number else NOTHING_NEW, rows))
    if lesson.doubtful:
        table = labels_table()
        for row in lesson.doubtful:
            table.add_row(*map(escape, row))
        Console().print(table)
    shown = printable(str(name))
    typer.echo(f"{shown} knows {len(classifier.labels)} classes; promptpool predict {shown} PICTURES asks it")


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
        top = min(top, max(len(classifier.labels), 1))
        if sure is not None and 0 < sure <= 1 and classifier.known.calibration.least_confidence(sure) is None:
            typer.echo(f"note: too few examples were learned to be {100 * sure:g} % sure of anything", err=True)
        counts = [0, 0]
        answers = _counted(classifier.predictions(pictures, top=top, sure=sure), counts)
        if as_csv:
            _write_csv(answers, top)
        else:
            for answer in answers:
                typer.echo(json.dumps(_as_json(answer), ensure_ascii=False) if as_json else _line(answer, top))
        if counts[1]:
            typer.echo(f"promptpool: {counts[1]:,} of {counts[0]:,} files could not be read", err=True)
        if counts[0] == counts[1]:
            raise typer.Exit(2)


def _counted(answers: Iterator[Prediction], counts: list[int]) -> Iterator[Prediction]:
    """The answers; `counts` says how many there were, and for how many the file was no picture."""
    for answer in answers:
        counts[0] += 1
        counts[1] += bool(answer.error)
        yield answer


def _write_csv(answers: Iterator[Prediction], top: int) -> None:
    """A line for each picture; with `top` above 1 the further guesses stand in columns of their own."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    further = [name for place in range(2, top + 1) for name in (f"guess {place}", f"confidence {place}")]
    writer.writerow(["file", "label", "confidence", "guess", "error", *further])
    for answer in answers:
        more = [cell for label, share in answer.top[1:] for cell in (label, f"{share:.4f}")]
        shown = [answer.name, answer.label, f"{answer.confidence:.4f}", answer.guess, answer.error]
        writer.writerow([*shown, *more, *[""] * (len(further) - len(more))])


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
            "model": decimal((name / files.MODEL).stat().st_size) + f" ({decimal(size)} the whole folder)",
        }
        error = classifier.known.calibration.error
        if error is not None:
            rows["confidence"] = f"off by {100 * error:.1f} points on average (expected calibration error)"
        if said := classifier.about_prompts():
            rows["prompts"] = said
        elif prompts := classifier.prompt_counts():
            used = sum(count > 0 for count in prompts)
            rows["prompts"] = f"{used} of {len(prompts)} in use, chosen {', '.join(map(str, prompts))} times"
        Console().print(pairs_table(printable(str(name)), rows))
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
        if first.resolve() == second.resolve():
            raise ConfigError(f"{second}: is the same classifier; merge takes two")
        files.check_place(into)
        classifier = files.load(first)
        classifier.merge(files.load(second))
        files.save(classifier, into)
        typer.echo(f"{printable(str(into))} knows {len(classifier.labels)} classes")


def history(name: Name) -> None:
    """The lessons of a classifier."""
    with _errors():
        table = Table("lesson", "when (UTC)", "pictures", "new classes", "right, held out", box=None)
        for lesson in files.read_header(name)["lessons"]:
            share = "-" if lesson["accuracy"] is None else f"{100 * lesson['accuracy']:.1f} %"
            pictures = f"{sum(lesson['counts'].values()):,}"
            when = lesson["when"][:16].replace("T", " ")  # to the minute
            table.add_row(str(lesson["number"]), when, pictures, escape(_listed(lesson["new"], 6)), share)
        Console().print(table)


def undo(
    name: Name,
    lesson: Annotated[int | None, typer.Option(help="Take this lesson out, whatever came after it.")] = None,
) -> None:
    """Go back to the version before the last change, or take a lesson out of the middle."""
    if lesson is not None:
        with _changed(name) as classifier:
            classifier.take_out(lesson)
        return
    with _errors():
        files.read_header(name)
        _check_not_served(name)
        with files.alone(name):
            number = files.undo(name)
        header = files.read_header(name)
        labels = [label for label in header["labels"] if label]
        lessons = len(header["lessons"])
        known = f"{lessons} lessons, {len(labels)} classes: {_listed(labels)}"
        typer.echo(f"{printable(str(name))} is version {number} again: {known}")


@contextmanager
def _changed(name: Path) -> Iterator[ContinualClassifier]:
    with _errors():
        files.read_header(name)
        _check_not_served(name)
        with files.alone(name):
            classifier = files.load(name)
            yield classifier
            files.save(classifier, name)
            known = f"{len(classifier.labels)} classes: {_listed(list(classifier.labels))}"
            typer.echo(f"{printable(str(name))} knows {known}")


def _check_not_served(name: Path) -> None:
    """Say where a classifier can be changed while a server has it."""
    if (server := server_of(name)) is not None:
        raise ConfigError(f"{name} is served at {server.address}, which alone changes it: do it there, or stop it")
