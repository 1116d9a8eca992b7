"""The closed form beside every method that keeps no old data, on the same images of seven streams.

    python benchmarks/recommended.py                                          on drawn characters
    python benchmarks/recommended.py --dinov2 FILE --vit-tiny FILE            and on photographs
    python benchmarks/recommended.py closed-form ranpac --streams glyphs100   some of it

Every stream has at least 50 test images of each class, and each method its usual values. A seed decides the order of
classes, the training images and all random numbers. Methods are compared image by image: the difference to the closed
form has the standard error of paired answers, over all images of all seeds. Finished runs are kept, and a run that was
stopped goes on.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from promptpool.data.stream import Stream
from promptpool.experiments.build import SharedCache, build
from promptpool.experiments.config import Config, ConfigError, load_config
from promptpool.experiments.identity import run_folder
from promptpool.experiments.runner import BusyError, go_on, is_finished
from promptpool.files import locked, write_whole
from promptpool.learners.base import Learner
from promptpool.metrics import average_accuracy
from promptpool.report.names import method_name
from promptpool.training.evaluation import predict
from promptpool.training.run_folder import read_run

RECOMMENDED = "closed-form"
METHODS = (
    *(RECOMMENDED, "closed-form-prompts", "nearest-mean", "ranpac", "masked-linear", "ft-seq-frozen"),
    *("l2p", "one-prompt", "lwf", "ewc", "ft-seq"),
)
ANSWERS = "answers.json"  # in a run's folder: 1 for each test image of the last record that is right


class Case(NamedTuple):
    """A stream: a benchmark at a scale, other values, and which weights it is seen with."""

    benchmark: str
    scale: str
    values: tuple[str, ...] = ()
    weights: str = ""


TEST = ("dataset.test_per_class=50",)
STREAMS = {
    "glyphs100": Case("glyphs100", "mini", TEST),
    "glyph-five": Case("glyph-five", "mini", TEST),
    "glyph-styles": Case("glyph-styles", "mini", ("dataset.test_per_class=20",)),  # in each of three styles
    "glyphs100-gaussian": Case("glyphs100-gaussian", "mini", TEST),
    "cifar100, ViT-Ti": Case("cifar100", "small", TEST, "vit_tiny"),
    "cifar100, DINOv2-S": Case("cifar100", "small", TEST, "dinov2"),
    "5-datasets, DINOv2-S": Case("5-datasets", "small", TEST, "dinov2"),
}


def configuration(case: Case, method: str, seed: int, weights: str | None) -> Config:
    name = f"{case.benchmark}-{method}"
    scenario = load_config(name, scale=case.scale)["scenario"]
    given = [*case.values, f"seed={seed}", f"dataset.seed={seed}"]
    given += [f"scenario.seed={seed}"] if "seed" in scenario else []
    given += [f"backbone.name={weights}"] if weights else []
    return load_config(name, given, scale=case.scale)


def answers(learner: Learner, stream: Stream) -> list[int]:
    """1 for each test image that is right, 0 for the others."""
    right = [predict(learner, batch) == batch.y for test in stream.tests for batch in test.batches(128)]
    return torch.cat(right).int().tolist()


def finish(config: Config, folder: Path, cache: SharedCache) -> list[int]:
    """Take a run to its end; returns its answers to the last test."""
    if not (is_finished(folder, config) and (folder / ANSWERS).exists()):
        if is_finished(folder, config):  # it was stopped before it had answered, unless another process is at that
            try:
                with locked(folder / ".lock"):
                    shutil.rmtree(folder)
            except BlockingIOError as error:
                raise BusyError(str(folder)) from error
        built = build(config, cache)
        for step in go_on(built, folder):
            if step.step == step.steps:
                write_whole(folder / ANSWERS, json.dumps(answers(built.learner, built.stream)).encode())
    found: list[int] = json.loads((folder / ANSWERS).read_text())
    return found


def paired(one: Sequence[int], other: Sequence[int]) -> tuple[float, float]:
    """The difference of two shares of right answers to the same questions, and its standard error, in points."""
    apart = torch.tensor(one, dtype=torch.float64) - torch.tensor(other, dtype=torch.float64)
    return 100 * float(apart.mean()), 100 * float(apart.std()) / math.sqrt(len(apart))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=list(METHODS))
    parser.add_argument("--streams", nargs="+", choices=STREAMS, default=list(STREAMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--dinov2", help="weights of DINOv2 ViT-S/14")
    parser.add_argument("--vit-tiny", help="weights of ViT-Ti/16")
    parser.add_argument("--runs", type=Path, default=Path("runs/recommended"))
    given = parser.parse_args(arguments)
    table = [["stream", "method", "seeds", "average accuracy", "deviation", "behind", "error", "seconds"]]
    for name in given.streams:
        case = STREAMS[name]
        weights = getattr(given, case.weights) if case.weights else None
        if case.weights and not weights:
            continue
        cache, best = SharedCache(given.runs / "features"), dict[int, list[int]]()
        for method in given.methods:
            accuracies, seconds, right = list[float](), 0.0, dict[int, list[int]]()
            for seed in range(given.seeds):
                config = configuration(case, method, seed, weights)
                folder = run_folder(given.runs, f"{name.replace(', ', '-')}-{method}", config)
                try:
                    right[seed] = finish(config, folder, cache)
                except BusyError:
                    continue  # another process has it
                except ConfigError as error:
                    print(f"{name}: {method}: {error}")
                    break
                found = read_run(folder)
                accuracies.append(100 * average_accuracy(found.accuracy))
                seconds += sum(found.seconds)
            if not accuracies:
                continue
            if method == RECOMMENDED:
                best = right
            mean = sum(accuracies) / len(accuracies)
            deviation = math.sqrt(sum((each - mean) ** 2 for each in accuracies) / max(len(accuracies) - 1, 1))
            both = best.keys() & right.keys()
            pairs = ([each for seed in sorted(both) for each in found[seed]] for found in (best, right))
            behind = paired(*pairs) if both else (math.nan, math.nan)
            cells = [f"{value:.2f}" for value in (mean, deviation, *behind)]
            table.append([name, method_name(method), str(len(accuracies)), *cells, f"{seconds:.0f}"])
            print("  ".join(table[-1]), flush=True)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(table)
    write_whole(given.runs / "recommended.csv", text.getvalue().encode())


if __name__ == "__main__":
    main()
