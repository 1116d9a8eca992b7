"""What every learner must do; a new one is tested here by being in LEARNERS, and some of their values too."""

from __future__ import annotations

import gc
import hashlib
import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from promptpool.learners.base import Learner
from promptpool.learners.state import state
from promptpool.metrics import learning_accuracy
from promptpool.training.checkpoint import learn, load_checkpoint, save_checkpoint
from promptpool.training.evaluation import count_correct, predict
from promptpool.training.loop import Plan, Session
from promptpool.training.record import Record, accuracy_matrix
from toys import (
    METHODS,
    RANDOM_VIEW,
    SHORT,
    VALUES,
    backbone_of,
    refusal,
    tensors,
    toy_domains,
    toy_learner,
    toy_plan,
    toy_schedule,
    toy_stream,
    toy_view,
)

pytestmark = pytest.mark.parametrize("name", METHODS)
STOPS = (1, 3, 7, 8, 20)


def digest(module: nn.Module) -> str:
    content = b"".join(value.numpy().tobytes() for value in module.state_dict().values())
    return hashlib.sha256(content).hexdigest()


def numbers(learner: Learner) -> list[torch.Tensor]:
    """A copy of every tensor of a learner's state."""
    return [value.clone() for value in tensors(state(learner))]


def same(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def reached(start: object) -> list[object]:
    """Every object that something keeps alive, but for code and what code keeps."""
    found, waiting = {id(start): start}, [start]
    while waiting:
        for item in gc.get_referents(waiting.pop()):
            if id(item) not in found and not isinstance(item, type | ModuleType | FunctionType):
                found[id(item)] = item
                waiting.append(item)
    return list(found.values())


def lines(records: list[Record]) -> list[str]:
    return [record.to_json() for record in records]


class Learned(NamedTuple):
    """A learner at the end of the toy stream, which several tests look at and none changes."""

    learner: Learner
    records: list[Record]
    numbers: list[torch.Tensor]
    given: nn.Module  # the backbone it was given
    before: str  # the digest of that backbone before it learned


def learned(name: str, plan: Plan) -> Learned:
    backbone = backbone_of(name)
    before = digest(backbone)
    learner = METHODS[name](backbone, toy_view(name), **VALUES.get(name, {}))
    records = list(learn(learner, toy_stream(), plan))
    return Learned(learner, records, numbers(learner), backbone, before)


@cache
def briefly(name: str) -> Learned:
    return learned(name, SHORT)


@cache
def at_length(name: str) -> Learned:
    """Learned for as long as this learner needs."""
    return learned(name, toy_plan(name))


@pytest.fixture(scope="module")
def checkpoint_at(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """Checkpoints of learners after some steps, or at the end if that comes first; one session leaves them all."""
    folder = tmp_path_factory.mktemp("checkpoints")

    @cache
    def left(name: str) -> None:
        session = Session(toy_learner(name), toy_stream(), SHORT)
        waiting = [*STOPS]
        for count, _ in enumerate(session, start=1):
            if count == waiting[0]:
                save_checkpoint(folder / f"{name}-{waiting.pop(0)}", session)
            if not waiting:
                return
        for stop in waiting:
            save_checkpoint(folder / f"{name}-{stop}", session)

    def at(name: str, stop: int) -> Path:
        left(name)
        return folder / f"{name}-{stop}"

    return at


def test_learns_each_task_when_it_is_new(name: str) -> None:
    records = at_length(name).records
    assert learning_accuracy(accuracy_matrix(records)) > 0.8
    assert learning_accuracy(accuracy_matrix(records, task_given=True)) > 0.9


def test_one_seed_gives_one_result(name: str) -> None:
    first, second = briefly(name), learned(name, SHORT)
    assert lines(first.records) == lines(second.records)
    assert same(first.numbers, second.numbers)


def test_tested_once_at_the_end_equals_tested_after_each_task(name: str) -> None:
    tested, once = briefly(name), learned(name, replace(SHORT, test_after="last"))
    assert once.records[-1].to_json() == tested.records[-1].to_json()
    torch.testing.assert_close(once.numbers, tested.numbers, rtol=1e-9, atol=1e-9)  # sums may come in other parts
    assert [record.correct for record in once.records[:-1]] == [(None,) * 3] * 2


@pytest.mark.parametrize("stop", STOPS)
def test_resumed_equals_never_stopped(name: str, stop: int, checkpoint_at: Callable[[str, int], Path]) -> None:
    resumed = toy_learner(name)
    session = Session(resumed, toy_stream(), SHORT)
    load_checkpoint(checkpoint_at(name, stop), session)
    for _ in session:
        pass
    undisturbed = briefly(name)
    assert lines(session.records) == lines(undisturbed.records)
    assert same(numbers(resumed), undisturbed.numbers)


def test_learns_through_a_random_view(name: str) -> None:
    records = list(learn(toy_learner(name, view=RANDOM_VIEW), toy_stream(), SHORT))
    assert len(records) == 3


def test_frozen_weights_stay_to_the_byte(name: str) -> None:
    learner, _, _, backbone, before = briefly(name)
    assert digest(backbone) == before, "a learner trains a copy of its own"
    if not learner.train_backbone:
        assert learner.backbone is backbone
        assert all(parameter.grad is None for parameter in backbone.parameters())
        assert not backbone.training


def test_predictions_do_not_depend_on_batches_or_order(name: str) -> None:
    learner = briefly(name).learner
    test = toy_stream().tests[1]
    whole = test.batch(slice(None))
    expected = predict(learner, whole)
    with torch.no_grad():
        scores = learner.logits(whole)
        shuffle = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(learner.logits(test.batch(shuffle)), scores[shuffle], rtol=1e-4, atol=1e-5)
    for size in (1, 3):
        parts = [predict(learner, batch) for batch in test.batches(size)]
        assert torch.equal(torch.cat(parts), expected)
    assert torch.equal(predict(learner, test.batch(shuffle)), expected[shuffle])


def test_every_test_image_counts_once(name: str) -> None:
    learner, records, *_ = briefly(name)
    for i, test in enumerate(toy_stream().tests):
        right = sum(int(predict(learner, image)[0] == image.y[0]) for image in test.batches(1))
        assert count_correct(learner, test, batch_size=5)[0] == right == records[-1].correct[i]
        assert records[-1].total[i] == len(test) == 14


def test_predicts_among_the_classes_seen(name: str) -> None:
    stream = toy_stream()
    learner = toy_learner(name)
    session = Session(learner, stream, SHORT)
    for step in session:
        if step.record is not None:
            break
    for test in stream.tests:
        assert set(predict(learner, test.batch(slice(None))).tolist()) <= set(stream.experiences[0].classes)
    assert session.records[0].correct[1:] == (None, None)


def test_a_task_given_at_test_is_predicted_among_its_classes(name: str) -> None:
    learner, records, *_ = at_length(name)
    test = toy_stream().tests[0]
    given = predict(learner, test.batch(slice(None)), test.classes)
    assert set(given.tolist()) <= set(test.classes)
    assert records[-1].correct_given_task is not None
    assert records[-1].correct_given_task[0] == int((given == test.y).sum())


@pytest.mark.parametrize("make", [toy_domains, toy_schedule])
def test_other_settings_are_learned_or_refused_with_a_reason(name: str, make: Any) -> None:
    stream, learner = make(), toy_learner(name)
    plan = Plan(epochs=1, batch_size=10, learning_rate=0.01)
    reason = refusal(learner, stream)
    if reason is not None:
        assert "\n" not in reason
        with pytest.raises(ValueError, match="boundaries"):
            list(learn(learner, stream, plan))
        if "loss_classes" not in reason:
            return
        learner = toy_learner(name, loss_classes="seen")
    records = list(learn(learner, stream, plan))
    assert records[-1].correct[0] is not None
    assert records[-1].total == (42,)
    assert records[-1].classes_seen == 6


def test_every_keyword_is_an_attribute(name: str) -> None:
    learner = toy_learner(name)
    again = type(learner)(backbone_of(name), toy_view(name), **learner.settings())
    assert again.settings() == learner.settings()
    assert repr(learner.seed) in repr(learner)


def test_every_keyword_has_a_sentence_in_the_docstring(name: str) -> None:
    learner = toy_learner(name)
    explained = "\n".join(inspect.getdoc(kind) or "" for kind in type(learner).__mro__ if issubclass(kind, Learner))
    assert [keyword for keyword in learner.settings() if f"\n    `{keyword}`: " not in explained] == []


def test_an_unknown_keyword_is_refused_by_name(name: str) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'capcity'"):
        toy_learner(name, capcity=3)


def test_a_state_holds_no_frozen_weights(name: str) -> None:
    learner = briefly(name).learner
    trained = [key for key in state(learner)["weights"] if key.startswith("backbone.")]
    assert bool(trained) == learner.train_backbone
    assert not any(key.startswith("original.") for key in state(learner)["weights"])


def test_keeps_at_most_two_copies_of_the_backbone(name: str) -> None:
    learner = briefly(name).learner
    kept = [item for item in reached(learner) if isinstance(item, type(learner.backbone))]
    assert 1 <= len(kept) <= 2
