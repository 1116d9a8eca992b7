"""Which runs belong together, and what they measured: one comparison per stream, one row per configuration.

Runs that differ only in their seeds share a row. An unfinished run has a row of its own. So has a run that repeats the
configuration and seed of another. Neither may enter a mean over seeds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from promptpool import metrics
from promptpool.errors import BadFileError
from promptpool.metrics import Matrix
from promptpool.report.names import method_name
from promptpool.training.run_folder import CONFIG, ENVIRONMENT, Run

SEEDS = ("seed", "learner.seed", "plan.seed", "backbone.seed")
LONGEST = 30  # characters of a name that still fit beside a line in a plot
Metric = Callable[[Matrix], float]


class Measured(NamedTuple):
    """A mean over seeds and the deviation (n - 1); a single seed has none."""

    mean: float
    deviation: float | None = None


def measured(values: Sequence[float]) -> Measured | None:
    """None without values."""
    if not values:
        return None
    return Measured(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


@dataclass(frozen=True)
class Row:
    """Runs of one configuration, one for each seed, with their numbers: shares between 0 and 1, one for each run."""

    name: str  # unique in its comparison
    values: str  # what sets the configuration apart, where the name does not say it
    runs: tuple[Run, ...]

    def each(self, metric: Metric) -> list[float]:
        """The metric of each run; empty where it is not defined for one of them, or for the method."""
        if metric is metrics.forgetting and not all(diagnostics(run).get("forgets", True) for run in self.runs):
            return []
        try:
            return [metric(run.accuracy) for run in self.runs]
        except ValueError:
            return []

    @property
    def task_given(self) -> list[float]:
        """Accuracies when the task of a test image is known; empty where this was not measured."""
        found = [run.records[-1].accuracy_given_task for run in self.runs if run.records]
        return [share for share in found if share is not None]

    @property
    def prompts_in_use(self) -> list[int]:
        found = [diagnostics(run).get("prompts_in_use") for run in self.runs]
        return [count for count in found if count is not None]

    @property
    def pool_size(self) -> int | None:
        return next((size for run in self.runs if (size := _pool_size(diagnostics(run)))), None)

    @property
    def seconds(self) -> list[float]:
        return [sum(run.seconds) for run in self.runs if run.seconds]

    @property
    def vote(self) -> int:
        """How many test images vote on their prompts together; 0: each chooses for itself."""
        return max((int(diagnostics(run).get("vote", 0)) for run in self.runs), default=0)

    @property
    def loss_classes(self) -> str:
        """The classes that the loss compares; for a learner that sets those of replayed images apart, both."""
        if not self.runs:
            return ""
        values = self.runs[0].config.get("learner", {})
        compared = str(diagnostics(self.runs[0]).get("loss_classes") or values.get("loss_classes", ""))
        apart = values.get("replay_classes") and values.get("capacity")
        return f"{compared}; replayed: {values['replay_classes']}" if apart else compared


@dataclass(frozen=True)
class Comparison:
    """Rows that were measured on the same stream."""

    stream: str
    rows: tuple[Row, ...]

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(run for row in self.rows for run in row.runs)

    @property
    def by_name(self) -> dict[str, tuple[Run, ...]]:
        return {row.name: row.runs for row in self.rows}


def compare(runs: Sequence[Run]) -> tuple[Comparison, ...]:
    """Comparisons and rows in the order in which they first appear; a folder given twice counts once."""
    streams: dict[str, list[Run]] = {}
    for run in {run.path.resolve(): run for run in runs}.values():
        streams.setdefault(stream_of(run), []).append(run)
    return tuple(Comparison(stream, _named(_grouped(found))) for stream, found in streams.items())


def diagnostics(run: Run) -> dict[str, Any]:
    """What the learner says of itself in the last record."""
    return run.records[-1].facts if run.records else {}


def _pool_size(facts: dict[str, Any]) -> int | None:
    """How many prompts there are; a record that lists them does not say it beside."""
    return len(facts["key_similarity"]) if "key_similarity" in facts else facts.get("pool_size")


def prompt_shares(run: Run) -> Matrix | None:
    """For each test set the share of its images that chose each prompt, [tasks, M]; None without a pool."""
    counts = diagnostics(run).get("chosen_in_tests")
    if counts is None:
        return None
    last = run.records[-1]
    images = [total for total, correct in zip(last.total, last.correct, strict=True) if correct is not None]
    return np.array(counts, dtype=np.float64) / np.array(images, dtype=np.float64)[:, None]


def stream_of(run: Run) -> str:
    """The fingerprint of the stream that a run is compared on: for an upper bound that of the stream it joins."""
    stream = run.environment.get("joins") or run.environment.get("stream")
    if not isinstance(stream, str):
        raise BadFileError(f"{run.path / ENVIRONMENT}: does not say which stream it was run on")
    return stream


def name_of(run: Run) -> str:
    """The method's name as people write it."""
    learner = flat(run.config).get("learner.name")
    if not isinstance(learner, str):
        raise BadFileError(f"{run.path / CONFIG}: does not name its learner")
    return method_name(learner, joint=bool(run.environment.get("joins")))


