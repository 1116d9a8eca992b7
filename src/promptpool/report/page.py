"""One page that holds all of a report: no scripts, no requests, light and dark, wide and narrow."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from promptpool import __version__
from promptpool.report.pictures import Picture
from promptpool.report.rows import Comparison, Row, flat, shown
from promptpool.report.tables import MARK, cells, header, lines, notes, seed_text, title
from promptpool.training.folder import Run

# Nothing runs and nothing is fetched, even if something slipped through the escaping.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(
    comparisons: Sequence[Comparison], compared: Sequence[Sequence[Picture]], own: Mapping[Path, Sequence[Picture]]
) -> str:
    """The page; `compared` are the pictures of each comparison, `own` those of each run folder."""
    style = files("promptpool.report").joinpath("page.css").read_text(encoding="utf-8")
    several = len(comparisons) > 1
    body = "\n".join(
        _comparison(comparison, pictures, own, f"Stream {number}: " if several else "")
        for number, (comparison, pictures) in enumerate(zip(comparisons, compared, strict=True), start=1)
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>promptpool report</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<header>
<h1>promptpool report</h1>
<p class="lead">{escape(_lead(comparisons))}</p>
</header>
<main>
{body}
</main>
<footer>Made by promptpool {escape(__version__)} from run folders alone.</footer>
</body>
</html>
"""


def _lead(comparisons: Sequence[Comparison]) -> str:
    runs, rows = sum(len(each.runs) for each in comparisons), sum(len(each.rows) for each in comparisons)
    text = f"{_count(runs, 'run')} of {_count(rows, 'configuration')} on {_count(len(comparisons), 'stream')}."
    return text + (" Only what ran on the same stream is compared." if len(comparisons) > 1 else "")


def _comparison(
    comparison: Comparison, pictures: Sequence[Picture], own: Mapping[Path, Sequence[Picture]], prefix: str
) -> str:
    names = ", ".join(row.short for row in comparison.rows)
    shown_pictures = "\n".join(_picture(picture, names, level=3, card=True) for picture in pictures)
    runs = "\n".join(
        _run(row, run, own[run.path], unfolded=place == 0)
        for row in comparison.rows
        for place, run in enumerate(row.runs)
    )
    return f"""<section>
<h2>{escape(prefix + title(comparison))}</h2>
{_table(comparison)}
<div class="pictures">
{shown_pictures}
</div>
<h2>Each run</h2>
<div class="runs">
{runs}
</div>
</section>"""


def _table(comparison: Comparison) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header(comparison))
    body = []
    for row, line in zip(comparison.rows, lines(comparison), strict=True):
        method, *rest = cells(line)
        if row.values:
            method = method.replace(f": {row.values}", "", 1)
        values = f'<span class="values">{escape(row.values)}</span>' if row.values else ""
        found = [f"<td>{escape(cell)}</td>" for cell in rest]
        first = next(iter(line.metrics.values()))
        if first is not None:
            found[1] = f'<td class="share" style="--share:{100 * first.mean:.1f}%">{escape(rest[1])}</td>'
        body.append(f'<tr><th scope="row">{escape(method)}{values}</th>{"".join(found)}</tr>')
    plain = " ".join(note for note in notes(comparison) if not note.startswith(MARK))
    below = "".join(
        f'<p class="note">{escape(note)}</p>'
        for note in (plain, *(note for note in notes(comparison) if note.startswith(MARK)))
    )
    return f"""<div class="card wide" tabindex="0" role="region" aria-label="Results">
<table>
<thead><tr>{head}</tr></thead>
<tbody>
{chr(10).join(body)}
</tbody>
</table>
</div>
{below}"""


def _run(row: Row, run: Run, pictures: Sequence[Picture], *, unfolded: bool) -> str:
    name = f"{row.short}, seed {seed_text(run)}"
    shown_pictures = "\n".join(_picture(picture, name, level=4, card=False) for picture in pictures)
    parts = {"Configuration": flat(run.config), "Environment": flat(run.environment), "Cost": _cost(run)}
    facts = "\n".join(
        f"<details><summary>{escape(part)}</summary>{_facts(values)}</details>" for part, values in parts.items()
    )
    wide = " all" if len(pictures) > 1 else ""
    return f"""<details class="card{wide}"{" open" if unfolded else ""}>
<summary><h3>{escape(name)}</h3> <span class="note">{escape(run.name)}</span></summary>
<div class="pictures">
{shown_pictures}
</div>
{facts}
</details>"""


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


def _picture(picture: Picture, subject: str, *, level: int, card: bool) -> str:
    """The browser takes the picture of its own theme."""
    dark, light = (_data(picture.kind, content) for content in (picture.dark, picture.light))
    return f"""<figure{' class="card"' if card else ""}>
<picture>
<source media="(prefers-color-scheme: dark)" srcset="{dark}">
<img src="{light}" alt="{escape(f"{picture.title}: {subject}")}">
</picture>
<figcaption><h{level}>{escape(picture.title)}</h{level}><p>{escape(picture.explanation)}</p></figcaption>
</figure>"""


def _data(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
