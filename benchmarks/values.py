"""What values that make a run faster change in it: whole runs under each in turn, with seconds, loss and accuracy.

    python benchmarks/values.py                                                    drawn characters
    python benchmarks/values.py cifar100-l2p --scale small --data FOLDER dataset.train_per_class=10

Seconds are those of tasks as the run notes them, without the start of Python and without reading data; compiled code is
made anew for each run. Every run begins with an empty store of features. The loss is that of the last task. Values that
a run refuses stand below the table, each with the reason.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import median

from idle import MOST, Meanwhile, refuse_if_busy
from ranks import Ended, Failed, ended

from promptpool.cores import core_count

VALUES = (
    "",
    "backbone.precision=bfloat16",
    "backbone.products=onednn",
    "backbone.compile=true",
    "backbone.checkpointing=true",
    "plan.micro_batch=4",
)


def line(run: str, value: str, found: Sequence[Ended], usual: Sequence[Ended]) -> str:
    seconds, before = (median(each.seconds for each in runs) for runs in (found, usual))
    cells = (run, value or "as it is", f"{seconds:.1f}", f"{before / seconds:.2f}", f"{found[0].loss:.4f}")
    return f"| {' | '.join(cells)} | {found[0].accuracy:.2f} |"


def tried(words: Sequence[str], values: Sequence[str], rounds: int) -> tuple[dict[str, list[Ended]], dict[str, str]]:
    """The runs of each value, round after round; and of the values that were refused, the reasons."""
    found, refused = dict[str, list[Ended]](), dict[str, str]()
    for _ in range(rounds):
        for value in (value for value in values if value not in refused):
            try:
                run = ended(1, [*words, *([value] if value else [])], threads=core_count())
            except Failed as failed:
                if value == values[0]:
                    raise
                refused[value] = failed.reason
            else:
                found.setdefault(value, []).append(run)
    return found, refused


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", default="glyphs100-l2p")
    parser.add_argument("more", nargs="*", help="values for all: table.key=value")
    parser.add_argument("--values", nargs="+", default=list(VALUES), help="what is tried; '' is the run as it is")
    parser.add_argument("--scale")
    parser.add_argument("--data")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--anyway", action="store_true", help="measure although the machine is busy")
    given = parser.parse_intermixed_args(arguments)
    refuse_if_busy(anyway=given.anyway)
    words = [given.run, *given.more]
    for name in ("scale", "data"):
        words += [f"--{name}", getattr(given, name)] if getattr(given, name) else []
    meanwhile = Meanwhile()
    found, refused = tried(words, given.values, given.rounds)
    print(
        f"| run | value | seconds | times as fast | loss of the last task | average accuracy |\n|---|---|{'---:|' * 4}"
    )
    for value, runs in found.items():
        print(line(given.run, value, runs, found[given.values[0]]))
    if refused:
        print("\n" + "\n".join(refused.values()))
    if meanwhile.share() > MOST:
        print(f"\nno verdict: other processes took {meanwhile.share():.0%} of the processors meanwhile")


if __name__ == "__main__":
    main()
