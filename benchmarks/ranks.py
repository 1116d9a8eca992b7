"""What a second process is worth: whole runs by one process and by two of `torchrun`, one thread each, in turn.

    python benchmarks/ranks.py                                                    drawn characters
    python benchmarks/ranks.py cifar100-l2p cifar100-closed-form --scale small --data FOLDER

Seconds are those of tasks as the run notes them: features, steps, evaluation and checkpoints, without the start of
Python and without reading data. Every run begins with an empty store of features. Accuracies of one and of two
processes are printed beside each other: they agree up to rounding, which training may blow up.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from idle import MOST, Meanwhile, refuse_if_busy

from promptpool.metrics import average_accuracy
from promptpool.training.run_folder import TIMES, read_records, read_run

RANKS = (1, 2)
RUNS = ("glyphs100-l2p", "glyphs100-closed-form", "glyphs100-ft-seq")


class Ended(NamedTuple):
    """A run that came to its end."""

    seconds: float
    accuracy: float
    loss: float  # of the last task


class Failed(SystemExit):
    """A run that came to no end; it ends the benchmark too, unless that catches it."""

    def __init__(self, command: str, said: str) -> None:
        super().__init__(f"{command}\n{said[-2000:]}")
        self.reason = said.strip().rpartition("\n")[2]


def ended(ranks: int, words: Sequence[str], *, threads: int = 1) -> Ended:
    """`promptpool run` with these words, by so many processes of so many threads."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    with tempfile.TemporaryDirectory() as name:
        own = {"OMP_NUM_THREADS": str(threads), "PROMPTPOOL_FEATURES_GB": "0"}
        command = [sys.executable, *launch, "-m", "promptpool", "run", *words, "--folder", f"{name}/run"]
        done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise Failed(" ".join(command), done.stderr)
        folder = Path(name) / "run"
        loss = read_records(folder)[-1].loss
        seconds = sum(json.loads((folder / TIMES).read_text()))
        return Ended(seconds, 100 * average_accuracy(read_run(folder).accuracy), math.nan if loss is None else loss)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", default=list(RUNS), help="runs, and values for all: table.key=value")
    parser.add_argument("--scale")
    parser.add_argument("--data")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--anyway", action="store_true", help="measure although the machine is busy")
    given = parser.parse_args(arguments)
    refuse_if_busy(anyway=given.anyway)
    values = [word for word in given.words if "=" in word]
    for name in ("scale", "data"):
        values += [f"--{name}", getattr(given, name)] if getattr(given, name) else []
    meanwhile = Meanwhile()
    print("| run | one process, s | two, s | times as fast | accuracy, one | two |\n|---|---:|---:|---:|---:|---:|")
    for run in (word for word in given.words if "=" not in word):
        found: dict[int, list[Ended]] = {ranks: [] for ranks in RANKS}
        for _ in range(given.rounds):
            for ranks in RANKS:
                found[ranks].append(ended(ranks, [run, *values]))
        one, two = (median(each.seconds for each in found[ranks]) for ranks in RANKS)
        accuracies = " | ".join(f"{found[ranks][0].accuracy:.2f}" for ranks in RANKS)
        print(f"| {run} | {one:.1f} | {two:.1f} | {one / two:.2f} | {accuracies} |", flush=True)
    if meanwhile.share() > MOST:
        print(f"\nno verdict: other processes took {meanwhile.share():.0%} of the processors meanwhile")


if __name__ == "__main__":
    main()
