"""A finished run tested again, with its test images in another order and in batches of other sizes.

If each image chooses its own prompts, predictions do not depend on the batch. With a vote they do: images that arrive
task by task vote for the prompts of their task, which tells the model the task.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

from promptpool.data.stream import concatenate
from promptpool.experiments.build import SharedCache, build
from promptpool.experiments.config import Config
from promptpool.experiments.runner import device
from promptpool.files import locked
from promptpool.progress import report
from promptpool.training.checkpoint import load_checkpoint
from promptpool.training.evaluation import announce, count_correct
from promptpool.training.loop import Session
from promptpool.training.run_folder import CHECKPOINT, write_json

ORDERS, SIZES = ("task by task", "shuffled"), (1, 16, 128)
FILE = "batches.json"
Counts = dict[str, dict[str, list[int]]]  # by order and batch size: correct predictions, test images


def is_tested(folder: Path) -> bool:
    """True if the run in this folder was tested with other batches already."""
    return (folder / FILE).exists()


def batch_counts(config: Config, folder: Path, cache: SharedCache) -> Counts:
    """The counts of a finished run; measured once, then read from its folder."""
    with locked(folder / f".{FILE}.lock", waiting=report):
        if not is_tested(folder):
            write_json(folder / FILE, _measured(config, folder, cache))
    found = json.loads((folder / FILE).read_text())
    return {order: {str(size): found[order][str(size)] for size in SIZES} for order in ORDERS}


def _measured(config: Config, folder: Path, cache: SharedCache) -> Counts:
    built = build(config, cache)
    load_checkpoint(folder / CHECKPOINT, Session(built.learner.to(device()), built.stream, built.plan))
    everything = concatenate(built.stream.tests)
    mixed = everything.select(torch.randperm(len(everything), generator=torch.Generator().manual_seed(0)))
    learner, among = built.learner, built.plan.test_classes
    announce(learner, [everything])
    return {
        order: {str(size): [count_correct(learner, test, size, test_classes=among)[0], len(test)] for size in SIZES}
        for order, test in zip(ORDERS, (everything, mixed), strict=True)
    }
