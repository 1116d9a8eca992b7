"""The Fisher information is the mean of each example's squared gradient (trap 8), in any micro-batches."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from promptpool.backbones.resnet import ResNet18
from promptpool.data.stream import Batch
from promptpool.data.views import ImageView
from promptpool.learners.base import Learner
from promptpool.learners.fisher import fisher_diagonal, trained
from slow_fisher import Tiny, flat, inputs_of, shaken, slow_fisher, slow_gradient, slow_shares
from toys import RANDOM_VIEW, VIEW, toy_backbone, toy_examples

BATCH = toy_examples(4, 1).select(torch.randperm(24, generator=torch.Generator().manual_seed(2))).batch(slice(0, 11))


def tiny(loss_classes: str = "all", train_backbone: bool = True) -> Learner:
    learner = Learner(Tiny(), VIEW, loss_classes=loss_classes, train_backbone=train_backbone)
    learner.grow(8)
    learner.add_classes(range(6))
    return shaken(learner, seed=4)


def vit(train_backbone: bool = True) -> Learner:
    learner = Learner(toy_backbone(), VIEW, head_start="truncated-normal", train_backbone=train_backbone)
    learner.add_classes(range(6))
    return learner


@pytest.mark.parametrize(("loss_classes", "visible"), [("all", range(8)), ("seen", range(6)), ("current", range(6))])
def test_it_is_that_of_a_loop(loss_classes: str, visible: range) -> None:
    learner = tiny(loss_classes)
    found = flat(fisher_diagonal(learner, [BATCH], micro_batch=4))
    expected = slow_fisher(learner, BATCH, visible)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name] == pytest.approx(values, rel=1e-9, abs=1e-15)


def test_it_is_not_the_square_of_a_mean_gradient() -> None:
    learner = vit()
    found = fisher_diagonal(learner, [BATCH], micro_batch=11)
    mean = torch.autograd.grad(learner.eval().loss(BATCH), list(trained(learner).values()))
    ratios = []
    for fisher, gradient in zip(found.values(), mean, strict=True):
        assert (fisher >= gradient.square() * (1 - 1e-4) - 1e-12).all(), "a mean of squares is no less"
        ratios.append(float(fisher.sum() / gradient.square().sum()))
    assert min(ratios) > 1.5


@pytest.mark.parametrize("train_backbone", [True, False])
def test_every_example_of_a_transformer_counts_by_itself(train_backbone: bool) -> None:
    learner = vit(train_backbone).eval()
    parameters = trained(learner)
    assert len(parameters) == (sum(1 for _ in learner.parameters()) if train_backbone else 2)
    expected = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
    for row in range(11):
        one = Batch(BATCH.x[row : row + 1], BATCH.y[row : row + 1], BATCH.ids[row : row + 1])
        gradients = torch.autograd.grad(learner.loss(one), list(parameters.values()))
        for name, gradient in zip(parameters, gradients, strict=True):
            expected[name] += gradient**2 / 11
    for micro_batch in (1, 4, 50):
        found = fisher_diagonal(learner, [BATCH], micro_batch=micro_batch)
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-8)


def test_several_batches_are_one() -> None:
    learner = tiny()
    parts = list(toy_examples(4, 1).batches(7))
    whole = fisher_diagonal(learner, [toy_examples(4, 1).batch(slice(None))], micro_batch=100)
    for name, value in fisher_diagonal(learner, parts, micro_batch=3).items():
        torch.testing.assert_close(value, whole[name])


def test_labels_drawn_from_the_model_give_the_fisher_information_itself() -> None:
    learner = tiny("seen")
    draws = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000  # every share of the classes is met in proportion
    one = BATCH.x[:1].expand(2000, -1, -1, -1)
    batch = Batch(one, torch.zeros(2000, dtype=torch.long), torch.zeros(2000, dtype=torch.long))
    found = flat(fisher_diagonal(learner, [batch], micro_batch=500, draws=draws))
    (x,) = inputs_of(learner, Batch(BATCH.x[:1], BATCH.y[:1], BATCH.ids[:1]))
    _, shares = slow_shares(learner, x, range(6))
    for name, values in found.items():
        gradients = [slow_gradient(learner, x, c, range(6))[name] for c in range(6)]
        expected = [sum(shares[c] * gradients[c][i] ** 2 for c in range(6)) for i in range(len(values))]
        assert values == pytest.approx(expected, rel=0.02, abs=1e-3)


def test_the_largest_draw_is_a_visible_class() -> None:
    learner = tiny("seen")
    found = fisher_diagonal(learner, [BATCH], micro_batch=4, draws=torch.full((11,), 1 - 2**-24))
    assert all(torch.isfinite(value).all() for value in found.values())
    assert found["head.weight"][6:].abs().max() == 0


def test_a_learner_is_left_as_it_was() -> None:
    learner = Learner(toy_backbone(), RANDOM_VIEW, head_start="truncated-normal")
    learner.add_classes(range(6))
    learner.train()
    state, before = learner.generator.get_state(), {k: v.clone() for k, v in learner.state_dict().items()}
    first, second = (fisher_diagonal(learner, [BATCH], micro_batch=4) for _ in range(2))
    assert learner.training
    assert learner.backbone.training
    assert torch.equal(learner.generator.get_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in learner.state_dict().items())
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert all(parameter.grad is None for parameter in learner.parameters())


def test_batch_statistics_stay_and_do_not_tie_examples_together() -> None:
    backbone = ResNet18(width=4, stem="cifar").start(torch.Generator().manual_seed(0))
    learner = Learner(backbone, ImageView(8), head_start="truncated-normal")
    learner.add_classes(range(6))
    learner.train()
    before = {name: value.clone() for name, value in learner.backbone.named_buffers()}
    found = fisher_diagonal(learner, [BATCH], micro_batch=4)
    assert all(torch.equal(value, before[name]) for name, value in learner.backbone.named_buffers())
    apart = fisher_diagonal(learner, [BATCH], micro_batch=1)
    for name, value in found.items():
        torch.testing.assert_close(value, apart[name], rtol=1e-3, atol=1e-7)
    learner.eval()
    bias = sum(
        torch.autograd.grad(
            F.cross_entropy(learner.logits(BATCH)[row : row + 1], BATCH.y[row : row + 1]), learner.head.bias
        )[0]
        ** 2
        for row in range(11)
    )
    torch.testing.assert_close(found["head.bias"], bias / 11, rtol=1e-4, atol=1e-7)
