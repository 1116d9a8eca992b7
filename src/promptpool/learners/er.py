"""Experience replay (Chaudhry et al., 2019, On Tiny Episodic Memories, Algorithm 1).

    B_M = as many examples of the memory M as the batch B has
    loss = CE(g(f(x)[0]), y), mean over B and B_M together
    M <- reservoir(M, B)                                          Algorithm 2, after the step

Both halves go through the network as one batch, which matters to batch normalisation. Boundaries are not needed.

Deviations: the paper gives the task at test and has a head for each task. Here one head is trained over every class
(`loss_classes="all"`), as in class-incremental comparisons. The paper makes one pass over each task; with several
epochs an example is offered to the memory in the first one alone. Within one draw from the memory no row comes twice
before every row came once.
"""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from promptpool.backbones.base import FeatureExtractor
from promptpool.data.stream import Batch
from promptpool.data.views import ImageView
from promptpool.learners.base import Learner
from promptpool.learners.keywords import Shared
from promptpool.learners.replay import joint_cross_entropy, rehearsed, replay_classes
from promptpool.memory import Memory
from promptpool.optim import Descent


class ER(Learner):
    """Experience replay.

    Keywords, beside those of `Learner`:
        `capacity`: how many examples the memory holds.
        `policy`: which examples the memory keeps: "reservoir" as in the paper, "balanced" over classes, or "greedy".
    """

    remembers = ("memory",)
    memory: Memory

    def __init__(
        self,
        backbone: FeatureExtractor,
        view: ImageView,
        *,
        capacity: int = 1000,
        policy: str = "reservoir",
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(backbone, view, **shared)
        self.capacity, self.policy = capacity, policy
        self.memory = Memory(capacity, generator=self.generator, policy=policy)

    def loss(self, batch: Batch) -> Tensor:
        parts = tuple(rehearsed(batch, self.memory))
        logits = self.head(self.features(*parts))
        return joint_cross_entropy(self, logits, parts, replay_classes(self.loss_classes))

    def step(self, batch: Batch, descend: Descent) -> Tensor | None:
        loss = descend.over(batch, self.loss)
        if batch.fresh:
            self.memory.add(batch)
        return loss
