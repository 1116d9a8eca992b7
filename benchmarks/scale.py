"""Does a step stay as cheap when everything is large? A pool of 10,000, 20,000 classes, 1,000 tasks, a million images.

    make bench-scale                                       everything; writes docs/scale.png and its CSV
    python benchmarks/scale.py --tasks 50 --images 50000   less of it

A ViT of two blocks and 32 dimensions reads 32x32 images as 5 tokens, so that all the rest shows. The long study goes
through all tasks with the library's own loop, and notes for each the median step and the memory of the process. The
others change the pool alone and the classes alone, beside the matrix products that have these sizes: queries with keys,
and features with the head, forward and backward. Images are a thousand drawn by chance, again and again, each time with
an id of its own, as if they were others.
"""

from __future__ import annotations

import argparse
import csv
import io
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from floor import Floor, Product
from idle import refuse_if_busy
from matplotlib.figure import Figure

from promptpool.backbones.vit import ViT
from promptpool.data.stream import Batch, Examples, Experience, Stream
from promptpool.data.views import ImageView
from promptpool.files import write_whole
from promptpool.learners.l2p import L2P
from promptpool.optim import Descent
from promptpool.report.themes import WIDTH, drawing, png
from promptpool.training.loop import Plan, Session

DIM, BATCH, DRAWN, TESTED = 32, 100, 1000, 200
POOLS, CLASSES = (10, 100, 1_000, 10_000), (10, 100, 1_000, 20_000)
STATUS = Path("/proc/self/status")


class Point(NamedTuple):
    """What was found at one size."""

    study: str  # tasks, pool or classes
    size: int
    step: float  # milliseconds
    products: float | None  # milliseconds of the products that have this size
    evaluation: float | None  # milliseconds
    memory: float | None  # megabytes of the process


def learner_of(pool_size: int) -> L2P:
    backbone = ViT(image_size=32, patch_size=16, dim=DIM, depth=2, heads=2).start(torch.Generator().manual_seed(0))
    return L2P(backbone.eval(), ImageView(32), pool_size=pool_size, prompt_length=1)


