"""The recommended method beside all that keep no old data, on the same images of seven streams.

    python benchmarks/recommended.py                                          on drawn characters
    python benchmarks/recommended.py --dinov2 FILE --vit-tiny FILE            and on photographs
    python benchmarks/recommended.py closed-form ranpac --streams glyphs100   some of it
    python benchmarks/recommended.py --no-runs                                the table again

Every stream has at least 50 test images of each class, and each method its usual values. A seed decides the training
images and all random numbers, and on Split glyphs100 the order of classes. Methods are compared image by image: the
difference to the closed form with prompts has the standard error of paired answers, over all images of all seeds. Runs
on photographs have the values of `promptpool reproduce table1` at the scales small and small-dinov2, and its runs are
taken where they were begun. Others are tested after the last task alone. A run that was stopped goes on. What a
finished one answered to each test image is a line of the file `--out`, and is not measured again; the table is written
beside it.
"""

from __future__ import annotations

import argparse
import base64
import csv
import io
import math
import statistics
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from promptpool.data.stream import Batch
from promptpool.experiments import catalogue
from promptpool.experiments.build import SharedCache, build
from promptpool.experiments.config import Config, ConfigError
from promptpool.experiments.identity import run_folder
from promptpool.experiments.runner import BusyError, go_on, is_finished
from promptpool.files import locked, write_whole
from promptpool.learners.base import Learner
from promptpool.losses import only
from promptpool.metrics import average_accuracy
from promptpool.report.names import METHODS as NAMES
from promptpool.reproduce.plan import Request, seeded
from promptpool.reproduce.studies import Item, configured
from promptpool.training.checkpoint import load_checkpoint
from promptpool.training.evaluation import predict
from promptpool.training.loop import Session
from promptpool.training.run_folder import CHECKPOINT, is_run, read_run

RECOMMENDED = "closed-form-prompts"
METHODS = (
    *("closed-form", "nearest-mean", "ranpac", "masked-linear", "ft-seq-frozen", RECOMMENDED),
    *("l2p", "one-prompt", "lwf", "ewc", "ft-seq"),
)
HEADER = ["stream", "method", "seed", "average accuracy", "precision", "seconds", "revision", "right"]
TABLE = ["stream", "method", "seeds", "average accuracy", "deviation", "behind", "error"]


class Case(NamedTuple):
    """A stream: a benchmark, other values, which weights it is seen with, and whether a seed orders its classes."""

    benchmark: str
    values: tuple[str, ...] = ()
    weights: str = ""
    shuffled: bool = False

    @property
    def scale(self) -> str:
        return {"": "mini", "vit_tiny": "small", "dinov2": "small-dinov2"}[self.weights]


TEST = ("dataset.test_per_class=50",)
STREAMS = {
    "Split glyphs100": Case("glyphs100", TEST, shuffled=True),
    "glyph-five": Case("glyph-five", TEST),
    "glyph-styles": Case("glyph-styles", ("dataset.test_per_class=20",)),  # in each of three styles
    "Gaussian glyphs100": Case("glyphs100-gaussian", TEST, shuffled=True),
    "Split CIFAR-100, ViT-Ti": Case("cifar100", weights="vit_tiny"),
    "Split CIFAR-100, DINOv2-S": Case("cifar100", weights="dinov2"),
    "5-datasets, DINOv2-S": Case("5-datasets", weights="dinov2"),
}


def run_of(case: Case, method: str, seed: int, request: Request) -> tuple[Config, Path]:
    """The configuration of a run and its folder; one that is tested after each task is taken if it was begun."""
    config, folder = _run_of(case, method, seed, request)
    if is_run(folder):
        return config, folder
    return _run_of(case, method, seed, request, "plan.test_after=last")


def _run_of(case: Case, method: str, seed: int, request: Request, *more: str) -> tuple[Config, Path]:
    on = catalogue.benchmarks()[case.benchmark]
    values = (*case.values, *more)
    item = Item("recommended", on.title, "", NAMES[method], configured(on, case.scale, method, values))
    if case.weights:
        item = Item(item.study, item.stream, item.group, item.method, request.changed(item.config))
        return request.seeded(item, seed), request.folder(item, seed)
    config = seeded(item.config, seed)
    config["dataset"]["seed"] = seed
    if case.shuffled:
        config["scenario"]["seed"] = seed
    return config, run_folder(request.runs, f"{case.benchmark}-{method}", config)


def answers(config: Config, folder: Path, cache: SharedCache) -> list[bool]:
    """Take a run to its end; returns for each test image whether the last answer is right."""
    built = build(config, cache)
    learner, tests = built.learner, built.stream.tests
    if is_finished(folder, config):
        load_checkpoint(folder / CHECKPOINT, Session(learner, built.stream, built.plan))
        learner.before_evaluation()
        right = [predict(learner, batch) == batch.y for test in tests for batch in test.batches(128)]
    else:
        with listening(learner) as right:
            for _ in go_on(built, folder):
                pass
    found: list[bool] = torch.cat(right).tolist()
    return found[-sum(map(len, tests)) :]  # the last that were asked are the images of the last evaluation


