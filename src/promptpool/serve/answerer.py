"""Who looks at pictures. `Answerer` is all that the engine knows of it; here it is a thread of this process.

One on several machines would keep `encoded` and `answers` apart: copies of the encoder, which with the closed form
never change, and small heads that `install` brings up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

import numpy as np
import torch

from promptpool.data.decoding import Pixels
from promptpool.serve.answering import Wish, answers, encoded
from promptpool.serve.batches import Answered, Batches, Question
from promptpool.serve.limits import Limits
from promptpool.serve.version import Version


class Answerer(Protocol):
    """Answers questions from the version that was installed last."""

    @property
    def length(self) -> int:
        """How many pictures wait."""
        ...

    def ask(self, pictures: Sequence[Pixels], wishes: Sequence[Wish]) -> Future[Answered]:
        """The answers to one question, all of one version, when they are there."""
        ...

    def install(self, version: Version) -> None:
        """Answer from this version: when this returns, every question that is asked later is."""
        ...

    def close(self) -> None:
        """End after the questions that wait now."""
        ...


MakeAnswerer = Callable[[Version, Limits, Callable[[int], None]], Answerer]


class LocalAnswerer:
    """Gathers questions into batches, which one thread answers."""

    def __init__(self, version: Version, limits: Limits, note_size: Callable[[int], None]) -> None:
        self.version, self.limits = version, limits
        self.batches = Batches(self.work, limits, note_size)

    @property
    def length(self) -> int:
        return self.batches.length

    def ask(self, pictures: Sequence[Pixels], wishes: Sequence[Wish]) -> Future[Answered]:
        return self.batches.ask(pictures, wishes)

    def install(self, version: Version) -> None:
        self.version = version

    def work(self, questions: Sequence[Question]) -> list[Answered]:
        """Answer a batch, all of it by one version."""
        version = self.version
        images = torch.from_numpy(np.stack([picture for question in questions for picture in question.pictures]))
        rows = torch.cat([encoded(version.classifier, part) for part in images.split(self.limits.batch)])
        wishes = [wish for question in questions for wish in question.wishes]
        found = iter(answers(version.classifier, rows, wishes))
        return [Answered(version.number, [next(found) for _ in question.wishes]) for question in questions]

    def close(self) -> None:
        self.batches.close()
