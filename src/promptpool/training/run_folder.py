"""A run folder: all that is known of a run, in files that tables, plots and pages are made of without a model.

config.toml         what was asked for, every value written out
environment.json    versions, hashes of weights and stream, revision, class names, trained parameters, skipped files
records.jsonl       one record per experience; the same bytes whenever the same run is repeated
times.json          seconds per experience, which no two runs share
schedule.json       images of each class in stretches of a stream without boundaries
checkpoint          where to go on
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from promptpool.errors import BadFileError
from promptpool.files import write_whole
from promptpool.metrics import Matrix
from promptpool.training.record import Record, accuracy_matrix

CONFIG, ENVIRONMENT, RECORDS = "config.toml", "environment.json", "records.jsonl"
TIMES, SCHEDULE, CHECKPOINT = "times.json", "schedule.json", "checkpoint"


@dataclass(frozen=True)
class Run:
    """What a run folder says."""

    path: Path
    config: dict[str, Any]
    environment: dict[str, Any]
    records: tuple[Record, ...]
    seconds: tuple[float, ...]
    schedule: tuple[tuple[int, ...], ...] = ()  # images of each class, stretch by stretch, without boundaries

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def finished(self) -> bool:
        return bool(len(self.records) == self.environment["experiences"])

    @property
    def accuracy(self) -> Matrix:
        """R[t, i], NaN where it was not measured."""
        return accuracy_matrix(self.records)


def is_run(path: Path) -> bool:
    return (path / CONFIG).is_file()


def read_run(path: Path) -> Run:
    """The run in a folder; raises `BadFileError` where a file is missing or damaged."""
    if not is_run(path):
        raise BadFileError(f"{path}: not a run folder, it has no {CONFIG}")
    try:
        config = tomllib.loads((path / CONFIG).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadFileError(f"{path / CONFIG}: not TOML ({error})") from error
    environment = _json(path / ENVIRONMENT)
    if not isinstance(environment, dict) or not isinstance(environment.get("experiences"), int):
        raise BadFileError(f"{path / ENVIRONMENT}: does not say how many experiences there are")
    return Run(path, config, environment, read_records(path), tuple(read_times(path)), read_schedule(path))


def read_records(path: Path) -> tuple[Record, ...]:
    """The records of a run folder so far."""
    file = path / RECORDS
    if not file.exists():
        return ()
    try:
        records = tuple(Record.from_json(line) for line in file.read_text(encoding="utf-8").splitlines())
    except (AttributeError, ValueError, KeyError, TypeError) as error:
        raise BadFileError(f"{file}: damaged ({error})") from error
    for number, record in enumerate(records):
        whole = all(right is None or type(right) is int for right in record.correct)
        if record.experience != number or not whole or len(record.correct) != len(record.total):
            raise BadFileError(f"{file}: damaged (line {number + 1} is not the record of experience {number})")
    return records


def read_times(path: Path) -> list[float]:
    """Seconds per experience so far."""
    times = _json(path / TIMES) if (path / TIMES).exists() else []
    if not isinstance(times, list) or not all(isinstance(value, int | float) for value in times):
        raise BadFileError(f"{path / TIMES}: must be a list of seconds")
    return times


def read_schedule(path: Path) -> tuple[tuple[int, ...], ...]:
    """When each class comes; nothing for a stream with boundaries."""
    found = _json(path / SCHEDULE) if (path / SCHEDULE).exists() else []
    rows = found if isinstance(found, list) and all(isinstance(row, list) for row in found) else [[None]]
    whole = all(type(count) is int and count >= 0 for row in rows for count in row)
    if not whole or len({len(row) for row in rows}) > 1 or any(sum(row) == 0 for row in rows):
        raise BadFileError(f"{path / SCHEDULE}: must be rows of counts, one for each class")
    return tuple(tuple(row) for row in rows)


def write_records(path: Path, records: list[Record]) -> None:
    write_whole(path / RECORDS, "".join(record.to_json() + "\n" for record in records).encode())


def write_json(file: Path, value: Any) -> None:
    write_whole(file, (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode())


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadFileError(f"{file}: missing") from error
    except ValueError as error:
        raise BadFileError(f"{file}: not JSON ({error})") from error
