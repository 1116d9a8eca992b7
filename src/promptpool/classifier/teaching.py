"""A lesson as one experience of a stream that has no end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from promptpool.data.stream import Examples, Experience, Stream
from promptpool.errors import BadFileError
from promptpool.learners.base import Learner
from promptpool.learners.state import restore, state
from promptpool.optim import copied
from promptpool.progress import report
from promptpool.training.checkpoint import load_checkpoint, save_checkpoint
from promptpool.training.loop import Plan, Session, Step

FEWEST = 5  # a class with fewer pictures has none to hold out
SECONDS = 20.0  # between two notes of how far a lesson is


def held_out(examples: Examples, share: float) -> Tensor:
    """Which pictures are held out: a share of each class that has enough, drawn from their content."""
    held = torch.zeros(len(examples), dtype=torch.bool)
    for label in examples.classes if share else ():
        own = (examples.y == label).nonzero().flatten()
        if len(own) >= FEWEST:
            order = examples.ids[own].argsort(stable=True)
            held[own[order[: max(round(share * len(own)), 1)]]] = True
    return held


def teach(
    learner: Learner, examples: Examples, index: int, names: tuple[str, ...], plan: Plan, progress: Path | None
) -> None:
    """Learn examples as the experience `index`; with `progress`, from where an earlier try was stopped."""
    experience = Experience(index, examples, examples.classes)
    stream = Stream((experience,), (examples.select(slice(0, 1)),), names)
    checkpoint = None if progress is None or learner.single_pass else progress / "checkpoint"
    session = _session(learner, stream, plan, checkpoint)
    written = time.monotonic()
    for step in _steps(session, checkpoint):
        report("learning", step.step, step.steps)
        if step.record is not None or time.monotonic() - written >= SECONDS:
            learner.keep_features()
            written = time.monotonic()
    learner.eval()


def _steps(session: Session, checkpoint: Path | None) -> Iterator[Step]:
    """The steps, with notes of how far they are; a disk that is full does not end the lesson, saving it will say so."""
    written = time.monotonic()
    for step in session:
        if checkpoint is not None and (step.record is not None or time.monotonic() - written >= SECONDS):
            with suppress(OSError):
                save_checkpoint(checkpoint, session)
            written = time.monotonic()
        yield step


def _session(learner: Learner, stream: Stream, plan: Plan, checkpoint: Path | None) -> Session:
    """The session of a lesson, where it stopped or at its start."""

    def begun() -> Session:
        learner.class_names = ()  # they may have been renamed
        return Session(learner, stream, plan)

    session = begun()
    if checkpoint is None or not checkpoint.exists():
        return session
    before = copied(state(learner))
    try:
        load_checkpoint(checkpoint, session)
    except BadFileError:  # damaged, or of another lesson
        with suppress(OSError):
            checkpoint.unlink()
        restore(learner, before)
        session = begun()
    return session
