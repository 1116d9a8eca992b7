"""Bias Correction (Wu et al., 2019, Large Scale Incremental Learning).

Stage 1, on the new images X^m and the memory X^n, with n old and m new classes:

    L_d = -sum_k p_k log q_k over the n old classes, both at temperature T     Eq. 1
    L_c = CE(o(x), y) over the n + m classes                                   the classification loss
    loss = lambda L_d + (1 - lambda) L_c,  lambda = n / (n + m)                mean over X^n and X^m

Stage 2, with all else frozen, on held-out images, equally many of each class, old or new, that were not trained on:

    o_k := alpha o_k + beta for the m new classes, o_k as it is for others     Eq. 4
    alpha, beta = those with the least CE(o(x), y)                             Eq. 5

The corrected model is tested, teaches (p) and learns on: each experience's alpha and beta stay applied to its classes.
The paper holds out one image in ten, and one of the memory's places in ten (`held_out`). A tenth of a small memory is
less than one place per class; then `held_places` says how many there are.

Deviations: exemplars are drawn at random, not by herding. A step replays as many images as are new, and weighs the two
means by the sizes of X^n and X^m: the expectation of the paper's mean, which draws from their union. Each batch of new
images takes several steps, with other replayed images, so that an epoch is nearly as long as one over the union. Eq. 5
is minimised on all rows at once and at a constant rate. The released code lowers the rate and adds 0.05 beta^2, which
is not in the paper and not here; it corrects the newest classes alone and leaves the others to distillation.
If classes come again, m counts those of the experience, and Eq. 4 acts on scores that are corrected already.
"""

from __future__ import annotations

from typing import ClassVar, Unpack
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from promptpool.backbones.base import FeatureExtractor
from promptpool.checks import above_zero, below_one, inside_zero_one
from promptpool.data.stream import Batch, Examples, Experience, Stream
from promptpool.data.views import ImageView
from promptpool.learners.base import Learner, check_boundaries
from promptpool.learners.keywords import Shared
from promptpool.learners.replay import not_current, plain_logits, replayed
from promptpool.learners.teacher import Teacher, taught
from promptpool.losses import columns, distillation
from promptpool.memory import AT_ONCE, Memory, join, pick, turns
from promptpool.optim import Descent


