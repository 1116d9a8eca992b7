"""How much a frozen ViT's features say at the [class] row, and at the rows of prompts that were never trained.

    python benchmarks/readout.py
    python benchmarks/readout.py --backbone WEIGHTS --datasets cifar100 5-datasets --run cifar100-l2p

L2P reads its features at the prompt rows. Where those say less than the [class] row, prompts have to win the difference
back before they can gain anything. Nearest class mean measures both without training; the control is a run of L2P
with its head trained and its prompts left as they start.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor

from promptpool.backbones.weights import load_backbone
from promptpool.data.sets import DATASETS
from promptpool.data.stream import Examples
from promptpool.data.views import ImageView
from promptpool.experiments.build import build
from promptpool.experiments.config import load_config
from promptpool.learners.l2p import L2P
from promptpool.metrics import average_accuracy
from promptpool.training import accuracy_matrix, learn


@torch.no_grad()
def features(learner: L2P, part: Examples, *, prompted: bool) -> Tensor:
    """The features of every example, at the [class] row or at the prompt rows: [n, D]."""
    rows = [
        learner.prompted(batch, learner.inputs(batch))[0] if prompted else learner.frozen(batch)
        for batch in part.batches(256)
    ]
    return F.normalize(torch.cat(rows), dim=-1)


def nearest_mean(train: Tensor, train_y: Tensor, test: Tensor, test_y: Tensor) -> float:
    classes = int(train_y.max()) + 1
    sums = torch.zeros(classes, train.shape[1]).index_add(0, train_y, train)
    return float((test @ F.normalize(sums, dim=-1).T).argmax(dim=1).eq(test_y).float().mean())


def head_on_untrained_prompts(run: str, backbone: str) -> float:
    """The average accuracy of `promptpool run RUN` when prompts and keys do not learn."""
    built = build(load_config(run, [f"backbone.name={backbone}"]))
    built.learner.get_submodule("pool").requires_grad_(False)
    return average_accuracy(accuracy_matrix(list(learn(built.learner, built.stream, built.plan))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["glyphs-validation", "glyphs100", "glyph-five"])
    parser.add_argument("--backbone", default="vit-glyphs")
    parser.add_argument("--run", default="glyphs100-l2p", help="the L2P whose prompts are left as they start")
    options = parser.parse_args()
    backbone = load_backbone(options.backbone)
    view = ImageView(backbone.image_size, values=backbone.values or "unit")
    print("nearest class mean, 20 images per class, %")
    print(f"{'data set':20}{'[class] row':>14}{'5 untrained prompts':>22}{'25 untrained prompts':>22}")
    for name in options.datasets:
        train, test, *_ = DATASETS[name](train_per_class=20, test_per_class=20)
        cells = []
        for length, prompted in ((1, False), (1, True), (5, True)):
            learner = L2P(backbone, view, prompt_length=length).eval()
            train_rows = features(learner, train, prompted=prompted)
            test_rows = features(learner, test, prompted=prompted)
            cells.append(100 * nearest_mean(train_rows, train.y, test_rows, test.y))
        print(f"{name:20}{cells[0]:14.1f}{cells[1]:22.1f}{cells[2]:22.1f}")
    control = head_on_untrained_prompts(options.run, options.backbone)
    print(f"{options.run}, head on untrained prompts: {100 * control:.1f}")


if __name__ == "__main__":
    main()
