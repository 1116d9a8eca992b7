"""The files that a reproduction leaves: tables, figures, claims, and one page for all."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from importlib.resources import files
from pathlib import Path

from matplotlib.figure import Figure

from promptpool.errors import BadFileError
from promptpool.files import write_whole
from promptpool.report.page import POLICY
from promptpool.report.themes import png, svg
from promptpool.reproduce import figures, tables
from promptpool.reproduce.claims import Claim
from promptpool.reproduce.claims import markdown as claims_markdown
from promptpool.reproduce.entries import Entry, read_csv, to_csv
from promptpool.reproduce.plan import NAMES, Results

SHARES, CLAIMS, PAGE = "figure3.csv", "claims.md", "reproduced.html"


def write_results(results: Results, folder: Path, runs: Path) -> Path:
    """Write all that there is, beside the studies that the folder has already; returns the page."""
    results = _with_earlier(results, folder)
    drawn = {name: figure for name in results.entries if (figure := draw(name, results)) is not None}
    for name, entries in results.entries.items():
        if name != "figure3":
            write_whole(folder / f"{name}.csv", to_csv(entries).encode())
            write_whole(folder / f"{name}.md", tables.markdown(entries).encode())
            write_whole(folder / f"{name}.tex", tables.latex(entries).encode())
    if results.shares:
        write_whole(folder / SHARES, figures.shares_to_csv(results.shares).encode())
    for name, figure in drawn.items():
        write_whole(folder / f"{name}.png", png(figure))
        write_whole(folder / f"{name}.svg", svg(figure))
    write_whole(folder / CLAIMS, claims_markdown(results.claims).encode())
    write_whole(folder / PAGE, page(results, drawn, Path(os.path.relpath(runs, folder))).encode())
    return folder / PAGE


def _with_earlier(results: Results, folder: Path) -> Results:
    """The results with those of other studies in the folder, in the order of the paper."""
    entries, shares = dict(results.entries), results.shares
    for name in (name for name in NAMES if name not in entries):
        with suppress(BadFileError):  # a file that is damaged costs its own study alone
            earlier = read_results(folder, (name,))
            entries[name], shares = earlier.entries[name], shares or earlier.shares
    return Results({name: entries[name] for name in NAMES if name in entries}, shares)


def read_results(folder: Path, names: Sequence[str] = NAMES) -> Results:
    """What `write_results` left of these studies, from its CSV files."""
    results = Results()
    for name in names:
        if name != "figure3" and (folder / f"{name}.csv").is_file():
            results.entries[name] = read_csv(folder / f"{name}.csv")
    if "figure3" in names and (folder / SHARES).is_file():
        results.shares = figures.read_shares(folder / SHARES)
        results.entries["figure3"] = []
    if not results.entries:
        raise BadFileError(f"{folder}: has no CSV of a reproduction")
    return results


def draw(name: str, results: Results, *, theme: str = "light") -> Figure | None:
    """The figure of a study that has one, and of which something is known."""
    known = [entry for entry in results.entries[name] if entry.value is not None]
    if name == "figure3" and results.shares:
        return figures.figure3(results.shares, theme=theme)
    if name == "figure4" and known:
        return figures.figure4(known, theme=theme)
    if name == "buffers" and known:
        return figures.buffers(known, theme=theme)
    return None


def page(results: Results, drawn: dict[str, Figure], runs: Path) -> str:
    """One page that holds all of it; each row leads to its run folders."""
    style = files("promptpool.report").joinpath("page.css").read_text(encoding="utf-8")
    parts = [_section(name, entries, drawn.get(name), runs) for name, entries in results.entries.items()]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>promptpool reproduce</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<header>
<h1>Learning to Prompt, reproduced</h1>
<p class="lead">Tables and figures of Wang et al. (CVPR 2022), measured by this code.</p>
</header>
<main>
<section>
<h2>The paper's claims</h2>
{_table(["claim", "stream", "here", "seeds", "numbers"], [_claim(claim) for claim in results.claims])}
</section>
{chr(10).join(parts)}
</main>
</body>
</html>
"""


def _claim(claim: Claim) -> list[str]:
    return [escape(text) for text in (claim.text, claim.stream, claim.verdict, claim.seeds, claim.numbers)]


def _section(name: str, entries: Sequence[Entry], figure: Figure | None, runs: Path) -> str:
    picture = ""
    if figure is not None:
        data = base64.b64encode(svg(figure)).decode()
        alt = escape(tables.TITLES[name])
        picture = f'<figure class="card"><img src="data:image/svg+xml;base64,{data}" alt="{alt}"></figure>'
    found = []
    for stream, rows in tables.streams(entries):
        *head, last = tables.header(rows)
        lines = []
        for row in rows:
            *cells, _ = tables.cells(row, rows)
            links = " ".join(f'<a href="{escape(str(runs / run))}">{escape(run)}</a>' for run in row.runs.split())
            shown = [f"<b>{escape(cell.text)}</b>" if cell.best else escape(cell.text) for cell in cells]
            lines.append([*shown, links or tables.UNDEFINED])
        found.append(f"<h3>{escape(stream)}</h3>{_table([*head, last], lines)}")
    return f"<section>\n<h2>{escape(tables.TITLES[name])}</h2>\n{picture}\n{''.join(found)}\n</section>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML already."""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    lines = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"""<div class="card wide" tabindex="0" role="region" aria-label="Table">
<table>
<thead><tr>{heads}</tr></thead>
<tbody>
{lines}
</tbody>
</table>
</div>"""
