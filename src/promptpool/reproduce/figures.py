"""The figures of the paper, from results alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations, zip_longest

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from promptpool.metrics import Matrix
from promptpool.report.drawing import prompt_panels
from promptpool.report.plots import Picture, Plots, picture
from promptpool.report.themes import MARKERS, Theme, drawing
from promptpool.reproduce.results import Result, Results

PANEL = (4.2, 3.4)  # inches
FIRST = 5  # tasks of a stream that the paper shows


def overlap(shares: Matrix) -> float:
    """How alike two tasks choose, 0 to 1: the part of their choices that they have in common, mean over pairs."""
    parts = shares / shares.sum(axis=1, keepdims=True)
    return float(np.mean([np.minimum(first, second).sum() for first, second in combinations(parts, 2)]))


def figure3(shares: dict[str, Matrix], *, theme: str = "light") -> Figure:
    """The prompts that each of the first tasks chose, one stream beside the other."""
    columns = []
    for stream, rows in shares.items():
        titles = [f"task {task}" for task in range(1, FIRST + 1)]
        titles[0] = f"{stream}, overlap {overlap(rows):.2f}: {titles[0]}"
        columns.append(list(zip(titles, rows, strict=False)))
    return prompt_panels(list(zip_longest(*columns)), theme, width=PANEL[0] * len(shares))


def figure4(results: Sequence[Result], *, theme: str = "light") -> Figure:
    """Accuracy by prompt length for each N on each stream, and by size of the pool on both."""
    streams = list(dict.fromkeys(result.stream for result in results))
    with drawing(theme) as look:
        figure = Figure(figsize=(PANEL[0] * (len(streams) + 1), PANEL[1]), layout="constrained")
        panels = figure.subplots(1, len(streams) + 1, squeeze=False)[0]
        for axes, stream in zip(panels, streams, strict=False):
            found = [result for result in results if result.stream == stream and result.group != "pool size"]
            for place, group in enumerate(dict.fromkeys(result.group for result in found)):
                _line(axes, [result for result in found if result.group == group], group, place, look)
            _finish(axes, f"{stream}, M = 20", "length of a prompt")
        for place, stream in enumerate(streams):
            found = [result for result in results if result.stream == stream and result.group == "pool size"]
            _line(panels[-1], found, stream, place, look)
        _finish(panels[-1], "size of the pool, length 5", "prompts in the pool")
        panels[0].set_ylabel("average accuracy (%)")
    return figure


def buffers(results: Sequence[Result], *, theme: str = "light") -> Figure:
    """Accuracy of each method by the images per class in its memory."""
    with drawing(theme) as look:
        figure = Figure(figsize=(1.5 * PANEL[0], 1.2 * PANEL[1]), layout="constrained")
        axes = figure.add_subplot()
        for place, method in enumerate(dict.fromkeys(result.method for result in results)):
            _line(axes, [result for result in results if result.method == method], method, place, look)
        _finish(axes, results[0].stream, "images kept per class")
        axes.set_ylabel("average accuracy (%)")
    return figure


def _line(axes: Axes, results: Sequence[Result], name: str, place: int, look: Theme) -> None:
    known = [
        (int(result.at), result.value, float(result.accuracy_deviation or 0))
        for result in results
        if result.value is not None
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


FIGURES: Plots = {
    "figure3": (
        figure3,
        "Prompts that the first tasks chose",
        "The share of a task's test images that chose each prompt. An overlap of 1 means that all tasks of the stream "
        "choose alike, 0 that no two tasks share a prompt.",
    ),
    "figure4": (
        figure4,
        "Accuracy by values of the pool",
        "N is the number of prompts that an image chooses, M the number of prompts in the pool.",
    ),
    "buffers": (buffers, "Accuracy by size of the memory", "Bars are the deviation over seeds."),
}


def pictures(results: Results) -> dict[str, Picture]:
    """The figures of the studies of which something was measured, by study."""
    found: dict[str, Picture] = {}
    for name, (plot, title, explanation) in FIGURES.items():
        known = [result for result in results.studies.get(name, []) if result.value is not None]
        subject = results.shares if name == "figure3" else known
        drawn = picture(name, title, explanation, partial(plot, subject), vector=True) if subject else None
        found |= {} if drawn is None else {name: drawn}
    return found