def seed_of(run: Run) -> tuple[Any, ...]:
    values = flat(run.config)
    return tuple(values.get(key) for key in SEEDS)


def seed_text(run: Run) -> str:
    """The run's seed; all of them, with slashes, where its parts have seeds of their own."""
    given = [value for value in seed_of(run) if value is not None]
    return shown(given[0]) if len(set(given)) == 1 else "/".join(map(shown, given)) or shown(None)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one: {"learner": {"top_k": 5}} is {"learner.top_k": 5}."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return found


def shown(value: Any) -> str:
    """A value as a person would type it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    return "-" if value is None else str(value)


def _settings(run: Run) -> dict[str, Any]:
    return {key: value for key, value in flat(run.config).items() if key not in SEEDS}


def _grouped(runs: Iterable[Run]) -> list[tuple[Run, ...]]:
    groups: list[list[Run]] = []
    for run in runs:
        fitting = (
            group
            for group in groups
            if run.finished
            and group[0].finished
            and _settings(run) == _settings(group[0])
            and seed_of(run) not in map(seed_of, group)
        )
        group = next(fitting, None)
        if group is None:
            groups.append([run])
        else:
            group.append(run)
    return [tuple(sorted(group, key=seed_of)) for group in groups]


def _named(groups: Sequence[tuple[Run, ...]]) -> tuple[Row, ...]:
    rows = []
    for group in groups:
        method = name_of(group[0])
        alike = [other for other in groups if name_of(other[0]) == method]
        values = _distinguishing(group[0], [other[0] for other in alike])
        name = f"{method} ({values})" if values else method
        if len(name) > LONGEST:
            name = f"{method} {1 + alike.index(group)}"
        else:
            values = ""
        if not group[0].finished:
            name += f" ({len(group[0].records)} of {group[0].environment['experiences']} experiences)"
        rows.append(Row(name, values, group))
    return tuple(_unique(rows))


def _distinguishing(run: Run, others: Sequence[Run]) -> str:
    """The values of a run that not all of the others share."""
    settings, rest = _settings(run), [_settings(other) for other in others]
    keys = [key for key in settings if any(other.get(key) != settings[key] for other in rest)]
    last = [key.rpartition(".")[2] for key in keys]
    return ", ".join(
        f"{short if last.count(short) == 1 else key}={shown(settings[key])}"
        for key, short in zip(keys, last, strict=True)
    )


def _unique(rows: Sequence[Row]) -> list[Row]:
    """Numbers behind names that occur more than once: rows of one configuration that must not be averaged."""
    names = [row.name for row in rows]
    return [
        replace(row, name=f"{row.name} #{1 + names[:place].count(row.name)}") if names.count(row.name) > 1 else row
        for place, row in enumerate(rows)
    ]
