"""The closed form that decides on the first experience whether to read with prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from promptpool.backbones.resnet import resnet18
from promptpool.data.scenarios import class_incremental
from promptpool.data.stream import Stream
from promptpool.learners import adaptation, closed_form
from promptpool.learners.closed_form import ClosedForm
from promptpool.learners.state import restore, state
from promptpool.learners.trial import Trial
from promptpool.optim import Descent
from promptpool.training.checkpoint import learn, load_checkpoint, save_checkpoint
from promptpool.training.loop import Plan, Session
from promptpool.training.record import Record
from toys import VIEW, names, tensors, toy_backbone, toy_examples, toy_schedule, toy_stream

PLAN = Plan(epochs=1, batch_size=10)
WON, LOST = Trial(0.2, 0.1), Trial(0.1, 0.2)
TEST = toy_examples(7, 2).batch(slice(None))


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptation, "EPOCHS", 1)
    monkeypatch.setattr(adaptation, "LEAST_STEPS", 10)


def ending(monkeypatch: pytest.MonkeyPatch, trial: Trial | None) -> None:
    """Have every trial end like this."""
    monkeypatch.setattr(closed_form, "try_prompts", lambda *_, **__: trial)


def learner_of(**values: Any) -> ClosedForm:
    return ClosedForm(toy_backbone(dim=16), VIEW, **{"projections": 50, "adapt": "auto", **values})


def stream_of(per_class: int = 6) -> Stream:
    """Eight classes in two tasks, so that a trial has two to learn from and two to judge on."""
    train, test = toy_examples(per_class, 1, 8), toy_examples(3, 2, 8)
    return class_incremental(train, test, names(8), tasks=2, seed=3)


def learned(stream: Stream, **values: Any) -> tuple[ClosedForm, list[Record]]:
    learner = learner_of(**values)
    return learner, list(learn(learner, stream, PLAN))


def facts(records: list[Record]) -> set[tuple[Any, ...]]:
    """What the records say of the decision, which should be one thing."""
    return {tuple(record.facts[name] for name in ("adapt", "adapt_gain", "adapt_error")) for record in records}


@pytest.mark.parametrize(("trial", "other"), [(WON, "prompts"), (LOST, "none"), (None, "none")])
def test_it_is_the_learner_that_it_decided_for(
    trial: Trial | None, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending(monkeypatch, trial)
    one, records = learned(stream_of())
    expected, expected_records = learned(stream_of(), adapt=other)
    assert torch.equal(one.head.weight, expected.head.weight)
    assert torch.equal(one.sums.gram, expected.sums.gram)
    assert [record.correct for record in records] == [record.correct for record in expected_records]
    assert facts(records) == {(other, *(trial or Trial()))}
    assert "adapt" not in expected_records[0].facts


def test_a_trial_is_held_once(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []

    def try_prompts(examples: Any, **_: Any) -> Trial:
        held.append(len(examples))
        return WON

    monkeypatch.setattr(closed_form, "try_prompts", try_prompts)
    learner, _ = learned(stream_of())
    assert held == [4 * 6]
    assert not any(parameter.requires_grad for parameter in learner.parameters())


def test_a_trial_leaves_the_learner_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a real trial that prompts cannot win, nothing differs from a learner that held none."""
    monkeypatch.setattr(Trial, "won", False)
    monkeypatch.setattr("promptpool.learners.trial.LEAST_ERRORS", 0)
    one, records = learned(stream_of())
    expected, _ = learned(stream_of(), adapt="none")
    assert torch.equal(one.head.weight, expected.head.weight)
    assert torch.equal(one.directions, expected.directions)
    assert {record.facts["adapt"] for record in records} == {"none"}


def test_one_seed_decides_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("promptpool.learners.trial.LEAST_ERRORS", 0)
    first, second = learned(stream_of()), learned(stream_of())
    assert [record.to_json() for record in first[1]] == [record.to_json() for record in second[1]]
    assert all(map(torch.equal, tensors(state(first[0])), tensors(state(second[0]))))


