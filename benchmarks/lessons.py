"""The classifier on real pictures: lessons of folders, unknown classes, how sure it is.

    python benchmarks/lessons.py --weights FILE                       CIFAR-100 as folders of PNGs, ten lessons
    python benchmarks/lessons.py --weights FILE --method l2p

Ten lessons of ten classes each, as files in folders, learned one after another as `promptpool learn` does; then all
test pictures are asked about. "Unknown": taught the first fifty classes, asked about all. Calibration: the expected
error of the confidences before and after, on the test pictures. Needs the CIFAR-100 files (docs/data.md).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from promptpool import ContinualClassifier
from promptpool.classifier import files
from promptpool.classifier.calibration import calibration_error
from promptpool.data.sets import DATASETS
from promptpool.data.stream import Examples

CLASSES, LESSONS = 100, 10


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", default="vit-glyphs")
    parser.add_argument("--method", default="closed-form")
    parser.add_argument("--image-size", type=int, default=112)
    parser.add_argument("--train", type=int, default=25, help="pictures of each class to learn")
    parser.add_argument("--test", type=int, default=20, help="pictures of each class to ask about")
    parser.add_argument("--plot", type=Path, help="where to draw confidence against right answers")
    given = parser.parse_args(arguments)
    train, test, names = DATASETS["cifar100"](train_per_class=given.train, test_per_class=given.test)[:3]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for lesson in range(LESSONS):
            own = range(CLASSES // LESSONS * lesson, CLASSES // LESSONS * (lesson + 1))
            write(folder / f"lesson-{lesson + 1}", train, own, names)
        found = lessons(given.weights, given.method, given.image_size, folder, test, names)
    if given.plot:
        draw(found["reliability"], given.plot)
    print(json.dumps({**vars(given), "plot": str(given.plot)} | found, indent=2))


def write(folder: Path, examples: Examples, classes: Sequence[int], names: Sequence[str]) -> None:
    """Pictures as files, a folder for each class."""
    for label in classes:
        (folder / names[label]).mkdir(parents=True)
        for number, image in enumerate(examples.select(examples.y == label).batch(slice(None)).x):
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / names[label] / f"{number:03}.png")


def lessons(weights: str, method: str, size: int, folder: Path, test: Examples, names: Sequence[str]) -> dict[str, Any]:
    classifier = ContinualClassifier(weights, method=method, image_size=size)
    pictures, found, seconds = test.batch(slice(None)), dict[str, Any](), 0.0
    for lesson in range(LESSONS):
        begin = time.monotonic()
        classifier.learn(folder / f"lesson-{lesson + 1}")
        seconds += time.monotonic() - begin
        if 2 * (lesson + 1) == LESSONS:
            found["unknown"] = strangers(classifier, pictures.x, pictures.y, names)
    begin = time.monotonic()
    answers = classifier.predict(pictures.x)
    asked = time.monotonic() - begin
    right = torch.tensor([answer.guess == names[y] for answer, y in zip(answers, pictures.y.tolist(), strict=True)])
    sure = torch.tensor([answer.confidence for answer in answers])
    plain = plain_confidence(classifier, pictures.x)
    classifier.save(folder / "saved")
    return found | {
        "accuracy": round(100 * float(right.double().mean()), 2),
        "seconds to learn": round(seconds, 1),
        "seconds to ask": round(asked, 1),
        "bytes": (folder / "saved" / files.MODEL).stat().st_size,
        "calibration error": round(100 * calibration_error(sure, right), 2),
        "calibration error before": round(100 * calibration_error(plain, right), 2),
        "reliability": reliability(sure, right),
    }


def plain_confidence(classifier: ContinualClassifier, x: Tensor) -> Tensor:
    """The confidence that scores have without a temperature."""
    shares = classifier.predict_proba(x)
    scores = np.log(np.maximum(shares, 1e-300)) * classifier.known.calibration.temperature
    return torch.softmax(torch.from_numpy(scores), dim=1).max(dim=1).values


def strangers(classifier: ContinualClassifier, x: Tensor, y: Tensor, names: Sequence[str]) -> dict[str, float]:
    """How well known classes are told from others: area under the curve, and the shares that are refused."""
    known = torch.tensor([names[label] in classifier.labels for label in y.tolist()])
    squares = [torch.stack([each.pixels for each in part if each.pixels is not None]) for part in classifier._read(x)]
    asked = [classifier.ask(part) for part in squares]
    far = 1 - torch.from_numpy(classifier.predict_proba(x)).max(dim=1).values
    if asked[0].far is not None:
        far = torch.cat([each.far for each in asked if each.far is not None])
    order = far.argsort().argsort().double()
    count, others = int(known.sum()), int((~known).sum())
    area = (float(order[~known].sum()) - others * (others - 1) / 2) / (count * others)
    limit = far[known].sort().values[int(np.ceil(0.95 * count)) - 1]
    answers = classifier.predict(x)
    refused = torch.tensor([answer.label == "unknown" for answer in answers])
    return {
        "area under the curve": round(area, 4),
        "strangers refused where 95 % of the known are kept": round(
            100 * float((far[~known] > limit).double().mean()), 1
        ),
        "known refused by its own threshold": round(100 * float(refused[known].double().mean()), 1),
        "strangers refused by its own threshold": round(100 * float(refused[~known].double().mean()), 1),
    }


def reliability(sure: Tensor, right: Tensor, bins: int = 10) -> list[tuple[float, float, int]]:
    """Mean confidence, share of right answers and how many there are, in bins of equal width."""
    place = (sure * bins).long().clamp(0, bins - 1)
    return [
        (round(float(sure[here].mean()), 3), round(float(right[here].double().mean()), 3), int(here.sum()))
        for here in (place == number for number in range(bins))
        if here.any()
    ]


def draw(bins: list[tuple[float, float, int]], path: Path) -> None:
    """How often answers are right that are so sure; on the line they are as sure as they should be."""
    figure = Figure(figsize=(4.2, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.7", linestyle="--", linewidth=1)
    axes.plot([sure for sure, _, _ in bins], [right for _, right, _ in bins], marker="o", color="#0072b2")
    for sure, right, count in bins:
        axes.annotate(f"{count:,}", (sure, right), textcoords="offset points", xytext=(6, -10), fontsize=7, color="0.4")
    axes.set(xlabel="confidence", ylabel="share of right answers", xlim=(0, 1.05), ylim=(0, 1.05))
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
