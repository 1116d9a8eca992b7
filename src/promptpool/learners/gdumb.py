"""GDumb (Prabhu et al., ECCV 2020): keep a balanced memory, and learn from it alone, before each test.

    M <- greedy balancing sampler(M, (x, y))              during the stream; nothing is learned
    theta = a fresh model fitted on M: CE(g(f(x)[0]), y)   before each evaluation, over the classes seen

The fit is the authors': SGD with momentum, a first epoch at a tenth of the highest rate, then SGDR (a cosine from the
highest rate to the lowest, restarted after 1, 2, 4, ... epochs), gradients clipped, CutMix on half of the batches.

Deviations: a fresh model is the given, pre-trained backbone with a new head, so that all methods start from the same
weights; the paper draws random ones. Crops and flips are the view's. The model of the last epoch is tested; the
authors' code reports the best epoch on the test set. That code fills the memory before training with the first
capacity / classes examples of each class; here it is the paper's sampler, except that of equally large classes the
first loses a row, not a random one. Batches of a fit are of nearly equal size, without a short last one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from promptpool import distributed
from promptpool.backbones.base import FeatureExtractor
from promptpool.checks import above_zero, above_zero_or_none, at_least, below_one, zero_or_more
from promptpool.data.stream import Batch, Stream
from promptpool.data.views import ImageView
from promptpool.learners.base import Learner
from promptpool.learners.cutmix import cutmix
from promptpool.learners.fitting import fit
from promptpool.learners.head import Head
from promptpool.learners.keywords import Shared
from promptpool.learners.replay import check_capacity, not_current
from promptpool.memory import Memory
from promptpool.optim import Descent


class GDumb(Learner):
    """A greedy, balanced memory, and a fresh model fitted on it before each evaluation.

    Keywords, beside those of `Learner`; all but the first are of that fit, whatever the plan says:
        `capacity`: how many examples the memory holds.
        `epochs`: how often the fit goes through the memory.
        `batch_size`: the examples of a batch, at most.
        `highest_rate`: the learning rate at which each cosine begins.
        `lowest_rate`: the learning rate towards which each cosine falls.
        `momentum`: the momentum of SGD.
        `weight_decay`: the weight decay of SGD.
        `clip`: the largest norm of a gradient; None not to clip.
        `cutmix`: the share of batches whose images are mixed.
    """

    remembers = ("memory", "shown")
    defaults: ClassVar[Shared] = {**Learner.defaults, "loss_classes": "seen"}
    at_the_end = "a fresh model is fitted"
    single_pass = True
    forgets = False
    memory: Memory

    def __init__(
        self,
        backbone: FeatureExtractor,
        view: ImageView,
        *,
        capacity: int = 1000,
        epochs: int = 256,
        batch_size: int = 16,
        highest_rate: float = 0.05,
        lowest_rate: float = 0.0005,
        momentum: float = 0.9,
        weight_decay: float = 1e-6,
        clip: float | None = 10.0,
        cutmix: float = 0.5,
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(backbone, view, **shared)
        not_current(self.loss_classes)
        at_least(1, epochs=epochs, batch_size=batch_size)
        above_zero(highest_rate=highest_rate)
        zero_or_more(weight_decay=weight_decay)
        below_one(momentum=momentum)
        above_zero_or_none(clip=clip)
        if not 0 <= lowest_rate <= highest_rate:
            raise ValueError(f"lowest_rate = {lowest_rate}: must lie between 0 and highest_rate")
        if not 0 <= cutmix <= 1:
            raise ValueError(f"cutmix = {cutmix}: must lie between 0 and 1")
        self.capacity, self.epochs, self.batch_size = capacity, epochs, batch_size
        self.highest_rate, self.lowest_rate = highest_rate, lowest_rate
        self.momentum, self.weight_decay, self.clip, self.cutmix = momentum, weight_decay, clip, cutmix
        self.given = (backbone,)  # as it was given; in a tuple, so that it is no submodule
        self.memory = Memory(capacity, generator=self.generator, policy="greedy")
        self.shown = 0  # examples so far

    def step(self, batch: Batch, descend: Descent) -> Tensor | None:
        del descend
        self.memory.add(batch)
        self.shown += int(distributed.total(torch.tensor(len(batch.y))))
        return None

    def loss(self, batch: Batch) -> Tensor:
        """The loss of the fit, a mean over a batch of the memory."""
        if float(torch.rand((), generator=self.generator)) >= self.cutmix:
            return super().loss(batch)
        x, other, share = cutmix(self.inputs(batch), batch.y, self.generator)
        logits = self.visible(self.head(self.backbone.features(x)))
        return share * F.cross_entropy(logits, batch.y) + (1 - share) * F.cross_entropy(logits, other)

    def before_evaluation(self) -> None:
        """Fit a fresh model, with random numbers that depend on the seed and on how many examples were shown, alone."""
        present, seeds = self.generator, np.random.SeedSequence([self.seed, self.shown])
        self.generator = torch.Generator().manual_seed(int(seeds.generate_state(1)[0]))
        try:
            self._fit_afresh()
        finally:
            self.generator = present

    def _fit_afresh(self) -> None:
        if self.train_backbone:
            self.backbone.load_state_dict(self.given[0].state_dict())
        head = Head(self.head.dim, start=self.head_start, class_count=len(self.head.bias), generator=self.generator)
        self.head.load_state_dict(head.state_dict())
        descend = Descent(
            [parameter for parameter in self.parameters() if parameter.requires_grad],
            optimiser="sgd",
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            clip=self.clip,
        )
        self.train()
        fit(
            descend,
            self.memory.rows,
            self.loss,
            epochs=self.epochs,
            batch_size=self.batch_size,
            generator=self.generator,
            rate=self.rate,
        )
        distributed.sync_batch_norm(self)  # once is enough: running statistics take no part in the fit
        self.zero_grad()

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch: a warm start, then cosines over epochs 1, 2-3, 4-7, 8-15 and so on."""
        if epoch == 0:
            return self.highest_rate / 10
        length = 1 << (epoch.bit_length() - 1)
        fall = (1 + math.cos(math.pi * (epoch - length) / length)) / 2
        return self.lowest_rate + (self.highest_rate - self.lowest_rate) * fall

    def check(self, stream: Stream) -> None:
        check_capacity(self.capacity, stream)
        super().check(stream)

    def diagnostics(self, notes: Sequence[Any]) -> dict[str, Any]:
        del notes
        return {"loss_classes": self.loss_classes}
