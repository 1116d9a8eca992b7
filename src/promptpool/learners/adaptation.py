"""A pool of prompts that is learned once, on the first experience, and then frozen with the backbone.

    P, K, g = L2P on the first experience; g is thrown away
    x = [readout of f(x); readout of f with the prompts that x chooses]

What prompts learn on a few classes of a new kind of image helps with later classes of that kind. It costs what a
frozen model has for nothing: the rows depend on which experience came first.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor

from promptpool.backbones.base import FeatureExtractor, Readout
from promptpool.backbones.vit import ViT
from promptpool.data.stream import Examples
from promptpool.data.views import ImageView
from promptpool.learners.fitting import fit
from promptpool.learners.l2p import L2P
from promptpool.optim import Descent
from promptpool.prompts import PromptPool

EPOCHS, BATCH_SIZE, LEARNING_RATE = 5, 8, 0.001
LEAST_STEPS = 300
# Scaled to the tokens of any backbone; with DINOv2-S a start from tokens gains nothing either (docs/results/search.md).
VALUES: dict[str, Any] = {"start": (-1.0, 1.0), "start_from": "scaled", "order": "class-first", "position": "class"}


class PromptedBackbone(FeatureExtractor):
    """A backbone that reads every image with the prompts that it chooses from a pool."""

    def __init__(self, backbone: ViT, pool: PromptPool) -> None:
        super().__init__()
        self.backbone, self.pool = backbone, pool
        self.dim = backbone.dim

    def fingerprint(self) -> str:
        values = self.pool.top_k, self.pool.vote, self.pool.start_from
        unit = 1.0 if self.pool.start_from == "range" else float(self.pool.unit)
        digest = hashlib.sha256(repr((self.backbone.fingerprint(), values, unit)).encode())
        for rows in (self.pool.keys, self.pool.prompts):
            digest.update(rows.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def check_readout(self, readout: Readout) -> None:
        self.backbone.check_readout(readout)

    def features(self, x: Tensor) -> Tensor:
        return self.read(x, Readout())

    def read(self, x: Tensor, readout: Readout) -> Tensor:
        tokens = self.backbone.embed(x)
        query = self.backbone.encode(tokens, rows=1)[:, 0]
        prompts = self.pool.select(query).prompts + self.backbone.class_position
        tokens = torch.cat([tokens[:, :1], prompts, tokens[:, 1:]], dim=1)
        return self.backbone.read_tokens(tokens, readout, self.backbone.patches + prompts.shape[1])


def prompted_learner(backbone: ViT, view: ImageView, seed: int) -> L2P:
    """The L2P whose pool is learned."""
    return L2P(backbone, view, seed=seed, **VALUES)


def epochs_on(count: int) -> int:
    """How often so many examples are gone through."""
    return max(EPOCHS, -(-LEAST_STEPS // -(-count // BATCH_SIZE)))


def learn_prompts(learner: L2P, examples: Examples, what: str = "learning prompts") -> None:
    """Train on all of these examples, then freeze; `what` is reported meanwhile."""
    learner.add_classes(examples.classes)
    learner.train()
    rows = examples.batch(slice(None))
    trained = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    fit(
        Descent(trained, learning_rate=LEARNING_RATE, clip=1.0),
        rows,
        learner.loss,
        epochs=epochs_on(len(rows.y)),
        batch_size=BATCH_SIZE,
        generator=learner.generator,
        what=what,
    )
    learner.requires_grad_(False).eval()
