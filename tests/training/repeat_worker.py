"""Runs learners twice, and once more stopped in the middle of an epoch, on several threads.

    python repeat_worker.py THREADS FOLDER LEARNER...

Each must end with the same bytes. Batches are large enough for torch to share them out: a batch of L2P has 32 images
with 25 prompt tokens of 64 numbers, 51,200 in all. Prints the names of those that do not repeat.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from promptpool.backbones.resnet import resnet18
from promptpool.learners.state import state
from promptpool.training.checkpoint import load_checkpoint, save_checkpoint
from promptpool.training.loop import Plan, Session
from toys import METHODS, ON_RESNET, VALUES, tensors, toy_backbone, toy_stream, toy_view

PLAN = Plan(epochs=2, batch_size=32, learning_rate=0.01, test_batch_size=50)


def session(name: str) -> Session:
    backbone = resnet18(width=16, image_size=8).eval() if name in ON_RESNET else toy_backbone(dim=64)
    values: dict[str, Any] = VALUES.get(name, {})
    learner = METHODS[name](backbone, toy_view(name), **values)
    return Session(learner, toy_stream(tasks=2, per_class=16), replace(PLAN))


def ended(running: Session) -> str:
    """A hash of all that a session ends with: records and state."""
    for _ in running:
        pass
    digest = hashlib.sha256("\n".join(record.to_json() for record in running.records).encode())
    for value in tensors(state(running.learner)):
        digest.update(value.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def stopped(name: str, checkpoint: Path) -> Session:
    """A session that goes on from the middle of the second experience's last epoch."""
    first = session(name)
    middle = first.steps - 1
    for step in first:
        if step.step >= middle:
            break
    save_checkpoint(checkpoint, first)
    second = session(name)
    load_checkpoint(checkpoint, second)
    return second


def repeats(name: str, folder: Path) -> bool:
    return len({ended(session(name)), ended(session(name)), ended(stopped(name, folder / f"{name}.checkpoint"))}) == 1


def main() -> None:
    threads, folder, names = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    torch.set_num_threads(threads)
    print(" ".join(name for name in names if not repeats(name, folder)))  # noqa: T201


if __name__ == "__main__":
    main()
