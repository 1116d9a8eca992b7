"""Batches in parts: the gradient of the whole batch, with fewer images in the model at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from doubles import double_precision, double_view
from promptpool.data.stream import Batch
from promptpool.learners.base import Learner
from promptpool.learners.l2p import L2P
from promptpool.optim import Descent
from promptpool.training.loop import Plan, Session, check_session
from toys import ON_RESNET, VIEW, backbone_of, toy_backbone, toy_learner, toy_stream, toy_view

PLAN = Plan(epochs=1, batch_size=10, optimiser="sgd", learning_rate=0.1, clip=None)
# A memory of one row: whatever is drawn from it, whole batches and parts replay the same.
ONE_ROW: dict[str, dict[str, Any]] = {
    "bic": {"capacity": 2, "held_places": 1},
    **{name: {"capacity": 1} for name in ("der++", "er", "l2p-r", "l2p-r-trained")},
}
SPLIT = ("ft-seq", "ft-seq-frozen", "l2p", "lwf", "ewc", "ewc-online", "supsup", *ONE_ROW)


def second_task(name: str, micro_batch: int | None) -> tuple[float | None, list[Tensor]]:
    """The loss and the gradients of the first step of the second task."""
    with double_precision():
        learner = toy_learner(name, view=double_view(toy_view(name)), **ONE_ROW.get(name, {}))
        session = Session(learner, toy_stream(tasks=2), PLAN)
        next(step for step in session if step.record is not None)
        session.plan = replace(PLAN, micro_batch=micro_batch)
        second = session.stream.experiences[1]
        session.begin(second)
        loss = session.learn(second, session.order(second)[:10])
    assert session.descend is not None
    return loss, [parameter.grad for parameter in session.descend.parameters if parameter.grad is not None]


@pytest.mark.parametrize("name", SPLIT)
def test_parts_have_the_gradient_of_the_whole_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # One row is too small a memory for some.
    monkeypatch.setattr(type(toy_learner(name)), "check", lambda self, stream: None)
    loss, whole = second_task(name, None)
    for micro_batch in (1, 4):
        other, parts = second_task(name, micro_batch)
        assert other == pytest.approx(loss, rel=1e-6)
        assert len(parts) == len(whole) > 0
        most = max(float(gradient.norm()) for gradient in whole)  # others are zero but for rounding
        for one, two in zip(whole, parts, strict=True):
            assert one.dtype == torch.float64
            assert (two - one).norm() <= 1e-6 * one.norm() + 1e-12 * most


@pytest.mark.parametrize(("name", "replayed"), [("l2p", 0), ("ft-seq", 0), ("er", 1)])
def test_no_more_than_a_part_goes_through_the_model_at_once(
    name: str, replayed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, sizes = toy_learner(name), []
    encode: Callable[..., Tensor] = learner.backbone.encode  # type: ignore[assignment]

    def noted(tokens: Tensor, *values: Any, **keywords: Any) -> Tensor:
        if torch.is_grad_enabled():
            sizes.append(len(tokens))
        return encode(tokens, *values, **keywords)

    monkeypatch.setattr(learner.backbone, "encode", noted)
    list(Session(learner, toy_stream(), replace(PLAN, micro_batch=3)))
    assert max(sizes) == 3 * (1 + replayed)


def test_der_stores_the_logits_of_all_parts() -> None:
    stored = []
    for micro_batch in (None, 3):
        learner = toy_learner("der++", capacity=1000)
        experience = toy_stream().experiences[0]
        learner.grow(6)
        descend = Descent(learner.parameters(), optimiser="sgd", learning_rate=0.1, micro_batch=micro_batch)
        batch = experience.train.batch(slice(0, 10))
        learner.step(batch, descend)
        assert learner.memory is not None
        stored.append(learner.memory.rows)
    torch.testing.assert_close(stored[0].extra["logits"], stored[1].extra["logits"], rtol=1e-4, atol=1e-5)
    assert torch.equal(stored[0].ids, stored[1].ids)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("co2l", "Co2L, which contrasts all images of a batch"),
        ("dualnet", "DualNet, which normalises an image by the others of its batch"),
        ("gdumb", "GDumb, which takes no steps on batches"),
        ("nearest-mean", "NearestMean, which takes no steps on batches"),
        ("ranpac", "RanPAC, which takes no steps on batches"),
        ("closed-form", "ClosedForm, which takes no steps on batches"),
    ],
)
def test_methods_that_need_whole_batches_say_why(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^micro_batch = 4: must be none for {reason}$"):
        check_session(toy_learner(name), toy_stream(), replace(PLAN, micro_batch=4))


def test_what_is_normalised_by_its_batch_is_refused_only_where_it_learns() -> None:
    resnet = backbone_of(ON_RESNET[0])
    with pytest.raises(ValueError, match="normalises an image"):
        check_session(Learner(resnet, VIEW), toy_stream(), replace(PLAN, micro_batch=4))
    check_session(Learner(resnet, VIEW, train_backbone=False), toy_stream(), replace(PLAN, micro_batch=4))


def test_a_vote_looks_at_the_whole_batch() -> None:
    with pytest.raises(ValueError, match="must be none for L2P, which chooses prompts by a vote of images"):
        check_session(L2P(toy_backbone(), VIEW, vote=4), toy_stream(), replace(PLAN, micro_batch=4))


@pytest.mark.parametrize("tokens_gb", ["1", "0"])
@pytest.mark.parametrize("start_from", ["scaled", "tokens"])
def test_prompts_start_from_the_whole_first_batch(
    start_from: str, tokens_gb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMPTPOOL_TOKENS_GB", tokens_gb)
    found = []
    for micro_batch in (None, 3):
        with double_precision():
            learner = toy_learner("l2p", view=double_view(VIEW), start=(-1.0, 1.0), start_from=start_from)
            next(iter(Session(learner, toy_stream(), replace(PLAN, micro_batch=micro_batch))))
            assert isinstance(learner, L2P)
            assert not learner.pool.waits
        found.append([learner.pool.unit, *learner.parameters(), learner.generator.get_state()])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(two, one, rtol=1e-9, atol=1e-12)


def test_a_step_on_a_whole_loss_is_refused_where_parts_are_asked_for() -> None:
    class Whole(Learner):
        def step(self, batch: Batch, descend: Descent) -> Tensor | None:
            return descend(self.loss(batch))

    session = Session(Whole(toy_backbone(), VIEW), toy_stream(), replace(PLAN, micro_batch=4))
    with pytest.raises(ValueError, match="micro_batch = 4: this method computes the loss of a whole batch"):
        next(iter(session))


@pytest.mark.parametrize("value", [0, -1, 2.5])
def test_a_part_holds_a_whole_number_of_images(value: Any) -> None:
    with pytest.raises(ValueError, match=f"micro_batch = {value}: must be a whole number, at least 1"):
        Plan(micro_batch=value)
