"""What a review is worth: labels it asks for, new pictures it finds and groups, wrong labels it names.

    python benchmarks/review.py                                                        drawn characters
    python benchmarks/review.py --dataset cifar100 --weights FILE --image-size 112     photographs

Forty classes, of which twenty are known, drawn anew with each of four seeds; all numbers are means over the seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from promptpool.backbones.base import FeatureExtractor
from promptpool.backbones.weights import load_backbone
from promptpool.classifier.calibration import Calibration, calibrated
from promptpool.classifier.review import groups, margins, reach, to_label, wrong_labels
from promptpool.data.sets import DATASETS
from promptpool.data.stream import Examples, examples
from promptpool.data.views import ImageView
from promptpool.learners.closed_form import ClosedForm

CLASSES, KNOWN, IMAGES, SEEDS = 40, 20, 50, 4
LEARNED, POOL, ASKED = 5, 20, 40  # images per class to learn, the end of those to choose from, labels to ask for
BRIGHTER = (1.0, 1.03, 1.06)  # an image and its near-copies
WRONG = 0.08  # the share of labels that are made wrong


class Taught(NamedTuple):
    learner: ClosedForm
    calibration: Calibration


class Pictures(NamedTuple):
    """Features of images, by class and number."""

    backbone: FeatureExtractor
    view: ImageView
    rows: Tensor  # [class, image, d]
    copies: Tensor  # [brightness, class, image, d], of those to choose from


def read(dataset: str, weights: str, image_size: int | None) -> Pictures:
    backbone = load_backbone(weights, image_size=image_size).eval()
    view = ImageView(backbone.image_size, values=backbone.values or "unit")
    train, *_ = DATASETS[dataset](train_per_class=IMAGES, test_per_class=1)
    images = torch.stack([train.select(train.y == label).batch(slice(None)).x for label in range(CLASSES)])
    brighter = torch.stack([images[:, LEARNED:POOL] * by for by in BRIGHTER]).clamp(0, 255).byte()
    learner = ClosedForm(backbone, view)
    learner.frozen.share(Path("runs/review/features"))

    def rows(some: Tensor) -> Tensor:
        every: Examples = examples(some.flatten(0, -4), torch.zeros(some.shape[:-3].numel(), dtype=torch.long))
        learner.expect(every)
        found: Tensor = torch.cat([learner.read(batch) for batch in every.batches(128)])
        learner.frozen.keep()
        return found.reshape(*some.shape[:-3], -1)

    return Pictures(backbone, view, rows(images), rows(brighter))


def taught(pictures: Pictures, rows: Tensor, labels: Tensor) -> Taught:
    learner = ClosedForm(pictures.backbone, pictures.view, keep="features")
    learner.add_rows(rows, labels, torch.arange(len(rows)))
    scores, distances = learner.leave_one_out(rows, labels), learner.distance(rows, labels)
    return Taught(learner, calibrated(scores, labels, distances))


def numbered(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [class, image, d] as [n, d], with their classes."""
    return rows.flatten(0, 1), torch.arange(len(rows)).repeat_interleave(rows.shape[1])


def right(found: Taught, rows: Tensor, labels: Tensor) -> float:
    return float((found.learner.score(rows).argmax(dim=1) == labels).double().mean())


def labelling(pictures: Pictures, known: Tensor, dice: torch.Generator, copies: int) -> dict[str, float]:
    """Accuracy once `ASKED` labels were given to pictures that were chosen in one way or another."""
    rows, labels = numbered(pictures.rows[known, :LEARNED])
    tests = numbered(pictures.rows[known, POOL:])
    pool = torch.cat([numbered(part[known])[0] for part in pictures.copies[:copies]])
    truth = numbered(pictures.copies[0, known])[1].repeat(copies)
    before = taught(pictures, rows, labels)
    doubt = 1 - margins(before.calibration.probabilities(before.learner.score(pool)))
    chosen = {
        "at random": torch.randperm(len(pool), generator=dice)[:ASKED].tolist(),
        "by doubt alone": to_label(doubt, None, None, ASKED),
        "as review does": to_label(doubt, pool, reach(rows, labels), ASKED),
    }
    after = {
        name: taught(pictures, torch.cat([rows, pool[places]]), torch.cat([labels, truth[places]]))
        for name, places in chosen.items()
    }
    found = {"before": right(before, *tests)} | {name: right(each, *tests) for name, each in after.items()}
    return {f"{name}, right": share for name, share in found.items()}


def novelty(pictures: Pictures, known: Tensor) -> dict[str, float]:
    """Which pictures are said to look new, and whether groups of them are classes."""
    rows, labels = numbered(pictures.rows[known, :POOL])
    pool, truth = numbered(pictures.rows[:, POOL:])
    found, new = taught(pictures, rows, labels), ~torch.isin(truth, known)
    farthest, r = found.calibration.farthest, reach(rows, labels)
    assert farthest is not None  # noqa: S101
    assert r is not None  # noqa: S101
    far = found.learner.distance(pool) > farthest
    group = torch.zeros(int(far.sum()), dtype=torch.long)
    for number, members in enumerate(groups(pool[far], r)):
        group[members] = number
    alike, same = (each[:, None] == each[None] for each in (group, truth[far]))
    others = ~torch.eye(len(group), dtype=torch.bool)
    return {
        "said to look new, and are": float(new[far].double().mean()),
        "are new, and said to be": float(far[new].double().mean()),
        "in one group, and of one class": float(same[alike & others].double().mean()),
        "of one class, and in one group": float(alike[same & others].double().mean()),
    }


def mislabelled(pictures: Pictures, known: Tensor, dice: torch.Generator) -> dict[str, float]:
    """Wrong labels among those that were learned."""
    rows, truth = numbered(pictures.rows[known])
    wrong = torch.rand(len(truth), generator=dice) < WRONG
    labels = torch.where(wrong, (truth + torch.randint(1, KNOWN, truth.shape, generator=dice)) % KNOWN, truth)
    found = taught(pictures, rows, labels)
    shares = found.calibration.probabilities(found.learner.leave_one_out(rows, labels))
    named = [place for place, _ in wrong_labels(shares, labels)]
    plain = shares.argmax(dim=1) != labels
    return {
        "labels named, and wrong": float(wrong[named].double().mean()),
        "first twenty named, and wrong": float(wrong[named[:20]].double().mean()),
        "wrong, and named": float(torch.isin(wrong.nonzero(), torch.tensor(named)).double().mean()),
        "another answer than the label, and wrong": float(wrong[plain].double().mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=("glyphs100", "cifar100"), default="glyphs100")
    parser.add_argument("--weights", default="vit-glyphs")
    parser.add_argument("--image-size", type=int)
    given = parser.parse_args()
    pictures = read(given.dataset, given.weights, given.image_size)
    found: dict[str, list[float]] = {}
    for seed in range(SEEDS):
        dice = torch.Generator().manual_seed(seed)
        known = torch.randperm(CLASSES, generator=dice)[:KNOWN]
        values = {f"{ASKED} labels: {name}": v for name, v in labelling(pictures, known, dice, 1).items()}
        near = labelling(pictures, known, dice, len(BRIGHTER))
        values |= {f"{ASKED} labels among near-copies: {name}": value for name, value in near.items()}
        for name, value in (values | novelty(pictures, known) | mislabelled(pictures, known, dice)).items():
            found.setdefault(name, []).append(value)
    for name, shares in found.items():
        print(f"{name:60}{100 * sum(shares) / len(shares):6.1f} %")


if __name__ == "__main__":
    main()
