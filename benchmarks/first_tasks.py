"""Values on real weights: the first tasks of a stream of photographs, judged on held-out training images.

    python benchmarks/first_tasks.py FILE --out docs/results/search_vit_tiny.csv
    python benchmarks/first_tasks.py FILE --tasks 1 --lines dinov2
    python benchmarks/first_tasks.py FILE --benchmark 5-datasets --tasks 5 --lines five --out runs/first-tasks/five.csv
    python benchmarks/first_tasks.py FILE --benchmark own --lines own --out docs/results/search_own.csv
    python benchmarks/first_tasks.py FILE "l2p plan.learning_rate=0.01" "masked-linear"

Each line is a method with other values than those of the scale `small`; `--lines` names a list of them. Lines that
stand in the file `--out` already are not run again; a file is for one benchmark and one model. Whole streams are for
`recommended.py` and `promptpool reproduce`.

`--benchmark own` is `promptpool run own` on a folder of pictures, which is made of the training images of the last
classes of CIFAR-100: three classes for each task, so many of each to learn and 40 to judge by.
"""

from __future__ import annotations

import argparse
import csv
import io
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean

from PIL import Image

from promptpool.data.sets.cifar import cifar100
from promptpool.experiments.build import SharedCache, build
from promptpool.experiments.config import load_config
from promptpool.files import write_whole
from promptpool.training import learn

FOLDER = Path("runs/first-tasks")
OWN_PER_TASK, OWN_JUDGED = 3, 40  # classes of a task and pictures of a class to judge by, of pictures of one's own
HEADER = ["method", "values", "tasks", "images per class", "average accuracy", "seconds"]


def _l2p(start: str, rate: float, length: int, *more: str) -> str:
    return " ".join([f"learner.start_from={start} plan.learning_rate={rate} learner.prompt_length={length}", *more])


def _blocks(*rates: float) -> tuple[str, ...]:
    return tuple(f"learner.train_embedding=false plan.learning_rate={rate}" for rate in rates)


RATES = tuple(f"plan.learning_rate={rate}" for rate in (0.0001, 0.0003, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01))
SGD = tuple(f"plan.batch_size=16 plan.learning_rate={rate}" for rate in (0.0003, 0.001, 0.003, 0.01))
LINES: dict[str, dict[str, tuple[str, ...]]] = {
    "vit-tiny": {
        "masked-linear": RATES,
        "l2p": (
            *(_l2p("scaled", rate, 5) for rate in (0.0005, 0.001, 0.002, 0.003)),
            *(_l2p("scaled", rate, 1) for rate in (0.001, 0.003)),
            _l2p("scaled", 0.002, 2),
            _l2p("scaled", 0.001, 5, "learner.pull=0.1"),
            _l2p("scaled", 0.001, 5, "learner.head_start=truncated-normal"),
            _l2p("range", 0.001, 5),
            _l2p("tokens", 0.003, 1),
            _l2p("scaled", 0.001, 5, "plan.epochs=10"),
        ),
        "one-prompt": tuple(
            _l2p("scaled", rate, length) for length in (5, 25) for rate in (0.0005, 0.001, 0.002, 0.003)
        ),
        "er": SGD,
        "lwf": (*SGD, *(f"learner.distill={strength}" for strength in (0.3, 3.0, 10.0))),
        "ewc": tuple(f"learner.strength={strength}" for strength in (10, 100, 1000, 10000, 100000)),
    },
    "dinov2": {
        "masked-linear": RATES,
        "l2p": (
            *(_l2p("tokens", rate, 5) for rate in (0.003, 0.01, 0.02, 0.04)),
            *(_l2p("tokens", rate, 1) for rate in (0.003, 0.01, 0.03)),
            *(_l2p("scaled", rate, 1) for rate in (0.003, 0.01)),
            _l2p("tokens", 0.01, 2),
            _l2p("tokens", 0.01, 1, "learner.top_k=1"),
            _l2p("tokens", 0.01, 5, "plan.epochs=10"),
        ),
        "one-prompt": tuple(_l2p("tokens", rate, length) for length in (5, 25) for rate in (0.003, 0.01, 0.03)),
    },
    "blocks": {  # the whole model but its embedding
        **{method: _blocks(0.001, 0.003, 0.01) for method in ("ft-seq", "lwf")},
        "upper-bound": _blocks(0.001, 0.003, 0.01, 0.03),
        "ewc": tuple(
            f"{line} learner.strength={strength}" for line in _blocks(0.003) for strength in (100, 1000, 10000)
        ),
    },
    "batches": {  # batch size, order and position, each by itself
        "l2p": (
            *(f"plan.batch_size=16 plan.learning_rate={rate}" for rate in (0.001, 0.002)),
            *(f"plan.batch_size=32 plan.learning_rate={rate}" for rate in (0.002, 0.004)),
            *("learner.position=none", "learner.order=prompts-first"),
            "learner.position=none learner.order=prompts-first",
        ),
        "masked-linear": tuple(f"plan.batch_size={size} plan.learning_rate=0.001" for size in (4, 16, 32)),
    },
    "batches-dinov2": {
        "l2p": (
            *(f"plan.batch_size=16 plan.learning_rate={rate}" for rate in (0.002, 0.004)),
            "plan.batch_size=32 plan.learning_rate=0.008",
            *("learner.position=none", "learner.order=prompts-first"),
        ),
        "masked-linear": tuple(f"plan.batch_size={size}" for size in (4, 16, 32)),
    },
    "gaussian": {
        "masked-linear": tuple(
            f"plan.learning_rate={rate}" for rate in (0.000003, 0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01)
        ),
        "l2p": tuple(
            f"plan.learning_rate={rate}" for rate in (0.000003, 0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01)
        ),
        "ewc-online": (
            *(f"plan.learning_rate={rate}" for rate in (0.0001, 0.0003, 0.001, 0.003)),
            *(f"learner.strength={strength}" for strength in (1.0, 100.0, 1000.0, 10000.0)),
        ),
    },
    "own": {
        "l2p": (
            *(f"plan.learning_rate={rate}" for rate in (0.001, 0.003)),
            *(f"plan.learning_rate={rate} learner.prompt_length=5" for rate in (0.001, 0.003)),
            *(_l2p("plain-tokens", rate, 5) for rate in (0.0003, 0.001)),
            "plan.learning_rate=0.001 plan.least_steps=50",
            "plan.learning_rate=0.001 learner.position=none",
        ),
        "masked-linear": RATES,
        "closed-form": ("learner.readout_blocks=2",),
    },
    "five": {
        "l2p": tuple(f"plan.learning_rate={rate}" for rate in (0.001, 0.003, 0.005, 0.01, 0.03)),
        "one-prompt": tuple(f"plan.learning_rate={rate}" for rate in (0.001, 0.003, 0.005, 0.01)),
    },
}


