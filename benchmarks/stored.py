"""Whether the stored digits come out again on this code: rows of a table in miniature, run anew, beside the CSV file.

    python benchmarks/stored.py                                        rows of Table 1 on Split glyphs100
    python benchmarks/stored.py table4 --only L2P EWC --seeds 3        others

Stored numbers were made by one thread, as these runs are. Where processor and versions are those that made them every
digit must come out; elsewhere rounding may move an image or two, and training may blow that up. Runs go into a folder
of their own, so that nothing finished is taken for what this code does.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from promptpool.experiments.build import SharedCache
from promptpool.experiments.runner import run
from promptpool.reproduce.expected import stored
from promptpool.reproduce.plan import Request, collect
from promptpool.reproduce.results import Result, Results, read_results

METHODS = ("L2P", "One prompt", "Masked linear head", "Nearest class mean", "RanPAC", "Closed form", "LwF")
HEADER = ["stream", "method", "images kept", "seeds", "stored", "now", ""]


def again(request: Request, cache: SharedCache) -> Results:
    """The results of all runs that a request asks for, taken to their end."""
    for job in request.jobs():
        for _ in run(job.config, job.folder, cache=cache):
            pass
        print(f"{job.name} done", flush=True)
    return collect(request, test_again=False)


def beside(now: Results, then: Results) -> Iterator[list[str]]:
    """A line for each number of each cell that both have with the same values."""
    known = {cell.key: cell for cells in then.studies.values() for cell in cells}
    for cell in (cell for cells in now.studies.values() for cell in cells):
        earlier = known.get(cell.key)
        if earlier is None or (earlier.values and earlier.values != cell.values):
            continue
        before, here = numbers(earlier), numbers(cell)
        for seeds in (seeds for seeds in before if seeds in here):
            same = "" if before[seeds] == here[seeds] else "differs"
            yield [cell.stream, cell.method, cell.group, seeds, before[seeds], here[seeds], same]


def numbers(cell: Result) -> dict[str, str]:
    """Accuracy and forgetting of all seeds together, and of each, as far as a file has them."""
    found = {cell.seeds: f"{cell.accuracy} {cell.forgetting}".strip()}
    forgettings = cell.forgettings.split() or [""] * len(cell.accuracies.split())
    each = zip(cell.accuracies.split(), forgettings, strict=True)
    return found | {seed: " ".join(pair).strip() for seed, pair in zip(cell.seeds.split(), each, strict=False)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", nargs="?", default="table1")
    parser.add_argument("--only", nargs="+", help="of streams and methods, as for promptpool reproduce")
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    then, cache, lines = read_results(stored("mini"), [given.study]), SharedCache(), list[list[str]]()
    with TemporaryDirectory() as folder:
        for only in given.only or [f"Split glyphs100 {method}" for method in METHODS]:
            request = Request((given.study,), "mini", given.seeds, Path(folder), only=only)
            lines += beside(again(request, cache), then)
    for line in [HEADER, *lines]:
        print("  ".join(line))
    differing = sum(line[-1] != "" for line in lines)
    print(f"{len(lines) - differing} of {len(lines)} are the same digits")
    if differing or not lines:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
