"""The closed form's values on validation images, and what it costs.

    python benchmarks/closed_form.py                                                        drawn characters
    python benchmarks/closed_form.py --dataset cifar100 --weights FILE --image-size 112     held-out training images
    python benchmarks/closed_form.py --cost                                                 time and memory

All classes are learned at once: no order changes anything.
"""

from __future__ import annotations

import argparse
import csv
import io
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from promptpool.backbones.base import Readout
from promptpool.backbones.features import FrozenFeatures
from promptpool.backbones.weights import load_backbone
from promptpool.data.sets import DATASETS
from promptpool.data.stream import Examples
from promptpool.data.views import ImageView
from promptpool.files import write_whole
from promptpool.learners.sums import Classifier, Gaussian, Ridge, Sums, spread

SHRINKAGES = (0.01, 0.03, 0.1, 0.3, 0.5)
PROJECTIONS = 2000
HEADER = ["data", "weights", "images per class", "blocks", "head", "accuracy"]
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


def compare(
    dataset: str, weights: str, image_size: int | None, images: list[int], blocks: list[int]
) -> Iterator[list[str]]:
    """Lines of accuracies by head; of all blocks that are read, those of fewer are the last columns."""
    backbone = load_backbone(weights, image_size=image_size).eval()
    view = ImageView(backbone.image_size, values=backbone.values or "unit")
    apart = {"held_out": HELD_OUT} if dataset == "cifar100" else {"test_per_class": HELD_OUT}
    store = FrozenFeatures(backbone, view, Readout(max(blocks), "both"))
    store.share(Path("runs/closed-form/features"))
    for count in images:
        train, test, *_ = DATASETS[dataset](train_per_class=count, **apart)
        learned, asked = read(store, train), read(store, test)
        for block in blocks:
            width = 2 * block * backbone.dim
            x, held = learned[:, -width:], asked[:, -width:]
            directions = torch.Generator().manual_seed(0)
            projection = torch.randn(width, PROJECTIONS, generator=directions, dtype=torch.float64)
            h, held_h = (x @ projection).relu(), (held @ projection).relu()
            sums, projected = summed(x, train.y), summed(h, train.y)
            ridge = Ridge(projected)
            cells = {"ridge": scores(ridge, projected, held_h)}
            for value in (None, *SHRINKAGES):
                gaussian = Gaussian(sums, value)
                cells[f"gaussian {'usual' if value is None else value}"] = scores(gaussian, sums, held)
            cells["both"] = cells["ridge"] + cells["gaussian usual"]
            for name, found in cells.items():
                right = 100 * float((found.argmax(dim=1) == test.y).double().mean())
                yield [dataset, Path(weights).name, str(count), str(block), name, f"{right:.1f}"]


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
    parser.add_argument("--out", type=Path, help="a CSV file for the lines; those of other weights in it stay")
    given = parser.parse_args()
    if given.cost:
        cost()
        return
    lines = []
    for line in compare(given.dataset, given.weights, given.image_size, given.images, given.blocks):
        print("  ".join(line), flush=True)
        lines.append(line)
    if given.out:
        before = list(csv.reader(given.out.read_text().splitlines()))[1:] if given.out.exists() else []
        text = io.StringIO()
        kept = [line for line in before if line[:2] != lines[0][:2]]
        csv.writer(text, lineterminator="\n").writerows([HEADER, *kept, *lines])
        write_whole(given.out, text.getvalue().encode())


if __name__ == "__main__":
    main()
