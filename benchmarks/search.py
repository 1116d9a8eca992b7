"""The search for each method's values: twelve lines per method, on characters that no table is measured on.

    python benchmarks/search.py                    every method, on drawn characters
    python benchmarks/search.py er "der++"         some of them
    python benchmarks/search.py --again            second lines, in batches of eight, of those that had a second search

The stream is never one of the tables': 48 other characters in six tasks. Methods that train the whole model search
their optimiser too. Finished lines are kept; two searches may run at once.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Sequence
from pathlib import Path

from promptpool.experiments.config import Config, load_config
from promptpool.experiments.identity import run_folder
from promptpool.experiments.runner import BusyError, is_finished, run
from promptpool.files import write_whole
from promptpool.metrics import average_accuracy, forgetting, learning_accuracy
from promptpool.training.run_folder import read_run

ADAM = tuple(f"plan.optimiser=adam plan.momentum=0.0 plan.learning_rate={rate}" for rate in (0.0001, 0.0003, 0.001))
SGD = tuple(f"plan.optimiser=sgd plan.momentum=0.9 plan.learning_rate={rate}" for rate in (0.003, 0.01, 0.03))
STEPS = (
    *ADAM,
    *SGD,
    *(f"plan.optimiser=adam plan.momentum=0.0 plan.learning_rate={rate}" for rate in (0.0002, 0.0005)),
    *(f"plan.optimiser=sgd plan.momentum=0.9 plan.learning_rate={rate}" for rate in (0.006, 0.015, 0.02, 0.1)),
)
STRENGTHS = (
    *(f"{ADAM[1]} learner.strength={value}" for value in (1, 10, 100, 1_000, 10_000, 30_000, 100_000)),
    *(f"{SGD[1]} learner.strength={value}" for value in (10, 100, 1_000, 10_000)),  # its steps are larger
    f"{SGD[2]} learner.strength=1000",
)
LENGTHS = tuple(
    f"plan.learning_rate={rate} learner.prompt_length={length}"
    for rate, length in (
        *((rate, length) for rate in (0.01, 0.02, 0.05) for length in (1, 5)),
        *((0.003, 1), (0.005, 1), (0.005, 5), (0.01, 2), (0.02, 2), (0.01, 3)),
    )
)
# L2P's first lines, with the values that all of them had.
FIRST = tuple(
    "learner.start=[0.0,0.01] learner.order=prompts-first learner.position=none plan.batch_size=32 "
    f"learner.start_from=range {line}"
    for line in LENGTHS
)
# L2P again, with many small steps and prompts that start as large as tokens: twelve lines of their own (--again).
STARTS = tuple(
    f"learner.start=[-1.0,1.0] learner.order=class-first learner.position=class plan.batch_size=8 "
    f"learner.start_from={start} plan.learning_rate={rate} learner.prompt_length={length}"
    for start, rates in (("scaled", (0.0005, 0.001, 0.002, 0.005)), ("range", (0.002,)), ("tokens", (0.002,)))
    for rate in rates
    for length in (1, 5)
)
RATES = tuple(
    f"plan.learning_rate={rate}"
    for rate in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.0001, 0.0003, 0.002, 0.005, 0.02, 0.05)
)
FEWER = "dataset.train_per_class=20"
# Twelve lines each: six, then six more once those had ended. On a fresh ResNet-18 the first six have fewer images.
LINES: dict[str, tuple[str, ...]] = {
    "upper-bound": STEPS,
    "er": STEPS,
    "ewc": STRENGTHS,
    "ewc-online": STRENGTHS,
    "lwf": (
        *(f"{ADAM[1]} learner.distill={value}" for value in (0.3, 1, 3, 10, 30, 100)),
        *(f"{SGD[1]} learner.distill={value}" for value in (1, 10, 100)),
        f"{SGD[0]} learner.distill=10",
        *(f"{SGD[2]} learner.distill={value}" for value in (10, 100)),
    ),
    "der++": tuple(
        f"{line} learner.alpha={a} learner.beta={b}"
        for line, pairs in (
            (ADAM[1], ((0.1, 0.5), (0.1, 1), (0.3, 0.5), (0.3, 1), (1, 0.5), (1, 1))),
            (SGD[1], ((0.1, 0.5), (1, 0.5), (1, 1), (3, 1))),
            (SGD[2], ((0.1, 0.5), (1, 1))),
        )
        for a, b in pairs
    ),
    "bic": tuple(f"{line} learner.bias_epochs={count}" for line in (*ADAM, *SGD) for count in (50, 200)),
    "gdumb": tuple(
        f"learner.highest_rate={rate} learner.epochs={count}"
        for rate in (0.005, 0.02, 0.05, 0.001, 0.002, 0.01)
        for count in (8, 16)
    ),
    "co2l": tuple(f"{line} learner.distillation={value}" for line in (*ADAM, *SGD) for value in (0.3, 1)),
    "supsup": tuple(
        f"{images}plan.learning_rate={rate} learner.density={density}"
        for images in (f"{FEWER} ", "")
        for rate in (0.003, 0.001, 0.006)
        for density in (0.5, 0.3)
    ),
    "dualnet": tuple(
        f"{images}plan.learning_rate={rate} learner.slow_rate={slow} learner.lookahead={share}"
        for images, rate, slow, share in (
            *((f"{FEWER} ", rate, *pair) for rate in (0.03, 0.1, 0.3) for pair in ((0.0003, 0.05), (0.03, 0.5))),
            *(("", rate, 0.0003, 0.05) for rate in (0.03, 0.06, 0.1)),
            *(("", rate, 0.003, 0.05) for rate in (0.03, 0.1)),
            ("", 0.1, 0.0003, 0.5),
        )
    ),
    "resnet18-upper-bound": tuple(
        f"{images}{line}"
        for images in (f"{FEWER} ", "")
        for line in (
            *(f"plan.learning_rate={rate}" for rate in (0.0003, 0.001, 0.003, 0.01)),
            *(f"plan.optimiser=sgd plan.momentum=0.9 plan.learning_rate={rate}" for rate in (0.03, 0.1)),
        )
    ),
    "l2p": FIRST,
    "l2p-r": FIRST,
    "masked-linear": RATES,
    "ft-seq-frozen": RATES,
    "ranpac": tuple(
        f"learner.projections={count}"
        for count in (200, 500, 1_000, 2_000, 4_000, 8_000, 100, 300, 700, 1_500, 3_000, 6_000)
    ),
}
# Second lines, in batches of eight: of L2P, and of the methods without a memory that it is compared with.
AGAIN: dict[str, tuple[str, ...]] = {
    "l2p": STARTS,
    "l2p-r": tuple(line for line in STARTS if line.endswith("prompt_length=1")),
    **{method: tuple(f"plan.batch_size=8 {line}" for line in RATES) for method in ("masked-linear", "ft-seq-frozen")},
    "lwf": tuple(
        f"plan.batch_size=8 plan.learning_rate={rate} learner.distill={strength}"
        for rate in (0.001, 0.003, 0.01, 0.02)
        for strength in (1, 10, 30)
    ),
    "ewc": tuple(
        f"plan.batch_size=8 plan.learning_rate={rate} learner.strength={strength}"
        for rate in (0.001, 0.003, 0.01)
        for strength in (100, 1_000, 3_000, 10_000)
    ),
}
ON_RESNET = ("supsup", "dualnet", "resnet18-upper-bound")
KEPT = ("er", "der++", "bic", "gdumb", "co2l", "dualnet", "l2p-r")  # ten images per class


def configs(method: str, seed: int, *, again: bool = False) -> dict[str, Config]:
    """Each line of a method by its values."""
    given = [f"seed={seed}"]
    if method in ON_RESNET:
        given.append("dataset.train_per_class=50")  # as Table 2 has: it starts from nothing
    if method in KEPT:
        given.append("learner.capacity=480")
    lines = AGAIN[method] if again else LINES[method]
    return {line: load_config(f"glyphs-validation-{method}", [*given, *line.split()]) for line in lines}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=list(LINES))
    parser.add_argument("--again", action="store_true", help="the lines of a second search, of methods that had one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, default=Path("runs/search"))
    given = parser.parse_args(arguments)
    table: list[list[str]] = [["method", "values", "average accuracy", "forgetting", "learning accuracy", "seconds"]]
    for method in [name for name in given.methods if name in AGAIN] if given.again else given.methods:
        for values, config in configs(method, given.seed, again=given.again).items():
            folder = run_folder(given.runs, f"glyphs-{method}", config)
            try:
                if not is_finished(folder, config):
                    for _ in run(config, folder):
                        pass
            except BusyError:
                continue  # the other search has it
            found = read_run(folder)
            joint = bool(config["scenario"].get("joint"))
            measured = [average_accuracy(found.accuracy)]
            measured += [] if joint else [forgetting(found.accuracy), learning_accuracy(found.accuracy)]
            cells = [f"{100 * value:.1f}" for value in measured] + ["-"] * (3 - len(measured))
            table.append([method, values, *cells, f"{sum(found.seconds):.0f}"])
            print("  ".join(table[-1]), flush=True)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(table)
    write_whole(given.runs / f"glyphs{'-again' if given.again else ''}.csv", text.getvalue().encode())


if __name__ == "__main__":
    main()
