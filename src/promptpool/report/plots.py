"""Plots of runs: pure functions from runs to figures, and the pictures of a report that are made of them.

Plots that compare take runs by name, the seeds of one configuration together: a line is their mean, a band their
deviation (n - 1). A function returns None where its runs do not have the values to show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import matplotlib
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from promptpool.metrics import Matrix
from promptpool.report.drawing import Curve, heat_map, line_chart, prompt_panels
from promptpool.report.rows import Comparison, diagnostics, prompt_shares
from promptpool.report.themes import WIDTH, drawing, png, svg
from promptpool.training.run_folder import Run

Runs = Mapping[str, Sequence[Run]]
Plot = Callable[..., Figure | None]
Plots = Mapping[str, tuple[Plot, str, str]]  # by name: function, title, explanation


@dataclass(frozen=True)
class Picture:
    """A figure with its title and explanation: PNG and SVG in light for files, one of them in dark too for a page."""

    name: str
    title: str
    explanation: str
    png: bytes
    svg: bytes
    dark: bytes
    vector: bool  # a page shows the SVG

    @property
    def kind(self) -> str:
        return "image/svg+xml" if self.vector else "image/png"

    @property
    def light(self) -> bytes:
        return self.svg if self.vector else self.png


def picture(name: str, title: str, explanation: str, draw: Plot, *, vector: bool) -> Picture | None:
    """The picture that `draw` makes in both themes; None where it draws nothing."""
    light, dark = draw(theme="light"), draw(theme="dark")
    if light is None or dark is None:
        return None
    return Picture(name, title, explanation, png(light), svg(light), svg(dark) if vector else png(dark), vector)


def of_comparison(comparison: Comparison, prefix: str = "") -> list[Picture]:
    return list(_pictures(COMPARED, comparison.by_name, prefix, "", vector=True))


def of_run(run: Run, name: str) -> list[Picture]:
    """PNG on the page: there are many, and with a number in each cell an SVG is twice as large."""
    return list(_pictures(OF_A_RUN, run, "", f"-{name}", vector=False))


def accuracy_over_time(runs: Runs, *, theme: str = "light") -> Figure | None:
    """Mean accuracy on the test sets seen so far, after each experience."""
    curves = _curves(runs, _over_time)
    return line_chart(curves, theme, "accuracy on all tasks so far (%)", "after task", top=100)


def forgetting_by_task(runs: Runs, *, theme: str = "light") -> Figure | None:
    """Best accuracy a task ever had minus its last, for each task but the newest."""
    return line_chart(_curves(runs, _forgotten), theme, "accuracy lost since its best (points)", "task")


def prompts_in_use(runs: Runs, *, theme: str = "light") -> Figure | None:
    """How many prompts the test images choose, after each experience."""
    curves = _curves(runs, lambda run: _facts_over_time(run, "prompts_in_use"))
    sizes = [len(diagnostics(run)["key_similarity"]) for group in runs.values() for run in group if _has_pool(run)]
    return line_chart(curves, theme, "prompts in use", "after task", top=max(sizes, default=None), whole=True)


def accuracy_matrix(run: Run, *, theme: str = "light") -> Figure | None:
    """R[t, i]: accuracy on test set i after experience t; None before anything was tested."""
    if not run.records or np.isnan(run.accuracy).all():
        return None
    return heat_map(
        100 * run.accuracy, theme, title="accuracy (%)", down="after task", across="on test set", low=0, high=100
    )


def key_similarity(run: Run, *, theme: str = "light") -> Figure | None:
    """Cosine of every pair of keys."""
    if not _has_pool(run):
        return None
    cosines = np.array(diagnostics(run)["key_similarity"], dtype=np.float64)
    low = min(0.0, float(cosines.min()))
    return heat_map(
        cosines, theme, title="cosine of two keys", down="prompt", across="prompt", low=low, high=1, form=".1f"
    )


def prompts_chosen(run: Run, *, theme: str = "light") -> Figure | None:
    """For each test set the share of its images that chose each prompt (the paper's Figure 3)."""
    shares = prompt_shares(run)
    if shares is None:
        return None
    panels: list[tuple[str, Matrix] | None] = [(f"task {task}", row) for task, row in enumerate(shares, start=1)]
    if len(shares) == 1:
        return prompt_panels([[("all test images", shares[0])]], theme)
    panels += [None] * (len(panels) % 2)
    return prompt_panels([panels[place : place + 2] for place in range(0, len(panels), 2)], theme)


def class_schedule(run: Run, *, theme: str = "light") -> Figure | None:
    """The share of each class among the images that arrive over time; None for a stream with boundaries."""
    if not run.schedule:
        return None
    counts = np.array(run.schedule, dtype=np.float64)  # [stretch, class]
    sizes = counts.sum(axis=1, keepdims=True)
    arrived = (sizes.cumsum() - sizes[:, 0] / 2) / 1000
    colours = matplotlib.colormaps["viridis"]
    classes = Normalize(1, counts.shape[1])
    with drawing(theme):
        figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
        axes = figure.add_subplot()
        for number, share in enumerate((100 * counts / sizes).T, start=1):
            axes.plot(arrived, share, color=colours(classes(number)), linewidth=1.2)
        axes.set_xlim(0, float(sizes.sum()) / 1000)
        axes.set_ylim(0)
        axes.grid(axis="y")
        axes.set_title("share of each class among the images that arrive (%)")
        axes.set_xlabel("thousand images since the stream began")
        bar = figure.colorbar(ScalarMappable(classes, colours), ax=axes, shrink=0.9, pad=0.02)
        bar.set_label("class, in its order")
        bar.outline.set_visible(False)
    return figure


COMPARED: Plots = {
    "accuracy": (
        accuracy_over_time,
        "Accuracy after each task",
        "The mean accuracy on the tasks seen so far, without being told the task: a line that stays high keeps what it "
        "learned; a band is the deviation over seeds.",
    ),
    "forgetting": (
        forgetting_by_task,
        "Forgetting of each task",
        "How far each task has fallen below its best accuracy by the end: 0 means nothing was lost.",
    ),
    "prompts-in-use": (
        prompts_in_use,
        "Prompts in use",
        "How many prompts of the pool are chosen by at least one test image: far fewer than the pool holds means that "
        "most of it is idle.",
    ),
}
OF_A_RUN: Plots = {
    "schedule": (
        class_schedule,
        "When each class comes",
        "The share of each class among the images that arrive: no boundary tells one stretch from the next.",
    ),
    "accuracy-matrix": (
        accuracy_matrix,
        "Accuracy matrix",
        "Each row is measured after one more task, each column is one test set: read down a column to see it being "
        "forgotten.",
    ),
    "prompts-chosen": (
        prompts_chosen,
        "Prompts that each task chose",
        "The share of a task's test images that chose each prompt: the same bars everywhere mean that prompts are "
        "shared, different ones that tasks have their own.",
    ),
    "key-similarity": (
        key_similarity,
        "Similarity of keys",
        "The cosine between the keys of two prompts: keys that are all alike cannot tell images apart.",
    ),
}


def _pictures(plots: Plots, subject: object, prefix: str, suffix: str, *, vector: bool) -> Iterator[Picture]:
    for name, (plot, title, explanation) in plots.items():
        found = picture(f"{prefix}{name}{suffix}", title, explanation, partial(plot, subject), vector=vector)
        if found is not None:
            yield found


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


def _over_time(run: Run) -> Matrix | None:
    """The mean over the test sets that were tried, after each experience; None if none was tried after the last."""
    rows = [row[~np.isnan(row)] for row in run.accuracy] if run.records else []
    if not rows or not len(rows[-1]):
        return None
    return np.array([100 * row.mean() if len(row) else np.nan for row in rows])


def _forgotten(run: Run) -> Matrix | None:
    """None without a test set for each experience, tried after it, or if a method starts anew for each."""
    accuracy, experiences = run.accuracy, len(run.records)
    if (
        experiences < 2
        or accuracy.shape[1] != run.environment["experiences"]
        or not diagnostics(run).get("forgets", True)
    ):
        return None
    accuracy = 100 * accuracy[:, : experiences - 1]
    if np.isnan(accuracy[-1]).any() or np.isnan(accuracy.diagonal()).any():
        return None
    return np.nanmax(accuracy, axis=0) - accuracy[-1]  # type: ignore[no-any-return]


def _has_pool(run: Run) -> bool:
    return {"key_similarity", "chosen_in_tests"} <= diagnostics(run).keys()


def _facts_over_time(run: Run, name: str) -> Matrix | None:
    values = [record.facts.get(name) for record in run.records]
    return np.array(values, dtype=np.float64) if values and None not in values else None
