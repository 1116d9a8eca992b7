"""How values are drawn: curves with their names beside them, heat maps, and panels of bars.

Figures are made without pyplot and its state.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from promptpool.metrics import Matrix
from promptpool.report.themes import MARKERS, WIDTH, Theme, drawing

MOST_CELLS = 20  # in a row of a heat map whose numbers can still be read


class Curve(NamedTuple):
    """A value after each experience, or of each task."""

    name: str
    place: int  # among all that are compared, so that a name keeps its colour from plot to plot
    mean: Matrix  # [T]
    deviation: Matrix | None = None  # [T], drawn as a band
    everywhere: bool = False  # one value for the whole stream, drawn as a level: the upper bound


def line_chart(
    curves: Sequence[Curve], theme: str, title: str, across: str, *, top: float | None = None, whole: bool = False
) -> Figure | None:
    """Curves from 0 up to `top`, or to the highest; `whole`: values are counts. None without curves."""
    if not curves:
        return None
    names = ["\n".join(textwrap.wrap(curve.name, 17, break_on_hyphens=False)) for curve in curves]
    text_lines = sum(name.count("\n") + 1 for name in names)
    height = max(3.4, 1.1 + 0.21 * text_lines)
    with drawing(theme) as look:
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.add_subplot()
        length = max(len(curve.mean) for curve in curves)
        axes.set_xlim(0.8, max(length, 1.2) + 0.2)
        for curve in curves:
            _line(axes, curve, look)
        _limits(axes, curves, top)
        axes.grid(axis="y")
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1))
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=whole))
        axes.set_title(title)
        axes.set_xlabel(across)
        _name_lines(axes, curves, names, look, line_height=0.2 / (height - 0.95))
    return figure


def _colour(curve: Curve, look: Theme) -> str:
    return look.muted if curve.everywhere else look.colours[curve.place % len(look.colours)]


def _line(axes: Axes, curve: Curve, look: Theme) -> None:
    colour = _colour(curve, look)
    if curve.everywhere:
        axes.axhline(curve.mean[-1], color=colour, linewidth=1.5, linestyle=(0, (4, 3)))
        return
    numbers = np.arange(1, len(curve.mean) + 1)
    if curve.deviation is not None:
        low, high = curve.mean - curve.deviation, curve.mean + curve.deviation
        axes.fill_between(numbers, low, high, color=colour, alpha=0.18, linewidth=0)
    again, marker = curve.place >= len(look.colours), MARKERS[curve.place % len(MARKERS)]
    axes.plot(
        numbers,
        curve.mean,
        color=colour,
        linestyle=(0, (2, 1)) if again else "-",
        linewidth=1.8,
        marker=marker,
        markersize=4.5,
        markerfacecolor=look.paper if again else colour,
        clip_on=False,
    )


def _limits(axes: Axes, curves: Sequence[Curve], top: float | None) -> None:
    """From 0, or below where a value is, up to `top` or a little above the highest."""
    spread = [curve.mean if curve.deviation is None else curve.mean + curve.deviation for curve in curves]
    highest = max(float(np.nanmax(values)) for values in spread)
    lowest = min(float(np.nanmin(curve.mean)) for curve in curves)
    top = max(1.08 * highest, 1.0) if top is None else top
    axes.set_ylim(min(0.0, 1.08 * lowest), top)


def _name_lines(axes: Axes, curves: Sequence[Curve], names: Sequence[str], look: Theme, line_height: float) -> None:
    """Names to the right of the last points, moved apart where they would overlap."""
    (begin, end), (low, high) = axes.get_xlim(), axes.get_ylim()
    ends = [(curve.mean[-1] - low) / (high - low) for curve in curves]
    heights = [line_height * (name.count("\n") + 1) for name in names]
    beside = axes.get_yaxis_transform()  # x in parts of the axes, y in values
    for curve, name, share in zip(curves, names, _apart(ends, heights), strict=True):
        at, last = low + share * (high - low), len(curve.mean)
        reaches = curve.everywhere or last == max(len(other.mean) for other in curves)
        axes.plot(
            [end if curve.everywhere else last, end + 0.05 * (end - begin)],
            [curve.mean[-1], at],
            color=_colour(curve, look),
            linewidth=1,
            linestyle="-" if reaches else ":",
            clip_on=False,
        )
        axes.text(1.065, at, name, transform=beside, va="center", fontsize=10, linespacing=1.05)


def _apart(wanted: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Centres of texts of these heights, as near as possible to those wanted, that do not overlap.

    Isotonic regression: neighbours that would overlap become a block around their mean, in the order of `wanted`. All
    lie between 0 and 1 if they fit.
    """
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    below = np.cumsum([0.0, *(heights[place] for place in order)])[:-1]
    blocks: list[list[float]] = []  # lower edges, minus the heights of all texts below
    for place, offset in zip(order, below, strict=True):
        blocks.append([wanted[place] - heights[place] / 2 - offset])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    bottoms = [float(np.mean(block)) for block in blocks for _ in block]
    room = max(0.0, 1 - sum(heights))
    found = [0.0] * len(wanted)
    for place, offset, bottom in zip(order, below, bottoms, strict=True):
        found[place] = min(max(bottom, 0.0), room) + float(offset) + heights[place] / 2
    return found


