"""What a study found, one line per cell, as it is kept in a CSV file: all that tables and claims are made of.

Accuracies and forgetting are per cent with two decimals, as the paper prints them; an empty cell is not defined, or not
measured yet.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy.typing as npt

from promptpool import metrics
from promptpool.errors import BadFileError
from promptpool.report.rows import loss_classes
from promptpool.reproduce.paper import Reported
from promptpool.reproduce.studies import UPPER_BOUND, Item
from promptpool.training.folder import Run


@dataclass(frozen=True)
class Entry:
    """One cell: numbers as text, so that what is printed is what is kept."""

    study: str
    stream: str
    group: str
    method: str
    at: str = ""
    accuracy: str = ""
    accuracy_deviation: str = ""
    forgetting: str = ""
    forgetting_deviation: str = ""
    task_given: str = ""  # accuracy when the task is told
    loss_classes: str = ""
    prompts: str = ""  # in use
    pool_size: str = ""
    seconds: str = ""
    seeds: str = ""
    paper_accuracy: str = ""
    paper_forgetting: str = ""
    revision: str = ""
    runs: str = ""

    @property
    def value(self) -> float | None:
        """The accuracy as a number."""
        return float(self.accuracy) if self.accuracy else None


def below_bound(row: Entry, rows: Iterable[Entry]) -> float | None:
    """How far a method stays below the upper bound of its backbone, which is that of its group."""
    bound = next((other.value for other in rows if other.group == row.group and other.method == UPPER_BOUND), None)
    if bound is None or row.value is None or row.method == UPPER_BOUND:
        return None
    return bound - row.value


NUMBERS = ("accuracy", "accuracy_deviation", "forgetting", "forgetting_deviation")


def entry(item: Item, runs: Sequence[Run]) -> Entry:
    """What the finished runs of an item (one for each seed) say."""
    found = [run for run in runs if run.finished]
    facts = [run.records[-1].facts for run in found]
    accuracy = _measured([100 * _accuracy(run) for run in found])
    forgetting = _measured([100 * lost for run in found if (lost := _forgetting(run)) is not None])
    given = _measured([100 * share for run in found if (share := run.records[-1].accuracy_given_task) is not None])
    in_use = [float(each["prompts_in_use"]) for each in facts if "prompts_in_use" in each]
    return Entry(
        study=item.study,
        stream=item.stream,
        group=item.group,
        method=item.method,
        at="" if item.at is None else str(item.at),
        accuracy=accuracy[0],
        accuracy_deviation=accuracy[1],
        forgetting=forgetting[0],
        forgetting_deviation=forgetting[1],
        task_given=given[0],
        loss_classes=loss_classes(found[0]) if found else "",
        prompts=f"{statistics.fmean(in_use):g}" if in_use else "",
        pool_size=str(item.config["learner"].get("pool_size", "")) if in_use else "",
        seconds=f"{statistics.fmean(sum(run.seconds) for run in found):.0f}" if found else "",
        seeds=" ".join(str(run.config["seed"]) for run in found),
        paper_accuracy=_reported(item.reported, "accuracy", "deviation"),
        paper_forgetting=_reported(item.reported, "forgetting", "forgetting_deviation"),
        revision=" ".join(sorted({str(run.environment.get("revision") or "unknown") for run in found})),
        runs=" ".join(run.path.name for run in found),
    )


def to_csv(entries: Iterable[Entry]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, [field.name for field in fields(Entry)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(each) for each in entries)
    return file.getvalue()


def read_csv(path: Path) -> list[Entry]:
    """The entries of a file that `to_csv` wrote."""
    try:
        head, *rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8")), strict=True)
        if head != [field.name for field in fields(Entry)]:
            raise ValueError("other columns")
        found = [Entry(**dict(zip(head, row, strict=True))) for row in rows]
        for each in found:
            int(each.at or 0)
            for name in NUMBERS:
                float(getattr(each, name) or 0)
    except (ValueError, csv.Error) as error:
        raise BadFileError(f"{path}: not a table of ours ({error})") from error
    return found


def _accuracy(run: Run) -> float:
    single = run.accuracy.shape[1] == 1
    return metrics.final_accuracy(run.accuracy) if single else metrics.average_accuracy(run.accuracy)


def _forgetting(run: Run) -> float | None:
    if not run.records[-1].facts.get("forgets", True):
        return None
    return _or_none(metrics.forgetting, run.accuracy)


def _or_none(metric: Callable[[npt.ArrayLike], float], accuracy: npt.ArrayLike) -> float | None:
    try:
        return metric(accuracy)
    except ValueError:
        return None


def _measured(values: Sequence[float]) -> tuple[str, str]:
    """Mean and deviation (n - 1) over seeds."""
    if not values:
        return "", ""
    return f"{statistics.fmean(values):.2f}", f"{statistics.stdev(values):.2f}" if len(values) > 1 else ""


def _reported(reported: Reported | None, value: str, deviation: str) -> str:
    if reported is None or getattr(reported, value) is None:
        return ""
    spread = getattr(reported, deviation)
    return f"{getattr(reported, value):.2f}" + ("" if spread is None else f" ± {spread:.2f}")
