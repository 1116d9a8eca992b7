"""A report: a folder with the page, the tables and the pictures of runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from promptpool.files import write_whole
from promptpool.report import plots
from promptpool.report.classes import class_table, classes_csv
from promptpool.report.comparison import comma_separated, comparison_table, count_text
from promptpool.report.html import page, picture_html, table_html
from promptpool.report.plots import Picture
from promptpool.report.rows import Comparison, Row, compare, flat, seed_text, shown
from promptpool.report.table import Table, markdown
from promptpool.training.run_folder import Run


def write_report(runs: Sequence[Run], folder: Path) -> Path:
    """Write `report.html`, `table.md`, `table.csv`, `classes.csv`, PNG and SVG of every picture; returns the page."""
    if not runs:
        raise ValueError("a report needs at least one run")
    comparisons = compare(runs)
    tables = [comparison_table(comparison) for comparison in comparisons]
    prefixes = [f"stream-{number}-" if len(tables) > 1 else "" for number in range(1, len(tables) + 1)]
    compared = [plots.of_comparison(*each) for each in zip(comparisons, prefixes, strict=True)]
    every = [run for comparison in comparisons for run in comparison.runs]
    own = {run.path: plots.of_run(run, name) for run, name in zip(every, file_names(every), strict=True)}
    for picture in [picture for found in (*compared, *own.values()) for picture in found]:
        write_whole(folder / f"{picture.name}.png", picture.png)
        write_whole(folder / f"{picture.name}.svg", picture.svg)
    write_whole(folder / "table.md", markdown(tables).encode())
    write_whole(folder / "table.csv", comma_separated(comparisons).encode())
    if (classes := classes_csv(comparisons)) is not None:
        write_whole(folder / "classes.csv", classes.encode())
    body = "\n".join(
        _comparison(comparison, table, pictures, own, f"Stream {number}: " if len(tables) > 1 else "")
        for number, (comparison, table, pictures) in enumerate(zip(comparisons, tables, compared, strict=True), start=1)
    )
    whole = page("promptpool report", _lead(comparisons), body, source="from run folders alone")
    write_whole(folder / "report.html", whole.encode())
    return folder / "report.html"


def file_names(runs: Sequence[Run]) -> list[str]:
    """A name for each run that is safe in a file name, and unique even where upper and lower case are the same."""
    safe = [re.sub(r"[^a-z0-9.]+", "-", run.name.lower()).strip("-.") or "run" for run in runs]
    return [name if safe.count(name) == 1 else f"{name}-{1 + place}" for place, name in enumerate(safe)]


def _lead(comparisons: Sequence[Comparison]) -> str:
    runs, rows = sum(len(each.runs) for each in comparisons), sum(len(each.rows) for each in comparisons)
    streams = count_text(len(comparisons), "stream")
    text = f"{count_text(runs, 'run')} of {count_text(rows, 'configuration')} on {streams}."
    return text + (" Only what ran on the same stream is compared." if len(comparisons) > 1 else "")


def _comparison(
    comparison: Comparison,
    table: Table,
    pictures: Sequence[Picture],
    own: Mapping[Path, Sequence[Picture]],
    prefix: str,
) -> str:
    names = ", ".join(row.name for row in comparison.rows)
    compared = "\n".join(picture_html(picture, names, level=3, card=True) for picture in pictures)
    runs = "\n".join(
        _run(row, run, own[run.path], unfolded=place == 0)
        for row in comparison.rows
        for place, run in enumerate(row.runs)
    )
    return f"""<section>
<h2>{escape(prefix + table.title)}</h2>
{table_html(table, "Results")}
<div class="pictures">
{compared}
</div>
<h2>Each run</h2>
<div class="runs">
{runs}
</div>
</section>"""


def _run(row: Row, run: Run, pictures: Sequence[Picture], *, unfolded: bool) -> str:
    name = f"{row.name}, seed {seed_text(run)}"
    drawn = "\n".join(picture_html(picture, name, level=4, card=False) for picture in pictures)
    parts = {"Configuration": flat(run.config), "Environment": flat(run.environment), "Cost": _cost(run)}
    facts = "\n".join(
        f"<details><summary>{escape(part)}</summary>{_facts(values)}</details>" for part, values in parts.items()
    )
    wide = " all" if len(pictures) > 1 else ""
    return f"""<details class="card{wide}"{" open" if unfolded else ""}>
<summary><h3>{escape(name)}</h3> <span class="note">{escape(run.name)}</span></summary>
<div class="pictures">
{drawn}
</div>
{_classes(run, name)}{facts}
</details>"""


def _classes(run: Run, name: str) -> str:
    """The table of classes in a box that scrolls, however many there are."""
    table = class_table(run)
    if table is None:
        return ""
    return f"""<div class="classes">
<h4>Classes, worst first</h4>
{table_html(table, f"Classes, worst first: {name}")}
</div>
"""


def _cost(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = {"experiences": f"{len(run.records)} of {run.environment['experiences']}"}
    if run.records:
        found["steps"] = run.records[-1].step
    if run.seconds:
        found["seconds"] = f"{sum(run.seconds):.1f}"
        found["seconds per experience"] = [round(seconds, 2) for seconds in run.seconds]
    return found


def _facts(values: Mapping[str, Any]) -> str:
    rows = (
        f'<tr><th scope="row">{escape(key)}</th><td>{escape(shown(value))}</td></tr>' for key, value in values.items()
    )
    return f'<table class="facts"><tbody>{"".join(rows)}</tbody></table>'
