"""Runs learners on several threads and prints hashes of all that each ends with.

    python repeat_worker.py first|again THREADS FOLDER LEARNER...

`first` leaves a checkpoint in the middle of an epoch and goes on. `again` is another process, which runs undisturbed
and then once more from that checkpoint. Batches are large enough for torch to share them out: one of L2P has 32
images with 25 prompt tokens of 64 numbers, 51,200 in all. `l2p@onednn` is l2p with products by oneDNN.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from promptpool.backbones.resnet import resnet18
from promptpool.backbones.vit import ViT
from promptpool.learners.state import state
from promptpool.training.checkpoint import load_checkpoint, save_checkpoint
from promptpool.training.loop import Plan, Session
from toys import METHODS, ON_RESNET, VALUES, tensors, toy_backbone, toy_stream, toy_view

PLAN = Plan(epochs=2, batch_size=32, learning_rate=0.01, test_batch_size=50)


def session(name: str) -> Session:
    method, _, products = name.partition("@")
    backbone = resnet18(width=16, image_size=8).eval() if method in ON_RESNET else toy_backbone(dim=64)
    if isinstance(backbone, ViT) and products:
        backbone.compute(products=products)
    values: dict[str, Any] = VALUES.get(method, {})
    learner = METHODS[method](backbone, toy_view(method), **values)
    return Session(learner, toy_stream(tasks=2, per_class=16), replace(PLAN))


def ended(running: Session, leave: Path | None = None) -> str:
    """A hash of all that a session ends with, records and state; before its last step it leaves a checkpoint."""
    for step in running:
        if leave is not None and step.step == running.steps - 1:
            save_checkpoint(leave, running)
    digest = hashlib.sha256("\n".join(record.to_json() for record in running.records).encode())
    for value in tensors(state(running.learner)):
        digest.update(value.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def resumed(name: str, checkpoint: Path) -> str:
    running = session(name)
    load_checkpoint(checkpoint, running)
    return ended(running)


def main() -> None:
    what, threads, folder, names = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]
    torch.set_num_threads(threads)
    for name in names:
        checkpoint = folder / f"{name}.checkpoint"
        if what == "first":
            print(name, ended(session(name), leave=checkpoint))  # noqa: T201
        else:
            print(name, ended(session(name)), resumed(name, checkpoint))  # noqa: T201


if __name__ == "__main__":
    main()
