"""A whole Split CIFAR-100 protocol: with the textbook step, as the library runs it, and so by oneDNN.

    python benchmarks/protocol.py --backbone FILE dataset.train_per_class=50 dataset.test_per_class=10
    python benchmarks/protocol.py --backbone FILE --textbook-onednn       and the textbook by oneDNN
    python benchmarks/protocol.py --run glyphs100-l2p --scale mini        drawn characters, offline

Ten tasks of five epochs, evaluated on all seen tasks after each. Ours is what `promptpool run` does, with records and
checkpoints; by oneDNN is the same with `backbone.products=onednn`. The textbook takes the same batches in the same
order with two whole passes each, and evaluates with two whole passes. All begin with the same values; in double
precision they end with the same accuracies (a test), here rounding that training blows up may move an image. Seconds
are those of the clock, by what they were spent on; data and models are made before it starts. As in a run, the process
keeps the memory that it frees, the textbook's too. PROMPTPOOL_DATA names the folder with CIFAR-100.

The whole protocol trains on 50,000 images five times and evaluates 55,000 over its ten tasks: 4.5 images of training
for each that is evaluated. With 50 and 10 images of each class it is as many. The scale `small` has 25 and 50, which is
mostly evaluation: less than half an image.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from idle import MOST, Meanwhile, refuse_if_busy
from models import vit_of
from step_table import ONEDNN, OURS, TEXTBOOK, TEXTBOOK_ONEDNN
from stopwatch import Stopwatch, lines, watching
from textbook import Textbook

from promptpool.allocator import keep_freed_memory
from promptpool.experiments.build import Built, build
from promptpool.experiments.config import load_config
from promptpool.experiments.runner import go_on
from promptpool.learners.l2p import L2P
from promptpool.metrics import average_accuracy
from promptpool.training.loop import Session
from promptpool.training.record import accuracy_matrix
from promptpool.training.run_folder import read_records

Run = Callable[[Built], tuple[Stopwatch, float]]


def made(given: argparse.Namespace, products: str) -> Built:
    """The run, from nothing: no feature is kept from one to the next."""
    backbone = [f"backbone.name={given.backbone}"] if given.backbone else []
    values = [f"backbone.products={products}", *backbone, *given.values]
    return build(load_config(given.run, values, scale=given.scale))


def ours(built: Built) -> tuple[Stopwatch, float]:
    """The seconds and the average accuracy of the library's run."""
    with tempfile.TemporaryDirectory() as folder:
        with watching() as watch:
            for _ in go_on(built, Path(folder)):
                pass
        return watch, average_accuracy(accuracy_matrix(read_records(Path(folder))))


def textbook_of(built: Built) -> tuple[Textbook, Session]:
    """The textbook with the values that the library's learner has at its first step, and the orders of its examples.

    Its products are by the library that the run names.
    """
    learner, plan = built.learner, built.plan
    if not isinstance(learner, L2P) or plan.optimiser != "adam" or plan.clip is None or plan.weight_decay:
        raise SystemExit("this compares L2P with Adam, a clipped gradient and no weight decay")
    session = Session(learner, built.stream, plan)
    first = built.stream.experiences[0]
    session.begin(first)
    if learner.pool.waits:
        learner.train()
        learner.loss(first.train.batch(session.order(first)[: plan.batch_size]))  # prompts start from a first batch
    return Textbook(
        learner,
        class_count=len(built.stream.class_names),
        learning_rate=plan.learning_rate,
        clip=plan.clip,
        products=vit_of(learner).products,
    ), session


def by_the_book(built: Built) -> tuple[Stopwatch, float]:
    """The seconds and the average accuracy of the same run with the textbook's step and evaluation."""
    textbook, session = textbook_of(built)
    accuracy = np.full((len(built.stream.experiences), len(built.stream.tests)), np.nan)
    seen: list[int] = []
    with watching() as watch:
        for number, experience in enumerate(built.stream.experiences):
            textbook.begin_task()
            seen = sorted({*seen, *experience.classes})
            for epoch in range(session.epochs(experience)):
                session.epoch_index = epoch
                for index in session.order(experience).split(built.plan.batch_size):
                    batch = experience.train.batch(index)
                    with watch.running("steps"):
                        textbook.step(batch.x, batch.y, experience.classes)
            with watch.running("evaluation"):
                accuracy[number] = judged(textbook, built, seen)
    return watch, average_accuracy(accuracy)


def judged(textbook: Textbook, built: Built, seen: Sequence[int]) -> list[float]:
    """The accuracy on each test set of classes that were seen, NaN for the others."""
    found = []
    for test in built.stream.tests:
        if set(test.classes).isdisjoint(seen):
            found.append(float("nan"))
            continue
        batches = test.batches(built.plan.test_batch_size)
        right = sum(int((textbook.predict(batch.x, seen) == batch.y).sum()) for batch in batches)
        found.append(right / len(test))
    return found


def contestants(*, textbook_onednn: bool) -> dict[str, tuple[Run, str]]:
    """What is run, each with who computes its products."""
    every: dict[str, tuple[Run, str]] = {TEXTBOOK: (by_the_book, "torch"), OURS: (ours, "torch")}
    if textbook_onednn:
        every[TEXTBOOK_ONEDNN] = by_the_book, "onednn"
    return every | {ONEDNN: (ours, "onednn")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("values", nargs="*", help="of the run: table.key=value")
    parser.add_argument("--run", default="cifar100-l2p", help="a benchmark with L2P")
    parser.add_argument("--scale", default="small")
    parser.add_argument("--backbone", help="weights: a file or a hub name, if not those of the benchmark")
    parser.add_argument("--textbook-onednn", action="store_true", help="run the textbook by oneDNN too")
    parser.add_argument("--anyway", action="store_true", help="measure although the machine is busy")
    given = parser.parse_intermixed_args()
    refuse_if_busy(anyway=given.anyway)
    keep_freed_memory()
    watches, accuracies, meanwhile = {}, {}, Meanwhile()
    for name, (run, products) in contestants(textbook_onednn=given.textbook_onednn).items():
        watches[name], accuracies[name] = run(made(given, products))
    said = " ".join([f"at the scale {given.scale}", *given.values])
    print(f"{given.run} {said}, {torch.get_num_threads()} threads\n")
    print("\n".join(lines(watches)))
    print(f"\naverage accuracy: {'; '.join(f'{name} {100 * value:.2f}' for name, value in accuracies.items())}")
    if meanwhile.share() > MOST:
        print(f"no verdict: other processes took {meanwhile.share():.0%} of the processors meanwhile")
        return
    for name, textbook in (OURS, TEXTBOOK), (ONEDNN, TEXTBOOK), (ONEDNN, TEXTBOOK_ONEDNN):
        if textbook in watches:
            faster = watches[textbook].total / watches[name].total
            print(f"{name}: {faster:.2f} times as fast as the {textbook}")


if __name__ == "__main__":
    main()
