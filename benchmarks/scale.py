"""Does a step stay as cheap when everything is large? A pool of 10,000, 20,000 classes, 1,000 tasks, a million images.

    make bench-scale                                       everything; writes docs/scale.png and its CSV
    make bench-scale ARGS='--minutes 4'                    as many tasks as four minutes allow
    python benchmarks/scale.py --tasks 50 --images 50000   less of it

A ViT of two blocks and 32 dimensions reads 32x32 images as 5 tokens, so that all the rest shows. The long study goes
through all tasks with the library's own loop, and notes for each the median step, the evaluation, what a run writes
after each task (checkpoint and records, into a temporary folder) and the memory of the process. The others change the
pool alone and the classes alone, beside the matrix products that have these sizes: queries with keys, and features with
the head, forward and backward. Images are a thousand drawn by chance, again and again, each time with an id of its own,
as if they were others.

Every task is tested on, but by two images, and twenty tasks have a test set together: all test sets of the tasks so far
are asked about after each task, which grows with the square of the tasks by design, and would be all there is to see.

With so few dimensions a million images would not fill the memory that features and tokens may take, and it would rise
to the end as if it had no bound. So both budgets are 0.05 GB here, and are full after a sixth of the images.

What was found is written on the way (`scale-unfinished.csv`), so that a run that is killed leaves it; it is drawn in a
process of its own, whose memory is not counted. On a machine that does other work nothing is judged, and files get
another name: `scale-busy.csv`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from floor import Floor, Product
from idle import MOST, Meanwhile, beside, no_verdict, refuse_if_busy
from scale_table import Point, Size, drawn, judged, progress, table, written

from promptpool.backbones.vit import ViT
from promptpool.data.stream import Batch, Examples, Experience, Stream
from promptpool.data.views import ImageView
from promptpool.learners.l2p import L2P
from promptpool.optim import Descent
from promptpool.resident import resident
from promptpool.training.checkpoint import save_checkpoint
from promptpool.training.loop import Plan, Session
from promptpool.training.run_folder import CHECKPOINT, write_records

DIM, BATCH, DRAWN = 32, 100, 1000
TESTED, TOGETHER = 2, 20  # images that test a task, and tasks that share a test set
POOLS, CLASSES = (10, 100, 1_000, 10_000), (10, 100, 1_000, 20_000)
BUDGETS, GIGABYTES = ("PROMPTPOOL_MEMORY_GB", "PROMPTPOOL_TOKENS_GB"), 0.05
EVERY = 50  # tasks from one writing of files to the next


def learner_of(pool_size: int) -> L2P:
    backbone = ViT(image_size=32, patch_size=16, dim=DIM, depth=2, heads=2).start(torch.Generator().manual_seed(0))
    return L2P(backbone.eval(), ImageView(32), pool_size=pool_size, prompt_length=1)


def images(count: int, labels: torch.Tensor, first_id: int) -> Examples:
    drawn = torch.randint(0, 256, (DRAWN, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return Examples(drawn, torch.arange(count) % DRAWN, labels, first_id + torch.arange(count))


def long_stream(size: Size) -> Stream:
    """So many tasks with equal shares of images and classes, and test sets with images of each."""
    tasks, count, classes = size
    everything = images(count, torch.arange(count) * classes // count, 0)
    parts = [everything.select(slice(t * count // tasks, (t + 1) * count // tasks)) for t in range(tasks)]
    experiences = tuple(Experience(t, part, part.classes) for t, part in enumerate(parts))
    tested, long = TESTED * tasks, TESTED * TOGETHER
    test = images(tested, torch.arange(tested) * classes // tested, count)
    tests = tuple(test.select(slice(first, first + long)) for first in range(0, tested, long))
    return Stream(experiences, tests, tuple(f"class {c}" for c in range(classes)))


def through_all_tasks(size: Size, pool_size: int) -> Generator[Point, None, None]:
    """The median step, the evaluation, the files that a run writes and the memory, task by task."""
    if size.images < 2 * BATCH * size.tasks:
        least = 2 * BATCH * size.tasks
        raise SystemExit(f"--images {size.images}: {size.tasks} tasks need at least {least}, two batches each")
    plan = Plan(epochs=1, batch_size=BATCH, test_batch_size=TESTED * TOGETHER)
    session = Session(learner_of(pool_size), long_stream(size), plan)
    seconds: list[float] = []
    with TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for step in session:
            seconds.append(time.perf_counter() - begin)
            if step.record is not None:
                *usual, last = seconds
                typical = statistics.median(usual)
                rest = max(last - typical, 0.0)  # the last step brings the evaluation with it
                files = seconds_of_files(Path(folder), session)
                held = resident()
                memory = None if held is None else held / 1e6
                yield Point("tasks", step.experience + 1, 1e3 * typical, None, 1e3 * rest, 1e3 * files, memory)
                seconds = []
            begin = time.perf_counter()


def seconds_of_files(folder: Path, session: Session) -> float:
    """What a run writes with each record."""
    begin = time.perf_counter()
    save_checkpoint(folder / CHECKPOINT, session)
    write_records(folder, session.records)
    return time.perf_counter() - begin


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
        yield Point(study, size, typical, least, None, None, None)


def kept(out: Path | None, plot: Path | None, size: Size, points: Sequence[Point]) -> None:
    """Write the files that were asked for."""
    if out:
        written(out, points)
    if plot:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            alone.submit(drawn, plot, size, points, caption()).result()


def concluded(out: Path | None, plot: Path | None, size: Size, points: Sequence[Point], share: float) -> None:
    """Say what was found, and write it: over earlier results only if others took a small share of the processors."""
    print("\n".join([*table(points), "", f"{caption()}; {progress(size, points)}"]))
    if share > MOST:
        out, plot = beside(out, "busy"), beside(plot, "busy")
        print(no_verdict(share, out, plot))
    else:
        print(judged(points))
    kept(out, plot, size, points)


def caption() -> str:
    return f"features and tokens of images are kept in {GIGABYTES} GB each"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1_000)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=20_000)
    parser.add_argument("--pool", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end the long study after so many")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, help="a CSV file for what was measured")
    parser.add_argument("--plot", type=Path, help="a PNG file for a picture of it")
    parser.add_argument("--anyway", action="store_true", help="measure although the machine is busy, and judge nothing")
    given = parser.parse_args(arguments)
    os.environ.update(dict.fromkeys(BUDGETS, str(GIGABYTES)))
    refuse_if_busy(anyway=given.anyway)
    size, meanwhile = Size(given.tasks, given.images, given.classes), Meanwhile()
    points = [*widening("pool", given.rounds), *widening("classes", given.rounds)]
    on_the_way = beside(given.out, "unfinished"), beside(given.plot, "unfinished")
    kept(*on_the_way, size, points)
    end = time.monotonic() + 60 * given.minutes
    with closing(through_all_tasks(size, given.pool)) as through:
        for point in through:
            points.append(point)
            if point.size % EVERY == 0:
                kept(*on_the_way, size, points)
            if time.monotonic() > end:
                break
    concluded(given.out, given.plot, size, points, meanwhile.share())
    for path in on_the_way:
        if path:
            path.unlink()


if __name__ == "__main__":
    main()
