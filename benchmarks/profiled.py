"""Where the time of a step goes, and of a whole run.

    python benchmarks/profiled.py                            the shipped ViT, ViT-Ti, ViT-B, and a run of glyphs100-l2p
    python benchmarks/profiled.py --sizes base --batch 8     one model
    python benchmarks/profiled.py --operators                and the slowest operators of each
    python benchmarks/profiled.py --run own-l2p dataset.folder=FOLDER backbone.name=FILE      a run alone, of any L2P

Steps are L2P's with kept queries, watched by torch.profiler: each operator's own time, on the thread that calls it,
goes to a kind, and what Adam or the choice of prompts runs to theirs. Python is the time in which no operator runs,
with the profiler's own work. Zeroing and allocation count as memory; page faults happen where memory is first touched,
so they are counted and not timed. A run is timed part by part without a profiler. If others took more than a tenth of
the processors meanwhile, the last line says so.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from idle import MOST, Meanwhile, refuse_if_busy
from models import SIZES, TITLES, material, vit_of
from stopwatch import lines, watching
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

from promptpool.backbones.products import PRODUCTS
from promptpool.experiments.build import build
from promptpool.experiments.config import load_config
from promptpool.experiments.runner import go_on
from promptpool.optim import Descent

OPTIMISER, CHOICE = "optimiser and clipping", "choice of prompts"
# The first kind that has a part of an operator's name.
KINDS: dict[str, tuple[str, ...]] = {
    OPTIMISER: ("adam", "_foreach", "foreach", "linalg_vector_norm", "optimizer", "fused"),
    "attention": ("attention", "softmax"),
    "matrix products": ("mm", "matmul", "linear", "convolution", "conv2d", "mkldnn", "dot"),
    "GELU": ("gelu",),
    "layer norms": ("layer_norm",),
    CHOICE: ("embedding", "topk", "argmax", "min", "gather", "scatter", "bincount", "masked_fill", "sort"),
    "memory": ("empty", "zeros", "zero_", "fill_", "resize", "new_"),
    "copies": ("copy", "clone", "contiguous", "cat", "to", "stack", "expand", "select", "slice", "index"),
    "sums and products of elements": ("add", "mul", "sub", "div", "sum", "mean", "neg", "pow", "sqrt", "clamp", "norm"),
}
REST, PYTHON = "other operators", "Python"


class Profiled(NamedTuple):
    """Milliseconds of a step by kind, page faults of a step, and the slowest operators with milliseconds."""

    kinds: dict[str, float]
    faults: float
    operators: list[tuple[str, float]]

    @property
    def total(self) -> float:
        return sum(self.kinds.values())


def kind_of(event: FunctionEvent) -> str:
    """The kind of an operator, by what it runs in or else by its own name."""
    around = event.cpu_parent
    while around is not None:
        if around.name.startswith("Optimizer.") or around.name == CHOICE:
            return CHOICE if around.name == CHOICE else OPTIMISER
        around = around.cpu_parent
    name = event.name.rpartition("::")[2].lower()
    return next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), REST)


def step_profile(size: str, batch_size: int, steps: int, products: str) -> Profiled:
    found = material(size, batch_size)
    learner, batch = found.learner, found.batch
    vit_of(learner).compute(products=products)
    descend = Descent([p for p in learner.parameters() if p.requires_grad])
    learner.train()
    for _ in range(3):
        learner.step(batch, descend)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):
        learner.step(batch, descend)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    choose = learner.pool.forward
    learner.pool.forward = lambda query: record_function(CHOICE)(choose)(query)  # type: ignore[method-assign]
    with profile(activities=[ProfilerActivity.CPU]) as watched:
        begin = time.perf_counter()
        for _ in range(steps):
            learner.step(batch, descend)
        seconds = (time.perf_counter() - begin) / steps
    kinds: dict[str, float] = defaultdict(float)
    operators: dict[str, float] = defaultdict(float)
    for event in watched.events() or ():
        if "::" in event.name:
            own = event.self_cpu_time_total / 1000 / steps
            kinds[kind_of(event)] += own
            operators[event.name] += own
    kinds[PYTHON] = 1000 * seconds - sum(kinds.values())
    return Profiled(dict(kinds), faults / steps, sorted(operators.items(), key=lambda pair: -pair[1]))


def step_lines(profiles: dict[str, Profiled]) -> list[str]:
    """A Markdown table: milliseconds and share of each kind, a column for each model."""
    rows = [f"| milliseconds of a step | {' | '.join(profiles)} |", f"|---|{'---:|' * len(profiles)}"]
    for kind in (*KINDS, REST, PYTHON):
        cells = (f"{p.kinds.get(kind, 0.0):.2f} ({p.kinds.get(kind, 0.0) / p.total:.0%})" for p in profiles.values())
        rows.append(f"| {kind} | {' | '.join(cells)} |")
    rows.append(f"| all | {' | '.join(f'{p.total:.2f}' for p in profiles.values())} |")
    rows.append(f"| page faults | {' | '.join(f'{p.faults:,.0f}' for p in profiles.values())} |")
    return rows


def run_lines(name: str, values: Sequence[str], scale: str | None) -> list[str]:
    """A Markdown table: where the seconds of a whole run go, from reading its data to its last record."""
    with tempfile.TemporaryDirectory() as folder, watching() as watch:
        with watch.running("decoding, drawing and loading"):
            built = build(load_config(name, values, scale=scale))
        for _ in go_on(built, Path(folder)):
            pass
    return lines({name: watch})


def steps_and_run(given: argparse.Namespace) -> None:
    """Print what a step of each model takes, and a run in miniature."""
    how = f"{torch.get_num_threads()} threads, products by {given.products}"
    print(f"batches of {given.batch}, {how}, mean of {given.steps} steps\n")
    profiles = {TITLES[size]: step_profile(size, given.batch, given.steps, given.products) for size in given.sizes}
    print("\n".join(step_lines(profiles)))
    if given.operators:
        for title, found in profiles.items():
            print(f"\n{title}:", ", ".join(f"{name} {own:.2f}" for name, own in found.operators[:10]))
    print("\n" + "\n".join(run_lines("glyphs100-l2p", [f"backbone.products={given.products}"], None)))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=["mini", "tiny", "base"])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--products", choices=list(PRODUCTS), default="torch", help="of a step, and of the run below")
    parser.add_argument("--operators", action="store_true", help="print the ten slowest operators of each model")
    parser.add_argument("--run", help="a benchmark with L2P, whose whole run is timed, and nothing else")
    parser.add_argument("values", nargs="*", help="of that run: table.key=value")
    parser.add_argument("--scale")
    parser.add_argument("--anyway", action="store_true", help="measure although the machine is busy")
    given = parser.parse_args(arguments)
    refuse_if_busy(anyway=given.anyway)
    meanwhile = Meanwhile()
    if given.run:
        values = [f"backbone.products={given.products}", *given.values]
        print("\n".join(run_lines(given.run, values, given.scale)))
    else:
        steps_and_run(given)
    if meanwhile.share() > MOST:
        print(f"\ntimes do not count: other processes took {meanwhile.share():.0%} of the processors meanwhile")


if __name__ == "__main__":
    main()