def accuracy(run: str, values: Sequence[str], cache: SharedCache, tasks: int) -> float:
    """The average accuracy after the first tasks, in per cent."""
    scale = "own" if run.startswith("own-") else "small"
    built = build(load_config(run, values, scale=scale), cache)
    records = list(islice(learn(built.learner, built.stream, built.plan), tasks))
    if built.learner.reads_frozen:
        built.learner.frozen.keep()
    return 100 * fmean(share for share in records[-1].accuracy if share is not None)


def stream(benchmark: str, images: int, tasks: int) -> list[str]:
    """The values of a stream whose test images are training images that are held out."""
    if benchmark == "own":
        return [f"dataset.folder={pictures(images, tasks)}", f"scenario.classes_per_task={OWN_PER_TASK}"]
    return [f"dataset.train_per_class={images}", "dataset.test_per_class=none", "dataset.held_out=20"]


def pictures(images: int, tasks: int) -> Path:
    """A folder as somebody could have it: train and test, and in each a folder of pictures for each class."""
    whole = cifar100(train_per_class=images, test_per_class=None, held_out=OWN_JUDGED)
    folder = FOLDER / f"own-{images}-{tasks}"
    for name, examples in (("train", whole.train), ("test", whole.test)):
        for label in range(len(whole.class_names) - OWN_PER_TASK * tasks, len(whole.class_names)):
            own = examples.select(examples.y == label)
            place = folder / name / whole.class_names[label]
            place.mkdir(parents=True, exist_ok=True)
            for number, pixels in enumerate(own.batch(slice(None)).x):
                Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(place / f"{number}.png")
    return folder


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights")
    parser.add_argument("given", nargs="*", metavar="line")
    parser.add_argument("--benchmark", default="cifar100")
    parser.add_argument("--lines", choices=LINES, default="vit-tiny")
    parser.add_argument("--methods", nargs="+", help="of the list of lines")
    parser.add_argument("--tasks", type=int, default=3)
    parser.add_argument("--images", type=int, default=25, help="training images per class")
    parser.add_argument("--image-size", type=int, default=112)
    parser.add_argument("--precision", default="single", help="of the transformer's products")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=FOLDER / "lines.csv")
    given = parser.parse_intermixed_args(arguments)
    listed = LINES[given.lines]
    lines = given.given or [f"{method} {line}" for method in given.methods or listed for line in listed[method]]
    cache = SharedCache(FOLDER / "features")
    for line in lines:
        table = list(csv.reader(given.out.read_text().splitlines())) if given.out.exists() else [HEADER]
        method, _, values = line.partition(" ")
        key = [method, values, str(given.tasks), str(given.images)]
        found = next((row for row in table if row[:4] == key), None)
        if found is None:
            begin = time.monotonic()
            more = [f"backbone.name={given.weights}", f"backbone.image_size={given.image_size}"]
            more += [f"backbone.precision={given.precision}"]
            more += [*stream(given.benchmark, given.images, given.tasks), f"seed={given.seed}", *values.split()]
            share = accuracy(f"{given.benchmark}-{method}", more, cache, given.tasks)
            found = [*key, f"{share:.1f}", f"{time.monotonic() - begin:.0f}"]
            table = list(csv.reader(given.out.read_text().splitlines())) if given.out.exists() else [HEADER]
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows([*table, found])
            write_whole(given.out, text.getvalue().encode())
        print("  ".join(found), flush=True)


if __name__ == "__main__":
    main()
