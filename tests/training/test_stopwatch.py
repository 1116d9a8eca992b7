"""benchmarks/stopwatch.py: seconds go to what they were spent on, and to one thing alone."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import stopwatch
from stopwatch import OTHER, WAITING, lines, watching
from torch import Tensor

from promptpool.data.stream import Batch, Source
from toys import toy_examples


class Clock:
    """A clock that goes when it is told."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Slow:
    """A source that is not in memory, and takes a second for each look."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self.source, self.clock = source, clock

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: Tensor, /) -> Tensor:
        self.clock.now += 1
        return self.source[index]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(stopwatch, "time", clock)
    return clock


def unread(clock: Clock) -> Batch:
    examples = toy_examples(2, seed=0)
    return replace(examples, source=Slow(examples.source, clock)).batch(slice(None))


def test_images_that_are_read_late_are_waited_for(clock: Clock) -> None:
    batch = unread(clock)
    with watching() as watch:
        clock.now += 3
        with watch.running("steps"):
            assert len(batch.x)
            assert len(batch.x)  # which is read by now
            clock.now += 5
    assert dict(watch.seconds) == {OTHER: 3, WAITING: 1, "steps": 5}
    assert watch.total == 9
    assert lines({"a run": watch})[2:] == [
        "| steps | 5.0 (56%) |",
        "| waiting for images | 1.0 (11%) |",
        "| other | 3.0 (33%) |",
        "| all | 9.0 |",
    ]


def test_what_another_thread_reads_is_not_waited_for(clock: Clock) -> None:
    batch = unread(clock)
    with watching() as watch, watch.running("steps"):
        reader = threading.Thread(target=lambda: batch.x)
        reader.start()
        reader.join()
        assert len(batch.x)
    assert watch.seconds["steps"] == 1
    assert watch.seconds[WAITING] == 0
