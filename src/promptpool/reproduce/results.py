"""The results of studies and the CSV files that hold them: all that tables, figures and claims are made of.

A result is one cell of a table or one point of a figure: a row of a report plus the paper's cell. Accuracies and
forgetting are in percent with two decimals, as the paper prints them. An empty text is undefined, or not measured yet.
A cell keeps the numbers of each of its seeds too, so that seeds that were run elsewhere can join it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from promptpool import metrics
from promptpool.errors import BadFileError
from promptpool.metrics import Matrix
from promptpool.report.names import UPPER_BOUND
from promptpool.report.rows import Row, measured
from promptpool.reproduce.batches import Counts
from promptpool.reproduce.studies import STUDIES, Item
from promptpool.training.run_folder import Run

NUMBERS = ("accuracy", "accuracy_deviation", "forgetting", "forgetting_deviation")
EACH = ("accuracies", "forgettings")
LATER = (*EACH, "values")  # columns that files of earlier versions lack
SHARES = "figure3.csv"  # the one study that is not a list of results


@dataclass(frozen=True)
class Result:
    """One cell, its numbers as text: what is printed is what is stored. The fields are the columns of the CSV."""

    study: str
    stream: str
    group: str
    method: str
    at: str = ""
    accuracy: str = ""
    accuracy_deviation: str = ""
    forgetting: str = ""
    forgetting_deviation: str = ""
    task_given: str = ""  # accuracy when the task of a test image is known
    loss_classes: str = ""
    prompts: str = ""  # in use
    pool_size: str = ""
    seconds: str = ""
    seeds: str = ""
    paper_accuracy: str = ""
    paper_forgetting: str = ""
    revision: str = ""
    runs: str = ""
    accuracies: str = ""  # of each seed, in the order of `seeds`
    forgettings: str = ""
    values: str = ""  # a hash of the configuration that all seeds share

    @property
    def key(self) -> tuple[str, ...]:
        """Which cell it is."""
        return self.study, self.stream, self.group, self.method, self.at

    @property
    def value(self) -> float | None:
        """The accuracy as a number."""
        return float(self.accuracy) if self.accuracy else None


@dataclass
class Results:
    """Results by study, and for each stream of Figure 3 the share of images that chose each prompt, [tasks, M]."""

    studies: dict[str, list[Result]] = field(default_factory=dict)
    shares: dict[str, Matrix] = field(default_factory=dict)


def result(item: Item, runs: Sequence[Run]) -> Result:
    """What the finished runs of an item measured, one run for each seed."""
    row = Row(item.method, "", tuple(run for run in runs if run.finished))
    accuracies, forgettings = row.each(metrics.average_accuracy), row.each(metrics.forgetting)
    accuracy, accuracy_deviation = _percent(accuracies)  # with one test set, the final one
    forgetting, forgetting_deviation = _percent(forgettings)
    prompts, seconds, paper = measured(row.prompts_in_use), measured(row.seconds), item.reported
    return Result(
        study=item.study,
        stream=item.stream,
        group=item.group,
        method=item.method,
        at="" if item.at is None else str(item.at),
        accuracy=accuracy,
        accuracy_deviation=accuracy_deviation,
        forgetting=forgetting,
        forgetting_deviation=forgetting_deviation,
        task_given=_percent(row.task_given)[0],
        loss_classes=row.loss_classes,
        prompts="" if prompts is None else f"{prompts.mean:g}",
        pool_size="" if row.pool_size is None else str(row.pool_size),
        seconds="" if seconds is None else f"{seconds.mean:.0f}",
        seeds=" ".join(str(run.config["seed"]) for run in row.runs),
        paper_accuracy="" if paper is None else reported_text(paper.accuracy, paper.deviation),
        paper_forgetting="" if paper is None else reported_text(paper.forgetting, paper.forgetting_deviation),
        revision=" ".join(sorted({str(run.environment.get("revision") or "unknown") for run in row.runs})),
        runs=" ".join(run.path.name for run in row.runs),
        accuracies=_each(accuracies),
        forgettings=_each(forgettings),
    )


def batch_results(item: Item, run: Run, counts: Counts) -> list[Result]:
    """The accuracy of one run for each order of the test images and each batch size."""
    whole = replace(result(item, [run]), forgetting="", task_given="", seconds="", accuracies="", forgettings="")
    return [
        replace(whole, group=order, at=size, accuracy=f"{100 * correct / total:.2f}")
        for order, by_size in counts.items()
        for size, (correct, total) in by_size.items()
    ]


def below_bound(result: Result, results: Iterable[Result]) -> float | None:
    """How far a method stays below the upper bound of its backbone, which is the one in its group."""
    bound = next((other.value for other in results if other.group == result.group and _is_bound(other)), None)
    if bound is None or result.value is None or _is_bound(result):
        return None
    return bound - result.value


def to_csv(results: Iterable[Result]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, [field.name for field in fields(Result)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(each) for each in results)
    return file.getvalue()


def read_csv(path: Path) -> list[Result]:
    """The results in a file that `to_csv` wrote."""
    try:
        head, *rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8")), strict=True)
        columns = [field.name for field in fields(Result)]
        if head not in (columns, columns[: -len(LATER)]):
            raise ValueError("other columns")
        found = [Result(**dict(zip(head, row, strict=True))) for row in rows]
        for each in found:
            int(each.at or 0)
            for name in NUMBERS:
                float(getattr(each, name) or 0)
            seeds = [int(seed) for seed in each.seeds.split()]
            for name in EACH:
                if (numbers := getattr(each, name).split()) and len(numbers) != len(seeds):
                    raise ValueError(f"{len(numbers)} {name} of seeds {each.seeds}")
                [float(number) for number in numbers]
            if each.accuracies and len(each.runs.split()) != len(seeds):
                raise ValueError(f"{len(each.runs.split())} runs of seeds {each.seeds}")
    except (ValueError, csv.Error) as error:
        raise BadFileError(f"{path}: not a table of ours ({error})") from error
    return found


def shares_to_csv(shares: dict[str, Matrix]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["stream", "task", "prompt", "share"])
    for stream, rows in shares.items():
        for (task, prompt), share in np.ndenumerate(rows):
            writer.writerow([stream, task + 1, prompt + 1, f"{share:.4f}"])
    return file.getvalue()


def read_shares(path: Path) -> dict[str, Matrix]:
    """The shares in a file that `shares_to_csv` wrote."""
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
        found = {}
        for stream, lines in groupby(rows, key=lambda row: row["stream"]):
            cells = [(int(row["task"]), int(row["prompt"]), float(row["share"])) for row in lines]
            found[stream] = np.zeros((max(t for t, _, _ in cells), max(p for _, p, _ in cells)))
            for task, prompt, share in cells:
                found[stream][task - 1, prompt - 1] = share
    except (KeyError, TypeError, ValueError, UnicodeDecodeError) as error:
        raise BadFileError(f"{path}: not a table of ours ({error})") from error
    return found


def filled_from(results: Results, earlier: Results) -> Results:
    """The results, with cells and seeds that they lack taken from earlier ones of the same cells and values."""
    known = {result.key: result for found in earlier.studies.values() for result in found}
    studies = {
        name: [joined(result, known[result.key]) if result.key in known else result for result in found]
        for name, found in results.studies.items()
    }
    return Results(studies, earlier.shares | results.shares)


def joined(here: Result, earlier: Result) -> Result:
    """A cell with the seeds that were run here, and of the others those that were run earlier.

    Where a cell was not run here the earlier one stands, unless it is known to be of other values. Files of before
    there were numbers of each seed hold whole cells only.
    """
    if earlier.values and here.values and earlier.values != here.values:
        return here
    if not here.accuracy or not earlier.accuracies:
        return here if here.accuracy else earlier
    own, before = here.seeds.split(), earlier.seeds.split()
    order = sorted({*own, *before}, key=int)
    more = len(order) - len(own)
    if not more:
        return here

    def both(name: str) -> list[str]:
        """One entry for each seed, in order; nothing where one of them has none."""
        ours, theirs = getattr(here, name).split(), getattr(earlier, name).split()
        if not ours or not theirs:
            return []
        of_seed = dict(zip(before, theirs, strict=True)) | dict(zip(own, ours, strict=True))
        return [of_seed[seed] for seed in order]

    def mean(name: str, form: str) -> str:
        """The mean of something that only has a mean over the seeds of each."""
        ours, theirs = getattr(here, name), getattr(earlier, name)
        if not ours or not theirs:
            return str(ours or theirs)
        return format((float(ours) * len(own) + float(theirs) * more) / len(order), form)

    accuracies, forgettings = both("accuracies"), both("forgettings")
    accuracy, accuracy_deviation = _percent([float(number) / 100 for number in accuracies])
    forgetting, forgetting_deviation = _percent([float(number) / 100 for number in forgettings])
    return replace(
        here,
        accuracy=accuracy,
        accuracy_deviation=accuracy_deviation,
        forgetting=forgetting,
        forgetting_deviation=forgetting_deviation,
        task_given=mean("task_given", ".2f"),
        prompts=mean("prompts", "g"),
        seconds=mean("seconds", ".0f"),
        seeds=" ".join(order),
        revision=" ".join(sorted({*here.revision.split(), *earlier.revision.split()})),
        runs=" ".join(both("runs")),
        accuracies=" ".join(accuracies),
        forgettings=" ".join(forgettings),
    )


def known_seeds(earlier: Results, key: tuple[str, ...], values: str) -> set[int]:
    """The seeds of a cell that were run earlier with these values."""
    found = (result for of_study in earlier.studies.values() for result in of_study if result.key == key)
    return {int(seed) for cell in found if cell.accuracies and cell.values == values for seed in cell.seeds.split()}


def read_results(folder: Path, studies: Iterable[str] = STUDIES) -> Results:
    """The results of these studies, as far as the folder has their CSV files; an error where it has none."""
    results = read_some_results(folder, studies)
    if not results.studies:
        raise BadFileError(f"{folder}: has no CSV of {', '.join(studies)}")
    return results


def read_some_results(folder: Path, studies: Iterable[str]) -> Results:
    """The results of these studies, as far as the folder has their CSV files; perhaps of none."""
    results = Results()
    for name in studies:
        if name == "figure3" and (folder / SHARES).is_file():
            results.shares, results.studies[name] = read_shares(folder / SHARES), []
        elif name != "figure3" and (folder / f"{name}.csv").is_file():
            results.studies[name] = read_csv(folder / f"{name}.csv")
    return results


def _is_bound(result: Result) -> bool:
    return result.method == UPPER_BOUND


def _each(shares: Sequence[float]) -> str:
    return " ".join(f"{100 * share:.2f}" for share in shares)


def _percent(shares: Sequence[float]) -> tuple[str, str]:
    """Mean and deviation over seeds."""
    found = measured([100 * share for share in shares])
    if found is None:
        return "", ""
    return f"{found.mean:.2f}", "" if found.deviation is None else f"{found.deviation:.2f}"


def reported_text(value: float | None, deviation: float | None) -> str:
    """A number of the paper, in percent."""
    return "" if value is None else f"{value:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")
