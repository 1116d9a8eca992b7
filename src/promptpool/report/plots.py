"""Pictures of runs: pure functions from runs to figures, without pyplot and its state.

Pictures that compare take runs by name, the seeds of one configuration together: a line is their mean, a band
their deviation (n - 1). A function returns None where its runs do not say what it would show.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from promptpool.metrics import Matrix
from promptpool.report.themes import MARKERS, WIDTH, Theme, drawing
from promptpool.training.folder import Run

MOST_CELLS = 20  # in a row of a heat map whose numbers can still be read
Runs = Mapping[str, Sequence[Run]]


class Curve(NamedTuple):
    """A value after each experience, or of each task, by number."""

    name: str
    place: int  # among all that are compared, so that a name keeps its colour from picture to picture
    mean: Matrix  # [T]
    deviation: Matrix | None = None  # [T]
    everywhere: bool = False  # one value for the whole stream: the upper bound


def accuracy_over_time(runs: Runs, *, theme: str = "light") -> Figure | None:
    """Mean accuracy on the test sets seen so far, after each experience."""
    curves = _curves(runs, lambda run: 100 * _mean_of_known(run.accuracy) if run.records else None)
    return _lines(curves, theme, "accuracy on all tasks so far (%)", "after task", top=100)


def forgetting_by_task(runs: Runs, *, theme: str = "light") -> Figure | None:
    """Best accuracy a task ever had minus its last, for each task but the newest."""
    return _lines(_curves(runs, _forgotten), theme, "accuracy lost since its best (points)", "task")


def prompts_in_use(runs: Runs, *, theme: str = "light") -> Figure | None:
    """How many prompts the test images choose, after each experience."""
    curves = _curves(runs, lambda run: _facts_over_time(run, "prompts_in_use"))
    sizes = [len(_facts(run)["key_similarity"]) for group in runs.values() for run in group if _has_pool(run)]
    return _lines(curves, theme, "prompts in use", "after task", top=max(sizes, default=None), whole=True)


def accuracy_matrix(run: Run, *, theme: str = "light") -> Figure | None:
    """R[t, i]: accuracy on test set i after experience t."""
    if not run.records:
        return None
    return _heat_map(
        100 * run.accuracy, theme, title="accuracy (%)", down="after task", across="on test set", low=0, high=100
    )


def key_similarity(run: Run, *, theme: str = "light") -> Figure | None:
    """Cosine of every pair of keys."""
    if not _has_pool(run):
        return None
    cosines = np.array(_facts(run)["key_similarity"], dtype=np.float64)
    low = min(0.0, float(cosines.min()))
    return _heat_map(
        cosines, theme, title="cosine of two keys", down="prompt", across="prompt", low=low, high=1, form=".1f"
    )


def prompts_chosen(run: Run, *, theme: str = "light") -> Figure | None:
    """For each test set the share of its images that chose each prompt (the paper's Figure 3)."""
    if not _has_pool(run):
        return None
    last = run.records[-1]
    images = [total for total, right in zip(last.total, last.correct, strict=True) if right is not None]
    shares = [
        100 * np.array(counts) / total for counts, total in zip(_facts(run)["chosen_in_tests"], images, strict=True)
    ]
    columns = min(2, len(shares))
    rows = -(-len(shares) // columns)
    height = 0.95 + 0.85 * rows if rows > 1 else 2.6
    with drawing(theme) as look:
        figure = Figure(figsize=(WIDTH, height))
        panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        # Margins in inches; a layout that measures so many panels takes longer than to draw them.
        figure.subplots_adjust(0.45 / WIDTH, 0.55 / height, 1 - 0.12 / WIDTH, 1 - 0.58 / height, 0.08, 0.62)
        if len(shares) < panels.size:  # the last place stays empty, and the panel above it ends its column
            panels[-1, -1].set_visible(False)
            panels[-2, -1].tick_params(labelbottom=True)
        for task, (panel, share) in enumerate(zip(panels.flat, shares, strict=False), start=1):
            panel.bar(np.arange(1, len(share) + 1), share, width=0.8, color=look.colours[0])
            panel.set_ylim(0, 105)
            panel.set_yticks([0, 50, 100])
            panel.grid(axis="y")
            panel.xaxis.set_major_locator(MaxNLocator(min(len(share), 10), integer=True))
            name = f"task {task}" if len(shares) > 1 else "all test images"
            panel.set_title(name, fontsize=9, pad=4, color=look.muted)
        figure.text(0.12 / WIDTH, 1 - 0.12 / height, "images that choose a prompt (%)", va="top", fontsize=10.5)
        figure.text(0.5, 0.1 / height, "prompt", ha="center", color=look.muted)
    return figure


def _curves(runs: Runs, value: Callable[[Run], Matrix | None]) -> list[Curve]:
    """A curve for each name of which every run has a value."""
    curves = []
    for place, (name, group) in enumerate(runs.items()):
        found = [value(run) for run in group]
        known = [each for each in found if each is not None]
        if not known or len(known) < len(found):
            continue
        rows = np.stack(known)
        deviation = rows.std(axis=0, ddof=1) if len(rows) > 1 else None
        everywhere = all(run.environment.get("joins") for run in group)
        curves.append(Curve(name, place, rows.mean(axis=0), deviation, everywhere))
    return curves


def _mean_of_known(accuracy: Matrix) -> Matrix:
    return np.array([row[~np.isnan(row)].mean() if np.any(~np.isnan(row)) else np.nan for row in accuracy])


def _forgotten(run: Run) -> Matrix | None:
    """None without one test set for each experience, with one experience, or where a method starts afresh each time."""
    accuracy, experiences = run.accuracy, len(run.records)
    if experiences < 2 or accuracy.shape[1] != run.environment["experiences"] or not _facts(run).get("forgets", True):
        return None
    accuracy = 100 * accuracy[:, : experiences - 1]
    if np.isnan(accuracy[-1]).any():
        return None
    return np.nanmax(accuracy, axis=0) - accuracy[-1]  # type: ignore[no-any-return]


def _facts(run: Run) -> dict[str, Any]:
    return run.records[-1].facts if run.records else {}


def _has_pool(run: Run) -> bool:
    return {"key_similarity", "chosen_in_tests"} <= _facts(run).keys()


def _facts_over_time(run: Run, name: str) -> Matrix | None:
    values = [record.facts.get(name) for record in run.records]
    return np.array(values, dtype=np.float64) if values and None not in values else None


def _lines(
    curves: Sequence[Curve], theme: str, title: str, across: str, *, top: float | None = None, whole: bool = False
) -> Figure | None:
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
    """Names at the right of the last points, moved apart where they would overlap."""
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
    """Middles of texts of these heights, as near as can be to those wanted, that do not overlap.

    Least squares under the order of `wanted`: neighbours that would overlap become a block around their mean
    (isotonic regression). All lie between 0 and 1 if they fit.
    """
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    below = np.cumsum([0.0, *(heights[place] for place in order)])[:-1]
    blocks: list[list[float]] = []  # of bottoms, less the heights of all texts below
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


def _heat_map(
    values: Matrix, theme: str, *, title: str, down: str, across: str, low: float, high: float, form: str = ".0f"
) -> Figure:
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
        found.set_in_layout(False)  # it lies within the axes, and to measure it takes time
