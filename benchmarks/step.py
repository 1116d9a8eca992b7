"""What a step of L2P costs here beside the textbook version, measured in turn on the same machine.

    make bench

The textbook runs the whole frozen model twice for every image, once for the query and once with prompts, and computes
all rows of the last block. Ours reads the query after the first epoch and cuts the last block to the rows it needs. The
results are the same; a ratio above 1 says how many times faster ours is.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from promptpool.backbones.vit import ViT
from promptpool.data.stream import Batch, examples
from promptpool.data.views import ImageView
from promptpool.learners.l2p import L2P
from promptpool.losses import only
from promptpool.optim import Descent

SIZES: dict[str, dict[str, Any]] = {
    "mini": {"image_size": 32, "patch_size": 8, "dim": 192, "depth": 6, "heads": 3},
    "tiny": {"image_size": 224, "patch_size": 16, "dim": 192, "depth": 12, "heads": 3},
    "base": {"image_size": 224, "patch_size": 16, "dim": 768, "depth": 12, "heads": 12},
}


def textbook_step(learner: L2P, batch: Batch, descend: Descent) -> Tensor:
    """Eq. 5 with two whole passes."""
    logits, distance = textbook_logits(learner, batch.x)
    loss = F.cross_entropy(only(logits, torch.tensor(learner.current)), batch.y)
    return descend(loss + learner.pull * distance.mean())


def textbook_logits(learner: L2P, x: Tensor) -> tuple[Tensor, Tensor]:
    inputs = learner.view.plain(x)
    with torch.no_grad():
        query = learner.backbone.encode(learner.backbone.embed(inputs))[:, 0]
    chosen = learner.pool(query)
    tokens = torch.cat([chosen.prompts, learner.backbone.embed(inputs)], dim=1)
    features = learner.backbone.encode(tokens)[:, : chosen.prompts.shape[1]].mean(dim=1)
    return learner.head(features), chosen.distance


def timed(first: Callable[[], object], second: Callable[[], object], rounds: int) -> tuple[float, float]:
    """The median seconds of two things done in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 1):
        for work, seconds in zip((first, second), times, strict=True):
            begin = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - begin)
    return statistics.median(times[0][1:]), statistics.median(times[1][1:])


def report(size: str, what: str, seconds: tuple[float, float]) -> None:
    before, after = seconds
    print(f"{size:8}{what:12}{1000 * before:9.1f} ms{1000 * after:9.1f} ms{before / after:8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=["mini", "tiny"])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(f"batch {options.batch}, {torch.get_num_threads()} threads, median of {options.rounds}")
    print(f"{'ViT':8}{'what':12}{'textbook':>12}{'ours':>12}{'ratio':>8}")
    for size in options.sizes:
        sizes = SIZES[size]
        backbone = ViT(**sizes).start(torch.Generator().manual_seed(0)).eval()
        learner = L2P(backbone, ImageView(sizes["image_size"]))
        learner.add_classes(range(10))
        raw = torch.randint(0, 256, (options.batch, 3, 32, 32), dtype=torch.uint8)
        batch = examples(raw, torch.arange(options.batch) % 10).batch(slice(None))
        descend = Descent([p for p in learner.parameters() if p.requires_grad])
        learner.train()
        report(
            size,
            "training",
            timed(
                partial(textbook_step, learner, batch, descend), partial(learner.step, batch, descend), options.rounds
            ),
        )
        learner.eval()
        with torch.no_grad():
            report(
                size,
                "evaluation",
                timed(partial(textbook_logits, learner, batch.x), partial(learner.logits, batch), options.rounds),
            )


if __name__ == "__main__":
    main()
