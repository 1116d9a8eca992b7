"""What a step of L2P costs here beside the textbook version and beside the floor, in turn in one process.

    make bench                                             every model; writes docs/speed.png and its CSV
    python benchmarks/step.py --sizes mini tiny            some of them
    make bench ARGS='--sizes base --products'              and the floor's list of matrix products

Textbook: two whole passes with two copies of the model (textbook.py). First epoch: ours, with no query kept yet. Ours:
with queries kept, as in all other epochs. By oneDNN: all three with `backbone.products=onednn`, ours beside a textbook
that has its products from there too. In halves: ours with `plan.micro_batch` at half the batch. All are the same step
up to rounding. Floor: the matrix products that no version can leave out, each by the faster library (floor.py).
Training is the step of a batch from raw images to new values, evaluation the scores of a batch.

As in a run, the process keeps the memory that it frees (`keep_freed_memory`), the textbook's too. On a machine that
does other work nothing is judged, and files get another name: `speed-busy.csv`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from floor import Floor, backward, forward
from idle import MOST, Meanwhile, beside, no_verdict, refuse_if_busy
from models import CLASSES, SIZES, TITLES, Material, material, shape_of, vit_of
from step_memory import peak
from step_table import (
    FIRST,
    FIRST_ONEDNN,
    HALVES,
    ONEDNN,
    OURS,
    TEXTBOOK,
    TEXTBOOK_ONEDNN,
    Measured,
    drawn,
    memories,
    speeds,
    written,
)
from step_verdict import judged
from textbook import Textbook

from promptpool.allocator import keep_freed_memory
from promptpool.backbones.features import FrozenFeatures
from promptpool.optim import Descent

Work = Callable[[], object]
TRAINING, EVALUATION = "training", "evaluation"
MEMORY_OF = (TEXTBOOK, OURS, HALVES, TEXTBOOK_ONEDNN, ONEDNN)


class Contestant(NamedTuple):
    """Something to be timed, and what comes before it each time, which is not."""

    work: Work
    before: Work


def textbook(found: Material, what: str, *, products: str = "torch") -> Contestant:
    model = Textbook(found.learner, class_count=CLASSES, products=products)
    batch, classes = found.batch, range(CLASSES)
    if what == TRAINING:
        return Contestant(partial(model.step, batch.x, batch.y, classes), lambda: None)
    return Contestant(partial(model.predict, batch.x, classes), lambda: None)


def ours(
    found: Material, what: str, *, kept: bool = True, products: str = "torch", micro_batch: int | None = None
) -> Contestant:
    learner, images, batch = found.learner, found.images, found.batch
    transformer = vit_of(learner)
    descend = Descent([p for p in learner.parameters() if p.requires_grad], micro_batch=micro_batch)

    def before() -> None:
        learner.train(what == TRAINING)
        transformer.compute(products=products)
        learner.frozen = FrozenFeatures(learner.backbone, learner.view)
        learner.expect(images)
        if kept:
            with torch.no_grad():
                learner.logits(batch)  # whatever is kept of a batch is kept now

    def predict() -> None:
        with torch.no_grad():
            learner.logits(batch).argmax(dim=1)

    return Contestant(partial(learner.step, batch, descend) if what == TRAINING else predict, before)


def contestants(found: Material, what: str) -> dict[str, Callable[[], Contestant]]:
    """Who is timed, each made when it is asked for."""
    every: dict[str, Callable[[], Contestant]] = {
        TEXTBOOK: partial(textbook, found, what),
        FIRST: partial(ours, found, what, kept=False),
        OURS: partial(ours, found, what),
        TEXTBOOK_ONEDNN: partial(textbook, found, what, products="onednn"),
        FIRST_ONEDNN: partial(ours, found, what, kept=False, products="onednn"),
        ONEDNN: partial(ours, found, what, products="onednn"),
    }
    if what == EVALUATION:
        return every
    return every | {HALVES: partial(ours, found, what, micro_batch=-(-len(found.batch.y) // 2))}


def made(size: str, batch: int, length: int, what: str, who: str) -> Work:
    """A step for a process of its own, with nothing beside it."""
    contestant = contestants(material(size, batch, length), what)[who]()
    contestant.before()
    return contestant.work


def measured(size: str, what: str, given: argparse.Namespace) -> tuple[list[Measured], Floor]:
    """All contestants in turn, round after round; the first round does not count."""
    found = material(size, given.batch, given.prompt_length)
    shape = shape_of(found.learner, given.batch)
    floor = Floor([*forward(shape), *(backward(shape) if what == TRAINING else [])])
    timed = {who: make() for who, make in contestants(found, what).items()}
    seconds: dict[str, list[float]] = {who: [] for who in (*timed, "floor")}
    for _ in range(given.rounds + 1):
        for who, contestant in timed.items():
            contestant.before()
            begin = time.perf_counter()
            contestant.work()
            seconds[who].append(time.perf_counter() - begin)
        seconds["floor"].append(floor())
    del timed, found
    rows = []
    for who in seconds:
        make, small = (
            partial(made, model, count, given.prompt_length, what, who)
            for model, count in ((size, given.batch), ("mini", 1))
        )
        memory = peak(make, small) if who in MEMORY_OF else None
        rates = [given.batch / value for value in seconds[who][1:]]
        rows.append(Measured(TITLES[size], what, who, rates, memory))
    return rows, floor


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--prompt-length", type=int, default=5, help="tokens of a prompt, of which an image gets five")
    parser.add_argument("--products", action="store_true", help="print the floor's list of matrix products")
    parser.add_argument("--out", type=Path, help="a CSV file for what was measured")
    parser.add_argument("--plot", type=Path, help="a PNG file for a picture of it")
    parser.add_argument("--anyway", action="store_true", help="measure although the machine is busy, and judge nothing")
    given = parser.parse_args(arguments)
    refuse_if_busy(anyway=given.anyway)
    keep_freed_memory()
    shares, rows, floors, products = [], [], [], []
    for size in given.sizes:
        paces = []
        for what in (TRAINING, EVALUATION):
            meanwhile = Meanwhile()
            more, floor = measured(size, what, given)
            rows += more
            shares.append(meanwhile.share())
            paces.append(f"{what} {floor.pace}")
            products += [f"\n{TITLES[size]}, {what}, a batch of {given.batch}:\n", *floor.lines()]
        floors.append(f"floor of {TITLES[size]}: {', '.join(paces)}")
    print(f"batches of {given.batch}, {torch.get_num_threads()} threads, {given.rounds} rounds: median (quartiles)\n")
    print("\n".join([*speeds(rows), "", *memories(rows), "", *floors]))
    if given.products:
        print("\n".join(products))
    out, plot = given.out, given.plot
    if max(shares) > MOST:
        out, plot = beside(out, "busy"), beside(plot, "busy")
        print(f"\n{no_verdict(max(shares), out, plot)}")
    else:
        print("\n" + "\n".join(judged(rows)))
    if out:
        written(out, rows)
    if plot:
        drawn(plot, rows)


if __name__ == "__main__":
    main()
