"""The closed form's values on validation images, and what it costs.

    python benchmarks/closed_form.py                                                        drawn characters
    python benchmarks/closed_form.py --dataset cifar100 --weights FILE --image-size 112     held-out training images
    python benchmarks/closed_form.py --cost                                                 time and memory

All classes are learned at once: no order changes anything.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from torch import Tensor

from promptpool.backbones.base import Readout
from promptpool.backbones.features import FrozenFeatures
from promptpool.backbones.weights import load_backbone
from promptpool.data.sets import DATASETS
from promptpool.data.stream import Examples
from promptpool.data.views import ImageView
from promptpool.learners.sums import Classifier, Gaussian, Ridge, Sums, spread

SHRINKAGES = (0.01, 0.03, 0.1, 0.3, 0.5)
PROJECTIONS = 2000
HELD_OUT = 20


def read(store: FrozenFeatures, examples: Examples) -> Tensor:
    store.expect(examples)
    rows = torch.cat([store(batch) for batch in examples.batches(128)])
    store.keep()
    return rows.half().double()


def scores(classifier: Classifier, sums: Sums, rows: Tensor) -> Tensor:
    return (rows @ classifier.weight.T + classifier.bias) / (spread(classifier, sums) or 1.0)


def summed(rows: Tensor, labels: Tensor) -> Sums:
    sums = Sums(rows.shape[1])
    sums.grow(int(labels.max()) + 1)
    sums.add(rows, labels)
    return sums


def compare(dataset: str, weights: str, image_size: int | None, images: list[int], blocks: list[int]) -> None:
    backbone = load_backbone(weights, image_size=image_size).eval()
    view = ImageView(backbone.image_size, values=backbone.values or "unit")
    apart = {"held_out": HELD_OUT} if dataset == "cifar100" else {"test_per_class": HELD_OUT}
    for block in blocks:
        directions = torch.Generator().manual_seed(0)
        store = FrozenFeatures(backbone, view, Readout(block, "both"))
        store.share(Path("runs/closed-form/features"))
        projection = torch.randn(store.width, PROJECTIONS, generator=directions, dtype=torch.float64)
        for count in images:
            train, test, *_ = DATASETS[dataset](train_per_class=count, **apart)
            x, held = read(store, train), read(store, test)
            h, held_h = (x @ projection).relu(), (held @ projection).relu()
            sums, projected = summed(x, train.y), summed(h, train.y)
            ridge = Ridge(projected)
            cells = {"ridge": scores(ridge, projected, held_h)}
            for value in (None, *SHRINKAGES):
                gaussian = Gaussian(sums, value)
                cells[f"gaussian {'usual' if value is None else value}"] = scores(gaussian, sums, held)
            cells["both"] = cells["ridge"] + cells["gaussian usual"]
            shown = {
                name: 100 * float((found.argmax(dim=1) == test.y).double().mean()) for name, found in cells.items()
            }
            print(f"{dataset}, blocks {block}, {count} per class: ", end="")
            print(", ".join(f"{name} {value:.1f}" for name, value in shown.items()), flush=True)


def cost() -> None:
    print("| dimensions | sums | adding 1,000 examples | solving for 100 classes |\n|---:|---:|---:|---:|")
    for width in (400, 1_500, 10_000):
        rows, labels = torch.randn(1000, width, dtype=torch.float64), torch.arange(1000) % 100
        begin = time.perf_counter()
        sums = summed(rows, labels)
        added = time.perf_counter() - begin
        begin = time.perf_counter()
        Gaussian(sums)
        solved = time.perf_counter() - begin
        print(f"| {width:,} | {8 * width**2 / 1e6:.0f} MB | {added:.2f} s | {solved:.2f} s |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=("glyphs-validation", "cifar100"), default="glyphs-validation")
    parser.add_argument("--weights", default="vit-glyphs")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--images", type=int, nargs="+", default=[5, 20, 50])
    parser.add_argument("--blocks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--cost", action="store_true")
    given = parser.parse_args()
    if given.cost:
        cost()
    else:
        compare(given.dataset, given.weights, given.image_size, given.images, given.blocks)


if __name__ == "__main__":
    main()
