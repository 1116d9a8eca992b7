"""A stream of your own arrays, four methods, one table: about ten seconds, no downloads.

    python examples/quickstart.py

The images are ten noisy colour patterns in five tasks, and the frozen transformer has random weights: enough to see
who forgets, not a measure of any method. Replace `patterns()` by your arrays and `backbone()` by
`load_backbone("ViT-B_16.npz")` for the real thing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from promptpool.backbones.vit import ViT
from promptpool.data.scenarios import from_arrays
from promptpool.data.views import View
from promptpool.learners import LEARNERS
from promptpool.metrics import average_accuracy, forgetting
from promptpool.training.checkpoint import learn
from promptpool.training.loop import Plan
from promptpool.training.record import accuracy_matrix

Arrays = tuple[npt.NDArray[np.uint8], list[str]]


def patterns(per_class: int, seed: int) -> list[Arrays]:
    """Five tasks of two classes: 8x8 images and their names."""
    dice = np.random.default_rng(seed)
    means = np.random.default_rng(7).integers(0, 256, (10, 8, 8, 3))
    images = np.clip(np.repeat(means, per_class, 0) + dice.normal(0, 40, (10 * per_class, 8, 8, 3)), 0, 255)
    labels = np.repeat([f"pattern {c}" for c in range(10)], per_class)
    tasks = zip(np.split(images.astype(np.uint8), 5), np.split(labels, 5), strict=True)
    return [(x, y.tolist()) for x, y in tasks]


def backbone() -> ViT:
    """A ViT with random weights, large enough for features to differ."""
    vit = ViT(image_size=8, patch_size=4, dim=64, depth=2, heads=2).start(torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in vit.parameters():
            parameter.mul_(8 if parameter.ndim > 1 else 1)
    return vit


def main() -> None:
    torch.set_num_threads(1)  # the model is too small to share out
    stream = from_arrays(patterns(60, seed=1), patterns(20, seed=2))
    print(f"{'method':16}accuracy after each task{'':13}average  forgetting")
    for name, rate in {"ft-seq": 0.001, "ft-seq-frozen": 0.01, "l2p": 0.01, "nearest-mean": 0.01}.items():
        learner = LEARNERS[name](backbone(), View(8))
        plan = Plan(epochs=5, batch_size=16, learning_rate=rate)
        records = []
        print(f"{name:16}", end="", flush=True)
        for record in learn(learner, stream, plan):
            records.append(record)
            known = [share for share in record.accuracy if share is not None]
            print(f"{100 * sum(known) / len(known):7.1f}", end="", flush=True)
        matrix = accuracy_matrix(records)
        print(f"{100 * average_accuracy(matrix):10.1f}{100 * forgetting(matrix):12.1f}")


if __name__ == "__main__":
    main()
