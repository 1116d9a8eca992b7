"""Run folders to report on: made by hand, or by learners on the toy stream."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from promptpool.files import write_whole
from promptpool.training.checkpoint import learn
from promptpool.training.record import Record
from promptpool.training.run_folder import CONFIG, ENVIRONMENT, TIMES, Run, read_run, write_json, write_records
from toys import SHORT, names, toy_learner, toy_stream

STREAM = "5f" * 32
EVIL = "<script>alert(1)</script>\"'&"  # a name that must be shown and not obeyed
TASKS = ((90, None, None), (60, 80, None), (50, 40, 70))  # average 53.3, forgetting 40, learning accuracy 80


def made_run(
    folder: Path,
    correct: Sequence[Sequence[int | None]] = TASKS,
    *,
    name: str = "ft-seq",
    seed: int = 0,
    loss_classes: str | None = "all",
    learner: dict[str, Any] | None = None,
    environment: dict[str, Any] | None = None,
    facts: Sequence[dict[str, Any]] | None = None,
    seconds: Sequence[float] = (),
) -> Run:
    """A run whose test sets hold 100 images each."""
    records = [
        Record(t, 10 * t, 2 * t + 2, 0.5, tuple(row), (100,) * len(row), facts=facts[t] if facts else {})
        for t, row in enumerate(correct)
    ]
    values = {"name": name, "seed": seed, **(learner or {})}
    if loss_classes:
        values["loss_classes"] = loss_classes
    return written(folder, values, seed, records, environment or {}, seconds)


def toy_run(folder: Path, name: str = "l2p", *, seed: int = 0, **values: Any) -> Run:
    """What a learner really does on the toy stream."""
    learner = toy_learner(name, seed=seed, **values)
    records = list(learn(learner, toy_stream(), SHORT))
    settings = {key: value for key, value in learner.settings().items() if isinstance(value, int | float | str)}
    stream = {"stream": toy_stream().fingerprint}
    return written(folder, {"name": name, **settings}, seed, records, stream, [1.0] * len(records))


def several(folder: Path) -> list[Run]:
    """What a report may be asked for: seeds, an unfinished run, an upper bound, a vote, two streams, bad names."""
    l2p = [toy_run(folder / f"l2p-{seed}", seed=seed, top_k=2) for seed in (0, 1)]
    toys = {"stream": l2p[0].environment["stream"], "class_names": [EVIL, "b"]}
    return [
        *l2p,
        toy_run(folder / "vote", vote=5, top_k=2),
        made_run(folder / "half", [(90, None, None)], environment=toys | {"experiences": 3}),
        made_run(folder / "joint", [(90, 80, 70)], environment={"joins": toys["stream"]}),
        made_run(folder / EVIL.replace("/", ""), name=EVIL, environment=toys),
        made_run(folder / "elsewhere", [[30], [50]], name="nearest-mean", loss_classes=None),
    ]


def written(
    folder: Path,
    learner: dict[str, Any],
    seed: int,
    records: list[Record],
    environment: dict[str, Any],
    seconds: Sequence[float],
) -> Run:
    sections = {"": {"seed": seed}, "learner": learner, "plan": {"epochs": 2, "seed": seed}}
    write_whole(folder / CONFIG, "\n".join(_toml(title, values) for title, values in sections.items()).encode())
    default = {"experiences": len(records), "stream": STREAM, "class_names": names()}
    write_json(folder / ENVIRONMENT, default | environment)
    write_records(folder, records)
    if seconds:
        write_json(folder / TIMES, list(seconds))
    return read_run(folder)


def _toml(title: str, values: dict[str, Any]) -> str:
    lines = (f"{key} = {json.dumps(value)}\n" for key, value in values.items())  # in JSON as in TOML
    return (f"[{title}]\n" if title else "") + "".join(lines)
