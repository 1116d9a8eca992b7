"""Online EWC: EWC++ of Chaudhry et al. (Riemannian Walk, ECCV 2018), which needs no task boundary.

    F <- rate * F_batch + (1 - rate) * F                       at every step
    loss = CE(g(f(x)[0]), y) + strength / 2 * sum_i F*_i (theta_i - theta*_i)^2

F_batch is the diagonal of the Fisher information over the batch, example by example (`fisher.py`), before the step. F
starts as that of the first batch. F* and theta* are the F and theta of the last refresh; each refresh replaces them. A
refresh comes:

- at the end of each experience, if the stream has boundaries, as in the paper;
- otherwise after every `refresh` steps, counted from the start of the stream.

Until the first refresh there is no penalty. Rows that the head gains later have no Fisher information yet and are free.

Deviations: the paper mixes with 0.9 once in 50 steps (for CIFAR-100), over the mean of those steps. Here every step
mixes, by default with 0.045. After 50 steps that leaves as much of the earlier F (0.955^50 = 0.1), and it saves a
tensor of the model's size. The released code squares the gradient of a batch's loss; here each example's is squared.
Refreshes without boundaries are ours, because the paper always has tasks. Images for F are in the plain view.
"""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from promptpool import distributed
from promptpool.backbones.base import FeatureExtractor
from promptpool.checks import at_least
from promptpool.data.stream import Batch, Experience
from promptpool.data.views import ImageView
from promptpool.learners.anchor import Anchor
from promptpool.learners.base import Learner
from promptpool.learners.fisher import check_fisher, fisher_diagonal, trained
from promptpool.learners.head import with_rows
from promptpool.learners.keywords import Shared
from promptpool.memory import pick
from promptpool.optim import Descent


class OnlineEWC(Learner):
    """Fine-tuning with a penalty on changes of parameters whose running Fisher information is high.

    Keywords, beside those of `Learner`:
        `strength`: the weight of the penalty.
        `rate`: how much of the running average each step replaces.
        `refresh`: on a stream without boundaries, how many steps lie between two refreshes of the penalty.
        `fisher`: the labels of the Fisher information, "empirical" (the examples' own) or "sampled" from the model.
        `fisher_examples`: at most this many examples of a batch are used for the Fisher information; 0 for all.
        `micro_batch`: how many gradients are held at once, each as large as the model.
    """

    remembers = ("anchor", "running", "steps", "bounded")

    def __init__(
        self,
        backbone: FeatureExtractor,
        view: ImageView,
        *,
        strength: float = 10.0,
        rate: float = 0.045,
        refresh: int = 50,
        fisher: str = "empirical",
        fisher_examples: int = 0,
        micro_batch: int = 2,
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(backbone, view, **shared)
        check_fisher(strength=strength, fisher=fisher, fisher_examples=fisher_examples, micro_batch=micro_batch)
        if not 0 < rate <= 1:
            raise ValueError(f"rate = {rate}: must be above 0 and at most 1")
        at_least(1, refresh=refresh)
        self.strength, self.rate, self.refresh = strength, rate, refresh
        self.fisher, self.fisher_examples, self.micro_batch = fisher, fisher_examples, micro_batch
        self.anchor = Anchor()
        self.running: dict[str, Tensor] = {}  # F
        self.steps = 0
        self.bounded = False  # True once the stream has said that an experience begins

    def loss(self, batch: Batch) -> Tensor:
        return super().loss(batch) + self.strength * self.anchor(trained(self))

    def step(self, batch: Batch, descend: Descent) -> Tensor | None:
        self.observe(batch)
        loss = descend.over(batch, self.loss)
        self.steps += 1
        if not self.bounded and self.steps % self.refresh == 0:
            self.anchor.move(trained(self), self.running)
        return loss

    def observe(self, batch: Batch) -> None:
        """Mix the batch's Fisher information into the running average."""
        draws = distributed.uniform(len(batch.y), 1, self.generator)[:, 0] if self.fisher == "sampled" else None
        if self.fisher_examples:
            ahead = distributed.joined(len(batch.y)).start  # examples of the joined batch before this rank's
            batch = pick(batch, slice(0, max(self.fisher_examples - ahead, 0)))
        new = fisher_diagonal(self, [batch], micro_batch=self.micro_batch, draws=draws)
        for name, value in new.items():
            if name in self.running:
                old = with_rows(self.running[name].to(value), len(value))
                value.mul_(self.rate).add_(old, alpha=1 - self.rate)
            self.running[name] = value

    def before(self, experience: Experience) -> None:
        del experience
        self.bounded = True

    def after(self, experience: Experience) -> None:
        del experience
        self.anchor.move(trained(self), self.running)
