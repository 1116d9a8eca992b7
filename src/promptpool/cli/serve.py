"""Serve a classifier, and send lessons to one that is served."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer
from rich.console import Console
from rich.markup import escape

from promptpool.classifier import files
from promptpool.classifier.classifier import ContinualClassifier
from promptpool.cli.display import in_words, labels_table, pairs_table, reading
from promptpool.cli.errors import user_errors
from promptpool.client import Client, ServerError
from promptpool.data.own.own import entries_of
from promptpool.data.workers import threads_here
from promptpool.errors import BadFileError, skipped_text
from promptpool.experiments.config import ConfigError
from promptpool.progress import track
from promptpool.serve.address import Running

if TYPE_CHECKING:
    from promptpool.serve.answerer import MakeAnswerer
    from promptpool.serve.engine import LocalEngine

ENGINES = ("process", "ray")
NOTHING_NEW = "nothing new was learned"
PACKAGES = ("fastapi", "uvicorn", "python_multipart")


def serve(
    names: Annotated[
        list[Path],
        typer.Argument(metavar="NAME...", help="The classifier, or several: folders; a new one knows nothing yet."),
    ],
    host: Annotated[str, typer.Option(help="The address to listen on; others than this machine's need a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8000,
    token_file: Annotated[Path | None, typer.Option(help="A file with the token that clients must know.")] = None,
    host_name: Annotated[
        list[str] | None, typer.Option(help="A name under which a proxy passes requests on; may be given again.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Where the backbone lies now; of a new classifier a hub name or a file.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads that decode pictures.")] = None,
    engine: Annotated[str, typer.Option(help="process, or ray: pictures are looked at on Ray Serve.")] = "process",
    replicas: Annotated[int | None, typer.Option(min=1, help="With ray: copies of the frozen model; 1.")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="With ray: threads of each copy; this machine's cores, shared out.")
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open the page.")] = False,
) -> None:
    """Serve classifiers over HTTP: a page to ask and teach each of them, and the same for programs."""
    with user_errors():
        _check_engine(engine, replicas, threads)
        _check_packages()
        from promptpool.serve import running  # which needs them

        place = running.Place(host, port, tuple(host_name or ()), token_file)
        running.checked_access(place)
        running.named(names)
        with _answerers(names, engine, replicas or 1, threads) as make_answerer:
            for name in names:
                if not files.is_classifier(name):
                    ContinualClassifier(backbone or "vit-glyphs").save(name)
                    typer.echo(f"{name} is new and knows nothing yet: teach it on the page")

            def begun(address: str, engine: LocalEngine, token: str | None) -> None:
                _tell(engine.folder, address, engine, token, browser=not no_browser and engine.folder == names[0])

            running.serve(names, place, backbone=backbone, threads=workers, make_answerer=make_answerer, begun=begun)


def _check_engine(engine: str, replicas: int | None, threads: int | None) -> None:
    if engine not in ENGINES:
        raise ConfigError(f"--engine {engine}: must be one of {', '.join(ENGINES)}")
    for name, value in (("--replicas", replicas), ("--threads", threads)):
        if engine != "ray" and value is not None:
            raise ConfigError(f"{name} {value}: is for --engine ray")


@contextmanager
def _answerers(names: Sequence[Path], engine: str, replicas: int, threads: int | None) -> Iterator[MakeAnswerer]:
    """Who looks at pictures."""
    if engine == "process":
        from promptpool.serve.answerer import LocalAnswerer

        yield LocalAnswerer
        return
    from promptpool.serve.on_ray import on_ray

    if find_spec("ray"):
        typer.echo("Ray begins; this takes some seconds", err=True)
    with on_ray(names, replicas=replicas, threads=threads or max(threads_here() // replicas, 1)) as make_answerer:
        yield make_answerer


def _check_packages() -> None:
    missing = [package for package in PACKAGES if find_spec(package) is None]
    if missing:
        raise ConfigError(f"serve needs {', '.join(missing)}: pip install 'promptpool[serve]'")


def _tell(name: Path, address: str, engine: LocalEngine, token: str | None, *, browser: bool) -> None:
    """Say where it is; the token only to somebody who sits there."""
    seen = sys.stdout.isatty()
    page = f"{address}/?token={quote(token, safe='')}" if token and seen else address
    present = engine.present
    known = f"version {present.number}, {len(present.classifier.labels)} classes"
    typer.echo(f"{name} ({known}) is served at {page}; Ctrl-C ends it")
    if waiting := len(engine.lessons.waiting):
        typer.echo(f"{waiting} pictures wait to be learned")
    if browser and seen and token is None and _has_windows():
        webbrowser.open(address)


def _has_windows() -> bool:
    """False where a browser would be one in this terminal, or none."""
    return not sys.platform.startswith("linux") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def send_lesson(server: Running, name: Path, data: Path, *, send: bool) -> None:
    """Have the server of a classifier learn a folder, if `send` or the person at the terminal says so."""
    said = f"{name} is served at {server.address} (process {server.pid}), which alone changes it"
    if not send and not (sys.stdin.isatty() and typer.confirm(f"{said}. Send it the lesson?", default=True)):
        raise ConfigError(f"{said}: --send sends it the lesson")
    try:
        client = Client(server.address, token=server.token())
        with reading(Console(stderr=True)):
            taught = client.teach_all(_pictures(data))
        if taught["refused"]:
            refused = [(each["name"], each["error"]) for each in taught["refused"]]
            typer.echo(f"note: {skipped_text(refused)}", err=True)
        if not taught["waiting"]:
            raise BadFileError(f"{data}: has no picture that the server takes")
        _tell_report(client.learn())
    except ServerError as error:
        raise ConfigError(f"{server.address}: {error}") from error


def _pictures(data: Path) -> Iterator[tuple[str, str, bytes]]:
    """Label, name and bytes of the pictures of a folder that are to learn from."""
    if not data.expanduser().exists():
        raise BadFileError(f"{data}: no such file or folder")
    store, entries = entries_of(data.expanduser())
    labelled = [entry for entry in entries if entry.label]
    trained = [entry for entry in labelled if entry.split != "test"] or labelled
    for entry in track(trained, "sending pictures", len(trained)):
        yield entry.label, entry.name, store.read(entry.name)


def _tell_report(report: dict[str, Any]) -> None:
    share, held = report["accuracy"], report["held_out"]
    rows = {
        "pictures": f"{report['pictures']:,} in {in_words(report['seconds'])}",
        "new classes": ", ".join(report["new"]) or "-",
        "known classes": ", ".join(report["known"]) or "-",
        "right": "-" if share is None else f"{100 * share:.1f} % of {held} pictures held out",
    }
    if report["before"] is not None and report["after"] is not None:
        rows["earlier pictures"] = f"{100 * report['before']:.1f} % right before, {100 * report['after']:.1f} % now"
    if report["duplicates"]:
        rows["copies"] = f"{report['duplicates']:,} of pictures that it had already, not learned again"
    for each in report["known_as"]:
        rows[f"known: {each['label']}"] = f"has pictures that were learned as {each['learned_as']} before"
    title = f"lesson {report['lesson']}" if report["lesson"] else NOTHING_NEW
    Console().print(pairs_table(f"{title}, version {report['version']}", rows))
    if report["doubtful"]:
        table = labels_table()
        for each in report["doubtful"]:
            table.add_row(escape(each["picture"]), escape(each["label"]), escape(each["looks_like"]))
        Console().print(table)
