"""What threads cost that spin while they wait for each other, alone and beside other work.

    python benchmarks/spinning.py                    the shipped ViT and ViT-Ti, as many threads as there are cores
    python benchmarks/spinning.py --sizes mini --rounds 3

A training step of L2P with kept queries, in a process of its own for each way to wait, in turn, round after round:
first with the machine to itself, then beside as many processes as there are cores, which do nothing but count. Printed
are the medians over rounds of the median step of each process. `promptpool` sets the first way that is not torch's own
(`promptpool.cores`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median

import torch
from idle import refuse_if_busy
from models import SIZES, TITLES, material
from step import TRAINING, ours

from promptpool.cores import SPINS, core_count

WAYS: dict[str, dict[str, str]] = {
    "as torch has it": {},
    f"GOMP_SPINCOUNT={SPINS}": {"GOMP_SPINCOUNT": SPINS},
    "GOMP_SPINCOUNT=1000": {"GOMP_SPINCOUNT": "1000"},
    "OMP_WAIT_POLICY=passive": {"OMP_WAIT_POLICY": "passive"},
}
OPENMP = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS")
SECONDS = 5.0  # of steps in each process


def median_step(size: str, batch: int, seconds: float) -> float:
    """Seconds of a step, measured in this process for about so long; the first steps do not count."""
    contestant, taken = ours(material(size, batch), TRAINING), list[float]()
    contestant.before()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(taken) < 5:
        begin = time.perf_counter()
        contestant.work()
        taken.append(time.perf_counter() - begin)
    return median(taken[2:])


def in_a_process(size: str, given: argparse.Namespace, way: dict[str, str]) -> float:
    """The same in a process of its own, which waits in this way."""
    rest = {name: value for name, value in os.environ.items() if name not in OPENMP}
    own = way | {"OMP_NUM_THREADS": str(given.threads)}
    words = ["--child", "--sizes", size, "--batch", str(given.batch), "--seconds", str(given.seconds)]
    done = subprocess.run(  # noqa: S603
        [sys.executable, __file__, *words], env=rest | own, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


@contextmanager
def beside(processes: int) -> Iterator[None]:
    """While this lasts, so many other processes count."""
    with ExitStack() as stack:
        for _ in range(processes):
            other = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(other.kill)
        yield


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=["mini", "tiny"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=core_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of steps in each process")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--anyway", action="store_true", help="measure although the machine is busy")
    given = parser.parse_args(arguments)
    if given.child:
        print(median_step(given.sizes[0], given.batch, given.seconds))
        return
    refuse_if_busy(anyway=given.anyway)
    print(f"threads: {given.threads}, images of a step: {given.batch}, torch {torch.__version__}\n")
    print("| model | how threads wait | alone, ms a step | beside others | times as slow |\n|---|---|---:|---:|---:|")
    for size in given.sizes:
        found: dict[tuple[str, int], list[float]] = {}
        for others in (0, core_count()):
            for _ in range(given.rounds):
                for name, way in WAYS.items():
                    with beside(others):
                        found.setdefault((name, others), []).append(in_a_process(size, given, way))
        for name in WAYS:
            alone, crowded = (1000 * median(found[name, others]) for others in (0, core_count()))
            print(f"| {TITLES[size]} | {name} | {alone:.1f} | {crowded:.1f} | {crowded / alone:.1f} |", flush=True)


if __name__ == "__main__":
    main()
