"""Questions of many clients, answered together.

While the model is at work, questions gather by themselves. Where several came together the last time, the next one
waits a few milliseconds for others, or until a batch is full; somebody who asks alone does not wait. One thread does
the model's work. A question is never split, so that all of its pictures are answered by one version.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from promptpool.classifier.answers import Prediction
from promptpool.data.decoding import Pixels
from promptpool.serve.answering import Wish
from promptpool.serve.limits import Limits, full


class Answered(NamedTuple):
    """Answers, and the version that gave them."""

    version: int
    answers: list[Prediction]


class Room:
    """Place for so many pictures that wait; who alone wants more than that gets it."""

    def __init__(self, most: int) -> None:
        self.most, self.length = most, 0
        self._guard = threading.Lock()

    def take(self, count: int) -> None:
        with self._guard:
            if self.length and self.length + count > self.most:
                raise full(f"{self.length} pictures wait for an answer already, at most {self.most} can")
            self.length += count

    def give(self, count: int) -> None:
        with self._guard:
            self.length -= count


class Question(NamedTuple):
    """Pictures of one request."""

    pictures: Sequence[Pixels]  # uint8 [3, size, size]
    wishes: Sequence[Wish]
    future: Future[Answered]


Work = Callable[[Sequence[Question]], list[Answered]]


class Batches:
    """Gathers questions and hands them to `work`, which answers each of them."""

    def __init__(self, work: Work, limits: Limits, note_size: Callable[[int], None]) -> None:
        self.work, self.limits, self.note_size = work, limits, note_size
        self.room = Room(limits.queue)
        self._several = False  # the last batch had more than one question
        self._questions: queue.SimpleQueue[Question | None] = queue.SimpleQueue()
        self._model = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._gatherer = threading.Thread(target=self._gather, name="gatherer", daemon=True)
        self._gatherer.start()

    @property
    def length(self) -> int:
        """How many pictures wait."""
        return self.room.length

    def ask(self, pictures: Sequence[Pixels], wishes: Sequence[Wish]) -> Future[Answered]:
        """The answers, when they are there; refused if too many others wait."""
        self.room.take(len(pictures))
        question = Question(pictures, wishes, Future())
        self._questions.put(question)
        return question.future

    def close(self) -> None:
        """End after the questions that wait now."""
        self._questions.put(None)
        self._gatherer.join()
        self._model.shutdown()

    def _gather(self) -> None:
        going_on = True
        while going_on:
            batch, going_on = self._next()
            asked = [question for question in batch if question.future.set_running_or_notify_cancel()]
            if asked:
                self._answer(asked)
            self.room.give(sum(len(question.pictures) for question in batch))

    def _next(self) -> tuple[list[Question], bool]:
        """The next questions, and False if none come after them."""
        first = self._questions.get()
        if first is None:
            return [], False
        batch, until = [first], time.monotonic() + self.limits.gather * self._several
        while sum(len(question.pictures) for question in batch) < self.limits.batch:
            try:
                following = self._questions.get(timeout=max(until - time.monotonic(), 0.0))
            except queue.Empty:
                break
            if following is None:
                return batch, False
            batch.append(following)
        self._several = len(batch) > 1
        return batch, True

    def _answer(self, asked: list[Question]) -> None:
        """Answer them together; if that fails, each alone, so that one does not take others with it."""
        done = self._model.submit(self.work, asked)
        error = done.exception()
        if error is None:
            self.note_size(sum(len(question.pictures) for question in asked))
            for question, answered in zip(asked, done.result(), strict=True):
                question.future.set_result(answered)
        elif len(asked) == 1:
            asked[0].future.set_exception(error)
        else:
            for question in asked:
                self._answer([question])
