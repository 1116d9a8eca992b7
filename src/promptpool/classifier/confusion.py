"""The confusion matrix as a drawing in the page: three classes or a hundred, in the colours of the page's theme.

Rows are labels, columns are answers. A cell is as strong in colour as its share of the row is large; right answers have
one colour, wrong ones another. Small matrices have numbers, and every cell says what it is when pointed at.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from promptpool.classifier.evaluation import Evaluation
from promptpool.classifier.pictures import UNKNOWN

MOST = 120  # labels that are drawn; beyond, those with the most wrong answers
ANOTHER = "another class"
LONGEST = 24  # letters of a name


class Look(NamedTuple):
    """How large the parts are, in pixels."""

    cell: int
    text: int
    numbers: bool
    slanted: bool


LOOKS = ((12, Look(44, 13, True, True)), (30, Look(30, 12, True, True)), (60, Look(17, 11, False, False)))
SMALL = Look(10, 9, False, False)


def confusion_svg(found: Evaluation) -> str:
    """The matrix, as SVG to stand in a page."""
    rows, columns, counts = _matrix(found)
    size = max(len(rows), len(columns))
    look = next((look for most, look in LOOKS if size <= most), SMALL)
    names = 0.6 * look.text * max(len(_short(name)) for name in (*rows, *columns)) + 12
    left, top = names, (0.75 * names + 8 if look.slanted else names)
    width, height = left + look.cell * len(columns) + (0.75 * names if look.slanted else 8), top + look.cell * len(rows)
    totals = {row: sum(counts.get((row, column), 0) for column in columns) for row in rows}
    parts = [_grid(len(rows), len(columns), look, left, top), *_names(rows, columns, look, left, top)]
    for y, row in enumerate(rows):
        for x, column in enumerate(columns):
            if count := counts.get((row, column), 0):
                at = left + look.cell * x, top + look.cell * y
                parts.append(_cell(row, column, count, totals[row], look, *at))
    said = f"Confusion matrix of {len(rows)} labels and {len(columns)} answers; the tables beside it have the numbers"
    return (
        f'<svg class="matrix" role="img" aria-label="{escape(said)}" width="{width:.0f}" height="{height + 8:.0f}" '
        f'viewBox="0 0 {width:.0f} {height + 8:.0f}" font-size="{look.text}">\n' + "\n".join(parts) + "\n</svg>"
    )


def _matrix(found: Evaluation) -> tuple[list[str], list[str], dict[tuple[str, str], int]]:
    """Labels, answers and counts; of too many the labels with the most wrong answers."""
    labels, answers = [each.label for each in found.classes], list(found.answers)
    if max(len(labels), len(answers)) <= MOST:
        return labels, answers, found.confusion
    worst = sorted(found.classes, key=lambda each: each.right - each.pictures)[:MOST]
    labels = [each.label for each in found.classes if each in worst]
    answers = [each.label for each in found.classes if each in worst and each.known]
    counts: dict[tuple[str, str], int] = {}
    for (label, answer), count in found.confusion.items():
        if label in labels:
            key = label, answer if answer in (*answers, UNKNOWN) else ANOTHER
            counts[key] = counts.get(key, 0) + count
    return labels, [*answers, ANOTHER, UNKNOWN], counts


def _grid(rows: int, columns: int, look: Look, left: float, top: float) -> str:
    right, bottom = left + look.cell * columns, top + look.cell * rows
    across = "".join(f"M{left:.0f} {top + look.cell * n:.0f}H{right:.0f}" for n in range(rows + 1))
    down = "".join(f"M{left + look.cell * n:.0f} {top:.0f}V{bottom:.0f}" for n in range(columns + 1))
    return f'<path class="grid" d="{across}{down}"/>'


def _names(rows: Sequence[str], columns: Sequence[str], look: Look, left: float, top: float) -> list[str]:
    shift, turn = 0.35 * look.text, -45 if look.slanted else -90
    found = []
    for n, name in enumerate(rows):
        y = top + look.cell * (n + 0.5) + shift
        found.append(f'<text x="{left - 6:.1f}" y="{y:.1f}" text-anchor="end">{escape(_short(name))}</text>')
    for n, name in enumerate(columns):
        x = left + look.cell * (n + 0.5) + (0 if look.slanted else shift)
        at = f"{x:.1f} {top - 6:.1f}"
        found.append(f'<text transform="translate({at}) rotate({turn})">{escape(_short(name))}</text>')
    return found


def _cell(row: str, column: str, count: int, total: int, look: Look, x: float, y: float) -> str:
    share = count / total
    kind = "right" if row == column else "refused" if column == UNKNOWN else "wrong"
    opacity = 0.12 + 0.38 * share if look.numbers else 0.2 + 0.8 * share**0.5
    said = f"{row}, answered with {column}: {count:,} of {total:,}"
    number = ""
    if look.numbers:
        middle = f'x="{x + look.cell / 2:.1f}" y="{y + look.cell / 2 + 0.35 * look.text:.1f}"'
        number = f'<text class="number" {middle} text-anchor="middle">{count}</text>'
    side = f'x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{look.cell - 1}" height="{look.cell - 1}"'
    return f'<g><title>{escape(said)}</title><rect class="{kind}" {side} fill-opacity="{opacity:.2f}"/>{number}</g>'


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
