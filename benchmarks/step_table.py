"""What `make bench` says of its measurements: a table, a verdict, a CSV file and a picture."""

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

# At least so many times as fast as the textbook: with queries kept, and in the first epoch.
FASTER = {"ViT-B/16": 1.75, "ViT-Ti/16": 1.8, "vit-glyphs": 2.0}
FIRST_EPOCH = 1.15
EVALUATION = 2.1
ABOVE_FLOOR = {"ViT-B/16": 1.2, "ViT-Ti/16": 1.5, "vit-glyphs": 3.0}  # at most so many times as long as the floor
MEMORY = 0.7  # at most this share of the textbook's
TEXTBOOK, FIRST, OURS, FLOOR, HALVES = "textbook", "first epoch", "ours", "floor", "in halves"
FIRST_ONEDNN, ONEDNN = "first epoch, by oneDNN", "by oneDNN"
SPEEDS = (TEXTBOOK, FIRST, OURS, FIRST_ONEDNN, ONEDNN, FLOOR)
BARS = {FIRST: 0, OURS: 1, ONEDNN: 2, FLOOR: None}  # and their colours


class Measured(NamedTuple):
    """Images per second, round by round, and megabytes where they were measured."""

    model: str
    what: str  # training or evaluation
    who: str  # one of SPEEDS, or in halves (training alone)
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


Group = dict[str, Measured]


def groups(rows: Sequence[Measured]) -> dict[tuple[str, str], Group]:
    """Rows by model and what was done, then by who did it."""
    found: dict[tuple[str, str], Group] = {}
    for row in rows:
        found.setdefault((row.model, row.what), {})[row.who] = row
    return found


def speeds(rows: Sequence[Measured]) -> list[str]:
    """Images per second, and how many times as many as the textbook's; then the time of a step in floors."""
    lines = [f"| model | images per second in | {' | '.join(SPEEDS)} | ours in floors | by oneDNN in floors |"]
    lines.append(f"|---|---|{'---:|' * (len(SPEEDS) + 2)}")
    for (model, what), group in groups(rows).items():
        cells = [model, what, _spread(group[TEXTBOOK])]
        cells += [f"{_spread(group[who])}, {_ratio(group, who, TEXTBOOK):.2f}x" for who in SPEEDS[1:]]
        cells += [f"{_ratio(group, FLOOR, who):.2f}" for who in (OURS, ONEDNN)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def memories(rows: Sequence[Measured]) -> list[str]:
    """Megabytes, and the share of the textbook's; then what parts of a batch cost in time."""
    others = (OURS, ONEDNN, HALVES)
    lines = [f"| model | MB in | textbook | {' | '.join(others)} | speed in halves / ours |", f"|---|---|{'---:|' * 5}"]
    for (model, what), group in groups(rows).items():
        whole = group[TEXTBOOK].memory
        if whole is None:
            continue
        cells = [model, what, f"{whole:.0f}"]
        for who in others:
            part = group[who].memory if who in group else None
            cells.append("-" if part is None else f"{part:.0f}, {part / whole:.2f}")
        cells.append(f"{_ratio(group, HALVES, OURS):.2f}" if HALVES in group else "-")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _spread(row: Measured) -> str:
    low, high = row.quartiles
    digits = 1 if row.rate < 100 else 0
    return f"{row.rate:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def _ratio(group: Group, upper: str, lower: str) -> float:
    return group[upper].rate / group[lower].rate


def judged(rows: Sequence[Measured]) -> list[str]:
    """A line for each aim: what was found, what it should be, and whether it is."""
    lines = []
    for (model, what), group in groups(rows).items():
        aims: list[tuple[str, float, str, float]] = []
        for who, first, named in ((OURS, FIRST, ""), (ONEDNN, FIRST_ONEDNN, ", by oneDNN")):
            faster = _ratio(group, who, TEXTBOOK)
            if what == "evaluation":
                aims.append((f"times as fast as the textbook{named}", faster, ">=", EVALUATION))
            elif model in FASTER:
                early, floors = _ratio(group, first, TEXTBOOK), _ratio(group, FLOOR, who)
                aims.append((f"times as fast as the textbook{named}", faster, ">=", FASTER[model]))
                aims.append((f"times as fast as the textbook in the first epoch{named}", early, ">=", FIRST_EPOCH))
                aims.append((f"times as long as the floor{named}", floors, "<=", ABOVE_FLOOR[model]))
        before = group[TEXTBOOK].memory
        for who in (OURS, ONEDNN, HALVES):
            after = group[who].memory if who in group else None
            if before and after:
                aims.append(
                    (f"of the textbook's memory{'' if who == OURS else f', {who}'}", after / before, "<=", MEMORY)
                )
        for said, value, sign, aim in aims:
            met = value >= aim if sign == ">=" else value <= aim
            lines.append(f"{'yes' if met else 'NO ':4}{model} {what}: {value:.2f} {said} (aim {sign} {aim})")
    return lines


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
    found = groups(rows)
    models = list(dict.fromkeys(row.model for row in rows))
    with drawing("light") as look:
        figure = Figure(figsize=(2 * WIDTH, 1.7 + 0.75 * len(models)), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for panel, what in zip(panels, ("training", "evaluation"), strict=True):
            for number, (who, colour) in enumerate(BARS.items()):
                for place, model in enumerate(models):
                    row, unit = found[model, what][who], found[model, what][TEXTBOOK].rate
                    low, high = (value / unit for value in row.quartiles)
                    at = place + 0.21 * (number - 1.5)
                    painted = look.muted if colour is None else look.colours[colour]
                    label = who if place == 0 else None
                    panel.barh(at, row.rate / unit, height=0.18, color=painted, label=label)
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
