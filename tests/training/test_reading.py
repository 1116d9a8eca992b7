"""Inputs that do not lie in memory are read when they are looked at, and not where what is asked of them is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from promptpool.data.stream import Batch, Examples, Experience, Source, Stream, Unread
from promptpool.learners import adaptation
from promptpool.training.checkpoint import learn
from promptpool.training.record import Record
from toys import SHORT, toy_examples, toy_learner, toy_stream


class Counted:
    """A source that is not in memory, and notes which of its rows were read."""

    def __init__(self, source: Source) -> None:
        self.source, self.read = source, list[int]()

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: Tensor, /) -> Tensor:
        self.read += index.tolist()
        return self.source[index]


def on_disk(stream: Stream) -> tuple[Stream, Counted, Counted]:
    """The same stream with its images elsewhere than in memory: those to learn, and those to test on."""
    train, test = Counted(stream.experiences[0].train.source), Counted(stream.tests[0].source)
    experiences = tuple(Experience(e.index, replace(e.train, source=train), e.classes) for e in stream.experiences)
    tests = tuple(replace(part, source=test) for part in stream.tests)
    return replace(stream, experiences=experiences, tests=tests), train, test


def learned(name: str, stream: Stream) -> list[Record]:
    return list(learn(toy_learner(name), stream, SHORT))


@pytest.mark.parametrize("name", ["l2p", "l2p-enter", "closed-form", "nearest-mean", "masked-linear"])
def test_a_frozen_model_looks_at_each_image_once(name: str) -> None:
    stream, train, test = on_disk(toy_stream())
    records = learned(name, stream)
    assert sorted(train.read) == list(range(len(train)))
    assert sorted(test.read) == list(range(len(test)))
    assert records == learned(name, toy_stream())


def test_a_closed_form_with_prompts_looks_again_at_what_taught_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptation, "LEAST_STEPS", 20)
    values: dict[str, Any] = {"adapt": "prompts", "projections": 50}
    stream, train, test = on_disk(toy_stream())
    records = list(learn(toy_learner("closed-form", **values), stream, SHORT))
    first = stream.experiences[0].train.rows.tolist()
    assert sorted(train.read) == sorted([*range(len(train)), *first])
    assert sorted(test.read) == list(range(len(test)))
    assert records == list(learn(toy_learner("closed-form", **values), toy_stream(), SHORT))


@pytest.mark.parametrize("name", ["ft-seq", "l2p-r", "er", "lwf"])
def test_who_needs_images_again_gets_them(name: str) -> None:
    stream, train, test = on_disk(toy_stream())
    records = learned(name, stream)
    assert sorted(train.read) == sorted([*range(len(train))] * SHORT.epochs)
    assert len(test.read) >= len(test)
    assert records == learned(name, toy_stream())


def test_tokens_that_found_no_room_are_made_of_images_that_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPOOL_TOKENS_GB", "0")
    stream, train, _ = on_disk(toy_stream())
    records = learned("l2p", stream)
    assert sorted(train.read) == sorted([*range(len(train))] * SHORT.epochs)
    monkeypatch.undo()
    assert records == learned("l2p", toy_stream())


def unread(count: int = 6) -> tuple[Batch, Counted, Examples]:
    examples = toy_examples(count, seed=0)
    source = Counted(examples.source)
    return replace(examples, source=source).batch(slice(0, count)), source, examples


def test_a_batch_is_read_once_and_only_when_its_inputs_are_asked_for() -> None:
    batch, source, examples = unread()
    moved = batch.to(torch.device("cpu"))
    assert isinstance(moved.raw, Unread)
    assert not source.read
    assert torch.equal(moved.x, examples.batch(slice(0, 6)).x)
    assert torch.equal(batch.x, moved.x)
    assert source.read == [0, 1, 2, 3, 4, 5]


def test_a_part_of_a_batch_reads_its_own_rows_alone() -> None:
    batch, source, examples = unread()
    part = batch.part(slice(2, 4))
    assert not source.read
    assert torch.equal(part.x, examples.batch(slice(2, 4)).x)
    assert source.read == [2, 3]
    assert torch.equal(batch.x, examples.batch(slice(0, 6)).x)
    assert torch.equal(batch.part(slice(4, 6)).x, examples.batch(slice(4, 6)).x)
    assert source.read == [2, 3, 0, 1, 2, 3, 4, 5]
