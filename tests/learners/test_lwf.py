"""LwF is the loss of Li and Hoiem (2017), on toy images through a toy ViT."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import slow
from promptpool.backbones.resnet import ResNet18
from promptpool.data.stream import Batch
from promptpool.data.views import ImageView
from promptpool.learners.lwf import LwF
from promptpool.losses import distillation
from promptpool.training.loop import Plan, Session
from toys import (
    RANDOM_VIEW,
    VIEW,
    refusal,
    toy_backbone,
    toy_domains,
    toy_examples,
    toy_schedule,
    toy_stream,
)


def toy_batch(labels: list[int], seed: int = 1) -> Batch:
    some = toy_examples(4, seed)
    return some.batch(torch.cat([(some.y == label).nonzero().flatten() for label in labels]))


def shaken(learner: nn.Module, seed: int) -> None:
    """Other weights for all that is trained."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in learner.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)


def in_second_task(
    view: ImageView = VIEW, old: tuple[int, ...] = (1, 4), new: tuple[int, ...] = (0, 2, 3), **values: Any
) -> LwF:
    """A learner on its way through its second task, unlike its teacher."""
    learner = LwF(toy_backbone(dim=16), view, **values)
    learner.add_classes(old)
    shaken(learner, 1)
    learner.after(toy_stream().experiences[0])
    learner.add_classes(new)
    shaken(learner, 2)
    return learner.train()


def expected(learner: LwF, batch: Batch, x: Tensor) -> tuple[float, Tensor]:
    """The loss of the paper, and its gradient by each score: [B, C]."""
    with torch.no_grad():
        own = learner.backbone.features(x).double()
        theirs = learner.teacher["backbone"].features(x).double()  # type: ignore[operator]
    head, old_head = learner.head, learner.teacher["head"]
    scores = slow.linear(own.tolist(), head.weight.tolist(), head.bias.tolist())
    answers = slow.linear(theirs.tolist(), old_head.weight.tolist(), old_head.bias.tolist())  # type: ignore[operator]
    named = {"current": learner.current, "seen": learner.seen, "all": range(len(head.bias))}
    losses, gradients = [], []
    for score, answer, label in zip(scores, answers, batch.y.tolist(), strict=True):
        new, by_new = slow.cross_entropy(score, label, list(named[learner.loss_classes]))
        old, by_old = slow.distillation(score, answer, list(learner.old), learner.temperature)
        losses.append(new + learner.distill * old)
        gradients.append([a + learner.distill * b for a, b in zip(by_new, by_old, strict=True)])
    return math.fsum(losses) / len(losses), torch.tensor(gradients, dtype=torch.float64) / len(losses)


def assert_equation(learner: LwF, batch: Batch) -> None:
    state = learner.generator.get_state()
    x = learner.inputs(batch)
    learner.generator.set_state(state)
    value, by_score = expected(learner, batch, x)
    trained = [p for p in learner.parameters() if p.requires_grad]
    scores = learner.head(learner.backbone.features(x))
    wanted = torch.autograd.grad(scores, trained, by_score.float())
    loss = learner.loss(batch)
    assert loss.item() == pytest.approx(value, rel=1e-5)
    for mine, theirs in zip(torch.autograd.grad(loss, trained), wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5 * max(1.0, float(theirs.abs().max())))


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_distillation_is_the_equation(temperature: float) -> None:
    generator = torch.Generator().manual_seed(0)
    scores, answers = torch.randn(2, 5, 7, generator=generator, dtype=torch.float64) * 3
    scores.requires_grad_()
    rows = [
        slow.distillation(score, answer, list(range(7)), temperature)
        for score, answer in zip(scores.tolist(), answers.tolist(), strict=True)
    ]
    losses = distillation(scores, answers, temperature)
    assert losses.tolist() == pytest.approx([value for value, _ in rows])
    (gradient,) = torch.autograd.grad(losses.sum(), scores)
    torch.testing.assert_close(gradient, torch.tensor([g for _, g in rows], dtype=torch.float64))


