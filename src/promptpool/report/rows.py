"""Which runs belong together: one comparison per stream, one row per configuration.

Runs that differ by their seeds alone share a row. An unfinished run has a row of its own, and so has a run that
repeats a configuration and seed already there: neither may enter a mean over seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from promptpool.errors import BadFileError
from promptpool.training.folder import CONFIG, ENVIRONMENT, Run

SEEDS = ("seed", "learner.seed", "plan.seed", "backbone.seed")
LONGEST = 30  # characters of a name that still fit beside a line in a picture


@dataclass(frozen=True)
class Row:
    """Runs of one configuration; `short` is unique in its comparison, `values` say what sets it apart."""

    short: str
    values: str
    runs: tuple[Run, ...]

    @property
    def method(self) -> str:
        return f"{self.short}: {self.values}" if self.values else self.short


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
        return {row.short: row.runs for row in self.rows}


def compare(runs: Sequence[Run]) -> tuple[Comparison, ...]:
    """Comparisons and rows in the order in which they first appear; a folder given twice counts once."""
    streams: dict[str, list[Run]] = {}
    for run in {run.path.resolve(): run for run in runs}.values():
        streams.setdefault(stream_of(run), []).append(run)
    return tuple(Comparison(stream, _named(_grouped(found))) for stream, found in streams.items())


def loss_classes(run: Run) -> str:
    """The classes that the loss saw, if any; of L2P-R, which tells them apart, those for replayed images too."""
    values = run.config.get("learner", {})
    facts = run.records[-1].facts if run.records else {}
    seen = str(facts.get("loss_classes") or values.get("loss_classes", ""))
    apart = values.get("replay_classes") and values.get("capacity")
    return f"{seen}; replayed: {values['replay_classes']}" if apart else seen


def stream_of(run: Run) -> str:
    """The fingerprint of the stream that a run is compared on: for an upper bound that of the stream it joins."""
    stream = run.environment.get("joins") or run.environment.get("stream")
    if not isinstance(stream, str):
        raise BadFileError(f"{run.path / ENVIRONMENT}: does not say which stream it was run on")
    return stream


def name_of(run: Run) -> str:
    name = flat(run.config).get("learner.name")
    if not isinstance(name, str):
        raise BadFileError(f"{run.path / CONFIG}: does not name its learner")
    return f"upper bound ({name})" if run.environment.get("joins") else name


def seed_of(run: Run) -> tuple[Any, ...]:
    values = flat(run.config)
    return tuple(values.get(key) for key in SEEDS)


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
        name = name_of(group[0])
        alike = [other for other in groups if name_of(other[0]) == name]
        values = _distinguishing(group[0], [other[0] for other in alike])
        short = f"{name} ({values})" if values else name
        if len(short) > LONGEST:
            short = f"{name} {1 + alike.index(group)}"
        else:
            values = ""
        if not group[0].finished:
            short += f" ({len(group[0].records)} of {group[0].environment['experiences']} experiences)"
        rows.append(Row(short, values, group))
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
    """Rows of one configuration that must not be averaged are told apart by a number."""
    names = [row.short for row in rows]
    return [
        replace(row, short=f"{row.short} #{1 + names[:place].count(row.short)}") if names.count(row.short) > 1 else row
        for place, row in enumerate(rows)
    ]
