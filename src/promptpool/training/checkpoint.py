"""Checkpoints: the complete state of a session in one file, written atomically.

The file is in the safetensors format, with everything that is not a tensor as JSON in its header, so that reading one
runs no code, whoever wrote it. A header holds at most 100 MB, so the records, which grow with every experience, are a
tensor: the bytes of their lines. The file also says which stream, plan, learner, view and backbone it belongs to, and
is refused for any other.
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from promptpool import distributed
from promptpool.data.stream import Stream
from promptpool.errors import BadFileError
from promptpool.files import write_whole
from promptpool.learners.base import Learner
from promptpool.learners.state import restore, state
from promptpool.training.loop import Plan, Session, Step
from promptpool.training.record import Record

FORMAT = "promptpool-checkpoint-1"


def learn(
    learner: Learner,
    stream: Stream,
    plan: Plan | None = None,
    *,
    checkpoint: str | Path | None = None,
    seconds: float = 60.0,
) -> Iterator[Record]:
    """Go through the stream and yield a record after each experience.

    With `checkpoint`, that file is written after each experience and at least every `seconds`. If it is there already,
    the session resumes from it, and the records of finished experiences are yielded first: the caller gets the same
    records as from a session that was never stopped.
    """
    session = Session(learner, stream, plan or Plan())
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None and path.exists():
        load_checkpoint(path, session)
    yield from tuple(session.records)
    for step in with_checkpoints(session, path, seconds=seconds):
        if step.record is not None:
            yield step.record


def with_checkpoints(session: Session, checkpoint: Path | None, *, seconds: float = 60.0) -> Iterator[Step]:
    """The steps of a session, with a checkpoint written after each experience and at least every `seconds`."""
    written = time.monotonic()
    for step in session:
        if checkpoint is not None and (step.record is not None or time.monotonic() - written >= seconds):
            save_checkpoint(checkpoint, session)
            written = time.monotonic()
        yield step


def save_checkpoint(path: Path, session: Session) -> None:
    """Write all that is needed to resume from here."""
    if distributed.rank() > 0:
        return
    content = {
        "place": [session.experience_index, session.epoch_index, session.batch_index, session.step_count],
        "losses": [session.loss_sum, session.loss_count],
        "records": _written(session.records),
        "learner": state(session.learner),
        "descend": None if session.descend is None else session.descend.state_dict(),
    }
    tensors: dict[str, Tensor] = {}
    header = {"format": FORMAT, "belongs": belongs(session), "state": pack(content, tensors)}
    write_whole(path, save(tensors, metadata={"promptpool": json.dumps(header)}))


def load_checkpoint(path: Path, session: Session) -> None:
    """Resume a session from a file; raises `BadFileError`, after which the session is unusable."""
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("promptpool", "{}"))
            # Copies, which do not keep the file mapped: Windows replaces no mapped file.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, RecursionError, ValueError) as error:
        raise BadFileError(f"{path}: not a checkpoint of ours ({error})") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise BadFileError(f"{path}: not a checkpoint of ours")
    theirs, ours = header.get("belongs"), json.loads(json.dumps(belongs(session)))
    usual = json.loads(json.dumps(_defaults(session)))
    differing = [
        name
        for name in ours
        if not isinstance(theirs, dict) or _differs(theirs.get(name), ours[name], usual.get(name, {}))
    ]
    if differing:
        hint = "; the data have changed since, a new run needs a folder of its own" if differing == ["stream"] else ""
        raise BadFileError(f"{path}: belongs to a run with another {', '.join(differing)}{hint}")
    try:
        content = unpack(header["state"], tensors)
        place = _place(content["place"], session)
        session.experience_index, session.epoch_index, session.batch_index, session.step_count = place
        loss_sum, loss_count = content["losses"]
        session.loss_sum, session.loss_count = float(loss_sum), int(loss_count)
        session.records = _read(content["records"])
        if len(session.records) != session.experience_index:
            raise ValueError(f"{len(session.records)} records for {session.experience_index} experiences")
        restore(session.learner, content["learner"])
        if content["descend"] is not None:
            session.descend = session.make_descent()
            session.descend.load_state_dict(content["descend"])
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise BadFileError(f"{path}: damaged ({reason})") from error


def _written(records: Sequence[Record]) -> Tensor:
    """The lines of records as bytes: uint8 [n]."""
    lines = "".join(record.to_json() + "\n" for record in records)
    return torch.from_numpy(np.frombuffer(bytearray(lines.encode()), dtype=np.uint8))


def _read(records: Tensor | list[str]) -> list[Record]:
    """What `_written` made, or the lines themselves, as checkpoints of earlier versions have them in the header."""
    lines = records.numpy().tobytes().decode().splitlines() if isinstance(records, Tensor) else records
    return [Record.from_json(line) for line in lines]


def belongs(session: Session) -> dict[str, Any]:
    """What a checkpoint belongs to; it is refused by a session where any of this differs."""
    learner = session.learner
    return {
        "learner": [type(learner).__name__, learner.settings()],
        "view": asdict(learner.view),
        "backbone": session.backbone,
        "stream": session.stream.fingerprint,
        "plan": asdict(session.plan),
    }


def _defaults(session: Session) -> dict[str, dict[str, Any]]:
    """The defaults of learner, view and plan, by keyword."""
    found = {}
    for name, owner in (("learner", session.learner), ("view", session.learner.view), ("plan", session.plan)):
        parameters = inspect.signature(type(owner)).parameters.items()
        found[name] = {key: value.default for key, value in parameters if value.default is not inspect.Parameter.empty}
    return found


def _differs(theirs: Any, ours: Any, usual: dict[str, Any]) -> bool:
    """True if two values differ; a keyword that is newer than the checkpoint counts as its default there."""
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return any(_differs(there, here, usual) for there, here in zip(theirs, ours, strict=True))
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return bool(theirs.keys() - ours) or any(
            theirs.get(key, usual.get(key)) != value for key, value in ours.items()
        )
    return bool(theirs != ours)


def _place(place: Any, session: Session) -> list[int]:
    """Experience, epoch, batch and step, if they are a place in the session's stream."""
    experiences = session.stream.experiences
    most = (len(experiences), max(map(session.epochs, experiences)), session.steps, session.steps)
    if not isinstance(place, list) or len(place) != len(most):
        raise ValueError(f"place = {place!r}: must be four whole numbers")
    for value, limit in zip(place, most, strict=True):
        if type(value) is not int or not 0 <= value <= limit:
            raise ValueError(f"place = {place!r}: must lie within {most}")
    return place


def pack(value: Any, tensors: dict[str, Tensor]) -> Any:
    """A nested value as JSON; its tensors are moved to `tensors`."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"tensor": name}
    if isinstance(value, dict):
        return {"dict": [[key, pack(item, tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [pack(item, tensors) for item in value]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a checkpoint holds tensors, numbers, text and containers of them, not {type(value).__name__}")


def unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: unpack(item, tensors) for key, item in content}
    if kind in ("list", "tuple"):
        items = [unpack(item, tensors) for item in content]
        return items if kind == "list" else tuple(items)
    raise ValueError(f"unknown kind {kind!r}")
