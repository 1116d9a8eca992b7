"""What a server answers: one picture at a time, many clients at once, and many while it learns.

    make bench-serve
    python benchmarks/serve.py --backbone FILE --image-size 224        a larger model, such as DINOv2-S
    python benchmarks/serve.py --engine ray --replicas 2               the same on Ray Serve

The three are measured in turn, round after round in one run, and the ratio is to the first. No picture is asked about
twice. An answer is lost if there is none; while it learns each must come from the old version or the new one, and some
from each. This ends with an error where that is not so, and refuses to begin while other processes are at work.
"""

from __future__ import annotations

import argparse
import io
import itertools
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
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from idle import refuse_if_busy
from PIL import Image
from torch import Tensor

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
    lost: int = 0

    @property
    def rate(self) -> float:
        return len(self.seconds) / self.took


def png(pixels: Tensor) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(file, "PNG")
    return file.getvalue()


def pictures(examples: Examples) -> Iterator[bytes]:
    """Pictures without end, none of them twice: after the last one each comes again with other corners."""
    for turn in itertools.count():
        for batch in examples.batches(100):
            for pixels in batch.x.clone():
                pixels[:, 0, 0] += turn % 256
                pixels[:, -1, -1] += turn // 256
                yield png(pixels)


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


def ask(client: Client, contents: Iterable[bytes], row: Row) -> list[int]:
    """Ask about each picture, in a request of its own; returns the versions that answered."""
    left, taking, versions = iter(contents), threading.Lock(), list[int]()

    def go_on() -> None:
        while True:
            with taking:
                content = next(left, None)
            if content is None:
                return
            begin = time.perf_counter()
            try:
                answer = client.predict(content, top=1)[0]
            except ServerError as error:
                print(f"lost: {error}", file=sys.stderr)
                row.lost += 1
                continue
            row.seconds.append(time.perf_counter() - begin)
            versions.append(answer["version"])

    begin = time.perf_counter()
    threads = [threading.Thread(target=go_on) for _ in range(row.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    row.took += time.perf_counter() - begin
    return versions


def ask_while_learning(client: Client, contents: Iterator[bytes], count: int, row: Row) -> tuple[int, int]:
    """The same while a lesson is learned, and until it is; returns how many answers were old, and how many new."""
    old, reports = int(client.about()["version"]), list[int]()
    learning = threading.Thread(target=lambda: reports.append(int(client.learn()["version"])))

    def until_learned() -> Iterator[bytes]:
        yield from itertools.islice(contents, count)
        while learning.is_alive():
            yield next(contents)
        yield from itertools.islice(contents, 2 * row.clients)  # half of them are asked when the first is answered

    learning.start()
    versions = ask(client, until_learned(), row)
    if reports != [old + 1] or set(versions) != {old, old + 1}:
        raise SystemExit(f"answers of versions {set(versions)}, lessons {reports}: expected {old} and {old + 1}")
    return versions.count(old), versions.count(old + 1)


def measure(
    client: Client, contents: Iterator[bytes], lessons: list[list[tuple[str, bytes]]], count: int, clients: int
) -> None:
    """Ask all three ways in each round, and print what came of it."""
    rows, shares = [Row(1), Row(clients), Row(clients)], [0, 0]
    for lesson in lessons:
        client.teach_all((label, f"{number}.png", content) for number, (label, content) in enumerate(lesson))
        for row in rows[:2]:
            ask(client, list(itertools.islice(contents, count)), row)
        shares = [sum(pair) for pair in zip(shares, ask_while_learning(client, contents, count, rows[2]), strict=True)]
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
    return [
        (f"character {int(own.y[place])}", png(own.batch(slice(place, place + 1)).x[0]))
        for place in range(min(pictures, len(own)))
    ]


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
    characters = glyphs100(train_per_class=-(-given.lesson // CLASSES), test_per_class=10)
    contents = pictures(characters.test)
    words = ["--engine", "ray", "--replicas", str(given.replicas)] if given.engine == "ray" else []
    with tempfile.TemporaryDirectory() as folder:
        classifier = ContinualClassifier(given.backbone, image_size=given.image_size)
        first = characters.train.select(characters.train.y < CLASSES).batch(slice(None))
        classifier.learn(first.x, [f"character {y}" for y in first.y.tolist()])
        classifier.save(Path(folder) / "characters")
        with serving(Path(folder) / "characters", words) as client:
            ask(client, itertools.islice(contents, warm), Row(given.clients))  # until all is warm
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
