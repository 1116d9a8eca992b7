"""Learning without Forgetting (Li and Hoiem, 2017).

    L_new = CE(g(f(x)[0]), y)  over the classes of the new task            Eq. 1
    L_old = -sum_i p'_i log q'_i  over the old classes                     Eqs. 2 and 3
    p'_i = p_i^(1/T) / sum_j p_j^(1/T), and q' alike                       Eq. 4
    loss = distill * L_old + L_new                                         mean over the batch

p are the probabilities of the model from before the task (the teacher), q those of the student, in the same view of x.
As in the paper, L_old is not multiplied by T^2. It does not fix how high old scores are beside new ones, so with
`loss_classes="seen"` new images push all old scores down and nothing resists.

Deviations: all old classes share one softmax, because scores of different tasks must be comparable when no task is
given at test; the paper has one softmax per old task. The new rows of the head are not warmed up alone. The teacher
answers every view anew; the paper records its answers once. Weight decay is the plan's.
"""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch.nn.functional as F
from torch import Tensor

from promptpool.backbones.base import FeatureExtractor
from promptpool.checks import above_zero, zero_or_more
from promptpool.data.stream import Batch, Experience, Stream
from promptpool.data.views import ImageView
from promptpool.learners.base import Learner, check_boundaries
from promptpool.learners.keywords import Shared
from promptpool.learners.teacher import Teacher, taught
from promptpool.losses import columns, distillation


class LwF(Learner):
    """Distillation from the model as it was before the task, on new images alone.

    Keywords, beside those of `Learner`, of which `loss_classes` are the classes of L_new:
        `distill`: lambda_o, the weight of L_old.
        `temperature`: T, by which the scores in L_old are divided.
    """

    remembers = ("teacher", "old")
    defaults: ClassVar[Shared] = {**Learner.defaults, "loss_classes": "current"}

    def __init__(
        self,
        backbone: FeatureExtractor,
        view: ImageView,
        *,
        distill: float = 1.0,
        temperature: float = 2.0,
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(backbone, view, **shared)
        zero_or_more(distill=distill)
        above_zero(temperature=temperature)
        self.distill, self.temperature = distill, temperature
        self.teacher = Teacher(self, "backbone", "head")
        self.old: tuple[int, ...] = ()  # the classes that the teacher knows

    def loss(self, batch: Batch) -> Tensor:
        if not self.teacher:
            return super().loss(batch)
        own, theirs = taught(self, self.teacher, batch)
        logits, answers = self.head(own), self.teacher["head"](theirs)
        old = distillation(columns(logits, self.old), columns(answers, self.old), self.temperature).mean()
        return F.cross_entropy(self.visible(logits), batch.y) + self.distill * old

    def after(self, experience: Experience) -> None:
        del experience
        self.teacher.take()
        self.old = self.seen

    def check(self, stream: Stream) -> None:
        check_boundaries(self, stream, "its teacher is the model before a task")
        super().check(stream)
