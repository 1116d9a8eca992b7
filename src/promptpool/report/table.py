"""One kind of table, for a terminal and in Markdown; `html.py` has it for a page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import rich.table
from rich.box import MINIMAL
from rich.text import Text

UNDEFINED = "-"


class Cell(NamedTuple):
    """The text in one place of a table."""

    text: str = UNDEFINED
    best: bool = False  # shown in bold
    detail: str = ""  # follows after a colon; on a page it is a smaller line below
    share: float | None = None  # on a page a bar of this length (0 to 1) lies behind the text

    @property
    def line(self) -> str:
        return f"{self.text}: {self.detail}" if self.detail else self.text


class Column(NamedTuple):
    """The name of a column and how it is laid out; in a terminal it is as narrow as its longest word."""

    name: str
    left: bool = False  # words start at the left, numbers end at the right
    whole: bool = False  # cells are not broken into several lines
    wrap: int = 0  # lines are filled up to this width before they are broken
    in_terminal: bool = True
    folder: str = ""  # on a page every word of a cell is a link to its place in this folder


@dataclass(frozen=True)
class Table:
    """Rows of cells under named columns; of a `grouped` table the first column says which rows belong together."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    notes: tuple[str, ...] = ()
    grouped: bool = False


def terminal(table: Table) -> rich.table.Table:
    """The table for `rich` to print, as narrow as words allow; a line with its name begins each group."""
    found = rich.table.Table(title=Text(table.title), box=MINIMAL, padding=0, show_edge=False)
    found.caption = Text("\n".join(table.notes)) if table.notes else None
    found.title_justify = found.caption_justify = "left"
    shown = [place for place, column in enumerate(table.columns) if column.in_terminal]
    for place in shown:
        column = table.columns[place]
        width = None if column.wrap else _width(column, [row[place].line for row in table.rows])
        found.add_column(column.name, justify="left" if column.left else "right", overflow="fold", width=width)
    group = None
    for row in table.rows:
        if table.grouped and row[0].text != group:
            group = row[0].text
            found.add_section()
            found.add_row(Text(group, style="italic"))
        found.add_row(*(_text(row[place], table.columns[place]) for place in shown))
    return found


def markdown(tables: Sequence[Table]) -> str:
    """The tables one below the other, each with its title above and its notes below."""
    return "\n".join(_markdown(table) for table in tables)


def _width(column: Column, texts: Sequence[str]) -> int:
    words = texts if column.whole else [word for text in texts for word in text.split()]
    return max(map(len, [*column.name.split(), *words]))


def _text(cell: Cell, column: Column) -> Text:
    line = cell.line
    if column.wrap:
        line = textwrap.fill(line, column.wrap, break_on_hyphens=False, break_long_words=False)
    return Text(line, style="bold" if cell.best else "")


def _markdown(table: Table) -> str:
    lines = [[column.name for column in table.columns]]
    lines += [["---" if column.left else "---:" for column in table.columns]]
    lines += [[f"**{escaped(c.line)}**" if c.best else escaped(c.line) for c in row] for row in table.rows]
    body = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    title = f"**{escaped(table.title)}**\n\n" if table.title else ""
    notes = "".join(f"- {note}\n" for note in table.notes)
    return title + body + (f"\n{notes}" if notes else "")


def escaped(text: str) -> str:
    """Markdown that shows the text as it is."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("\n", " ")
    for special in "\\|*_`[]":
        text = text.replace(special, f"\\{special}")
    return text
