"""L2P's curves with the values of its first search and of its second, beside the masked linear head.

    python benchmarks/l2p_values.py                                               Split glyphs100, three seeds
    python benchmarks/l2p_values.py --scale small --precision bfloat16            Split CIFAR-100, ViT-Ti
    python benchmarks/l2p_values.py --scale small-dinov2 --precision bfloat16     Split CIFAR-100, DINOv2-S

Runs are those of `promptpool reproduce`, in the same folder; one that was stopped goes on. Accuracies after each task
go into a CSV file of docs/results, the curves into a picture beside it.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Sequence
from pathlib import Path

from promptpool.experiments.build import SharedCache
from promptpool.experiments.runner import is_finished, run
from promptpool.files import write_whole
from promptpool.report.names import METHODS
from promptpool.report.plots import accuracy_over_time
from promptpool.report.themes import png
from promptpool.reproduce.plan import Request
from promptpool.reproduce.studies import Item, benchmark_of, configured
from promptpool.training.run_folder import Run, read_run

RANGE = ("learner.start=[0.0,0.01]", "learner.start_from=range", "learner.order=prompts-first", "learner.position=none")
Cases = dict[str, tuple[str, tuple[str, ...]]]
PHOTOGRAPHS: Cases = {
    "L2P, the paper's values, batches of 32": (
        "l2p",
        (*RANGE, "learner.prompt_length=5", "plan.batch_size=32", "plan.learning_rate=0.03"),
    ),
    "L2P": ("l2p", ()),
    "Masked linear head": ("masked-linear", ()),
}
CASES: dict[str, Cases] = {
    "mini": {
        "L2P, one token, 0.02, batches of 32, start near 0": (
            "l2p",
            (*RANGE, "plan.batch_size=32", "plan.learning_rate=0.02"),
        ),
        "L2P": ("l2p", ()),
        "Masked linear head": ("masked-linear", ()),
    },
    "small": PHOTOGRAPHS,
    "small-dinov2": PHOTOGRAPHS,
}


def finished(request: Request, method: str, values: Sequence[str], seed: int, cache: SharedCache) -> Run:
    """The run of a method with other values, taken to its end."""
    on = benchmark_of(request.scale, "split")
    config = request.changed(configured(on, request.scale, method, values))
    item = Item("values", on.title, "", METHODS[method], config)
    folder = request.folder(item, seed)
    if not is_finished(folder, request.seeded(item, seed)):
        for _ in run(request.seeded(item, seed), folder, cache=cache):
            pass
    return read_run(folder)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=CASES, default="mini")
    parser.add_argument("--weights", help="if not those of the scale")
    parser.add_argument("--precision", default=None, help="of the transformer's products")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    given = parser.parse_args(arguments)
    scale = given.scale
    runs = (given.runs or Path("runs") / f"reproduce-{scale}").resolve()
    request = Request((), scale, given.seeds, runs, backbone=given.weights, precision=given.precision)
    cache, found, lines = SharedCache(runs / "features"), dict[str, list[Run]](), list[list[str]]()
    for name, (method, values) in CASES[scale].items():
        for seed in range(given.seeds):
            found.setdefault(name, []).append(finished(request, method, values, seed, cache))
            shares = found[name][-1].accuracy
            curve = [f"{100 * shares[task, : task + 1].mean():.2f}" for task in range(len(shares))]
            lines.append([name, str(seed), *curve])
            print(name, seed, *curve, flush=True)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["values", "seed", *range(1, len(lines[0]) - 1)], *lines])
    write_whole(given.out / f"l2p_values_{scale}.csv", text.getvalue().encode())
    figure = accuracy_over_time(found)
    if figure is not None:
        write_whole(given.out / f"l2p_values_{scale}.png", png(figure))


if __name__ == "__main__":
    main()
