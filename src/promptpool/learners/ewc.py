"""Elastic weight consolidation (Kirkpatrick et al., 2017).

    loss = CE(g(f(x)[0]), y) + strength / 2 * sum_t sum_i F_ti (theta_i - theta_ti)^2          Eq. 3

t runs over the tasks so far, theta_t are the parameters at the end of task t and F_t is the diagonal of the Fisher
information there, over the task's own examples (`fisher.py`). The paper's Eq. 3 has one old task, and says that
several tasks give as many penalties. Their sum is stored exactly in two tensors per parameter (`anchor.py`), so that
memory does not grow with tasks. Rows that the head gains later have no Fisher information and are free.

Deviations: the paper does not say which labels the Fisher information uses. By default they are the examples' own (the
empirical Fisher); `fisher="sampled"` draws them from the model. Images are in the plain view. By default the loss
compares all classes, as in the L2P paper's comparison; the paper's tasks share their classes.
"""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from promptpool import distributed
from promptpool.backbones.base import FeatureExtractor
from promptpool.data.stream import Batch, Experience, Stream
from promptpool.data.views import ImageView
from promptpool.learners.anchor import Anchor
from promptpool.learners.base import Learner, check_boundaries
from promptpool.learners.fisher import check_fisher, fisher_diagonal, trained
from promptpool.learners.keywords import Shared


class EWC(Learner):
    """Fine-tuning with a penalty on changes of parameters that older tasks need.

    Keywords, beside those of `Learner`:
        `strength`: the weight of the penalty.
        `fisher`: the labels of the Fisher information, "empirical" (the examples' own) or "sampled" from the model.
        `fisher_examples`: at most this many examples of a task are used for its Fisher information; 0 for all.
        `micro_batch`: how many gradients are held at once, each as large as the model.
    """

    remembers = ("anchor",)
    at_the_end = "the Fisher information is taken"

    def __init__(
        self,
        backbone: FeatureExtractor,
        view: ImageView,
        *,
        strength: float = 10.0,
        fisher: str = "empirical",
        fisher_examples: int = 0,
        micro_batch: int = 2,
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(backbone, view, **shared)
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
        own = distributed.rank_slice(len(examples))
        information = fisher_diagonal(
            self,
            examples.select(own).batches(self.micro_batch),
            micro_batch=self.micro_batch,
            draws=None if draws is None else draws[own],
        )
        self.anchor.add(trained(self), information)

    def check(self, stream: Stream) -> None:
        check_boundaries(self, stream, "it takes the Fisher information when a task ends; use ewc-online")
        super().check(stream)
