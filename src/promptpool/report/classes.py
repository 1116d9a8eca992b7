"""Accuracy class by class, worst first: as a table of a run, in words, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from promptpool.report.rows import Comparison, Row, compare, seed_text
from promptpool.report.table import UNDEFINED, Cell, Column, Table
from promptpool.training.record import ClassCount
from promptpool.training.run_folder import Run

NAMED = 3  # of the worst classes, in words


def worst_first(run: Run) -> list[ClassCount]:
    """The counts of each class in the last record; none in a run of an earlier version."""
    found = run.records[-1].by_class if run.records else None
    return sorted(found or (), key=lambda count: (_share(count), -count.total, count.label))


def class_table(run: Run) -> Table | None:
    """Every class with its accuracy, its test images and what they are most often taken for; None without counts."""
    counts = worst_first(run)
    if not counts:
        return None
    columns = (
        Column("class", left=True),
        Column("accuracy (%)"),
        Column("right"),
        Column("test images"),
        Column("most often taken for", left=True),
    )
    return Table(columns, tuple(_cells(run, count) for count in counts))


def worst_lines(runs: Sequence[Run]) -> list[str]:
    """The worst classes of each configuration, one line each; seeds are counted together."""
    rows = [row for comparison in compare(runs) for row in comparison.rows]
    found = {row.name: ", ".join(_worst(row)) for row in rows}
    several = len(found) > 1
    return [f"worst classes{f' of {name}' if several else ''}: {worst}" for name, worst in found.items() if worst]


def classes_csv(comparisons: Sequence[Comparison]) -> str | None:
    """Every class of every run; None where no run has counts."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["stream", "method", "seed", "class", "right", "test_images", "taken_for", "times"])
    before = file.tell()
    for comparison in comparisons:
        for row in comparison.rows:
            for run in row.runs:
                about = [comparison.stream, row.name, seed_text(run)]
                for count in worst_first(run):
                    taken_for = "" if count.taken_for is None else _name(run, count.taken_for)
                    numbers = [count.correct, count.total, taken_for, count.times]
                    writer.writerow([*about, _name(run, count.label), *numbers])
    return file.getvalue() if file.tell() > before else None


def _cells(run: Run, count: ClassCount) -> tuple[Cell, ...]:
    wrong = UNDEFINED if count.taken_for is None else f"{_name(run, count.taken_for)} ({count.times})"
    return (
        Cell(_name(run, count.label)),
        Cell(f"{100 * _share(count):.1f}", share=_share(count)),
        Cell(str(count.correct)),
        Cell(str(count.total)),
        Cell(wrong),
    )


def _worst(row: Row) -> Iterator[str]:
    """The worst classes among those that are not always right; of a single run also what they are taken for."""
    run, known = row.runs[0], [{count.label: count for count in worst_first(run)} for run in row.runs]
    if len(known) == 1:
        counts = list(known[0].values())
    else:
        labels = set(known[0]).intersection(*known[1:])
        together = [[counts[label] for counts in known] for label in sorted(labels)]
        counts = [ClassCount(c[0].label, sum(x.correct for x in c), sum(x.total for x in c)) for c in together]
        counts.sort(key=_share)
    for count in [count for count in counts if count.correct < count.total][:NAMED]:
        taken_for = "" if count.taken_for is None else f", most often taken for {_name(run, count.taken_for)}"
        yield f"{_name(run, count.label)} {100 * _share(count):.0f} % ({count.correct} of {count.total}{taken_for})"


def _share(count: ClassCount) -> float:
    return count.correct / count.total


def _name(run: Run, label: int) -> str:
    names = run.environment.get("class_names")
    known = isinstance(names, list) and label < len(names)
    return " ".join(str(names[label]).split()) if names and known else f"class {label + 1}"