@pytest.mark.parametrize("view", [VIEW, RANDOM_VIEW], ids=["fixed", "random"])
@pytest.mark.parametrize("values", [{}, {"loss_classes": "seen"}, {"loss_classes": "all"}, {"distill": 3.0}])
def test_loss_and_gradient_are_the_papers(view: ImageView, values: dict[str, Any]) -> None:
    assert_equation(in_second_task(view, **values), toy_batch([0, 2, 3]))


def test_with_a_frozen_backbone_the_head_alone_learns() -> None:
    learner = in_second_task(train_backbone=False)
    assert learner.teacher["backbone"] is learner.backbone
    assert_equation(learner, toy_batch([0, 2, 3]))


def test_through_a_random_view_with_a_frozen_backbone() -> None:
    assert_equation(in_second_task(RANDOM_VIEW, train_backbone=False), toy_batch([0, 2, 3]))


def test_where_classes_come_again_all_of_them_are_old() -> None:
    learner = in_second_task(old=(0, 1, 2), new=(0, 1, 2))
    assert learner.old == (0, 1, 2)
    assert_equation(learner, toy_batch([0, 1, 2]))


def test_one_old_class_alone_gives_nothing_to_keep() -> None:
    learner, batch = in_second_task(old=(4,)), toy_batch([0, 2])
    assert learner.loss(batch).item() == pytest.approx(super(LwF, learner).loss(batch).item())


def test_the_first_task_is_cross_entropy() -> None:
    learner = LwF(toy_backbone(), VIEW, head_start="truncated-normal").train()
    learner.add_classes([0, 1])
    batch = toy_batch([0, 1])
    assert torch.equal(learner.loss(batch), super(LwF, learner).loss(batch))


def test_keywords_change_the_loss() -> None:
    batch = toy_batch([0, 2, 3])
    usual = in_second_task().loss(batch).item()
    for values in ({"distill": 0.0}, {"temperature": 1.0}, {"loss_classes": "seen"}):
        assert in_second_task(**values).loss(batch).item() != pytest.approx(usual, rel=1e-3)
    assert in_second_task(distill=0.0).loss(batch).item() == pytest.approx(
        super(LwF, in_second_task()).loss(batch).item()
    )


def test_the_teacher_is_the_model_before_the_task_and_never_moves() -> None:
    learner, stream = LwF(toy_backbone(), VIEW), toy_stream()
    before: dict[str, Tensor] = {}
    for step in Session(learner, stream, Plan(epochs=1, batch_size=16, learning_rate=0.01)):
        parts = {name: learner.teacher[name].state_dict() for name in ("backbone", "head")} if learner.teacher else {}
        now = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.items()}
        if step.record is None:
            assert now.keys() == before.keys()
            assert all(torch.equal(now[key], value) for key, value in before.items())
        else:
            before = copy.deepcopy(now)
            own = learner.state_dict()
            assert all(torch.equal(value, own[key]) for key, value in now.items())
            assert learner.old == learner.seen


def test_a_teacher_with_batch_statistics_keeps_them() -> None:
    learner = LwF(ResNet18(width=4, stem="cifar").start(torch.Generator().manual_seed(0)), VIEW)
    learner.add_classes([0, 1])
    learner.after(toy_stream().experiences[0])
    learner.add_classes([2, 3])
    learner.train()
    kept = copy.deepcopy(learner.teacher.state_dict())
    learner.loss(toy_batch([2, 3]))
    now = learner.teacher.state_dict()["backbone"]
    assert all(torch.equal(now[key], value) for key, value in kept["backbone"].items())


def test_boundaries_are_needed() -> None:
    learner = LwF(toy_backbone(), VIEW)
    assert "boundaries" in str(refusal(learner, toy_schedule()))
    learner.check(toy_stream())
    learner.check(toy_domains())


@pytest.mark.parametrize(
    ("name", "value"), [("distill", -1.0), ("distill", math.inf), ("temperature", 0.0), ("temperature", math.nan)]
)
def test_bad_values_raise(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{name} = {value}: must"):
        LwF(toy_backbone(), VIEW, **{name: value})  # type: ignore[arg-type]
