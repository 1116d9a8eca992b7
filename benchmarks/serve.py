"""What a server answers: one picture at a time, many clients at once, and many while it learns.

    make bench-serve
    python benchmarks/serve.py --weights FILE --image-size 224     a larger model, such as DINOv2-S

All three are measured in one run, and the ratio is to the first. While it learns no answer may be lost, and each must
come from the old version or the new one; otherwise this ends with an error.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from promptpool import ContinualClassifier
from promptpool.client import Client
from promptpool.data.glyphs.sets import glyphs100
from promptpool.data.stream import Examples
from promptpool.serve.address import NOTE

CLASSES = 10  # of each lesson


class Asked(NamedTuple):
    """One question: how long it took, and the version that answered."""

    seconds: float
    version: int


def pictures(examples: Examples, count: int) -> list[tuple[str, bytes]]:
    """Labels and files of the first examples of each of some classes."""
    found = []
    for number in range(count):
        row = examples.batch(slice(number, number + 1))
        file = io.BytesIO()
        Image.fromarray(row.x[0].permute(1, 2, 0).numpy()).save(file, "PNG")
        found.append((f"character {int(row.y[0])}", file.getvalue()))
    return found


@contextmanager
def serving(folder: Path) -> Iterator[Client]:
    command = [sys.executable, "-m", "promptpool", "serve", str(folder), "--port", "0", "--no-browser"]
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


def ask(client: Client, contents: list[bytes], clients: int) -> tuple[float, list[Asked]]:
    """Ask about each picture, in a request of its own; returns the seconds for all and for each."""

    def one(content: bytes) -> Asked:
        begin = time.perf_counter()
        answer = client.predict(content, top=1)[0]
        if answer["error"] is not None:
            raise SystemExit(f"no answer: {answer['error']}")
        return Asked(time.perf_counter() - begin, answer["version"])

    begin = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        asked = list(pool.map(one, contents))
    return time.perf_counter() - begin, asked


def ask_while_learning(client: Client, contents: list[bytes], clients: int) -> tuple[float, list[Asked]]:
    """The same while a lesson is learned; fails if it is not, or if an answer is of no version that there was."""
    old = int(client.about()["version"])
    reports: list[int] = []
    learning = threading.Thread(target=lambda: reports.append(int(client.learn()["version"])))
    learning.start()
    seconds, asked = ask(client, contents, clients)
    learning.join()
    versions = {each.version for each in asked}
    if reports != [old + 1] or not versions <= {old, old + 1}:
        raise SystemExit(f"answers of versions {versions}, lessons {reports}: expected {old} and {old + 1}")
    shares = [sum(each.version == version for each in asked) for version in (old, old + 1)]
    print(f"while it learns: {shares[0]} answers from version {old}, {shares[1]} from version {old + 1}, none lost")
    return seconds, asked


def line(name: str, clients: int, found: tuple[float, list[Asked]], first: float) -> None:
    """Print a row; `first` are the pictures per second that it is compared with."""
    seconds, asked = found
    times = sorted(each.seconds for each in asked)
    rate = len(asked) / seconds
    late = times[min(int(0.99 * len(times)), len(times) - 1)]
    row = f"{name:<28}{clients:>8}{rate:>12.1f}{1000 * statistics.median(times):>12.1f}{1000 * late:>12.1f}"
    print(f"{row}{rate / first:>8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", default="vit-glyphs", help="the backbone: a hub name or a file")
    parser.add_argument("--image-size", type=int, help="pixels of a side that it looks at, if not the file's own")
    parser.add_argument("--requests", type=int, default=1000, help="predictions of each row")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--lesson", type=int, default=500, help="pictures of the lesson that is learned meanwhile")
    given = parser.parse_args()
    characters = glyphs100(train_per_class=-(-given.lesson // CLASSES), test_per_class=20)
    known = characters.train.select(characters.train.y < CLASSES)
    new = characters.train.select((characters.train.y >= CLASSES) & (characters.train.y < 2 * CLASSES))
    asked = [content for _, content in pictures(characters.test, min(len(characters.test), given.requests))]
    contents = [asked[number % len(asked)] for number in range(given.requests)]
    with tempfile.TemporaryDirectory() as folder:
        classifier = ContinualClassifier(given.weights, image_size=given.image_size)
        first = known.batch(slice(None))
        classifier.learn(first.x, [f"character {y}" for y in first.y.tolist()])
        classifier.save(Path(folder) / "characters")
        with serving(Path(folder) / "characters") as client:
            ask(client, contents[: 4 * given.clients], given.clients)  # until all is warm
            measure(client, contents, given.clients, pictures(new, min(len(new), given.lesson)))


def measure(client: Client, contents: list[bytes], clients: int, lesson: list[tuple[str, bytes]]) -> None:
    rows: list[tuple[str, int, Callable[[], tuple[float, list[Asked]]]]] = [
        ("one picture at a time", 1, lambda: ask(client, contents, 1)),
        ("many clients at once", clients, lambda: ask(client, contents, clients)),
        ("the same while it learns", clients, lambda: ask_while_learning(client, contents, clients)),
    ]
    client.teach_all((label, f"{number}.png", content) for number, (label, content) in enumerate(lesson))
    found = [(name, count, work()) for name, count, work in rows]
    print(f"{'':<28}{'clients':>8}{'pictures/s':>12}{'median ms':>12}{'99 % ms':>12}{'ratio':>8}")
    seconds, asked = found[0][2]
    for name, count, times in found:
        line(name, count, times, len(asked) / seconds)


if __name__ == "__main__":
    main()
