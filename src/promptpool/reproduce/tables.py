"""Tables as in the paper, from entries alone: terminal, Markdown and LaTeX.

One table per stream, groups by buffer, the best of a group in bold. Beside each number stand the classes that the
loss saw, the prompts in use, and the run it came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from rich.box import MINIMAL
from rich.table import Table
from rich.text import Text

from promptpool.reproduce.entries import Entry, below_bound
from promptpool.reproduce.studies import UPPER_BOUND

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
UNDEFINED = "-"
NAMED, DETAILS = 2, 4  # columns before the numbers, and after them
WHOLE = ("method", "accuracy", "forgetting")  # columns whose cells stay in one line


class Cell(NamedTuple):
    """What stands in one place of a table, and whether it is the best of its group."""

    text: str = UNDEFINED
    best: bool = False


def markdown(entries: Sequence[Entry]) -> str:
    """The tables of one study."""
    return "\n".join(_markdown(stream, group) for stream, group in streams(entries))


def terminal(entries: Sequence[Entry]) -> Iterator[Table]:
    for stream, rows in streams(entries):
        table = Table(title=Text(f"{TITLES[rows[0].study]}, {stream}"), box=MINIMAL, padding=(0, 1, 0, 0))
        table.show_edge = False
        table.title_justify = "left"
        lines = [cells(row, rows) for row in rows]
        shown = [place for place, name in enumerate(header(rows)) if name not in ("group", "seconds", "runs")]
        for place in shown:  # a group is a line of its own, run names are too wide
            name = header(rows)[place]
            texts = [name, *(line[place].text for line in lines)]
            parts = texts if name in WHOLE else [word for text in texts for word in text.split()]
            table.add_column(
                name, justify="left" if name == "method" else "right", overflow="fold", width=max(map(len, parts))
            )
        for place, row in enumerate(rows):
            if not place or row.group != rows[place - 1].group:
                table.add_section()
                table.add_row(Text(row.group, style="italic"))
            found = [lines[place][at] for at in shown]
            table.add_row(*(Text(cell.text, style="bold" if cell.best else "") for cell in found))
        yield table


def latex(entries: Sequence[Entry]) -> str:
    r"""One `tabular` with all streams side by side, as in the paper; needs \usepackage{booktabs}.

    A comment after each line names its runs, with the classes that the loss saw and the prompts in use.
    """
    found = streams(entries)
    columns = [header(rows)[NAMED:-DETAILS] for _, rows in found]
    lines = [r"\begin{tabular}{ll" + "".join("r" * len(names) for names in columns) + "}", r"\toprule"]
    heads = [
        rf"\multicolumn{{{len(names)}}}{{c}}{{{_tex(stream)}}}"
        for (stream, _), names in zip(found, columns, strict=True)
    ]
    lines += [rf" & & {' & '.join(heads)} \\"]
    lines += [" & ".join(["method", "group", *(name for names in columns for name in names)]) + r" \\", r"\midrule"]
    aligned = [_by_rank(rows) for _, rows in found]
    order = sorted(dict.fromkeys(key for rows in aligned for key in rows), key=lambda key: key[0])
    for place, key in enumerate(order):
        if place and key[0] != order[place - 1][0]:
            lines.append(r"\midrule")
        rows = [each.get(key) for each in aligned]
        line, details = list[str](), list[str]()
        for row, names, (_, others) in zip(rows, columns, found, strict=True):
            shown = [Cell()] * (NAMED + len(names) + DETAILS) if row is None else cells(row, others)
            line += [_tex_cell(cell) for cell in shown[NAMED:-DETAILS]]
            details.append(", ".join(cell.text for cell in shown[-DETAILS:] if cell.text != UNDEFINED))
        groups = " / ".join(dict.fromkeys(row.group for row in rows if row))
        lines.append(" & ".join([_tex(key[1]), _tex(groups), *line]) + rf" \\ % {'; '.join(details)}")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _by_rank(rows: Sequence[Entry]) -> dict[tuple[int, str], Entry]:
    """Rows by the place of their group and what they are called in it."""
    groups = list(dict.fromkeys(row.group for row in rows))
    return {(groups.index(row.group), _named(row)): row for row in rows}


def streams(entries: Sequence[Entry]) -> list[tuple[str, list[Entry]]]:
    return [(stream, list(rows)) for stream, rows in groupby(entries, key=lambda row: row.stream)]


def _markdown(stream: str, rows: Sequence[Entry]) -> str:
    names = header(rows)
    lines = [names, ["---"] * 2 + ["---:"] * (len(names) - 4) + ["---", "---"]]
    lines += [[f"**{cell.text}**" if cell.best else cell.text for cell in cells(row, rows)] for row in rows]
    body = "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
    return f"**{TITLES[rows[0].study]}, {stream}**\n\n{body}\n"


def header(rows: Sequence[Entry]) -> list[str]:
    names = ["group", "method", "accuracy"]
    if _any(rows, "forgetting"):
        names.append("forgetting")
    if rows[0].study == "table2":
        names += ["below its bound", "with the task given"]
    if _any(rows, "paper_accuracy"):
        names += ["the paper", "its forgetting"]
    return [*names, "prompts in use", "seconds", "classes in loss", "runs"]


def cells(row: Entry, rows: Sequence[Entry]) -> list[Cell]:
    """Those of a row among the rows of its table, one for each name of the header."""
    found = [Cell(row.group), Cell(_named(row)), _spread(row, rows, "accuracy")]
    if _any(rows, "forgetting"):
        found.append(_spread(row, rows, "forgetting"))
    more: list[str] = []
    if row.study == "table2":
        gap = below_bound(row, rows)
        more += ["" if gap is None else f"{gap:.2f}", row.task_given]
    if _any(rows, "paper_accuracy"):
        more += [row.paper_accuracy, row.paper_forgetting]
    more += [f"{row.prompts} of {row.pool_size}" if row.prompts else "", row.seconds, row.loss_classes, row.runs]
    return [*found, *(Cell(text or UNDEFINED) for text in more)]


def _named(row: Entry) -> str:
    """The method, with the value it is measured at where the group does not say it."""
    if not row.at or row.group == f"{row.at} per class":
        return row.method
    return f"{row.method}, {row.at}" + (" kept per class" if row.study == "table2" else "")


def _best(rows: Sequence[Entry], name: str) -> list[Entry]:
    """The best of each group of two or more in a table; an upper bound is no method, a curve has no best point."""
    best, choose = list[Entry](), min if name == "forgetting" else max
    for _, group in groupby(rows, key=lambda row: row.group):
        known = [row for row in group if getattr(row, name) and row.method != UPPER_BOUND]
        if len(known) > 1 and rows[0].study.startswith("table"):
            extreme = choose(float(getattr(row, name)) for row in known)
            best += [row for row in known if float(getattr(row, name)) == extreme]
    return best


def _any(rows: Sequence[Entry], name: str) -> bool:
    return any(getattr(row, name) for row in rows)


def _spread(row: Entry, rows: Sequence[Entry], name: str) -> Cell:
    """A number with its deviation."""
    value, deviation = getattr(row, name), getattr(row, f"{name}_deviation")
    if not value:
        return Cell()
    return Cell(f"{value} ± {deviation}" if deviation else value, row in _best(rows, name))


def _tex_cell(cell: Cell) -> str:
    text = _tex(cell.text).replace(" ± ", r"$\pm$")
    return rf"\textbf{{{text}}}" if cell.best else text


def _tex(text: str) -> str:
    for special in "&%$#_{}":
        text = text.replace(special, f"\\{special}")
    return text