class BiC(Learner):
    """Replay and distillation, then a scale and a shift for the scores of the newest classes.

    Keywords, beside those of `Learner`:
        `capacity`: how many images are kept, those held out included.
        `held_out`: the share of a class's images, and of the memory's places, that is held out for stage 2.
        `held_places`: how many of the memory's places are for held-out images; None for the share `held_out`.
        `temperature`: T of the distillation, Eq. 1.
        `bias_epochs`: the steps of stage 2; 0 for no correction.
        `bias_rate`: the learning rate of stage 2.
        `bias_momentum`: the momentum of stage 2.
    """

    remembers = ("memory", "held", "teacher", "old", "memory_share")
    defaults: ClassVar[Shared] = {**Learner.defaults, "loss_classes": "seen"}
    at_the_end = "scores are corrected"
    memory: Memory
    scale: Tensor  # [C]
    shift: Tensor  # [C]

    def __init__(
        self,
        backbone: FeatureExtractor,
        view: ImageView,
        *,
        capacity: int = 1000,
        held_out: float = 0.1,
        held_places: int | None = None,
        temperature: float = 2.0,
        bias_epochs: int = 200,
        bias_rate: float = 0.1,
        bias_momentum: float = 0.9,
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(backbone, view, **shared)
        not_current(self.loss_classes)
        inside_zero_one(held_out=held_out)
        places = round(held_out * capacity) if held_places is None else held_places
        if not 0 < places < capacity:
            held = f"held_out = {held_out}" if held_places is None else f"held_places = {held_places}"
            raise ValueError(f"capacity = {capacity}: must have places for held-out images and for others; {held}")
        above_zero(temperature=temperature, bias_rate=bias_rate)
        if bias_epochs < 0:
            raise ValueError(f"bias_epochs = {bias_epochs}: must be 0 (no correction) or more")
        below_one(bias_momentum=bias_momentum)
        self.capacity, self.held_out, self.held_places, self.temperature = capacity, held_out, held_places, temperature
        self.bias_epochs, self.bias_rate, self.bias_momentum = bias_epochs, bias_rate, bias_momentum
        self.register_buffer("scale", torch.ones(0))
        self.register_buffer("shift", torch.zeros(0))
        self.memory = Memory(capacity - places, generator=self.generator, policy="balanced")
        self.held = Memory(places, generator=self.generator, policy="balanced")
        self.teacher = Teacher(self, "backbone", "head")
        self.old: tuple[int, ...] = ()  # the classes that the teacher knows
        self.memory_share = 0.0  # of the images of stage 1
        self._splits: WeakKeyDictionary[Experience, tuple[Examples, Examples]] = WeakKeyDictionary()

    def loss(self, batch: Batch) -> Tensor:
        if not self.teacher:
            return super().loss(batch)
        replay = replayed(batch, self.memory)
        own, theirs = taught(self, self.teacher, batch, replay)
        logits, answers = self.corrected(self.head(own)), self.corrected(self.teacher["head"](theirs))
        old = distillation(columns(logits, self.old), columns(answers, self.old), self.temperature)  # Eq. 1
        right = F.cross_entropy(self.visible(logits), torch.cat([batch.y, replay.y]), reduction="none")  # L_c
        weight = len(self.old) / (len(self.old) + len(self.current))
        each: Tensor = weight * old + (1 - weight) * right
        new, again = each[: len(batch.y)].mean(), each[len(batch.y) :].mean()
        return (1 - self.memory_share) * new + self.memory_share * again

    def step(self, batch: Batch, descend: Descent) -> Tensor | None:
        for _ in range(round(1 / (1 - self.memory_share))):  # |X^n| + |X^m| steps for each |X^m|
            loss = descend.over(batch, self.loss)
        return loss

    def logits(self, batch: Batch) -> Tensor:
        return self.corrected(super().logits(batch))

    def corrected(self, logits: Tensor) -> Tensor:
        """Scores with each experience's scale and shift: [B, C]."""
        classes = logits.shape[1]
        return logits * self.scale[:classes] + self.shift[:classes]

    def grow(self, class_count: int) -> None:
        super().grow(class_count)
        added = len(self.head.bias) - len(self.scale)
        self.scale = torch.cat([self.scale, self.scale.new_ones(added)])
        self.shift = torch.cat([self.shift, self.shift.new_zeros(added)])

    def split(self, experience: Experience) -> tuple[Examples, Examples]:
        """The examples that are trained on, and those held out: of each class at most as many as have a place."""
        if experience not in self._splits:
            y, places = experience.train.y, self.held.capacity // len(experience.classes)
            seed = np.random.SeedSequence([self.seed, experience.index]).generate_state(1)
            order = torch.randperm(len(y), generator=torch.Generator().manual_seed(int(seed[0])))
            counts = torch.bincount(y)
            most = (self.held_out * counts).round().clamp(min=1, max=places) * (counts > 1)  # one image is trained on
            out = torch.zeros(len(y), dtype=torch.bool)
            out[order] = turns(y[order]) < most[y[order]]
            self._splits[experience] = experience.train.select(~out), experience.train.select(out)
        return self._splits[experience]

    def training_examples(self, experience: Experience) -> Examples:
        return self.split(experience)[0]

    def before(self, experience: Experience) -> None:
        self.memory_share = len(self.memory) / (len(self.memory) + len(self.training_examples(experience)))

    def after(self, experience: Experience) -> None:
        trained, held = self.split(experience)
        if self.teacher and len(self.held) and len(held):
            self.correct(_balanced(join(self.held.rows, held.batch(slice(None)))))
        self.memory.add_all(trained)
        self.held.add_all(held)
        self.teacher.take()
        self.old = self.seen

    def correct(self, rows: Batch) -> None:
        """Stage 2: scale and shift the scores of the current classes."""
        logits = plain_logits(self, rows, AT_ONCE)
        y, newest = rows.y.to(self.device), torch.zeros_like(self.scale, dtype=torch.bool)
        newest[list(self.current)] = True
        alpha, beta = nn.Parameter(self.scale.new_ones(())), nn.Parameter(self.scale.new_zeros(()))
        descend = Descent(
            [alpha, beta], optimiser="sgd", learning_rate=self.bias_rate, momentum=self.bias_momentum, clip=None
        )
        for _ in range(self.bias_epochs):  # on every rank alike
            descend(F.cross_entropy(self.visible(torch.where(newest, alpha * logits + beta, logits), "seen"), y))
        self.scale = torch.where(newest, alpha.detach() * self.scale, self.scale)
        self.shift = torch.where(newest, alpha.detach() * self.shift + beta.detach(), self.shift)

    def check(self, stream: Stream) -> None:
        class_count, held, others = len(stream.class_names), self.held.capacity, self.memory.capacity
        if min(held, others) < class_count:
            raise ValueError(
                f"capacity = {self.capacity}: gives {held} places to images held out and {others} to others, and each "
                f"must have one per class, {class_count}: set held_places = {class_count} and capacity to "
                f"{2 * class_count} or more"
            )
        check_boundaries(self, stream, "it corrects the newest task's scores")
        super().check(stream)


def _balanced(rows: Batch) -> Batch:
    """As many rows of each class as of the class with the fewest."""
    counts = torch.bincount(rows.y)
    return pick(rows, (turns(rows.y) < counts[counts > 0].min()).nonzero().flatten())