@contextmanager
def listening(learner: Learner) -> Iterator[list[Tensor]]:
    """While this lasts, whether each answer that the learner gives outside training is right, batch by batch."""
    heard: list[Tensor] = []
    asked = learner.logits

    def logits(batch: Batch) -> Tensor:
        found = asked(batch)
        if not learner.training:
            heard.append((only(found, torch.tensor(learner.seen)).argmax(dim=1) == batch.y).cpu())
        return found

    with patch.object(learner, "logits", logits):
        yield heard


def packed(right: Sequence[bool]) -> str:
    """Answers in few letters."""
    return base64.b85encode(zlib.compress(np.packbits(np.array(right)).tobytes(), 9)).decode() + f" {len(right)}"


def unpacked(text: str) -> list[int]:
    letters, _, count = text.rpartition(" ")
    bits = np.unpackbits(np.frombuffer(zlib.decompress(base64.b85decode(letters)), dtype=np.uint8))
    found: list[int] = bits[: int(count)].tolist()
    return found


def paired(one: Sequence[int], other: Sequence[int]) -> tuple[float, float]:
    """The difference of two shares of right answers to the same questions, and its standard error, in points."""
    apart = [a - b for a, b in zip(one, other, strict=True)]
    return 100 * statistics.fmean(apart), 100 * statistics.stdev(apart) / math.sqrt(len(apart))


def read(path: Path) -> list[list[str]]:
    """The lines of a file of runs."""
    return list(csv.reader(path.read_text(encoding="utf-8").splitlines()))[1:] if path.exists() else []


def write(path: Path, head: list[str], lines: Sequence[Sequence[str]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *lines])
    write_whole(path, text.getvalue().encode())


def add(path: Path, line: list[str]) -> None:
    """Add a line; other processes may do so too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_suffix(".lock"), waiting=print):
        places = {key: number for number, key in enumerate(product(STREAMS, NAMES.values()))}
        lines = [*(other for other in read(path) if other[:3] != line[:3]), line]  # two may have asked one run
        write(path, HEADER, sorted(lines, key=lambda each: (places[each[0], each[1]], int(each[2]))))


def compared(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    """The table: for each stream and method mean, deviation, and points behind the recommended method."""
    runs: dict[tuple[str, str], dict[str, Sequence[str]]] = {}
    for line in lines:
        runs.setdefault((line[0], line[1]), {})[line[2]] = line
    table = []
    for (stream, method), by_seed in runs.items():
        accuracies = [float(line[3]) for line in by_seed.values()]
        best = runs.get((stream, NAMES[RECOMMENDED]), {})
        both = sorted(best.keys() & by_seed.keys())
        pairs = ([right for seed in both for right in unpacked(of[seed][-1])] for of in (best, by_seed))
        numbers = (
            statistics.fmean(accuracies),
            statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0,
            *(paired(*pairs) if both else (math.nan, math.nan)),
        )
        table.append([stream, method, str(len(accuracies)), *(f"{number:.2f}" for number in numbers)])
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=list(METHODS))
    parser.add_argument("--streams", nargs="+", choices=STREAMS, default=list(STREAMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--dinov2", help="weights of DINOv2 ViT-S/14")
    parser.add_argument("--vit-tiny", help="weights of ViT-Ti/16")
    parser.add_argument("--precision", default="single", help="of the products of these two")
    parser.add_argument("--runs", type=Path, help="where run folders go; runs/reproduce-SCALE unless given")
    parser.add_argument("--out", type=Path, default=Path("docs/results/recommended_runs.csv"))
    parser.add_argument("--no-runs", action="store_true", help="write the table of what is there")
    given = parser.parse_args(arguments)
    caches: dict[Path, SharedCache] = {}
    for seed, name, method in product(given.seeds, given.streams, [] if given.no_runs else given.methods):
        case = STREAMS[name]
        weights = getattr(given, case.weights) if case.weights else None
        if any(line[:3] == [name, NAMES[method], str(seed)] for line in read(given.out)) or (
            case.weights and not weights
        ):
            continue
        precision = given.precision if case.weights else "single"
        runs = (given.runs or Path("runs") / f"reproduce-{case.scale}").resolve()
        cache = caches.setdefault(runs, SharedCache(runs / "features"))
        request = Request((), case.scale, 1, runs, backbone=weights, precision=precision)
        try:
            config, folder = run_of(case, method, seed, request)
            right = answers(config, folder, cache)
        except BusyError:
            continue  # another process has it
        except ConfigError as error:
            print(f"{name}: {method}: {error}")
            continue
        found = read_run(folder)
        accuracy, revision = 100 * average_accuracy(found.accuracy), str(found.environment["revision"])
        line = [f"{accuracy:.2f}", precision, f"{sum(found.seconds):.0f}", revision, packed(right)]
        add(given.out, [name, NAMES[method], str(seed), *line])
        print(f"{name}, {NAMES[method]}, seed {seed}: {accuracy:.2f}", flush=True)
    table = compared(read(given.out))
    write(given.out.with_name("recommended.csv"), TABLE, table)
    for row in table:
        print("  ".join(row))


if __name__ == "__main__":
    main()
