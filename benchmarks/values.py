"""What values that make a run faster change in it: whole runs under each in turn, with seconds, loss and accuracy.

    python benchmarks/values.py                                                    drawn characters
    python benchmarks/values.py cifar100-l2p --scale small --data FOLDER dataset.train_per_class=10

Seconds are those of tasks as the run notes them, without the start of Python and without reading data; compiled code is
made anew for each run. Every run begins with an empty store of features. The loss is that of the last task.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from statistics import median

from idle import MOST, Meanwhile, refuse_if_busy
from ranks import Ended, ended

VALUES = (
    "",
    "backbone.precision=bfloat16",
    "backbone.products=onednn",
    "backbone.compile=true",
    "backbone.checkpointing=true",
)


def line(run: str, value: str, found: Sequence[Ended], usual: Sequence[Ended]) -> str:
    seconds, before = (median(each.seconds for each in runs) for runs in (found, usual))
    cells = (run, value or "as it is", f"{seconds:.1f}", f"{before / seconds:.2f}", f"{found[0].loss:.4f}")
    return f"| {' | '.join(cells)} | {found[0].accuracy:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", default="glyphs100-l2p")
    parser.add_argument("more", nargs="*", help="values for all: table.key=value")
    parser.add_argument("--values", nargs="+", default=list(VALUES), help="what is tried; '' is the run as it is")
    parser.add_argument("--scale")
    parser.add_argument("--data")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--anyway", action="store_true", help="measure although the machine is busy")
    given = parser.parse_args()
    refuse_if_busy(anyway=given.anyway)
    words = [given.run, *given.more]
    for name in ("scale", "data"):
        words += [f"--{name}", getattr(given, name)] if getattr(given, name) else []
    meanwhile, cores = Meanwhile(), os.cpu_count() or 1
    found: dict[str, list[Ended]] = {value: [] for value in given.values}
    for _ in range(given.rounds):
        for value in given.values:
            found[value].append(ended(1, [*words, *([value] if value else [])], threads=cores))
    print(
        f"| run | value | seconds | times as fast | loss of the last task | average accuracy |\n|---|---|{'---:|' * 4}"
    )
    for value in given.values:
        print(line(given.run, value, found[value], found[given.values[0]]))
    if meanwhile.share() > MOST:
        print(f"\nno verdict: other processes took {meanwhile.share():.0%} of the processors meanwhile")


if __name__ == "__main__":
    main()