@pytest.mark.parametrize("trial", [WON, LOST])
@pytest.mark.parametrize("stop", [1, 2, 3, 4])
def test_resumed_equals_never_stopped(trial: Trial, stop: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ending(monkeypatch, trial)
    undisturbed, records = learned(stream_of())
    session = Session(learner_of(), stream_of(), PLAN)
    for count, _ in enumerate(session, start=1):
        if count == stop:
            save_checkpoint(tmp_path / "checkpoint", session)
            break
    ending(monkeypatch, None)  # it is not asked for again
    session = Session(learner_of(), stream_of(), PLAN)
    load_checkpoint(tmp_path / "checkpoint", session)
    for _ in session:
        pass
    assert [record.to_json() for record in session.records] == [record.to_json() for record in records]
    assert all(map(torch.equal, tensors(state(session.learner)), tensors(state(undisturbed))))


@pytest.mark.parametrize(("first", "second"), [(WON, LOST), (LOST, WON)])
def test_a_state_that_decided_otherwise_is_restored(
    first: Trial, second: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending(monkeypatch, first)
    learner, _ = learned(stream_of())
    ending(monkeypatch, second)
    other, _ = learned(stream_of())
    restore(learner, state(other))
    learner.before_evaluation()
    assert torch.equal(learner.read(TEST), other.read(TEST))
    assert torch.equal(learner.logits(TEST), other.logits(TEST))
    assert learner.diagnostics([]) == other.diagnostics([])


def test_without_boundaries_it_is_none() -> None:
    learner = learner_of()
    records = list(learn(learner, toy_schedule(), PLAN))
    expected = learner_of(adapt="none")
    list(learn(expected, toy_schedule(), PLAN))
    assert torch.equal(learner.head.weight, expected.head.weight)
    assert facts(records) == {("none", 0.0, 0.0)}


@pytest.mark.parametrize("tasks", [3, 6])
def test_with_one_or_two_classes_in_the_first_experience_it_is_none(tasks: int) -> None:
    _, records = learned(toy_stream(tasks=tasks, per_class=4))
    assert facts(records) == {("none", 0.0, 0.0)}


def test_what_was_learned_before_a_first_task_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    ending(monkeypatch, WON)
    learner, some = learner_of(), toy_examples(4, 1)
    learner.add_classes(some.classes)
    learner.step(some.batch(slice(None)), Descent([]))
    learner.before(stream_of().experiences[0])
    learner.before_evaluation()
    assert learner.prompted is None
    assert learner.sums.count == len(some)


def test_only_learners_that_decided_alike_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    ending(monkeypatch, LOST)
    first, second = learned(stream_of())[0], learned(stream_of())[0]
    first.join(second)
    assert first.sums.count == 2 * second.sums.count
    ending(monkeypatch, WON)
    prompted, same = learned(stream_of())[0], learned(stream_of())[0]
    with pytest.raises(ValueError, match="one of the two learners has taken prompts"):
        first.join(prompted)
    with pytest.raises(ValueError, match="one of the two learners has taken prompts"):
        prompted.join(first)
    prompted.join(same)
    with pytest.raises(ValueError, match="prompts were learned on other images"):
        prompted.join(learned(stream_of(per_class=5))[0])


def test_a_residual_network_has_no_tokens() -> None:
    backbone = resnet18(width=4, image_size=8).eval()
    with pytest.raises(ValueError, match="adapt = 'auto': ResNet18 has no tokens for prompts, set 'none'"):
        ClosedForm(backbone, VIEW, readout_blocks=1, readout_rows="class", adapt="auto")


def test_the_pool_learns_on_all_classes_of_the_first_experience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the halves are thrown away."""
    ending(monkeypatch, WON)
    auto, _ = learned(stream_of())
    prompts: Tensor = learned(stream_of(), adapt="prompts")[0].pool.prompts
    assert torch.equal(auto.pool.prompts, prompts)
