"""What is shown of results: a table for each stream, figures, the claims, and the files of all that with one page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from itertools import groupby
from pathlib import Path

from promptpool.errors import BadFileError
from promptpool.files import write_whole
from promptpool.report.html import page, picture_html, table_html
from promptpool.report.names import UPPER_BOUND
from promptpool.report.plots import Picture
from promptpool.report.table import UNDEFINED, Cell, Column, Table, markdown
from promptpool.reproduce.claims import claims, claims_table
from promptpool.reproduce.figures import pictures
from promptpool.reproduce.latex import latex
from promptpool.reproduce.results import SHARES, Result, Results, below_bound, read_results, shares_to_csv, to_csv
from promptpool.reproduce.studies import STUDIES

CLAIMS, PAGE = "claims.md", "reproduced.html"
TITLES = {
    "table1": "Table 1: class-incremental learning",
    "table2": "Table 2: architecture-based methods, each beside its own upper bound",
    "table3": "Table 3: domain-incremental learning",
    "table4": "Table 4: task-agnostic learning",
    "table5": "Table 5: what the parts of L2P are worth",
    "figure3": "Figure 3: prompts that tasks choose",
    "figure4": "Figure 4: prompt length, prompts chosen, pool size",
    "buffers": "Accuracy by images kept",
    "batches": "Test batches: what a vote over a batch gives away",
}


def study_tables(results: Sequence[Result], *, runs: str = "") -> dict[str, Table]:
    """The tables of one study, by stream; on a page the runs are links into the folder `runs`."""
    streams = dict.fromkeys(result.stream for result in results)
    return {stream: _table([each for each in results if each.stream == stream], runs) for stream in streams}


def write_results(results: Results, folder: Path, runs: Path) -> Path:
    """Write all results, with those of other studies that the folder already has; returns the page."""
    results = _with_earlier(results, folder)
    drawn = pictures(results)
    for name, found in results.studies.items():
        if name != "figure3":
            tables = study_tables(found)
            write_whole(folder / f"{name}.csv", to_csv(found).encode())
            write_whole(folder / f"{name}.md", markdown([*tables.values()]).encode())
            write_whole(folder / f"{name}.tex", latex(tables).encode())
    if results.shares:
        write_whole(folder / SHARES, shares_to_csv(results.shares).encode())
    for name, each in drawn.items():
        write_whole(folder / f"{name}.png", each.png)
        write_whole(folder / f"{name}.svg", each.svg)
    claimed = claims_table(claims(results))
    write_whole(folder / CLAIMS, markdown([claimed]).encode())
    links = os.path.relpath(runs, folder)
    parts = [f"<section>\n<h2>The paper's claims</h2>\n{table_html(claimed, 'Claims')}\n</section>"]
    parts += [_section(name, found, drawn.get(name), links) for name, found in results.studies.items()]
    lead = "Tables and figures of Wang et al. (CVPR 2022), measured by this code."
    whole = page("Learning to Prompt, reproduced", lead, "\n".join(parts), source="from the CSV files beside it")
    write_whole(folder / PAGE, whole.encode())
    return folder / PAGE


def _with_earlier(results: Results, folder: Path) -> Results:
    """The results with those of other studies in the folder, in the order of the paper."""
    studies, shares = dict(results.studies), results.shares
    for name in (name for name in STUDIES if name not in studies):
        with suppress(BadFileError):  # a damaged file costs its own study only
            earlier = read_results(folder, (name,))
            studies[name], shares = earlier.studies[name], shares or earlier.shares
    return Results({name: studies[name] for name in STUDIES if name in studies}, shares)


def _section(name: str, results: Sequence[Result], drawn: Picture | None, runs: str) -> str:
    parts = [f"<h2>{escape(TITLES[name])}</h2>"]
    parts += [] if drawn is None else [picture_html(drawn, TITLES[name], level=3, card=True)]
    for stream, table in study_tables(results, runs=runs).items():
        parts += [f"<h3>{escape(stream)}</h3>", table_html(table, stream)]
    return "\n".join(["<section>", *parts, "</section>"])


def _table(results: Sequence[Result], runs: str) -> Table:
    """One stream: rows in groups, with what each number rests on beside it."""
    forgetting, paper = _any(results, "forgetting"), _any(results, "paper_accuracy")
    bounds = results[0].study == "table2"
    columns = [Column("group", left=True, in_terminal=False), Column("method", left=True, whole=True)]
    columns += [Column("accuracy", whole=True)] + ([Column("forgetting", whole=True)] if forgetting else [])
    columns += [Column("below its bound"), Column("with the task given")] if bounds else []
    columns += [Column("the paper"), Column("its forgetting")] if paper else []
    columns += [Column("prompts in use"), Column("seconds", in_terminal=False), Column("classes in loss", left=True)]
    columns += [Column("runs", left=True, in_terminal=False, folder=runs)]
    rows = []
    best = {name: _best(results, name) for name in ("accuracy", "forgetting")}
    for result in results:
        numbers = [_spread(result, name, best[name]) for name in ("accuracy", "forgetting")[: 1 + forgetting]]
        gap = below_bound(result, results) if bounds else None
        more = ["" if gap is None else f"{gap:.2f}", result.task_given] if bounds else []
        more += [result.paper_accuracy, result.paper_forgetting] if paper else []
        more += [f"{result.prompts} of {result.pool_size}" if result.prompts else ""]
        more += [result.seconds, result.loss_classes, result.runs]
        cells = (Cell(result.group), Cell(_name(result)), *numbers, *(Cell(text or UNDEFINED) for text in more))
        rows.append(cells)
    return Table(tuple(columns), tuple(rows), f"{TITLES[results[0].study]}, {results[0].stream}", grouped=True)


def _name(result: Result) -> str:
    """The method, with the value it is measured at unless the group says it."""
    if not result.at or result.group == f"{result.at} per class":
        return result.method
    return f"{result.method}, {result.at}" + (" kept per class" if result.study == "table2" else "")


def _best(results: Sequence[Result], name: str) -> list[Result]:
    """The best of each group of two or more; an upper bound is no method, and a curve has no best point."""
    best, choose = list[Result](), min if name == "forgetting" else max
    for _, group in groupby(results, key=lambda result: result.group):
        known = [result for result in group if getattr(result, name) and result.method != UPPER_BOUND]
        if len(known) > 1 and results[0].study.startswith("table"):
            extreme = choose(float(getattr(result, name)) for result in known)
            best += [result for result in known if float(getattr(result, name)) == extreme]
    return best


def _spread(result: Result, name: str, best: Sequence[Result]) -> Cell:
    """A number with its deviation."""
    value, deviation = getattr(result, name), getattr(result, f"{name}_deviation")
    if not value:
        return Cell()
    return Cell(f"{value} ± {deviation}" if deviation else value, result in best)


def _any(results: Sequence[Result], name: str) -> bool:
    return any(getattr(result, name) for result in results)
