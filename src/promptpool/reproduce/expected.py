"""What a benchmark with a method is known to give: the paper's number, and ours where it was measured.

Our numbers are in the CSV files of `stored/`, one folder per scale and one file per study, as `promptpool reproduce`
wrote them.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from promptpool.experiments.catalogue import Benchmark, benchmarks, methods
from promptpool.report.names import METHODS
from promptpool.reproduce import paper
from promptpool.reproduce.results import Result, read_results, reported_text

TABLES = ("table1", "table2", "table3", "table4")


def stored(scale: str = "mini") -> Path:
    """The folder of the CSV files that come with the package."""
    return Path(str(files("promptpool.reproduce") / "stored" / scale))


def expected() -> dict[str, str]:
    """The accuracy of every pair that is measured, in words, by the pair's name."""
    by_title = {benchmark.title: benchmark for benchmark in benchmarks().values()}
    found: dict[str, str] = {}
    reported = {**paper.TABLE_1, "core50": paper.TABLE_3, "cifar100-gaussian": paper.TABLE_4}
    for benchmark, cells in reported.items():
        for setting, cell in cells.items():
            if setting.method in methods() and setting.per_class in (0, benchmarks()[benchmark].kept_per_class):
                found[f"{benchmark}-{setting.method}"] = f"{reported_text(cell.accuracy, cell.deviation)} in the paper"
    for study in TABLES:
        for result in read_results(stored(), [study]).studies.get(study, []):
            if name := _pair(result, by_title[result.stream]):
                seeds = len(result.seeds.split())
                deviation = f" ± {result.accuracy_deviation}" if result.accuracy_deviation else ""
                found.setdefault(name, f"{result.accuracy}{deviation} here, {seeds} seed{'s' * (seeds > 1)}")
    return found


def _pair(result: Result, benchmark: Benchmark) -> str | None:
    """The pair whose usual values a stored result has; None where it has others."""
    resnet = result.group.startswith("ResNet-18")
    keys = [key for key, label in METHODS.items() if label == result.method]
    key = next((key for key in keys if key.startswith("resnet18-") is (resnet and len(keys) > 1)), None)
    if key is None or key not in methods() or not result.accuracy or resnet:  # those have more images than usual
        return None
    return f"{benchmark.name}-{key}" if result.at in ("", str(benchmark.kept_per_class)) else None