def images(count: int, labels: torch.Tensor, first_id: int) -> Examples:
    drawn = torch.randint(0, 256, (DRAWN, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return Examples(drawn, torch.arange(count) % DRAWN, labels, first_id + torch.arange(count))


def long_stream(tasks: int, count: int, classes: int) -> Stream:
    """So many tasks with equal shares of images and classes, and one test set with images of all classes."""
    everything = images(count, torch.arange(count) * classes // count, 0)
    parts = [everything.select(slice(t * count // tasks, (t + 1) * count // tasks)) for t in range(tasks)]
    experiences = tuple(Experience(t, part, part.classes) for t, part in enumerate(parts))
    test = images(TESTED, torch.arange(TESTED) * classes // TESTED, count)
    return Stream(experiences, (test,), tuple(f"class {c}" for c in range(classes)))


def through_all_tasks(tasks: int, count: int, classes: int, pool_size: int) -> Iterator[Point]:
    """The median step, the evaluation and the memory, task by task."""
    stream, learner = long_stream(tasks, count, classes), learner_of(pool_size)
    if count < 2 * BATCH * tasks:
        raise SystemExit(f"--images {count}: {tasks} tasks need at least {2 * BATCH * tasks}, two batches each")
    plan = Plan(epochs=1, batch_size=BATCH, test_batch_size=TESTED)
    seconds: list[float] = []
    begin = time.perf_counter()
    for step in Session(learner, stream, plan):
        seconds.append(time.perf_counter() - begin)
        if step.record is not None:
            *usual, last = seconds
            typical = statistics.median(usual)
            rest = max(last - typical, 0.0)  # the last step brings the evaluation with it
            yield Point("tasks", step.experience + 1, 1e3 * typical, None, 1e3 * rest, megabytes())
            seconds = []
        begin = time.perf_counter()


def one_step(pool_size: int, classes: int) -> Callable[[], object]:
    """A step with kept queries."""
    learner, examples = learner_of(pool_size), images(BATCH, torch.arange(BATCH) * classes // BATCH, 0)
    learner.add_classes(range(classes))
    learner.train()
    descend = Descent([p for p in learner.parameters() if p.requires_grad])
    batch: Batch = examples.batch(slice(None))
    return lambda: learner.step(batch, descend)


def widening(study: str, rounds: int) -> Iterator[Point]:
    """The median step as the pool or the number of classes grows, and the products that grow with it."""
    for size in POOLS if study == "pool" else CLASSES:
        step = one_step(size, 10) if study == "pool" else one_step(10, size)
        back = Product("weights", size, BATCH, DIM)
        out = [Product("scores", BATCH, DIM, size), back, Product("back", BATCH, size, DIM)]
        floor = Floor(out[:2] if study == "pool" else out)  # queries are frozen: keys alone have a gradient
        times, products = [], []
        for _ in range(rounds + 1):
            begin = time.perf_counter()
            step()
            times.append(time.perf_counter() - begin)
            products.append(floor())
        typical, least = (1e3 * statistics.median(found[1:]) for found in (times, products))
        yield Point(study, size, typical, least, None, None)


def megabytes() -> float | None:
    """The memory of this process now; None where the system does not tell."""
    if not STATUS.exists():
        return None
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1000


def written(path: Path, points: list[Point]) -> None:
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["study", "size", "step_ms", "products_ms", "evaluation_ms", "megabytes"])
    for point in points:
        lines.writerow([point.study, point.size, *("" if value is None else f"{value:.3f}" for value in point[2:])])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.getvalue().encode())


def drawn(path: Path, points: list[Point]) -> None:
    """Four panels: steps and memory by tasks, steps by pool and by classes with the products under them."""
    found = {study: [point for point in points if point.study == study] for study in ("tasks", "pool", "classes")}
    with drawing("light") as look:
        figure = Figure(figsize=(2 * WIDTH, 5.6), layout="constrained")
        (steps, memory), (pool, classes) = figure.subplots(2, 2)
        sizes = [point.size for point in found["tasks"]]
        steps.plot(sizes, [point.step for point in found["tasks"]], color=look.colours[0])
        memory.plot(sizes, [point.memory or 0.0 for point in found["tasks"]], color=look.colours[0])
        for panel, study in ((pool, "pool"), (classes, "classes")):
            across = [point.size for point in found[study]]
            panel.plot(across, [point.step for point in found[study]], "o-", color=look.colours[0], label="step")
            least = [point.products or 0.0 for point in found[study]]
            panel.plot(across, least, "s-", color=look.muted, label="its products of this size")
            panel.set_xscale("log")
            panel.legend(frameon=False)
        titles = ("step (ms)", "memory (MB)", "step (ms)", "step (ms)")
        unders = ("tasks learned", "tasks learned", "prompts in the pool", "classes")
        for panel, title, under in zip((steps, memory, pool, classes), titles, unders, strict=True):
            panel.set_title(title)
            panel.set_xlabel(under)
            panel.set_ylim(bottom=0)
            panel.grid(axis="y")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, png(figure))


def table(points: list[Point]) -> list[str]:
    lines = ["| study | size | step, ms | its products, ms | evaluation, ms | memory, MB |", f"|---|{'---:|' * 5}"]
    long = [point for point in points if point.study == "tasks"]
    shown = {round(len(long) ** (k / 6)) for k in range(7)}
    for point in points:
        if point.study != "tasks" or point.size in shown:
            cells = ("" if value is None else f"{value:.2f}" for value in point[2:])
            lines.append(f"| {point.study} | {point.size} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1_000)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=20_000)
    parser.add_argument("--pool", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, help="a CSV file for what was measured")
    parser.add_argument("--plot", type=Path, help="a PNG file for a picture of it")
    parser.add_argument("--anyway", action="store_true", help="measure although the machine is busy")
    given = parser.parse_args()
    refuse_if_busy(anyway=given.anyway)
    points = [*widening("pool", given.rounds), *widening("classes", given.rounds)]
    points += through_all_tasks(given.tasks, given.images, given.classes, given.pool)
    print("\n".join(table(points)))
    if given.out:
        written(given.out, points)
    if given.plot:
        drawn(given.plot, points)


if __name__ == "__main__":
    main()
