"""Elastic weight consolidation against a transcription of Eq. 3 that keeps every task's anchor apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from promptpool.data.stream import Examples, Experience
from promptpool.learners.base import Learner
from promptpool.learners.ewc import EWC
from promptpool.learners.fisher import trained
from promptpool.learners.state import state
from promptpool.training.checkpoint import learn
from promptpool.training.loop import Session
from slow_fisher import Flat, Tiny, now, shaken, slow_fisher
from toys import PLANS, SHORT, VIEW, refusal, toy_backbone, toy_examples, toy_schedule, toy_stream

EXAMPLES = toy_examples(6, 1)


def task(index: int, *classes: int) -> Experience:
    return Experience(index, EXAMPLES.select(torch.isin(EXAMPLES.y, torch.tensor(classes))), classes)


TASKS = [task(0, 0, 1), task(1, 2), task(2, 3, 4)]


def through_tasks(loss_classes: str, **values: Any) -> tuple[EWC, list[tuple[Flat, Flat]]]:
    """A learner that has three tasks behind it, and where it was and what mattered at the end of each."""
    learner = EWC(Tiny(), VIEW, loss_classes=loss_classes, **values)
    learner.double()
    if loss_classes == "all":
        learner.grow(6)
    anchors = []
    for experience in TASKS:
        learner.add_classes(experience.classes)
        shaken(learner, seed=experience.index)
        visible = {"all": range(6), "seen": learner.seen, "current": learner.current}[loss_classes]
        anchors.append((now(learner), slow_fisher(learner, experience.train.batch(slice(None)), visible)))
        learner.after(experience)
    learner.add_classes((4, 5))
    shaken(learner, seed=9)
    return learner, anchors


def slow_penalty(theta: Flat, anchors: list[tuple[Flat, Flat]]) -> tuple[float, Flat]:
    """sum_t 1/2 sum_i F_ti (theta_i - theta_ti)^2 and its gradient."""
    value, gradient = 0.0, {name: [0.0] * len(values) for name, values in theta.items()}
    for stars, fishers in anchors:
        for name, centres in stars.items():  # shorter than theta where the head has grown since
            for i, (star, fisher) in enumerate(zip(centres, fishers[name], strict=True)):
                value += fisher * (theta[name][i] - star) ** 2 / 2
                gradient[name][i] += fisher * (theta[name][i] - star)
    return value, gradient


@pytest.mark.parametrize("loss_classes", ["all", "seen", "current"])
@pytest.mark.parametrize("strength", [0.5, 30.0])
def test_loss_and_gradient_are_those_of_the_equation(loss_classes: str, strength: float) -> None:
    learner, anchors = through_tasks(loss_classes, strength=strength, micro_batch=5)
    batch = task(3, 4, 5).train.batch(slice(None))
    penalty, pulls = slow_penalty(now(learner), anchors)
    fit = F.cross_entropy(learner.visible(learner.logits(batch)), batch.y)
    parameters = trained(learner)
    alone = torch.autograd.grad(fit, list(parameters.values()))
    loss = learner.loss(batch)
    assert loss.item() == pytest.approx(fit.item() + strength * penalty, rel=1e-9)
    both = torch.autograd.grad(loss, list(parameters.values()))
    assert penalty > 0.01
    for name, joint, own in zip(parameters, both, alone, strict=True):
        expected = [a + strength * b for a, b in zip(own.flatten().tolist(), pulls[name], strict=True)]
        assert joint.flatten().tolist() == pytest.approx(expected, rel=1e-8, abs=1e-12)


def test_rows_of_new_classes_are_free() -> None:
    learner, _ = through_tasks("seen")
    assert learner.head.weight.shape[0] == 6
    (pull,) = torch.autograd.grad(learner.anchor(trained(learner)), learner.head.weight)
    assert (pull[:5].abs().sum(dim=1) > 0).all()
    assert pull[5].abs().max() == 0


def test_the_first_task_has_no_penalty() -> None:
    learner = EWC(toy_backbone(), VIEW, strength=1e6)
    plain = Learner(toy_backbone(), VIEW)
    batch = TASKS[0].train.batch(slice(None))
    for each in (learner, plain):
        each.add_classes(range(6))
    assert torch.equal(learner.loss(batch), plain.loss(batch))


def test_without_strength_it_is_fine_tuning() -> None:
    learner, plain = EWC(toy_backbone(), VIEW, strength=0.0), Learner(toy_backbone(), VIEW)
    for each in (learner, plain):
        list(learn(each, toy_stream(), SHORT))
    for name, value in state(plain)["weights"].items():
        torch.testing.assert_close(state(learner)["weights"][name], value, rtol=1e-6, atol=1e-7)


def test_the_stronger_the_less_it_moves_away_from_what_mattered() -> None:
    drift = []
    for strength in (0.0, 10.0, 100.0, 1000.0):
        learner = EWC(toy_backbone(), VIEW, strength=strength)
        session = Session(learner, toy_stream(), PLANS["ewc"])
        drift.append([learner.anchor(trained(learner)).item() for step in session if step.experience == 1][-2])
    assert drift == sorted(drift, reverse=True)
    assert drift[0] > 2 * drift[2] > 2 * drift[3]


def fisher_of(**values: Any) -> dict[str, torch.Tensor]:
    learner = EWC(Tiny(), VIEW, **values)
    learner.add_classes(range(6))
    shaken(learner, seed=4)
    learner.after(Experience(0, EXAMPLES, tuple(range(6))))
    return learner.anchor.weights


def test_fewer_examples_for_the_fisher_information() -> None:
    whole = fisher_of()
    for name, value in fisher_of(fisher_examples=len(EXAMPLES)).items():
        assert torch.equal(value, whole[name])
    some, again, other = (fisher_of(fisher_examples=5, seed=seed) for seed in (0, 0, 1))
    assert all(torch.equal(some[name], again[name]) for name in some)
    assert not torch.equal(some["head.bias"], whole["head.bias"])
    assert not torch.equal(some["head.bias"], other["head.bias"])


def test_micro_batches_change_nothing() -> None:
    for name, value in fisher_of(micro_batch=1).items():
        torch.testing.assert_close(value, fisher_of(micro_batch=7)[name])


def test_labels_may_be_drawn_from_the_model() -> None:
    own, drawn, again = fisher_of(), fisher_of(fisher="sampled"), fisher_of(fisher="sampled")
    assert all(torch.equal(drawn[name], again[name]) for name in drawn)
    assert not torch.equal(own["head.bias"], drawn["head.bias"])


def test_a_frozen_backbone_leaves_the_head_alone_to_be_held() -> None:
    learner = EWC(toy_backbone(), VIEW, train_backbone=False)
    list(learn(learner, toy_stream(), SHORT))
    assert set(learner.anchor.weights) == {"head.weight", "head.bias"}


def test_only_what_was_trained_on_counts() -> None:
    class Half(EWC):
        def training_examples(self, experience: Experience) -> Examples:
            return experience.train.select(slice(0, 12))

    learner = Half(Tiny(), VIEW)
    learner.add_classes(range(6))
    shaken(learner, seed=4)
    expected = slow_fisher(learner, EXAMPLES.batch(slice(0, 12)), range(6))
    learner.after(Experience(0, EXAMPLES, tuple(range(6))))
    assert learner.anchor.weights["head.bias"].tolist() == pytest.approx(expected["head.bias"])


@pytest.mark.parametrize(
    "values",
    [{"strength": -1.0}, {"strength": float("nan")}, {"fisher": "mean"}, {"fisher_examples": -1}, {"micro_batch": 0}],
)
def test_impossible_values_raise(values: dict[str, Any]) -> None:
    name, value = next(iter(values.items()))
    with pytest.raises(ValueError, match=f"^{name} = {value!r}: must"):
        EWC(toy_backbone(), VIEW, **values)


def test_a_stream_without_boundaries_is_refused() -> None:
    assert "boundaries" in str(refusal(EWC(toy_backbone(), VIEW), toy_schedule()))
    EWC(toy_backbone(), VIEW).check(toy_stream())
    assert "single class" in str(refusal(EWC(toy_backbone(), VIEW, loss_classes="current"), toy_stream(tasks=6)))
