"""What `make bench-scale` says of its measurements: a table, how far it came, a verdict, a CSV file and a picture."""

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

STUDIES = ("tasks", "pool", "classes")


class Point(NamedTuple):
    """What was found at one size."""

    study: str  # one of STUDIES
    size: int
    step: float  # milliseconds
    products: float | None  # milliseconds of the products that have this size
    evaluation: float | None  # milliseconds
    files: float | None  # milliseconds to write a checkpoint and the records
    memory: float | None  # megabytes of the process


class Size(NamedTuple):
    """Of the whole long study."""

    tasks: int
    images: int
    classes: int


def of_study(points: Sequence[Point], study: str) -> list[Point]:
    return [point for point in points if point.study == study]


def table(points: Sequence[Point]) -> list[str]:
    """A Markdown table; of the long study seven tasks."""
    names = ("study", "size", "step, ms", "its products, ms", "evaluation, ms", "files, ms", "memory, MB")
    lines = [f"| {' | '.join(names)} |", f"|---|{'---:|' * 6}"]
    shown = {round(len(of_study(points, "tasks")) ** (k / 6)) for k in range(7)}
    for point in points:
        if point.study != "tasks" or point.size in shown:
            cells = ("" if value is None else f"{value:.2f}" for value in point[2:])
            lines.append(f"| {point.study} | {point.size} | {' | '.join(cells)} |")
    return lines


def progress(size: Size, points: Sequence[Point]) -> str:
    """How far the long study came."""
    done = len(of_study(points, "tasks"))
    if done == size.tasks:
        return f"all {size.tasks:,} tasks, {size.images:,} images, {size.classes:,} classes"
    images, classes = (whole * done // size.tasks for whole in (size.images, size.classes))
    return (
        f"ended after {done:,} of {size.tasks:,} tasks, {images:,} of {size.images:,} images, "
        f"{classes:,} of {size.classes:,} classes"
    )


def judged(points: Sequence[Point]) -> str:
    """What the last tenth of the tasks that were learned took beside the tenth in their middle."""
    found = of_study(points, "tasks")
    tenth = max(len(found) // 10, 1)
    middle, last = found[len(found) // 2 :][:tenth], found[-tenth:]
    step = statistics.median(point.step for point in last) / statistics.median(point.step for point in middle)
    said = f"of all tasks learned, a step of the last tenth took {step:.2f} times as long as one of the middle tenth"
    held, files = ([_typical(part, name) for part in (middle, last)] for name in ("memory", "files"))
    if all(held):
        said += f", and memory was {held[1] / held[0]:.2f} times as large"
    return f"{said}; checkpoint and records took {files[0]:.0f} ms a task in the middle and {files[1]:.0f} in the end"


def _typical(points: Sequence[Point], name: str) -> float:
    return statistics.median(getattr(point, name) or 0.0 for point in points)


def written(path: Path, points: Sequence[Point]) -> None:
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["study", "size", "step_ms", "products_ms", "evaluation_ms", "files_ms", "megabytes"])
    for point in points:
        lines.writerow([point.study, point.size, *("" if value is None else f"{value:.3f}" for value in point[2:])])
    write_whole(path, text.getvalue().encode())


def drawn(path: Path, size: Size, points: Sequence[Point], caption: str) -> None:
    """Four panels: steps and memory by tasks, steps by pool and by classes with the products under them."""
    found = {study: of_study(points, study) for study in STUDIES}
    with drawing("light") as look:
        figure = Figure(figsize=(2 * WIDTH, 5.9), layout="constrained")
        (steps, memory), (pool, classes) = figure.subplots(2, 2)
        sizes = [point.size for point in found["tasks"]]
        steps.plot(sizes, [point.step for point in found["tasks"]], color=look.colours[0])
        memory.plot(sizes, [point.memory or 0.0 for point in found["tasks"]], color=look.colours[0])
        for panel, study in ((pool, "pool"), (classes, "classes")):
            across = [point.size for point in found[study]]
            panel.plot(across, [point.step for point in found[study]], "o-", color=look.colours[0], label="step")
            least = [point.products or 0.0 for point in found[study]]
            panel.plot(across, least, "s-", color=look.muted, label="its products of this size")
            panel.set_xscale("log")
            panel.legend(frameon=False)
        titles = ("step (ms)", "memory (MB)", "step (ms)", "step (ms)")
        unders = ("tasks learned", "tasks learned", "prompts in the pool", "classes")
        for panel, title, under in zip((steps, memory, pool, classes), titles, unders, strict=True):
            panel.set_title(title)
            panel.set_xlabel(under)
            panel.set_ylim(bottom=0)
            panel.grid(axis="y")
        figure.supxlabel(f"{caption};\n{progress(size, points)}", color=look.muted, fontsize="medium")
        write_whole(path, png(figure))
