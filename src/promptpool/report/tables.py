"""One table per stream, for a terminal, in Markdown and in CSV, from the same lines.

Accuracies are in percent in what people read, and shares between 0 and 1 in CSV. A metric that is not defined is
"-", an empty cell in CSV. Several seeds give their mean and deviation (n - 1).
"""

from __future__ import annotations

import csv
import io
import re
import statistics
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy.typing as npt
from rich.box import MINIMAL
from rich.table import Table
from rich.text import Text

from promptpool import metrics
from promptpool.report.rows import Comparison, Row, compare, loss_classes, seed_of, shown
from promptpool.training.folder import Run

UNDEFINED = "-"
METHOD_WIDTH = 15  # of a line of its name in a terminal
POOLED = re.compile(r"\d+ of \d+")  # prompts in use, which stay in one line
MARK = "†"  # predictions depend on test batches
Metric = Callable[[npt.ArrayLike], float]
PER_TASK: dict[str, Metric] = {
    "average accuracy": metrics.average_accuracy,
    "forgetting": metrics.forgetting,
    "learning accuracy": metrics.learning_accuracy,
}
ONE_TEST_SET: dict[str, Metric] = {"final accuracy": metrics.final_accuracy}
TASK_GIVEN = "task given"


class Measured(NamedTuple):
    """A mean over seeds; no deviation for a single one."""

    mean: float
    deviation: float | None = None


@dataclass(frozen=True)
class Line:
    """What a table says of one row."""

    method: str
    loss_classes: str
    metrics: dict[str, Measured | None]
    prompts: Measured | None
    pool_size: int | None
    seconds: Measured | None
    seeds: str
    vote: int


def terminal_tables(runs: Sequence[Run]) -> list[Table]:
    """A table for `rich` to print per stream."""
    return [_terminal(comparison) for comparison in compare(runs)]


def markdown(runs: Sequence[Run]) -> str:
    return "\n".join(_markdown(comparison) for comparison in compare(runs))


def comma_separated(runs: Sequence[Run]) -> str:
    """All streams in one CSV, with their fingerprints."""
    names = [*PER_TASK, *ONE_TEST_SET, TASK_GIVEN]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    numbers = [*names, "prompts in use", "seconds"]
    writer.writerow(
        ["stream", "method", "loss_classes"]
        + [f"{_column(name)}{part}" for name in numbers for part in ("", "_deviation")]
        + ["pool_size", "vote", "seeds"]
    )
    for comparison in compare(runs):
        for line in lines(comparison):
            found = [line.metrics.get(name) for name in names] + [line.prompts, line.seconds]
            cells = [cell for measured in found for cell in (measured or (None, None))]
            writer.writerow(
                [comparison.stream, line.method, line.loss_classes]
                + ["" if cell is None else f"{cell:.6g}" for cell in cells]
                + ["" if line.pool_size is None else line.pool_size, line.vote, line.seeds]
            )
    return file.getvalue()


def lines(comparison: Comparison) -> list[Line]:
    wanted = ONE_TEST_SET if _one_test_set(comparison) else PER_TASK
    return [_line(row, wanted, told=_told(comparison)) for row in comparison.rows]


def header(comparison: Comparison) -> list[str]:
    wanted = ONE_TEST_SET if _one_test_set(comparison) else PER_TASK
    told = [TASK_GIVEN] if _told(comparison) else []
    return ["method", "classes in loss", *wanted, *told, "prompts in use", "seconds", "seeds"]


def cells(line: Line) -> list[str]:
    """A line as it is read, in the order of `header`."""
    several = line.prompts is not None and line.prompts.deviation is not None
    prompts = _number(line.prompts, ".1f" if several else ".0f")
    if line.pool_size is not None:
        prompts += f" of {line.pool_size}"
    return [
        f"{line.method} {MARK}" if line.vote else line.method,
        line.loss_classes,
        *(_percent(measured) for measured in line.metrics.values()),
        prompts,
        _number(line.seconds, ".0f" if line.seconds and line.seconds.mean >= 10 else ".1f"),
        line.seeds,
    ]


def title(comparison: Comparison) -> str:
    """What the stream is, in a few words."""
    run = max(comparison.runs, key=lambda run: int(run.environment["experiences"]))
    classes = run.environment.get("class_names")
    counted = f", {_count(len(classes), 'class', 'classes')}" if isinstance(classes, list) else ""
    experiences = _count(run.environment["experiences"], "experience", "experiences")
    return f"{experiences}{counted}, stream {comparison.stream[:8]}"


