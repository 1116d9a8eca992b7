"""The parts of a page: its skeleton, tables and pictures. No scripts, no requests, light and dark, wide and narrow."""

from __future__ import annotations

import base64
from html import escape
from importlib.resources import files
from itertools import groupby

from promptpool import __version__
from promptpool.report.plots import Picture
from promptpool.report.table import Cell, Column, Table

# Nothing runs and nothing is fetched, even if something slipped through the escaping.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(title: str, lead: str, body: str, *, source: str) -> str:
    """A whole page around a body that is HTML already; the other texts are escaped here."""
    style = files("promptpool.report").joinpath("page.css").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p class="lead">{escape(lead)}</p>
</header>
<main>
{body}
</main>
<footer>Made by promptpool {escape(__version__)} {escape(source)}.</footer>
</body>
</html>
"""


def table_html(table: Table, label: str) -> str:
    """A table with its notes and without its title, which is a heading of the page."""
    first = 1 if table.grouped else 0
    columns = table.columns[first:]
    head = "".join(f'<th scope="col"{_class(column)}>{escape(column.name)}</th>' for column in columns)
    body = []
    for group, rows in groupby(table.rows, key=lambda row: row[0].text if table.grouped else ""):
        lines = [f'<tr><th class="group left" colspan="{len(columns)}">{escape(group)}</th></tr>'] if group else []
        for name, *cells in (row[first:] for row in rows):
            found = "".join(_cell(cell, column) for cell, column in zip(cells, columns[1:], strict=True))
            lines.append(f'<tr><th scope="row" class="left">{_content(name, columns[0])}</th>{found}</tr>')
        body.append("<tbody>\n" + "\n".join(lines) + "\n</tbody>")
    notes = "".join(f'\n<p class="note">{escape(note)}</p>' for note in table.notes)
    return f"""<div class="card wide" tabindex="0" role="region" aria-label="{escape(label)}">
<table>
<thead><tr>{head}</tr></thead>
{chr(10).join(body)}
</table>
</div>{notes}"""


def picture_html(picture: Picture, subject: str, *, level: int, card: bool) -> str:
    """A picture with its caption; the browser takes the one of its own theme."""
    dark, light = (_data(picture.kind, content) for content in (picture.dark, picture.light))
    explanation = f"<p>{escape(picture.explanation)}</p>" if picture.explanation else ""
    return f"""<figure{' class="card"' if card else ""}>
<picture>
<source media="(prefers-color-scheme: dark)" srcset="{dark}">
<img src="{light}" alt="{escape(f"{picture.title}: {subject}")}">
</picture>
<figcaption><h{level}>{escape(picture.title)}</h{level}>{explanation}</figcaption>
</figure>"""


def _cell(cell: Cell, column: Column) -> str:
    if cell.share is not None:
        return f'<td class="share" style="--share:{100 * cell.share:.1f}%">{_content(cell, column)}</td>'
    return f"<td{_class(column)}>{_content(cell, column)}</td>"


def _content(cell: Cell, column: Column) -> str:
    if column.folder and cell != Cell():
        words = cell.text.split()
        return " ".join(f'<a href="{escape(f"{column.folder}/{word}")}">{escape(word)}</a>' for word in words)
    text = f"<b>{escape(cell.text)}</b>" if cell.best else escape(cell.text)
    return text + (f'<span class="values">{escape(cell.detail)}</span>' if cell.detail else "")


def _class(column: Column) -> str:
    return ' class="left"' if column.left else ""


def _data(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
