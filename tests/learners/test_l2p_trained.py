"""L2P that trains its backbone: a copy of it learns, and the query stays that of the model as it was given."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_l2p import RANDOM_VIEW, bytes_of, l2p, parameters_of, small_backbone, toy_batch, transcription, viewed
from torch import Tensor

from algorithm_1 import Result, clipped
from promptpool.backbones.features import FrozenFeatures, plain_features
from promptpool.backbones.vit import ViT
from promptpool.data.views import ImageView
from promptpool.learners.l2p import L2P
from promptpool.learners.state import restore, state
from promptpool.optim import Descent
from promptpool.training.checkpoint import learn
from toys import SHORT, toy_stream


def trained_l2p(view: ImageView | None = None, **values: Any) -> L2P:
    """An L2P on its way, whose backbone has moved so far that it would choose other prompts."""
    learner = l2p(view, train_backbone=True, **values)
    noise = torch.Generator().manual_seed(6)
    for parameter in learner.backbone.parameters():
        scale = 0.3 * parameter.detach().abs().mean() + 0.01
        parameter.data.add_(torch.randn(parameter.shape, generator=noise) * scale)
    return learner


def gradients_of(learner: L2P, expected: Result) -> dict[str, Tensor]:
    """Every gradient of the transcription, by the name of the parameter."""
    names = [f"backbone.{name}" for name, _ in learner.backbone.named_parameters()]
    return {**expected.gradients, **dict(zip(names, expected.frozen, strict=True))}


def all_parameters_of(learner: L2P) -> dict[str, Tensor]:
    return {**parameters_of(learner), **{f"backbone.{name}": p for name, p in learner.backbone.named_parameters()}}


def is_close(found: Tensor, expected: Tensor, name: str, largest: float) -> None:
    """Equal up to the rounding of single precision in the largest gradient there is."""
    scale = float(expected.abs().max())
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-4 * scale + 1e-6 * largest, msg=name)


@pytest.mark.parametrize(
    "values",
    [{}, {"order": "class-first", "position": "class"}, {"key": "mean"}],
    ids=["paper", "class first, its position", "mean keys"],
)
def test_loss_and_every_gradient_are_algorithm_1(values: dict[str, Any]) -> None:
    learner, batch = trained_l2p(**values), toy_batch(8)
    expected = transcription(learner, viewed(learner, batch), batch.y)
    loss = learner.loss(batch)
    loss.backward()
    assert loss.item() == pytest.approx(expected.loss, rel=1e-5)
    gradients = gradients_of(learner, expected)
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    assert max(float(gradient.abs().max()) for gradient in expected.frozen) > 1e-3
    for name, parameter in all_parameters_of(learner).items():
        assert parameter.grad is not None
        is_close(parameter.grad, gradients[name], name, largest)
    assert all(parameter.grad is None for parameter in learner.original.parameters())


@pytest.mark.parametrize("query_view", ["same", "plain"])
def test_the_query_of_a_random_view_is_the_frozen_models(query_view: str) -> None:
    learner, batch = trained_l2p(RANDOM_VIEW, query_view=query_view), toy_batch(8)
    x = viewed(learner, batch)
    asked = x if query_view == "same" else learner.view.plain(batch.x)
    expected = transcription(learner, x, batch.y, query=asked)
    loss = learner.loss(batch)
    assert loss.item() == pytest.approx(expected.loss, rel=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(learner.read(batch, x)[1], learner.original.features(asked), rtol=1e-4, atol=1e-5)
        assert (learner.read(batch, x)[1] - learner.backbone.features(asked)).abs().max() > 0.1


def test_one_step_moves_everything_by_its_clipped_gradient() -> None:
    learner, batch = trained_l2p(capacity=9), toy_batch(8)
    gradients = gradients_of(learner, transcription(learner, viewed(learner, batch), batch.y))
    assert float(sum(gradient.square().sum() for gradient in gradients.values())) > 1, "or nothing is clipped"
    gradients = clipped(gradients, [], 1.0)
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    starts = {name: parameter.detach().clone() for name, parameter in all_parameters_of(learner).items()}
    trained = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    assert {id(parameter) for parameter in trained} == {id(p) for p in all_parameters_of(learner).values()}
    before = bytes_of(learner.original)
    learner.step(batch, Descent(trained, optimiser="sgd", learning_rate=1.0, clip=1.0))
    for name, parameter in all_parameters_of(learner).items():
        is_close(starts[name] - parameter.detach(), gradients[name], name, largest)
    assert bytes_of(learner.original) == before


def test_the_query_and_what_is_chosen_by_it_do_not_move() -> None:
    backbone, some = small_backbone(), toy_batch(8)
    expected = FrozenFeatures(small_backbone().requires_grad_(False), ImageView(8))(some)
    learner = L2P(backbone, ImageView(8), train_backbone=True)
    start = bytes_of(backbone)
    list(learn(learner, toy_stream(per_class=6), SHORT))
    assert bytes_of(learner.backbone) != start
    assert bytes_of(backbone) == start
    assert torch.equal(learner.read(some, learner.view.plain(some.x))[1], expected)
    assert torch.equal(plain_features(learner.frozen.backbone, learner.view, some.x), expected), (
        "not only what was kept from before"
    )


def test_there_are_two_backbones_and_one_of_them_is_the_given_one() -> None:
    backbone = small_backbone()
    store = FrozenFeatures(backbone, ImageView(8))
    learner = L2P(backbone, ImageView(8), train_backbone=True, capacity=9).train()
    learner.frozen = store
    assert [module for module in learner.modules() if isinstance(module, ViT)] == [learner.backbone, backbone]
    assert learner.frozen is store
    assert learner.original is backbone
    assert learner.backbone.training
    assert not any(module.training for module in backbone.modules())
    assert not any(parameter.requires_grad for parameter in backbone.parameters())
    moved = learner.to(torch.float64)
    assert all(value.dtype == torch.float64 for value in moved.frozen.backbone.state_dict().values())


@pytest.mark.parametrize(("train_backbone", "name"), [(True, "original"), (False, "backbone")])
def test_a_state_that_brings_frozen_weights_is_refused(train_backbone: bool, name: str) -> None:
    learner = l2p(train_backbone=train_backbone)
    before, saved = bytes_of(learner.frozen.backbone), state(learner)
    saved["weights"][f"{name}.norm.weight"] = torch.zeros(16)
    with pytest.raises(ValueError, match=f"{name}.norm.weight do not match"):
        restore(learner, saved)
    assert bytes_of(learner.frozen.backbone) == before
