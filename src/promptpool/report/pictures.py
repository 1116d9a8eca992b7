"""Every picture of a report, with its file name and the sentence that explains it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from promptpool.report import plots
from promptpool.report.rows import Comparison
from promptpool.report.schedule import schedule
from promptpool.report.themes import png, svg
from promptpool.training.folder import Run

Kinds = dict[str, tuple[Callable[..., Any], str, str]]

COMPARED: Kinds = {
    "accuracy": (
        plots.accuracy_over_time,
        "Accuracy after each task",
        "The mean accuracy on the tasks seen so far, without being told the task: a line that stays high keeps what it "
        "learned; a band is the deviation over seeds.",
    ),
    "forgetting": (
        plots.forgetting_by_task,
        "Forgetting of each task",
        "How far each task has fallen below its best accuracy by the end: 0 means nothing was lost.",
    ),
    "prompts-in-use": (
        plots.prompts_in_use,
        "Prompts in use",
        "How many prompts of the pool are chosen by at least one test image: far fewer than the pool holds means that "
        "most of it is idle.",
    ),
}
OF_A_RUN: Kinds = {
    "schedule": (
        schedule,
        "When each class comes",
        "The share of each class among the images that arrive: no boundary tells one stretch from the next.",
    ),
    "accuracy-matrix": (
        plots.accuracy_matrix,
        "Accuracy matrix",
        "Each row is measured after one more task, each column is one test set: read down a column to see it being "
        "forgotten.",
    ),
    "prompts-chosen": (
        plots.prompts_chosen,
        "Prompts that each task chose",
        "The share of a task's test images that chose each prompt: the same bars everywhere mean that prompts are "
        "shared, different ones that tasks have their own.",
    ),
    "key-similarity": (
        plots.key_similarity,
        "Similarity of keys",
        "The cosine between the keys of two prompts: keys that are all alike cannot tell images apart.",
    ),
}


@dataclass(frozen=True)
class Picture:
    """One picture: PNG and SVG in light for files, and one of them in dark too, for the page."""

    name: str
    title: str
    explanation: str
    png: bytes
    svg: bytes
    dark: bytes
    vector: bool  # the page shows the SVG

    @property
    def kind(self) -> str:
        return "image/svg+xml" if self.vector else "image/png"

    @property
    def light(self) -> bytes:
        return self.svg if self.vector else self.png


def of_comparison(comparison: Comparison, prefix: str = "") -> list[Picture]:
    return list(_drawn(COMPARED, comparison.by_name, prefix, "", vector=True))


def of_run(run: Run, name: str) -> list[Picture]:
    """As PNG on the page: there are many, and in numbered cells an SVG is twice as large."""
    return list(_drawn(OF_A_RUN, run, "", f"-{name}", vector=False))


def file_names(runs: Sequence[Run]) -> list[str]:
    """A name for each run that is safe in a file name, and unlike the others whatever a file system thinks of case."""
    safe = [re.sub(r"[^a-z0-9.]+", "-", run.name.lower()).strip("-.") or "run" for run in runs]
    return [name if safe.count(name) == 1 else f"{name}-{1 + place}" for place, name in enumerate(safe)]


def _drawn(kinds: Kinds, subject: object, prefix: str, suffix: str, *, vector: bool) -> Iterator[Picture]:
    for name, (draw, title, explanation) in kinds.items():
        light, dark = draw(subject), draw(subject, theme="dark")
        if light is not None:
            shown = svg(dark) if vector else png(dark)
            yield Picture(f"{prefix}{name}{suffix}", title, explanation, png(light), svg(light), shown, vector)
