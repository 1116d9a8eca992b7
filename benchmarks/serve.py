"""What a server answers: one picture at a time, many clients at once, and many while it learns.

    make bench-serve
    python benchmarks/serve.py --backbone FILE --image-size 224        a larger model, such as DINOv2-S
    python benchmarks/serve.py --engine ray --replicas 2               the same on Ray Serve

The three are measured in turn, round after round in one run, and the ratio is to the first. No picture is asked about
twice. An answer is lost if there is none; while it learns each must come from the old version or the new one. This ends
with an error where one is lost or of neither, and refuses to begin while other processes are at work.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from idle import refuse_if_busy
from PIL import Image

from promptpool import ContinualClassifier
from promptpool.client import Client, ServerError
from promptpool.data.glyphs.sets import glyphs100
from promptpool.data.stream import Examples
from promptpool.serve.address import NOTE

CLASSES = 10  # of each lesson
ROUNDS = 5
NAMES = ("one picture at a time", "many clients at once", "the same while it learns")


@dataclass
class Row:
    """All questions of one kind."""

    clients: int
    took: float = 0.0  # seconds, of all rounds
    seconds: list[float] = field(default_factory=list)  # of each answer
    versions: list[int] = field(default_factory=list)  # that gave it
    lost: int = 0

    @property
    def rate(self) -> float:
        return len(self.seconds) / self.took


def png(examples: Examples, place: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(examples.batch(slice(place, place + 1)).x[0].permute(1, 2, 0).numpy()).save(file, "PNG")
    return file.getvalue()


@contextmanager
def serving(folder: Path, words: Iterable[str]) -> Iterator[Client]:
    """A client of a server that was started as people start it."""
    command = [sys.executable, "-m", "promptpool", "serve", str(folder), "--port", "0", "--no-browser", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603
    try:
        while not (folder / NOTE).exists():
            if process.poll() is not None:
                raise SystemExit("the server did not start")
            time.sleep(0.1)
        yield Client(json.loads((folder / NOTE).read_bytes())["address"])
    finally:
        process.terminate()
        process.wait()


def ask(client: Client, contents: list[bytes], row: Row) -> list[int]:
    """Ask about each picture, in a request of its own; returns the versions that answered."""

    def one(content: bytes) -> tuple[float, int] | None:
        begin = time.perf_counter()
        try:
            answer = client.predict(content, top=1)[0]
        except ServerError as error:
            print(f"lost: {error}", file=sys.stderr)
            return None
        return (time.perf_counter() - begin, answer["version"]) if answer["error"] is None else None

    begin = time.perf_counter()
    with ThreadPoolExecutor(row.clients) as pool:
        found = list(pool.map(one, contents))
    row.took += time.perf_counter() - begin
    row.seconds += [each[0] for each in found if each is not None]
    row.versions += (versions := [each[1] for each in found if each is not None])
    row.lost += found.count(None)
    return versions


def ask_while_learning(client: Client, contents: list[bytes], row: Row) -> tuple[int, int]:
    """The same while a lesson is learned; returns how many answers were of the old version, and of the new one."""
    old, reports = int(client.about()["version"]), list[int]()
    learning = threading.Thread(target=lambda: reports.append(int(client.learn()["version"])))
    learning.start()
    versions = ask(client, contents, row)
    learning.join()
    later = set(ask(client, contents[: row.clients], Row(row.clients)))
    if reports != [old + 1] or not set(versions) <= {old, old + 1} or later != {old + 1}:
        raise SystemExit(f"answers of versions {set(versions)}, then {later}: expected {old} and {old + 1}")
    return versions.count(old), versions.count(old + 1)


def measure(
    client: Client, contents: Iterator[bytes], lessons: list[list[tuple[str, bytes]]], count: int, clients: int
) -> None:
    """Ask all three ways in each round, and print what came of it."""
    rows, shares = [Row(1), Row(clients), Row(clients)], [0, 0]
    for lesson in lessons:
        parts = [[next(contents) for _ in range(count)] for _ in rows]
        client.teach_all((label, f"{number}.png", content) for number, (label, content) in enumerate(lesson))
        for row, part in zip(rows[:2], parts, strict=False):
            ask(client, part, row)
        shares = [sum(pair) for pair in zip(shares, ask_while_learning(client, parts[2], rows[2]), strict=True)]
    print("| | clients | answers | lost | pictures/s | median ms | 99 % ms | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, row in zip(NAMES, rows, strict=True):
        print(line(name, row, rows[0].rate))
    lost = sum(row.lost for row in rows)
    print(
        f"\n{len(lessons)} lessons: {shares[0]} answers of the version before, {shares[1]} of the new one, {lost} lost."
    )
    if lost:
        raise SystemExit(1)


def line(name: str, row: Row, first: float) -> str:
    """A row of the table; `first` are the pictures per second that it is compared with."""
    times = sorted(row.seconds)
    late = times[min(int(0.99 * len(times)), len(times) - 1)]
    numbers = f"{row.rate:.1f} | {1000 * statistics.median(times):.1f} | {1000 * late:.1f} | {row.rate / first:.2f}"
    return f"| {name} | {row.clients} | {len(times)} | {row.lost} | {numbers} |"


def taught(examples: Examples, lesson: int, pictures: int) -> list[tuple[str, bytes]]:
    """Labels and files of a lesson: ten classes of its own."""
    own = examples.select((examples.y >= lesson * CLASSES) & (examples.y < (lesson + 1) * CLASSES))
    return [(f"character {int(own.y[place])}", png(own, place)) for place in range(min(pictures, len(own)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="vit-glyphs", help="a file or a hub name; the shipped weights")
    parser.add_argument("--image-size", type=int, help="pixels of a side that it looks at, if not the file's own")
    parser.add_argument("--requests", type=int, default=1000, help="predictions of each row")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--lesson", type=int, default=50, help="pictures of each lesson that is learned meanwhile")
    parser.add_argument("--engine", default="process", choices=("process", "ray"))
    parser.add_argument("--replicas", type=int, default=2, help="with --engine ray: copies of the frozen model")
    parser.add_argument("--anyway", action="store_true", help="run beside other processes too, for no verdict")
    given = parser.parse_args()
    refuse_if_busy(anyway=given.anyway)
    count, warm = -(-given.requests // ROUNDS), 4 * given.clients
    characters = glyphs100(
        train_per_class=-(-given.lesson // CLASSES), test_per_class=-(-(3 * ROUNDS * count + warm) // 100)
    )
    contents = (png(characters.test, place) for place in range(len(characters.test)))
    words = ["--engine", "ray", "--replicas", str(given.replicas)] if given.engine == "ray" else []
    with tempfile.TemporaryDirectory() as folder:
        classifier = ContinualClassifier(given.backbone, image_size=given.image_size)
        first = characters.train.select(characters.train.y < CLASSES).batch(slice(None))
        classifier.learn(first.x, [f"character {y}" for y in first.y.tolist()])
        classifier.save(Path(folder) / "characters")
        with serving(Path(folder) / "characters", words) as client:
            ask(client, [next(contents) for _ in range(warm)], Row(given.clients))  # until all is warm
            print(described(given.backbone, classifier, words))
            lessons = [taught(characters.train, number, given.lesson) for number in range(1, ROUNDS + 1)]
            measure(client, contents, lessons, count, given.clients)


def described(backbone: str, classifier: ContinualClassifier, words: list[str]) -> str:
    """What was measured, where."""
    model = f"{Path(backbone).name} at {classifier.backbone.image_size} pixels"
    engine = " ".join(words) or "--engine process"
    return f"{model}, `{engine}`, {os.cpu_count()} cores ({platform.machine()}), torch {torch.__version__}\n"


if __name__ == "__main__":
    main()