def notes(comparison: Comparison) -> list[str]:
    """What a reader must know beside the numbers."""
    found = ["Accuracies and forgetting in percent."]
    if any(len(row.runs) > 1 for row in comparison.rows):
        found.append("Mean ± deviation over seeds (n - 1).")
    if any(not run.finished for run in comparison.runs):
        found.append("Unfinished runs stand alone and enter no mean.")
    votes = sorted({_vote(run) for run in comparison.runs} - {0})
    if votes:
        found.append(
            f"{MARK} Predictions depend on test batches: images tested together vote on their prompts "
            f"(vote = {', '.join(map(str, votes))}), so test images that arrive task by task give the task away."
        )
    return found


def _terminal(comparison: Comparison) -> Table:
    """Narrow enough for 80 columns, where cells and headers of several words take several lines."""
    table = Table(title=Text(title(comparison)), caption=Text("\n".join(notes(comparison))), box=MINIMAL, padding=0)
    table.show_edge = False
    table.title_justify = table.caption_justify = "left"
    rows = [cells(line) for line in lines(comparison)]
    table.add_column("method", overflow="fold")
    for place, name in enumerate(header(comparison)[1:], start=1):
        column = [row[place] for row in rows]
        words = [word for text in (name, *column) for word in ([text] if POOLED.fullmatch(text) else text.split())]
        table.add_column(name, justify="left" if place == 1 else "right", width=max(map(len, words)))
    for method, *rest in rows:
        method = textwrap.fill(method, METHOD_WIDTH, break_on_hyphens=False, break_long_words=False)
        table.add_row(Text(method), *(Text(cell) for cell in rest))
    return table


def _markdown(comparison: Comparison) -> str:
    names = header(comparison)
    rows = [names, ["---"] * 2 + ["---:"] * (len(names) - 2)]
    rows += [[_escaped(cell) for cell in cells(line)] for line in lines(comparison)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    below = "\n".join(f"- {note}" for note in notes(comparison))
    return f"**{_escaped(title(comparison))}**\n\n{table}\n\n{below}\n"


def _line(row: Row, wanted: dict[str, Metric], *, told: bool) -> Line:
    given = [share for run in row.runs if run.records and (share := run.records[-1].accuracy_given_task) is not None]
    facts = [_facts(run) for run in row.runs]
    in_use = [found["prompts_in_use"] for found in facts if "prompts_in_use" in found]
    seconds = [sum(run.seconds) for run in row.runs if run.seconds]
    return Line(
        method=row.method,
        loss_classes=loss_classes(row.runs[0]) or UNDEFINED,
        metrics={name: _metric(metric, row.runs) for name, metric in wanted.items()}
        | ({TASK_GIVEN: _measured(given)} if told else {}),
        prompts=_measured(in_use),
        pool_size=next((len(found["key_similarity"]) for found in facts if "key_similarity" in found), None),
        seconds=_measured(seconds),
        seeds=", ".join(seed_text(run) for run in row.runs),
        vote=max(_vote(run) for run in row.runs),
    )


def _metric(metric: Metric, runs: Sequence[Run]) -> Measured | None:
    """None where the metric is not defined for one of the runs, or for its method."""
    if metric is metrics.forgetting and not all(_facts(run).get("forgets", True) for run in runs):
        return None
    try:
        return _measured([metric(run.accuracy) for run in runs])
    except ValueError:
        return None


def _measured(values: Sequence[float]) -> Measured | None:
    if not values:
        return None
    return Measured(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def _one_test_set(comparison: Comparison) -> bool:
    return all(len(record.total) == 1 for run in comparison.runs for record in run.records[:1])


def _told(comparison: Comparison) -> bool:
    """Whether a run was also tested with the task given."""
    return any(run.records[-1].correct_given_task is not None for run in comparison.runs if run.records)


def _facts(run: Run) -> dict[str, Any]:
    return run.records[-1].facts if run.records else {}


def _vote(run: Run) -> int:
    return int(_facts(run).get("vote", 0))


def seed_text(run: Run) -> str:
    """The run's seed; its parts' where they were set apart."""
    given = [value for value in seed_of(run) if value is not None]
    return shown(given[0]) if len(set(given)) == 1 else "/".join(map(shown, given)) or UNDEFINED


def _percent(measured: Measured | None) -> str:
    if measured is None:
        return UNDEFINED
    deviation = None if measured.deviation is None else 100 * measured.deviation
    return _number(Measured(100 * measured.mean, deviation), ".1f")


def _number(measured: Measured | None, form: str) -> str:
    if measured is None:
        return UNDEFINED
    if measured.deviation is None:
        return format(measured.mean, form)
    return f"{measured.mean:{form}} ± {measured.deviation:{form}}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _column(name: str) -> str:
    return name.replace(" ", "_")


def _escaped(text: str) -> str:
    """Markdown that shows the text as it is."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("\n", " ")
    for special in "\\|*_`[]":
        text = text.replace(special, f"\\{special}")
    return text
