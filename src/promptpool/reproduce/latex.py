r"""The tables of a study as one LaTeX `tabular`, all streams side by side as in the paper; needs \usepackage{booktabs}.

A comment after each line has the last four columns: prompts in use, seconds, classes in the loss, and the runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from promptpool.report.table import UNDEFINED, Cell, Table

NAMED, DETAILS = 2, 4  # columns before the numbers (group, method), and after them

Key = tuple[int, str]  # the place of a row's group in its table, and its method


def latex(tables: Mapping[str, Table]) -> str:
    """One `tabular` of the tables by stream."""
    columns = [[column.name for column in table.columns[NAMED:-DETAILS]] for table in tables.values()]
    heads = [
        rf"\multicolumn{{{len(names)}}}{{c}}{{{_escaped(stream)}}}"
        for stream, names in zip(tables, columns, strict=True)
    ]
    lines = [
        r"\begin{tabular}{ll" + "r" * sum(map(len, columns)) + "}",
        r"\toprule",
        rf" & & {' & '.join(heads)} \\",
        " & ".join(["method", "group", *(name for names in columns for name in names)]) + r" \\",
        r"\midrule",
    ]
    aligned = [_by_key(table) for table in tables.values()]
    order = sorted(dict.fromkeys(key for rows in aligned for key in rows), key=lambda key: key[0])
    for place, key in enumerate(order):
        if place and key[0] != order[place - 1][0]:
            lines.append(r"\midrule")
        empty = [(Cell(),) * len(table.columns) for table in tables.values()]
        rows = [found.get(key, nothing) for found, nothing in zip(aligned, empty, strict=True)]
        groups = " / ".join(dict.fromkeys(found[key][0].text for found in aligned if key in found))
        numbers = [_cell(cell) for row in rows for cell in row[NAMED:-DETAILS]]
        details = [", ".join(cell.text for cell in row[-DETAILS:] if cell.text != UNDEFINED) for row in rows]
        lines.append(" & ".join([_escaped(key[1]), _escaped(groups), *numbers]) + rf" \\ % {'; '.join(details)}")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _by_key(table: Table) -> dict[Key, tuple[Cell, ...]]:
    groups = list(dict.fromkeys(row[0].text for row in table.rows))
    return {(groups.index(row[0].text), row[1].text): row for row in table.rows}


def _cell(cell: Cell) -> str:
    text = _escaped(cell.text).replace(" ± ", r"$\pm$")
    return rf"\textbf{{{text}}}" if cell.best else text


def _escaped(text: str) -> str:
    for special in "&%$#_{}":
        text = text.replace(special, f"\\{special}")
    return text
