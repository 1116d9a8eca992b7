"""Elastic weight consolidation (Kirkpatrick et al., 2017).

    loss = CE(g(f(x)[0]), y) + strength / 2 * sum_t sum_i F_ti (theta_i - theta_ti)^2          Eq. 3

t runs over the tasks behind, theta_t are the parameters at the end of task t and F_t is the diagonal of the Fisher
information there, over the task's own examples (`fisher.py`). The paper's Eq. 3 has one old task and says that several
are as many penalties; their sum is kept exactly in two tensors per parameter (`anchor.py`), so memory does not grow
with tasks. Rows that a head grows later have had no Fisher information and are free.

Deviations: the paper does not say with which labels the Fisher information is taken; by default it is the examples'
own (the empirical Fisher), and `fisher="sampled"` draws them from the model. It is taken in the plain view. By
default the loss sees all classes, as in the L2P paper's comparison; the paper's tasks share their classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from promptpool import distributed
from promptpool.backbones.base import FeatureExtractor
from promptpool.backbones.features import FrozenFeatures
from promptpool.data.stream import Batch, Experience
from promptpool.data.views import View
from promptpool.learners.anchor import Anchor
from promptpool.learners.base import Learner
from promptpool.learners.fisher import check_fisher, fisher_diagonal, trained


class EWC(Learner):
    """Fine-tuning that is held back where older tasks need a parameter as it is.

    `fisher_examples` caps how many examples of a task are used for its Fisher information (0: all of them),
    `micro_batch` how many gradients are held at once, each as large as the model.
    """

    remembers = ("anchor",)
    at_the_end = "the Fisher information is taken"
    needs_boundaries = "it takes the Fisher information when a task ends; use ewc-online"

    def __init__(
        self,
        backbone: FeatureExtractor,
        view: View,
        *,
        strength: float = 10.0,
        fisher: str = "empirical",
        fisher_examples: int = 0,
        micro_batch: int = 2,
        loss_classes: str = "all",
        head_start: str = "zeros",
        train_backbone: bool = True,
        seed: int = 0,
        frozen: FrozenFeatures | None = None,
    ) -> None:
        super().__init__(
            backbone,
            view,
            loss_classes=loss_classes,
            head_start=head_start,
            train_backbone=train_backbone,
            seed=seed,
            frozen=frozen,
        )
        check_fisher(strength=strength, fisher=fisher, fisher_examples=fisher_examples, micro_batch=micro_batch)
        self.strength, self.fisher = strength, fisher
        self.fisher_examples, self.micro_batch = fisher_examples, micro_batch
        self.anchor = Anchor()

    def loss(self, batch: Batch) -> Tensor:
        return super().loss(batch) + self.strength * self.anchor(trained(self))

    def after(self, experience: Experience) -> None:
        examples = self.training_examples(experience)
        if 0 < self.fisher_examples < len(examples):
            chosen = torch.randperm(len(examples), generator=self.generator)[: self.fisher_examples]
            examples = examples.select(chosen.sort().values)
        draws = torch.rand(len(examples), generator=self.generator) if self.fisher == "sampled" else None
        mine = distributed.rank_slice(len(examples))
        information = fisher_diagonal(
            self,
            examples.select(mine).batches(self.micro_batch),
            micro_batch=self.micro_batch,
            draws=None if draws is None else draws[mine],
        )
        self.anchor.add(trained(self), information)
