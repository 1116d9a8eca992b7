"""Dark experience replay, DER++ (Buzzega et al., NeurIPS 2020, Algorithm 2).

    loss = CE(h(x), y)                                 the new examples
         + alpha * mean over classes of (z' - h(x'))^2 of examples x' of the memory with the logits z' of their time
         + beta * CE(h(x''), y'')                      of other examples of the memory, drawn apart        Eq. 6
    M <- reservoir(M, (x, h(x), y))                    h(x) as it was before the step, in the training view

with h = g after f, each term a mean over as many examples as are new. Nothing needs boundaries.

If the loss compares every class from the start (`loss_classes="all"`, the default, like the authors' head of fixed
size), logits are stored and compared over all of them. Otherwise they are stored for the classes seen at that time, and
compared on these alone.

Deviations: Eq. 6 has the squared norm, a sum over classes; the authors' code, to which the published alphas belong, and
this one take the mean. Within one draw from the memory no row comes twice before each came once.
"""

from __future__ import annotations

from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from promptpool.backbones.base import FeatureExtractor
from promptpool.checks import zero_or_more
from promptpool.data.stream import Batch
from promptpool.data.views import ImageView
from promptpool.learners.base import Learner
from promptpool.learners.keywords import Shared
from promptpool.learners.replay import replay_classes, replayed
from promptpool.losses import logit_distance
from promptpool.memory import Memory
from promptpool.optim import Descent


class DER(Learner):
    """DER++: a memory of examples with their logits; with `beta=0` this is DER.

    Keywords, beside those of `Learner`:
        `capacity`: how many examples the memory holds.
        `alpha`: the weight of the distance to the stored logits.
        `beta`: the weight of the cross-entropy of replayed examples.
        `every_epoch`: True offers an example to the memory in every epoch, with its logits of that moment, as the
            authors' code does; False in the first epoch only.
    """

    remembers = ("memory",)
    memory: Memory

    def __init__(
        self,
        backbone: FeatureExtractor,
        view: ImageView,
        *,
        capacity: int = 1000,
        alpha: float = 0.1,
        beta: float = 0.5,
        every_epoch: bool = True,
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(backbone, view, **shared)
        zero_or_more(alpha=alpha, beta=beta)
        self.capacity, self.alpha, self.beta, self.every_epoch = capacity, alpha, beta, every_epoch
        self.memory = Memory(capacity, generator=self.generator)

    def loss(self, batch: Batch) -> Tensor:
        return self.of_logits(self.logits(batch), batch)

    def of_logits(self, logits: Tensor, batch: Batch) -> Tensor:
        """Eq. 6, given the logits h(x) of the new examples."""
        loss = F.cross_entropy(self.visible(logits), batch.y)
        if self.memory:
            old = replayed(batch, self.memory)
            loss = loss + self.alpha * logit_distance(self.logits(old), old.extra["logits"])
            old = replayed(batch, self.memory)
            seen = self.visible(self.logits(old), replay_classes(self.loss_classes))
            loss = loss + self.beta * F.cross_entropy(seen, old.y)
        return loss

    def step(self, batch: Batch, descend: Descent) -> Tensor | None:
        parts: list[Tensor] = []

        def noted(part: Batch) -> Tensor:
            logits = self.logits(part)
            parts.append(logits.detach())
            return self.of_logits(logits, part)

        loss = descend.over(batch, noted)
        if batch.fresh or self.every_epoch:
            then = self.visible(torch.cat(parts), replay_classes(self.loss_classes))
            self.memory.add(batch._replace(extra={"logits": then}))
        return loss

    def grow(self, class_count: int) -> None:
        super().grow(class_count)
        self.memory.widen("logits", len(self.head.bias), -torch.inf)  # these classes were not known then
