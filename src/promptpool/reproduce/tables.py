"""Tables as in the paper, from entries alone: terminal, Markdown and LaTeX.

One table per stream, groups by buffer, the best of a group in bold. Beside each number stand the classes that the
loss saw, the prompts in use, and the run it came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.box import MINIMAL
from rich.table import Table
from rich.text import Text

from promptpool.reproduce.entries import Entry

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
WHOLE = ("method", "accuracy", "forgetting")  # columns whose cells stay in one line


def markdown(entries: Sequence[Entry]) -> str:
    """The tables of one study."""
    return "\n".join(_markdown(stream, group) for stream, group in streams(entries))


def terminal(entries: Sequence[Entry]) -> Iterator[Table]:
    for stream, rows in streams(entries):
        table = Table(title=Text(f"{TITLES[rows[0].study]}, {stream}"), box=MINIMAL, padding=(0, 1, 0, 0))
        table.show_edge = False
        table.title_justify = "left"
        for name in header(rows)[1:-1]:  # a group is a line of its own, and run names are too wide
            table.add_column(name, justify="left" if name == "method" else "right", no_wrap=name in WHOLE)
        for place, row in enumerate(rows):
            if not place or row.group != rows[place - 1].group:
                table.add_section()
                table.add_row(Text(row.group, style="italic"))
            shown = cells(row, rows)[1:-1]
            table.add_row(*(Text(cell.strip("*"), style="bold" if cell.startswith("**") else "") for cell in shown))
        yield table


def latex(entries: Sequence[Entry]) -> str:
    r"""One `tabular` with all streams side by side, as in the paper; needs \usepackage{booktabs}."""
    found = streams(entries)
    lines = [r"\begin{tabular}{ll" + "rr" * len(found) + "}", r"\toprule"]
    heads = " & ".join(rf"\multicolumn{{2}}{{c}}{{{_tex(stream)}}}" for stream, _ in found)
    columns = "Method & Buffer" + " & Average Acc & Forgetting" * len(found)
    lines += [rf" & & {heads} \\", rf"{columns} \\", r"\midrule"]
    aligned = [_by_rank(rows) for _, rows in found]
    order = sorted(dict.fromkeys(key for rows in aligned for key in rows), key=lambda key: key[0])
    for place, key in enumerate(order):
        if place and key[0] != order[place - 1][0]:
            lines.append(r"\midrule")
        rows = [each.get(key) for each in aligned]
        numbers = [cell for row, (_, others) in zip(rows, found, strict=True) for cell in _tex_cells(row, others)]
        buffers = " / ".join(dict.fromkeys(row.group for row in rows if row))
        lines.append(" & ".join([_tex(key[1]), _tex(buffers), *numbers]) + r" \\")
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
    lines += [cells(row, rows) for row in rows]
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


def cells(row: Entry, rows: Sequence[Entry]) -> list[str]:
    best = row in _best(rows)
    accuracy = _spread(row.accuracy, row.accuracy_deviation)
    found = [row.group, _named(row), f"**{accuracy}**" if best else accuracy]
    if _any(rows, "forgetting"):
        found.append(_spread(row.forgetting, row.forgetting_deviation))
    if row.study == "table2":
        found += [_gap(row, rows), row.task_given or UNDEFINED]
    if _any(rows, "paper_accuracy"):
        found += [row.paper_accuracy or UNDEFINED, row.paper_forgetting or UNDEFINED]
    prompts = f"{row.prompts} of {row.pool_size}" if row.prompts else UNDEFINED
    return [*found, prompts, row.seconds or UNDEFINED, row.loss_classes or UNDEFINED, row.runs or UNDEFINED]


def _named(row: Entry) -> str:
    """The method, with the value it is measured at where the group does not say it."""
    return row.method if not row.at or row.group == f"{row.at} per class" else f"{row.method}, {row.at}"


def _best(rows: Sequence[Entry]) -> list[Entry]:
    """The highest of each group of two or more in a table; an upper bound is no method, a curve has no best point."""
    best = []
    for _, group in groupby(rows, key=lambda row: row.group):
        known = [row for row in group if row.value is not None and row.method != "Upper bound"]
        known = known if rows[0].study.startswith("table") else []
        if len(known) > 1:
            best += [row for row in known if row.value == max(other.value or 0.0 for other in known)]
    return best


def _gap(row: Entry, rows: Sequence[Entry]) -> str:
    """How far a method stays below the upper bound of its backbone."""
    bound = next((other.value for other in rows if other.group == row.group and other.method == "Upper bound"), None)
    if bound is None or row.value is None or row.method == "Upper bound":
        return UNDEFINED
    return f"{bound - row.value:.2f}"


def _any(rows: Sequence[Entry], name: str) -> bool:
    return any(getattr(row, name) for row in rows)


def _spread(value: str, deviation: str) -> str:
    if not value:
        return UNDEFINED
    return f"{value} ± {deviation}" if deviation else value


def _tex_cells(row: Entry | None, rows: Sequence[Entry]) -> list[str]:
    if row is None:
        return [UNDEFINED, UNDEFINED]
    number = _tex_spread(row.accuracy, row.accuracy_deviation)
    best = row in _best(rows)
    return [rf"\textbf{{{number}}}" if best else number, _tex_spread(row.forgetting, row.forgetting_deviation)]


def _tex_spread(value: str, deviation: str) -> str:
    return _spread(value, deviation).replace(" ± ", r"$\pm$")


def _tex(text: str) -> str:
    for special in "&%$#_{}":
        text = text.replace(special, f"\\{special}")
    return text
