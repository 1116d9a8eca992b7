"""Small things to learn on: a stream of noisy patterns and a random ViT, seconds for a whole run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from promptpool.backbones.base import FeatureExtractor
from promptpool.backbones.resnet import resnet18
from promptpool.backbones.vit import ViT
from promptpool.data.scenarios import class_incremental, domain_incremental, gaussian_schedule
from promptpool.data.stream import Examples, Experience, Stream, examples
from promptpool.data.views import ImageView
from promptpool.learners import LEARNERS, adaptation
from promptpool.learners.base import Learner
from promptpool.learners.closed_form import ClosedForm
from promptpool.training.loop import Plan

THREADS = int(os.environ.get("PROMPTPOOL_TEST_THREADS", "1"))
CLASSES = 6
VIEW = ImageView(8)
RANDOM_VIEW = ImageView(8, crop=(0.5, 1.0), flip=True)
PLAN = Plan(epochs=10, batch_size=16, learning_rate=0.01, test_batch_size=5, task_given=True)
SHORT = Plan(epochs=2, batch_size=10, learning_rate=0.01, test_batch_size=5)


class BrieflyPrompted(ClosedForm):
    """The closed form with prompts that learn in a few steps, in whatever process it is."""

    def before(self, experience: Experience) -> None:
        with patch.object(adaptation, "LEAST_STEPS", 20):
            super().before(experience)


# Every learner, and those whose values change what is trained or kept.
METHODS: dict[str, Callable[..., Learner]] = {
    **LEARNERS,
    "closed-form-prompts": partial(BrieflyPrompted, adapt="prompts"),
    "ft-seq-blocks": partial(LEARNERS["ft-seq"], train_embedding=False),
    "l2p-enter": partial(LEARNERS["l2p"], enter=1),
    "l2p-r-trained": partial(LEARNERS["l2p-r"], train_backbone=True),
    "l2p-tokens": partial(LEARNERS["l2p"], start_from="tokens"),
    "ranpac-sums": partial(LEARNERS["ranpac"], choose_by="sums"),
}
# What a learner must be given on a stream this small.
VALUES: dict[str, dict[str, Any]] = {
    "bic": {"capacity": 24, "held_out": 0.25},
    "co2l": {"capacity": 24, "projection_dim": 16, "head_epochs": 20, "head_batch_size": 16},
    "der++": {"capacity": 24},
    "dualnet": {"capacity": 24},
    "er": {"capacity": 24},
    "ewc": {"micro_batch": 32},
    "ewc-online": {"micro_batch": 32},
    "gdumb": {"capacity": 24, "epochs": 8, "batch_size": 8, "highest_rate": 0.02},
    "l2p-r": {"capacity": 24},
    "l2p-r-trained": {"capacity": 24},
    "l2p-tokens": {"loss_classes": "seen"},  # a mask leaves the scores of old patterns above those of new ones here
    "ranpac": {"projections": 100},
    "ranpac-sums": {"projections": 100},
    "closed-form": {"projections": 100},
    "closed-form-prompts": {"projections": 100},
}
ON_RESNET = ("dualnet",)  # learners that need one; the others are tested on a ViT
VIEWS = {"co2l": RANDOM_VIEW}
DESCENT = replace(PLAN, optimiser="sgd", learning_rate=0.1)
PLANS = {
    "co2l": replace(PLAN, learning_rate=0.001),
    "der++": DESCENT,
    "dualnet": DESCENT,
    "er": DESCENT,
    "ewc": DESCENT,
    "ewc-online": DESCENT,
    "ft-seq": DESCENT,
    "ft-seq-blocks": DESCENT,
    "l2p-r-trained": DESCENT,
    "lwf": DESCENT,
    "supsup": replace(PLAN, learning_rate=0.001, epochs=20),  # larger steps leave masks that are sure of everything
}


def toy_examples(per_class: int, seed: int, classes: int = CLASSES) -> Examples:
    """Each class is one fixed 8x8 colour pattern under noise."""
    patterns = np.random.default_rng(7).integers(0, 256, (classes, 3, 8, 8))
    labels = np.repeat(np.arange(classes), per_class)
    noise = np.random.default_rng(seed).normal(0, 25, (len(labels), 3, 8, 8))
    return examples(np.clip(patterns[labels] + noise, 0, 255).astype(np.uint8), labels)


def names(classes: int = CLASSES) -> list[str]:
    return [f"pattern {c}" for c in range(classes)]


def toy_stream(tasks: int = 3, per_class: int = 16) -> Stream:
    return class_incremental(toy_examples(per_class, 1), toy_examples(7, 2), names(), tasks=tasks, seed=3)


def toy_domains() -> Stream:
    return domain_incremental([toy_examples(12, seed) for seed in (1, 4, 5)], toy_examples(7, 2), names())


def toy_schedule() -> Stream:
    return gaussian_schedule(toy_examples(20, 1), toy_examples(7, 2), names(), seed=0, width=0.7, windows=3)


def toy_backbone(seed: int = 0, dim: int = 32) -> ViT:
    generator = torch.Generator().manual_seed(seed)
    vit = ViT(image_size=8, patch_size=4, dim=dim, depth=2, heads=2).start(generator)
    with torch.no_grad():
        for parameter in vit.parameters():
            if parameter.ndim > 1:  # larger than a start for training, so that features differ by class
                parameter.mul_(8)
    return vit.eval()


def toy_view(name: str) -> ImageView:
    """The fixed view, or a random one for a learner that is not defined without."""
    return VIEWS.get(name, VIEW)


def backbone_of(name: str) -> FeatureExtractor:
    """The toy backbone that a learner is tested on."""
    return resnet18(width=4, image_size=8).eval() if name in ON_RESNET else toy_backbone()


def toy_learner(name: str, view: ImageView | None = None, **values: Any) -> Learner:
    return METHODS[name](backbone_of(name), view or toy_view(name), **{**VALUES.get(name, {}), **values})


def refusal(learner: Learner, stream: Stream) -> str | None:
    """Why a learner is not defined on a stream; None if it is."""
    try:
        learner.check(stream)
    except ValueError as error:
        return str(error)
    return None


def toy_plan(name: str) -> Plan:
    """Enough training for this learner to learn the toy stream."""
    return PLANS.get(name, PLAN)


def toy_plan_for_ranks() -> Plan:
    """Batches of odd size, so that ranks hold different numbers of examples.

    Plain gradient descent, because Adam blows up the rounding of gradients that are zero but for rounding.
    """
    return Plan(epochs=2, batch_size=15, optimiser="sgd", learning_rate=0.1, test_batch_size=5)


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in a nested value, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)
