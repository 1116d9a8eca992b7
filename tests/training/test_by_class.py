"""The counts of each class in a record."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from promptpool.training import loop
from promptpool.training import record as record_module
from promptpool.training.checkpoint import learn, with_checkpoints
from promptpool.training.evaluation import by_class, predict
from promptpool.training.loop import Session
from promptpool.training.record import ClassCount, Record
from promptpool.training.run_folder import write_records
from toys import PLAN, SHORT, toy_learner, toy_schedule, toy_stream

OLD = Path(__file__).parents[1] / "experiments/old_runs"


def test_counts_are_those_of_predictions_image_by_image() -> None:
    learner, stream = toy_learner("l2p"), toy_stream()
    *_, last = learn(learner, stream, SHORT)
    labels, guesses = [], []
    for test in stream.tests:
        for image in test.batches(1):
            labels.append(int(image.y[0]))
            guesses.append(int(predict(learner, image)[0]))
    assert last.by_class is not None
    assert [count.label for count in last.by_class] == sorted(set(labels))
    for count in last.by_class:
        own = Counter(guess for label, guess in zip(labels, guesses, strict=True) if label == count.label)
        assert (count.correct, count.total) == (own.pop(count.label, 0), labels.count(count.label))
        assert count.times == max(own.values(), default=0)
        assert count.taken_for == min((g for g in own if own[g] == count.times), default=None)


def test_every_record_has_the_classes_tested_so_far() -> None:
    records = list(learn(toy_learner("nearest-mean"), toy_stream(), SHORT))
    for record in records:
        assert record.by_class is not None
        assert len(record.by_class) == record.classes_seen
        assert sum(count.correct for count in record.by_class) == sum(right or 0 for right in record.correct)


def test_of_many_classes_the_last_record_alone_has_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usual = list(learn(toy_learner("nearest-mean"), toy_stream(), SHORT))
    monkeypatch.setattr(loop, "COUNTED_CLASSES", 5)
    records = list(learn(toy_learner("nearest-mean"), toy_stream(), SHORT, checkpoint=tmp_path / "checkpoint"))
    assert [record.by_class for record in records] == [None, None, usual[-1].by_class]
    for record, other in zip(records, usual, strict=True):
        assert replace(record, by_class=other.by_class) == other
    assert list(learn(toy_learner("nearest-mean"), toy_stream(), SHORT, checkpoint=tmp_path / "checkpoint")) == records
    monkeypatch.setattr(loop, "COUNTED_CLASSES", 6)
    assert list(learn(toy_learner("nearest-mean"), toy_stream(), SHORT)) == usual


def test_a_record_becomes_a_line_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[Record] = []

    def noted(record: Record) -> dict[str, Any]:
        made.append(record)
        return asdict(record)

    monkeypatch.setattr(record_module, "asdict", noted)
    running = Session(toy_learner("nearest-mean"), toy_stream(), SHORT)
    for step in with_checkpoints(running, tmp_path / "checkpoint", seconds=0):
        if step.record is not None:
            write_records(tmp_path, running.records)
    assert made == running.records
    assert len(made) == 3


def test_without_boundaries_classes_to_come_count_as_wrong() -> None:
    plan = replace(PLAN, epochs=1)
    first, *_ = learn(toy_learner("nearest-mean"), toy_schedule(), plan)
    assert first.by_class is not None
    assert sum(count.total for count in first.by_class) == sum(first.total)


def test_the_class_that_is_most_often_meant_instead() -> None:
    one, other = Counter({(0, 0): 3, (0, 2): 1, (0, 1): 1}), Counter({(0, 2): 2, (0, 1): 2, (1, 1): 4})
    assert by_class([one, other]) == (ClassCount(0, 3, 9, 1, 3), ClassCount(1, 4, 4))
    assert by_class([]) == ()


def test_a_record_comes_back_from_its_line() -> None:
    record = Record(0, 5, 2, None, (3, None), (4, 4), by_class=(ClassCount(0, 1, 2, 1, 1), ClassCount(1, 2, 2)))
    assert Record.from_json(record.to_json()) == record
    assert json.loads(record.to_json())["by_class"] == [[0, 1, 2, 1, 1], [1, 2, 2, None, 0]]


def test_records_of_earlier_versions_keep_their_bytes() -> None:
    (file,) = OLD.glob("*/records.jsonl")
    for line in file.read_text(encoding="utf-8").splitlines():
        assert Record.from_json(line).by_class is None
        assert Record.from_json(line).to_json() == line


@pytest.mark.parametrize("size", [1, 5, 100])
def test_counts_do_not_depend_on_batches(size: int) -> None:
    *_, last = learn(toy_learner("l2p"), toy_stream(), replace(SHORT, test_batch_size=size))
    *_, usual = learn(toy_learner("l2p"), toy_stream(), SHORT)
    assert last.by_class == usual.by_class
