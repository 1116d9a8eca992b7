"""What the size and the order of test batches do to each profile of L2P.

A profile whose prompts are chosen by each image for itself predicts the same however test images are batched. One with
a vote does not: images that arrive task by task vote for their task's prompts, and so tell the model the task.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import torch

from promptpool.data.stream import concatenate
from promptpool.experiments.build import SharedCache, build
from promptpool.experiments.config import Config
from promptpool.experiments.runner import device
from promptpool.files import locked
from promptpool.learners.profiles import PROFILES
from promptpool.progress import report
from promptpool.reproduce.benchmarks import benchmark, configured
from promptpool.reproduce.entries import Entry
from promptpool.reproduce.studies import Item
from promptpool.training.checkpoint import load_checkpoint
from promptpool.training.evaluation import count_correct
from promptpool.training.folder import CHECKPOINT, Run, write_json
from promptpool.training.loop import Session

ORDERS, SIZES = ("task by task", "shuffled"), (1, 16, 128)
FILE = "batches.json"
PLAIN = (
    *("view.crop=none", "view.flip=false", "view.values=symmetric", "view.test_crop=none", "backbone.gelu=none"),
    *("plan.drop_last=false", "plan.test_classes=seen"),
)


def items(scale: str) -> Iterator[Item]:
    """One run for each profile; at mini scale with view, steps and tests of the preset."""
    split = benchmark(scale, "split")
    for name in PROFILES:
        config = configured(split, "l2p", PLAIN if scale == "mini" else (), profile=name)
        yield Item("batches", split.title, "profile", name, config, run="L2P")


def known(run: Run) -> bool:
    """Whether a run was tested with other batches already."""
    return (run.path / FILE).exists()


def measured(item: Item, run: Run, cache: SharedCache) -> list[Entry]:
    """The accuracy of a finished run for each order and batch size; kept in the run's folder."""
    file = run.path / FILE
    with locked(run.path / f".{FILE}.lock", waiting=report):
        counts = json.loads(file.read_text()) if known(run) else _counts(item.config, run.path, cache)
        if not known(run):
            write_json(file, counts)
    found = []
    for order in ORDERS:
        for size in SIZES:
            right, total = counts[order][str(size)]
            found.append(
                Entry(
                    study="batches",
                    stream=item.stream,
                    group=order,
                    method=item.method,
                    at=str(size),
                    accuracy=f"{100 * right / total:.2f}",
                    loss_classes=str(item.config["learner"]["loss_classes"]),
                    prompts=str(run.records[-1].facts["prompts_in_use"]),
                    pool_size=str(item.config["learner"]["pool_size"]),
                    seeds=str(item.config["seed"]),
                    revision=str(run.environment.get("revision") or "unknown"),
                    runs=run.path.name,
                )
            )
    return found


def _counts(config: Config, folder: Path, cache: SharedCache) -> dict[str, dict[str, list[int]]]:
    """How many test images are right, of how many."""
    built = build(config, cache)
    load_checkpoint(folder / CHECKPOINT, Session(built.learner.to(device()), built.stream, built.plan))
    everything = concatenate(built.stream.tests)
    mixed = everything.select(torch.randperm(len(everything), generator=torch.Generator().manual_seed(0)))
    tests = dict(zip(ORDERS, (everything, mixed), strict=True))
    learner, among = built.learner, built.plan.test_classes
    return {
        order: {str(size): [count_correct(learner, test, size, test_classes=among)[0], len(test)] for size in SIZES}
        for order, test in tests.items()
    }
