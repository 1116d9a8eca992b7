"""What `make bench` says of its measurements: tables, a CSV file and a picture."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from promptpool.files import write_whole
from promptpool.report.themes import WIDTH, drawing, png

TEXTBOOK, FIRST, OURS, FLOOR, HALVES = "textbook", "first epoch", "ours", "floor", "in halves"
TEXTBOOK_ONEDNN, FIRST_ONEDNN, ONEDNN = "textbook, by oneDNN", "first epoch, by oneDNN", "by oneDNN"
BARS = {FIRST: 0, OURS: 1, TEXTBOOK_ONEDNN: 3, ONEDNN: 2, FLOOR: None}  # and their colours


class Measured(NamedTuple):
    """Images per second, round by round, and megabytes where they were measured."""

    model: str
    what: str  # training or evaluation
    who: str  # a contestant of `step.py`, or the floor
    rates: list[float]
    memory: float | None

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.rates) < 2:
            return self.rate, self.rate
        low, _, high = statistics.quantiles(self.rates, n=4, method="inclusive")
        return low, high


class Library(NamedTuple):
    """Who computes the products, and those who have them computed so: they are compared with each other."""

    said: str
    textbook: str
    first: str
    ours: str


TORCH = Library("", TEXTBOOK, FIRST, OURS)
BY_ONEDNN = Library(", both by oneDNN", TEXTBOOK_ONEDNN, FIRST_ONEDNN, ONEDNN)
Group = dict[str, Measured]


def groups(rows: Sequence[Measured]) -> dict[tuple[str, str], Group]:
    """Rows by model and what was done, then by who did it."""
    found: dict[tuple[str, str], Group] = {}
    for row in rows:
        found.setdefault((row.model, row.what), {})[row.who] = row
    return found


def speeds(rows: Sequence[Measured]) -> list[str]:
    """Two tables of images per second, one for each library: how many times as many as its textbook's, and in floors.

    The second says how many times as many as the first textbook's too, which is what both gain together.
    """
    torch, onednn = _head(TORCH, FLOOR), _head(BY_ONEDNN, f"{ONEDNN} / {TEXTBOOK}")
    for (model, what), group in groups(rows).items():
        floor = f"{_spread(group[FLOOR])}, {ratio(group, FLOOR, TEXTBOOK):.2f}x"
        torch.append(_line(model, what, group, TORCH, floor))
        onednn.append(_line(model, what, group, BY_ONEDNN, f"{ratio(group, ONEDNN, TEXTBOOK):.2f}"))
    return [*torch, "", *onednn]


def _head(library: Library, other: str) -> list[str]:
    cells = (library.textbook, library.first, library.ours, other, f"{library.ours} in floors")
    return [f"| model | images per second in | {' | '.join(cells)} |", f"|---|---|{'---:|' * len(cells)}"]


def _line(model: str, what: str, group: Group, library: Library, other: str) -> str:
    ours = (
        f"{_spread(group[who])}, {ratio(group, who, library.textbook):.2f}x" for who in (library.first, library.ours)
    )
    cells = (model, what, _spread(group[library.textbook]), *ours, other, f"{ratio(group, FLOOR, library.ours):.2f}")
    return f"| {' | '.join(cells)} |"


def memories(rows: Sequence[Measured]) -> list[str]:
    """Megabytes, and the share of the textbook's by the same library; then what parts of a batch cost in time."""
    beside = {TEXTBOOK: None, OURS: TEXTBOOK, HALVES: TEXTBOOK, TEXTBOOK_ONEDNN: None, ONEDNN: TEXTBOOK_ONEDNN}
    lines = [f"| model | MB in | {' | '.join(beside)} | speed in halves / ours |", f"|---|---|{'---:|' * 6}"]
    for (model, what), group in groups(rows).items():
        if memory(group, TEXTBOOK) is not None:
            cells = [model, what, *(_megabytes(group, who, textbook) for who, textbook in beside.items())]
            cells.append(f"{ratio(group, HALVES, OURS):.2f}" if HALVES in group else "-")
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _megabytes(group: Group, who: str, textbook: str | None) -> str:
    held, whole = memory(group, who), None if textbook is None else memory(group, textbook)
    if held is None:
        return "-"
    return f"{held:.0f}, {held / whole:.2f}" if whole else f"{held:.0f}"


def memory(group: Group, who: str) -> float | None:
    """The megabytes of a contestant, if it is there and they were measured."""
    return group[who].memory if who in group else None


def _spread(row: Measured) -> str:
    low, high = row.quartiles
    digits = 1 if row.rate < 100 else 0
    return f"{row.rate:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def ratio(group: Group, upper: str, lower: str) -> float:
    return group[upper].rate / group[lower].rate


def written(path: Path, rows: Sequence[Measured]) -> None:
    """A CSV file with a line for each measurement."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["model", "what", "who", "images_per_second", "first_quartile", "third_quartile", "megabytes"])
    for row in rows:
        rates = (f"{value:.2f}" for value in (row.rate, *row.quartiles))
        lines.writerow([row.model, row.what, row.who, *rates, "" if row.memory is None else f"{row.memory:.0f}"])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.getvalue().encode())


def read(path: Path) -> list[Measured]:
    """What such a file has."""
    rows = []
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            low, typical, high = (float(row[key]) for key in ("first_quartile", "images_per_second", "third_quartile"))
            memory = float(row["megabytes"]) if row["megabytes"] else None
            rows.append(Measured(row["model"], row["what"], row["who"], [low, low, typical, high, high], memory))
    return rows


def drawn(path: Path, rows: Sequence[Measured]) -> None:
    """Bars of speed in units of the textbook's, training beside evaluation, with quartiles as lines."""
    found, apart = groups(rows), 0.84 / len(BARS)
    models = list(dict.fromkeys(row.model for row in rows))
    with drawing("light") as look:
        figure = Figure(figsize=(2 * WIDTH, 1.7 + 0.75 * len(models)), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for panel, what in zip(panels, ("training", "evaluation"), strict=True):
            for number, (who, colour) in enumerate(BARS.items()):
                for place, model in enumerate(models):
                    row, unit = found[model, what][who], found[model, what][TEXTBOOK].rate
                    low, high = (value / unit for value in row.quartiles)
                    at = place + apart * (number - (len(BARS) - 1) / 2)
                    painted = look.muted if colour is None else look.colours[colour]
                    label = who if place == 0 else None
                    panel.barh(at, row.rate / unit, height=0.86 * apart, color=painted, label=label)
                    panel.plot([low, high], [at, at], color=look.ink, linewidth=1)
            panel.axvline(1.0, color=look.ink, linewidth=1)
            panel.set_yticks(range(len(models)), models)
            panel.set_title(what)
            panel.set_xlabel("times as fast as the textbook step")
            panel.grid(axis="x")
        panels[0].invert_yaxis()
        figure.legend(
            *panels[0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=len(BARS)
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, png(figure))
