"""The most memory that each method takes with ViT-B/16 at 224 pixels on a CPU, each in a process of its own.

    python benchmarks/memory.py                    every method that learns on ViT-B/16
    python benchmarks/memory.py ewc --batch 4

Two tasks of random images with fresh weights: what is measured is bytes, not learning.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

from promptpool.backbones.vit import ViT
from promptpool.data.scenarios import class_incremental
from promptpool.data.stream import examples
from promptpool.data.views import ImageView
from promptpool.learners import LEARNERS
from promptpool.training.checkpoint import learn
from promptpool.training.loop import Plan

CLASSES, PER_CLASS, KEPT = 4, 8, 16


def peak(method: str, batch: int) -> float:
    """Gigabytes of this process at its largest, once a method has learned two tasks."""
    raw = torch.randint(0, 256, (CLASSES * PER_CLASS, 3, 32, 32), dtype=torch.uint8)
    images = examples(raw, torch.arange(len(raw)) % CLASSES)
    stream = class_incremental(images, images, [str(label) for label in range(CLASSES)], tasks=2)
    backbone = ViT().start(torch.Generator().manual_seed(0)).eval()
    keeps = {"capacity": KEPT} if method in ("er", "der++", "bic", "gdumb", "co2l", "l2p-r") else {}
    learner = LEARNERS[method](backbone, ImageView(backbone.image_size), **keeps)
    del backbone  # a method that trains has a copy of its own
    for _ in learn(learner, stream, Plan(epochs=1, batch_size=batch, learning_rate=1e-4, test_batch_size=batch)):
        pass
    units = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * units / 1e9


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    on_vit = [name for name in LEARNERS if name != "dualnet"]  # which needs a ResNet
    parser.add_argument("methods", nargs="*", choices=[*on_vit, []], default=on_vit)
    parser.add_argument("--batch", type=int, default=16)
    given = parser.parse_args(arguments)
    print(f"ViT-B/16 at 224 pixels, float32, Adam, batches of {given.batch}, {torch.get_num_threads()} threads")
    for method in given.methods:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            print(f"{method:16}{alone.submit(peak, method, given.batch).result():6.1f} GB", flush=True)


if __name__ == "__main__":
    main()
