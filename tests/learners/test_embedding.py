"""A trained transformer whose embedding stays as it was given (`train_embedding=False`)."""

from __future__ import annotations

import pytest
import torch

from promptpool.backbones.resnet import ResNet18
from promptpool.data.views import ImageView
from promptpool.learners import LEARNERS
from promptpool.learners.fisher import trained
from promptpool.training.checkpoint import learn
from promptpool.training.loop import Plan
from toys import VALUES, VIEW, toy_backbone, toy_stream

PLAN = Plan(epochs=1, batch_size=16, optimiser="sgd", learning_rate=0.1)


@pytest.mark.parametrize("name", ["ft-seq", "ewc", "lwf", "er", "gdumb", "l2p-r"])
def test_the_embedding_stays_and_the_blocks_learn(name: str) -> None:
    given = toy_backbone()
    values = {**VALUES.get(name, {}), "train_backbone": True, "train_embedding": False}
    learner = LEARNERS[name](given, VIEW, **values)
    before = {key: value.clone() for key, value in given.state_dict().items()}
    list(learn(learner, toy_stream(), PLAN))
    changed = {key for key, value in learner.backbone.state_dict().items() if not torch.equal(value, before[key])}
    assert changed
    assert all(key.startswith(("blocks.", "norm.")) for key in changed)
    assert {"cls_token", "pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias"} < before.keys()


def test_a_gradient_of_the_blocks_is_the_same_with_and_without_one_of_the_embedding() -> None:
    both = [LEARNERS["ft-seq"](toy_backbone(), VIEW, train_embedding=on).train() for on in (True, False)]
    for learner in both:
        learner.grow(2)
        torch.nn.init.eye_(learner.head.weight)
        learner.loss(toy_stream().experiences[0].train.batch(torch.arange(8))).backward()
    gradients = [{name: p.grad for name, p in learner.named_parameters() if p.grad is not None} for learner in both]
    assert gradients[1].keys() < gradients[0].keys()
    for name, gradient in gradients[1].items():
        torch.testing.assert_close(gradient, gradients[0][name])


def test_what_is_not_trained_has_no_fisher_information() -> None:
    learner = LEARNERS["ewc"](toy_backbone(), VIEW, train_embedding=False, micro_batch=32)
    list(learn(learner, toy_stream(), PLAN))
    assert {name.split(".")[1] for name in trained(learner) if name.startswith("backbone.")} == {"blocks", "norm"}


def test_it_is_refused_where_it_would_mean_nothing() -> None:
    with pytest.raises(ValueError, match="train_embedding = False: must be True for a backbone that is frozen"):
        LEARNERS["l2p"](toy_backbone(), VIEW, train_embedding=False)
    with pytest.raises(ValueError, match="train_embedding = False: must be True for ResNet18"):
        LEARNERS["ft-seq"](ResNet18(width=4), ImageView(8), train_embedding=False)
