"""A report: a folder with the page, the tables and the pictures of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from promptpool.files import write_whole
from promptpool.report import pictures
from promptpool.report.page import page
from promptpool.report.rows import compare
from promptpool.report.tables import comma_separated, markdown
from promptpool.training.folder import Run


def write_report(runs: Sequence[Run], folder: Path) -> Path:
    """Write `report.html`, `table.md`, `table.csv`, PNG and SVG of every picture; returns the path of the page."""
    if not runs:
        raise ValueError("a report needs at least one run")
    comparisons = compare(runs)
    several = len(comparisons) > 1
    compared = [
        pictures.of_comparison(comparison, f"stream-{number}-" if several else "")
        for number, comparison in enumerate(comparisons, start=1)
    ]
    kept = [run for comparison in comparisons for run in comparison.runs]
    own = {run.path: pictures.of_run(run, name) for run, name in zip(kept, pictures.file_names(kept), strict=True)}
    for picture in [picture for found in (*compared, *own.values()) for picture in found]:
        write_whole(folder / f"{picture.name}.png", picture.png)
        write_whole(folder / f"{picture.name}.svg", picture.svg)
    write_whole(folder / "table.md", markdown(runs).encode())
    write_whole(folder / "table.csv", comma_separated(runs).encode())
    write_whole(folder / "report.html", page(comparisons, compared, own).encode())
    return folder / "report.html"
