"""The figures, from entries and, for the choice of prompts, from shares that were counted."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from itertools import combinations, groupby
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from promptpool.errors import BadFileError
from promptpool.metrics import Matrix
from promptpool.report.themes import MARKERS, Theme, drawing
from promptpool.reproduce.entries import Entry
from promptpool.training.folder import Run

PANEL = (4.2, 3.4)  # inches
FIRST = 5  # tasks of a stream that the paper shows


def shares_chosen(run: Run) -> Matrix:
    """For each test set the share of its images that chose each prompt: [tasks, M]."""
    last = run.records[-1]
    counts = np.array(last.facts["chosen_in_tests"], dtype=np.float64)
    return counts / np.array(last.total, dtype=np.float64)[:, None]


def overlap(shares: Matrix) -> float:
    """How alike two tasks choose, mean over pairs: what they have in common of all they choose, 0 to 1."""
    parts = shares / shares.sum(axis=1, keepdims=True)
    return float(np.mean([np.minimum(first, second).sum() for first, second in combinations(parts, 2)]))


def shares_to_csv(shares: dict[str, Matrix]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["stream", "task", "prompt", "share"])
    for stream, rows in shares.items():
        for (task, prompt), share in np.ndenumerate(rows):
            writer.writerow([stream, task + 1, prompt + 1, f"{share:.4f}"])
    return file.getvalue()


def read_shares(path: Path) -> dict[str, Matrix]:
    """What `shares_to_csv` wrote."""
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
        found = {}
        for stream, lines in groupby(rows, key=lambda row: row["stream"]):
            cells = [(int(row["task"]), int(row["prompt"]), float(row["share"])) for row in lines]
            found[stream] = np.zeros((max(t for t, _, _ in cells), max(p for _, p, _ in cells)))
            for task, prompt, share in cells:
                found[stream][task - 1, prompt - 1] = share
    except (KeyError, TypeError, ValueError, UnicodeDecodeError) as error:
        raise BadFileError(f"{path}: not a table of ours ({error})") from error
    return found


def figure3(shares: dict[str, Matrix], *, theme: str = "light") -> Figure:
    """Bars of the prompts that each of the first tasks chose, one stream beside the other."""
    with drawing(theme) as look:
        figure = Figure(figsize=(PANEL[0] * len(shares), PANEL[1]), layout="constrained")
        panels = figure.subplots(1, len(shares), squeeze=False)[0]
        for axes, (stream, rows) in zip(panels, shares.items(), strict=True):
            shown = rows[:FIRST]
            width = 0.84 / len(shown)
            for task, row in enumerate(shown):
                at = np.arange(1, len(row) + 1) + (task - (len(shown) - 1) / 2) * width
                axes.bar(
                    at, 100 * row, width=width, color=look.colours[task % len(look.colours)], label=f"task {task + 1}"
                )
            axes.set_title(f"{stream}: overlap {overlap(rows):.2f}")
            axes.set_xlabel("prompt")
            axes.set_ylim(0, 105)
            axes.grid(axis="y")
            axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        panels[0].set_ylabel("images that choose it (%)")
        panels[-1].legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def figure4(entries: Sequence[Entry], *, theme: str = "light") -> Figure:
    """Accuracy by prompt length for each N on each stream, and by size of the pool on both."""
    streams = list(dict.fromkeys(entry.stream for entry in entries))
    with drawing(theme) as look:
        figure = Figure(figsize=(PANEL[0] * (len(streams) + 1), PANEL[1]), layout="constrained")
        panels = figure.subplots(1, len(streams) + 1, squeeze=False)[0]
        for axes, stream in zip(panels, streams, strict=False):
            found = [entry for entry in entries if entry.stream == stream and entry.group != "pool size"]
            for place, group in enumerate(dict.fromkeys(entry.group for entry in found)):
                _line(axes, [entry for entry in found if entry.group == group], group, place, look)
            _finish(axes, f"{stream}, M = 20", "length of a prompt")
        for place, stream in enumerate(streams):
            found = [entry for entry in entries if entry.stream == stream and entry.group == "pool size"]
            _line(panels[-1], found, stream, place, look)
        _finish(panels[-1], "size of the pool, length 5", "prompts in the pool")
        panels[0].set_ylabel("average accuracy (%)")
    return figure


def buffers(entries: Sequence[Entry], *, theme: str = "light") -> Figure:
    """Accuracy of each method by the images it may keep."""
    with drawing(theme) as look:
        figure = Figure(figsize=(1.5 * PANEL[0], 1.2 * PANEL[1]), layout="constrained")
        axes = figure.add_subplot()
        for place, method in enumerate(dict.fromkeys(entry.method for entry in entries)):
            _line(axes, [entry for entry in entries if entry.method == method], method, place, look)
        _finish(axes, entries[0].stream, "images kept per class")
        axes.set_ylabel("average accuracy (%)")
    return figure


def _line(axes: Axes, entries: Sequence[Entry], name: str, place: int, look: Theme) -> None:
    known = [
        (int(entry.at), entry.value, float(entry.accuracy_deviation or 0))
        for entry in entries
        if entry.value is not None
    ]
    if not known:
        return
    x, y, spread = zip(*known, strict=True)
    colour = look.colours[place % len(look.colours)]
    axes.errorbar(
        x, y, yerr=spread if any(spread) else None, color=colour, marker=MARKERS[place % len(MARKERS)], label=name
    )


def _finish(axes: Axes, title: str, across: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(across)
    axes.grid(axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, frameon=False)
