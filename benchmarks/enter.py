"""Prompts that enter at a later block: accuracy and seconds by block.

    python benchmarks/enter.py                                       drawn characters, the shipped ViT
    python benchmarks/enter.py --benchmark glyphs100 --seeds 0 1 2
    python benchmarks/enter.py --benchmark cifar100 --weights FILE   the first tasks, judged on held-out training images
    python benchmarks/enter.py learner.start_from=scaled             with other values than the method's

Each line is one L2P. `seconds` are those of training and evaluation, queries and tokens computed anew for each line;
`step` is the median step of later epochs in milliseconds, with queries at hand and tokens as far as memory goes. Lines
that stand in the file `--out` already are not run again. Times count only where nothing else runs; if others took more
than a tenth of the processors meanwhile, the last line says so.
"""

from __future__ import annotations

import argparse
import csv
import io
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median

from idle import MOST, Meanwhile

from promptpool.backbones.vit import ViT
from promptpool.experiments.build import Built, SharedCache, build
from promptpool.experiments.config import load_config
from promptpool.experiments.runner import device
from promptpool.files import write_whole
from promptpool.training.loop import Session
from promptpool.training.record import Record

HEADER = ["benchmark", "weights", "values", "tasks", "images", "precision", "seed", "enter"]
FOUND = ["average accuracy", "seconds", "step"]
LINES = 6  # blocks that are tried unless they are named, evenly over the depth


def measured(built: Built, tasks: int | None) -> list[str]:
    """The average accuracy after the first tasks in per cent, the seconds until then, the milliseconds of a step."""
    session = Session(built.learner.to(device()), built.stream, built.plan)
    last, steps, record = tasks or len(built.stream.experiences), list[float](), None
    begin = before = time.perf_counter()
    for step in session:
        now = time.perf_counter()
        if step.epoch > 0 and step.record is None:
            steps.append(now - before)
        before, record = now, step.record or record
        if step.record is not None and step.experience + 1 == last:
            break
    pace = f"{1000 * median(steps):.1f}" if steps else "-"
    return [f"{100 * average(record):.1f}", f"{time.perf_counter() - begin:.1f}", pace]


def average(record: Record | None) -> float:
    """The mean accuracy over the test sets that were seen."""
    return fmean(share for share in record.accuracy if share is not None) if record else 0.0


def configured(given: argparse.Namespace, seed: int) -> list[str]:
    """The values of a line beside the block."""
    values = [f"seed={seed}", f"backbone.precision={given.precision}", *given.values]
    if given.weights is not None:
        values += [f"backbone.name={given.weights}", f"backbone.image_size={given.image_size}"]
    if given.images is not None:
        values.append(f"dataset.train_per_class={given.images}")
    if given.benchmark == "cifar100":
        values += ["dataset.test_per_class=none", "dataset.held_out=20"]
    return values


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("values", nargs="*", help="table.key=value, as `promptpool run` takes them")
    parser.add_argument("--benchmark", default="glyphs-validation")
    parser.add_argument("--weights", help="of another backbone than the benchmark's, which cifar100 needs")
    parser.add_argument("--image-size", type=int, default=112, help="with --weights")
    parser.add_argument("--enter", type=int, nargs="+", help=f"blocks; {LINES} of them over the depth unless given")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--tasks", type=int, help="the first ones alone; 3 for cifar100 unless given")
    parser.add_argument("--images", type=int, help="training images per class; 25 for cifar100 unless given")
    parser.add_argument("--precision", default="single", help="of the transformer's products")
    parser.add_argument("--out", type=Path, default=Path("runs/enter/lines.csv"))
    given = parser.parse_args(arguments)
    if given.benchmark == "cifar100":
        if given.weights is None:
            parser.error("cifar100 needs --weights, a file of a pre-trained ViT")
        given.tasks, given.images = given.tasks or 3, given.images or 25
    scale = "small" if given.benchmark == "cifar100" else None
    cache, meanwhile = SharedCache(), Meanwhile()
    for seed in given.seeds:
        values = configured(given, seed)
        blocks = given.enter
        if blocks is None:
            backbone = build(load_config(f"{given.benchmark}-l2p", values, scale=scale), cache).learner.backbone
            depth = backbone.depth if isinstance(backbone, ViT) else 1
            blocks = range(0, depth, max(depth // LINES, 1))
        for enter in blocks:
            cells = [given.benchmark, Path(given.weights or "").name, " ".join(given.values), given.tasks, given.images]
            key = [str(cell or "") for cell in cells] + [given.precision, str(seed), str(enter)]
            found = next((row for row in read(given.out) if row[: len(key)] == key), None)
            if found is None:
                cache.features.clear()
                config = load_config(f"{given.benchmark}-l2p", [*values, f"learner.enter={enter}"], scale=scale)
                found = [*key, *measured(build(config, cache), given.tasks)]
                text = io.StringIO()
                csv.writer(text, lineterminator="\n").writerows([*read(given.out), found])
                write_whole(given.out, text.getvalue().encode())
            print("  ".join(filter(None, found)), flush=True)
    if meanwhile.share() > MOST:
        print(f"times do not count: other processes took {meanwhile.share():.0%} of the processors meanwhile")


def read(path: Path) -> list[list[str]]:
    """The lines that are there."""
    return list(csv.reader(path.read_text(encoding="utf-8").splitlines())) if path.exists() else [HEADER + FOUND]


if __name__ == "__main__":
    main()
