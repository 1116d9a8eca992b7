"""Parts of equations, a number at a time and in double precision, for tests to build transcriptions of."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from promptpool.data.stream import Batch
from promptpool.learners.base import Learner
from toys import toy_examples


class Model:
    """A double-precision copy of a learner's backbone and head, whose gradients are asked for by name."""

    def __init__(self, learner: Learner) -> None:
        self.backbone = copy.deepcopy(learner.backbone).double().requires_grad_(learner.train_backbone)
        self.weight = learner.head.weight.detach().double().requires_grad_()
        self.bias = learner.head.bias.detach().double().requires_grad_()

    def __call__(self, x: Tensor) -> list[list[Tensor]]:
        """The logits of model inputs, image by image and class by class."""
        features = self.backbone.features(x.double())
        return [
            [(row * feature).sum() + bias for row, bias in zip(self.weight, self.bias, strict=True)]
            for feature in features
        ]

    def trained(self) -> dict[str, Tensor]:
        parts = {f"backbone.{name}": p for name, p in self.backbone.named_parameters() if p.requires_grad}
        return {**parts, "head.weight": self.weight, "head.bias": self.bias}


def cross_entropy(logits: Sequence[Tensor], y: int, classes: Sequence[int]) -> Tensor:
    """-log(exp(z_y) / sum over classes of exp(z_c))."""
    return torch.stack([logits[c].exp() for c in classes]).sum().log() - logits[y]


def mean(values: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(values)).sum() / len(values)


def toy_batch(count: int, classes: int = 3, seed: int = 1) -> Batch:
    """Mixed images of the first classes."""
    some = toy_examples(20, seed, classes)
    return some.batch(torch.randperm(len(some), generator=torch.Generator().manual_seed(seed))[:count])


def on_its_way(learner: Learner, classes: int = 5) -> Learner:
    """Classes 3 and 4 are behind it, 0, 1 and 2 are current; the head has `classes` rows, none of them zero."""
    learner.add_classes([3, 4])
    learner.add_classes([0, 1, 2])
    learner.grow(classes)
    noise = torch.Generator().manual_seed(5)
    for parameter in (learner.head.weight, learner.head.bias):
        parameter.data.copy_(0.3 * torch.randn(parameter.shape, generator=noise))
    return learner.train()


def assert_loss_and_gradients(learner: nn.Module, loss: Tensor, expected: Tensor, model: Model) -> None:
    """The learner's loss and every gradient are those of the transcription."""
    learner.zero_grad()
    loss.backward()
    torch.testing.assert_close(loss.detach().double(), expected.detach(), rtol=1e-5, atol=1e-6)
    named = model.trained()
    gradients = torch.autograd.grad(expected, list(named.values()))
    parameters = {name: parameter for name, parameter in learner.named_parameters() if parameter.requires_grad}
    assert set(parameters) == set(named)
    for name, gradient in zip(named, gradients, strict=True):
        found = parameters[name].grad
        assert found is not None
        scale = float(gradient.abs().max())
        torch.testing.assert_close(found.double(), gradient, rtol=1e-3, atol=1e-4 * scale + 1e-7, msg=name)
    assert max(float(gradient.abs().max()) for gradient in gradients) > 1e-3