def heat_map(
    values: Matrix, theme: str, *, title: str, down: str, across: str, low: float, high: float, form: str = ".0f"
) -> Figure:
    """A coloured cell for each value, with its number where there is room."""
    rows, columns = values.shape
    cell = min(0.7, 4.1 / columns)
    with drawing(theme) as look:
        figure = Figure(figsize=(WIDTH, max(1.7, 0.95 + cell * rows)), layout="constrained")
        axes = figure.add_subplot()
        shown = np.ma.masked_invalid(values)
        edges = np.arange(0.5, columns + 1), np.arange(0.5, rows + 1)
        mesh = axes.pcolormesh(*edges, shown, cmap="cividis", vmin=low, vmax=high, edgecolors=look.paper, linewidth=1.2)
        axes.set_aspect("equal" if rows > 1 else "auto")
        axes.invert_yaxis()
        axes.spines[:].set_visible(False)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1))
        axes.set_title(title)
        axes.set_xlabel(across)
        axes.set_ylabel(down)
        if columns <= MOST_CELLS:
            _number_cells(axes, mesh, values, form, cell)
        else:
            figure.colorbar(mesh, ax=axes, shrink=0.8).outline.set_visible(False)
    return figure


def _number_cells(axes: Axes, mesh: QuadMesh, values: Matrix, form: str, cell: float) -> None:
    """The value in each cell, dark on light colours and light on dark ones."""
    texts = {
        place: format(round(float(value), 1) + 0.0, form)
        for place, value in np.ndenumerate(values)
        if not np.isnan(value)
    }
    size = min(9.0, 0.85 * 72 * cell / (0.64 * max(map(len, texts.values()), default=1)))
    for (row, column), text in texts.items():
        red, green, blue, _ = np.array(mesh.to_rgba(values[row, column])) ** 2.2
        light = 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18
        colour = "#111111" if light else "#ffffff"
        found = axes.text(column + 1, row + 1, text, ha="center", va="center", fontsize=size, color=colour)
        found.set_in_layout(False)  # it lies within the axes, and measuring it takes time


def prompt_panels(grid: Sequence[Sequence[tuple[str, Matrix] | None]], theme: str, *, width: float = WIDTH) -> Figure:
    """Which prompts are chosen: for each title and row of shares a panel of bars; None leaves its place empty."""
    height = 0.95 + 0.85 * len(grid) if len(grid) > 1 else 2.6
    with drawing(theme) as look:
        figure = Figure(figsize=(width, height))
        panels = figure.subplots(len(grid), len(grid[0]), sharex="col", sharey=True, squeeze=False)
        # Margins in inches; a layout that measures so many panels takes longer than drawing them.
        figure.subplots_adjust(0.45 / width, 0.55 / height, 1 - 0.12 / width, 1 - 0.58 / height, 0.08, 0.62)
        for (row, column), panel in np.ndenumerate(panels):
            found = grid[row][column]
            if found is None:  # the panel above ends its column
                panel.set_visible(False)
                panels[row - 1, column].tick_params(labelbottom=True)
                continue
            name, shares = found
            panel.bar(np.arange(1, len(shares) + 1), 100 * shares, width=0.8, color=look.colours[0])
            panel.set_ylim(0, 105)
            panel.set_yticks([0, 50, 100])
            panel.grid(axis="y")
            panel.xaxis.set_major_locator(MaxNLocator(min(len(shares), 10), integer=True))
            panel.set_title(name, fontsize=9, pad=4, color=look.muted)
        figure.text(0.12 / width, 1 - 0.12 / height, "images that choose a prompt (%)", va="top", fontsize=10.5)
        figure.text(0.5, 0.1 / height, "prompt", ha="center", color=look.muted)
    return figure
