"""A comparison as a table, and all comparisons as one CSV file.

People read accuracies in percent; CSV has shares between 0 and 1. What is not defined is "-", in CSV an empty cell.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import rich.table

from promptpool import metrics
from promptpool.report.rows import Comparison, Measured, Metric, Row, compare, measured, seed_text
from promptpool.report.table import UNDEFINED, Cell, Column, Table, terminal
from promptpool.training.run_folder import Run

METHOD_WIDTH = 15  # of a line of its name in a terminal
MARK = "†"  # predictions depend on test batches
PER_TASK: dict[str, Metric] = {
    "average accuracy": metrics.average_accuracy,
    "forgetting": metrics.forgetting,
    "learning accuracy": metrics.learning_accuracy,
}
ONE_TEST_SET: dict[str, Metric] = {"final accuracy": metrics.final_accuracy}
TASK_GIVEN = "task given"


def terminal_tables(runs: Sequence[Run]) -> list[rich.table.Table]:
    """A table for `rich` to print per stream, narrow enough for 80 columns."""
    return [terminal(comparison_table(comparison)) for comparison in compare(runs)]


def comparison_table(comparison: Comparison) -> Table:
    """A row for each configuration, the title says what the stream is."""
    wanted = ONE_TEST_SET if _one_test_set(comparison) else PER_TASK
    given = any(row.task_given for row in comparison.rows)
    columns = (
        Column("method", left=True, wrap=METHOD_WIDTH),
        Column("classes in loss", left=True),
        *(Column(name) for name in (*wanted, *([TASK_GIVEN] if given else []))),
        Column("prompts in use", whole=all(len(row.runs) == 1 for row in comparison.rows)),
        Column("seconds"),
        Column("seeds"),
    )
    rows = tuple(tuple(_cells(row, wanted, given=given)) for row in comparison.rows)
    return Table(columns, rows, _title(comparison), tuple(_notes(comparison)))


def comma_separated(comparisons: Sequence[Comparison]) -> str:
    """All streams in one CSV, with their fingerprints."""
    wanted = PER_TASK | ONE_TEST_SET
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    numbers = [*wanted, TASK_GIVEN, "prompts in use", "seconds"]
    writer.writerow(
        ["stream", "method", "loss_classes"]
        + [f"{name.replace(' ', '_')}{part}" for name in numbers for part in ("", "_deviation")]
        + ["pool_size", "vote", "seeds"]
    )
    for comparison in comparisons:
        defined = ONE_TEST_SET if _one_test_set(comparison) else PER_TASK
        for row in comparison.rows:
            found = [row.each(metric) if name in defined else [] for name, metric in wanted.items()]
            found += [row.task_given, [*map(float, row.prompts_in_use)], row.seconds]
            parts = [part for values in found for part in (measured(values) or (None, None))]
            writer.writerow(
                [comparison.stream, _method(row), row.loss_classes or UNDEFINED]
                + ["" if part is None else f"{part:.6g}" for part in parts]
                + ["" if row.pool_size is None else row.pool_size, row.vote, _seeds(row)]
            )
    return file.getvalue()


def count_text(count: int, thing: str, things: str = "") -> str:
    """A number of things, in words: "1 run", "2 classes"."""
    return f"{count} {thing if count == 1 else things or thing + 's'}"


def _cells(row: Row, wanted: dict[str, Metric], *, given: bool) -> list[Cell]:
    shares = [measured(row.each(metric)) for metric in wanted.values()]
    shares += [measured(row.task_given)] if given else []
    prompts, seconds = measured(row.prompts_in_use), measured(row.seconds)
    in_use = _number(prompts, ".0f" if prompts is None or prompts.deviation is None else ".1f")
    if row.pool_size is not None:
        in_use += f" of {row.pool_size}"
    return [
        Cell(f"{row.name} {MARK}" if row.vote else row.name, detail=row.values),
        Cell(row.loss_classes or UNDEFINED),
        Cell(_percent(shares[0]), share=shares[0].mean if shares[0] else None),
        *(Cell(_percent(share)) for share in shares[1:]),
        Cell(in_use),
        Cell(_number(seconds, ".0f" if seconds and seconds.mean >= 10 else ".1f")),
        Cell(_seeds(row)),
    ]


def _title(comparison: Comparison) -> str:
    run = max(comparison.runs, key=lambda run: int(run.environment["experiences"]))
    classes = run.environment.get("class_names")
    counted = f", {count_text(len(classes), 'class', 'classes')}" if isinstance(classes, list) else ""
    return f"{count_text(run.environment['experiences'], 'experience')}{counted}, stream {comparison.stream[:8]}"


def _notes(comparison: Comparison) -> list[str]:
    """What a reader must know beside the numbers."""
    found = ["Accuracies and forgetting in percent."]
    if any(len(row.runs) > 1 for row in comparison.rows):
        found.append("Mean ± deviation over seeds (n - 1).")
    if any(not run.finished for run in comparison.runs):
        found.append("Unfinished runs stand alone and enter no mean.")
    votes = sorted({row.vote for row in comparison.rows} - {0})
    if votes:
        found.append(
            f"{MARK} Predictions depend on test batches: images tested together vote on their prompts "
            f"(vote = {', '.join(map(str, votes))}), so test images that arrive task by task give the task away."
        )
    return found


def _one_test_set(comparison: Comparison) -> bool:
    return all(len(record.total) == 1 for run in comparison.runs for record in run.records[:1])


def _method(row: Row) -> str:
    return f"{row.name}: {row.values}" if row.values else row.name


def _seeds(row: Row) -> str:
    return ", ".join(seed_text(run) for run in row.runs)


def _percent(share: Measured | None) -> str:
    if share is None:
        return UNDEFINED
    return _number(Measured(100 * share.mean, None if share.deviation is None else 100 * share.deviation), ".1f")


def _number(value: Measured | None, form: str) -> str:
    if value is None:
        return UNDEFINED
    return f"{value.mean:{form}}" + ("" if value.deviation is None else f" ± {value.deviation:{form}}")
