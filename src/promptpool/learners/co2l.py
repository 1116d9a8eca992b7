"""Co2L: contrastive continual learning (Cha et al., 2021; equations of arXiv 2106.14413v1).

    z = h(f(x)[0]) / |h(f(x)[0])|       h: linear, ReLU, linear; two random views of each image, 2N rows in a batch
    L_asym = sum_{i in S} -1/|P_i| sum_{j in P_i} log(exp(z_i z_j / t) / sum_{k != i} exp(z_i z_k / t))     Eq. 10
    p_ij(kappa) = exp(z_i z_j / kappa) / sum_{k != i} exp(z_i z_k / kappa)                              Eqs. 11, 12
    L_IRD = sum_i sum_{j != i} -p_ij(kappa*, past model) log p_ij(kappa)                                      Eq. 13
    loss = L_asym + lambda * L_IRD, both divided by 2N                                                         Eq. 9

S are the rows of the present task, P_i the other rows with the label of row i; rows from the memory are positives and
negatives but never anchors. The past model is the one at the end of the previous task. After each task a new linear
head is fitted to the features of the memory and of the task's own images, with classes drawn equally often.

Deviations: each batch is joined by as many images of the memory; the paper shuffles task and memory together. Views are
crops and flips, without changes of colour. The head is fitted in the plain view, whose features are computed once. The
learning rate is constant within a task. If a class comes again in another domain, all its images are positives of each
other; the paper treats it as another class there. The head's loss is over the classes seen; in the authors' code it is
over all classes of the stream. That code also multiplies L_asym by t / 0.07, so that its lambda is worth
0.07 / t = 0.14 of the one here.
"""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from promptpool import distributed
from promptpool.backbones.base import FeatureExtractor
from promptpool.backbones.features import plain_features
from promptpool.checks import above_zero, zero_or_more
from promptpool.data.stream import Batch, Experience, Stream
from promptpool.data.views import ImageView
from promptpool.learners.base import Learner, check_boundaries
from promptpool.learners.fitting import fit
from promptpool.learners.head import Head
from promptpool.learners.replay import check_capacity, rehearsed
from promptpool.learners.teacher import Teacher
from promptpool.losses import asymmetric_contrast, relation_distillation
from promptpool.memory import AT_ONCE, Memory, join, pick
from promptpool.optim import Descent

DECAY = (0.6, 0.75, 0.9)  # fractions of the head's epochs at which its learning rate is divided by 5


class Co2L(Learner):
    """A representation that contrast teaches and distillation preserves, with a head fitted after each task.

    Keywords; `seed` is that of `Learner`:
        `capacity`: how many images the memory holds.
        `temperature`: t, of the contrast.
        `relation_temperature`: kappa, of the present model's relations.
        `past_temperature`: kappa*, of the past model's relations.
        `distillation`: lambda, the weight of L_IRD.
        `projection_dim`: the size of z.
        `head_epochs`: how long a head is fitted.
        `head_batch_size`: the features in a batch of that fit, at most.
        `head_learning_rate`: the learning rate at which that fit begins.
        `train_backbone`: must be True; it is a keyword so that False is refused with the reason.
    """

    remembers = ("memory", "past")
    at_the_end = "a head is fitted"
    memory: Memory

    def __init__(
        self,
        backbone: FeatureExtractor,
        view: ImageView,
        *,
        capacity: int = 1000,
        temperature: float = 0.5,
        relation_temperature: float = 0.2,
        past_temperature: float = 0.01,
        distillation: float = 1.0,
        projection_dim: int = 128,
        head_epochs: int = 100,
        head_batch_size: int = 256,
        head_learning_rate: float = 0.1,
        train_backbone: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__(backbone, view, loss_classes="seen", seed=seed)
        if view.fixed:
            raise ValueError(
                "view.crop = None, view.flip = False: must be random for Co2L, which contrasts two views of an image: "
                "set view.crop, for example to [0.2, 1.0], or view.flip"
            )
        if not train_backbone:
            raise ValueError(
                "train_backbone = False: must be True for Co2L, whose contrast would teach a projection that its head "
                "does not read; a head on frozen features is ft-seq-frozen"
            )
        above_zero(
            temperature=temperature,
            relation_temperature=relation_temperature,
            past_temperature=past_temperature,
            head_epochs=head_epochs,
            head_batch_size=head_batch_size,
            head_learning_rate=head_learning_rate,
            projection_dim=projection_dim,
        )
        zero_or_more(distillation=distillation)
        self.capacity, self.distillation, self.projection_dim = capacity, distillation, projection_dim
        self.temperature, self.relation_temperature = temperature, relation_temperature
        self.past_temperature = past_temperature
        self.head_epochs, self.head_batch_size = head_epochs, head_batch_size
        self.head_learning_rate = head_learning_rate
        self.projection = Projection(backbone.dim, projection_dim, self.generator)
        self.memory = Memory(capacity, generator=self.generator, policy="balanced")
        self.past = Teacher(self, "backbone", "projection")

    def loss(self, batch: Batch) -> Tensor:
        parts = list(rehearsed(batch, self.memory))
        x = torch.cat([self.inputs(part) for _ in range(2) for part in parts])  # [2N, 3, H, W]
        y = torch.cat([part.y for part in parts]).repeat(2)
        new = (torch.arange(len(y) // 2, device=y.device) < len(batch.y)).repeat(2)
        z = distributed.gather_with_gradient(self.projection(self.backbone.features(x)))
        y, new = distributed.gather(y), distributed.gather(new)
        loss = asymmetric_contrast(z, y, new, self.temperature)
        if self.past:
            backbone: Any = self.past["backbone"]
            with torch.no_grad():
                past = distributed.gather(self.past["projection"](backbone.features(x)))
            relations = relation_distillation(z, past, self.relation_temperature, self.past_temperature)
            loss = loss + self.distillation * relations
        return loss

    def before(self, experience: Experience) -> None:
        del experience
        if len(self.memory):
            self.past.take()

    def after(self, experience: Experience) -> None:
        train = self.training_examples(experience)
        rows = [self._featured(batch) for batch in train.batches(AT_ONCE)]
        if len(self.memory):
            rows.insert(0, self._featured(self.memory.rows))
        self.memory.add_all(train)
        self.fit_head(reduce(join, rows))

    def fit_head(self, rows: Batch) -> None:
        """Fit a new head to these features, [n, D], with every class drawn equally often."""
        self.head = Head(self.head.dim, class_count=len(self.head.bias), generator=self.generator).to(self.device)
        weights = 1 / torch.bincount(rows.y)[rows.y]
        for stage, epochs in enumerate(_stages(self.head_epochs)):
            rate = self.head_learning_rate * 0.2**stage
            descend = Descent(self.head.parameters(), optimiser="sgd", learning_rate=rate, momentum=0.9, clip=None)
            for _ in range(epochs):
                drawn = torch.multinomial(weights, len(weights), replacement=True, generator=self.generator)
                fit(
                    descend,
                    pick(rows, drawn),
                    lambda batch: F.cross_entropy(self.visible(self.head(batch.x)), batch.y),
                    epochs=1,
                    batch_size=self.head_batch_size,
                    generator=self.generator,
                )

    def check(self, stream: Stream) -> None:
        check_capacity(self.capacity, stream)
        check_boundaries(self, stream, "its past model is that of the end of the task before")
        super().check(stream)

    @property
    def whole_batches(self) -> str:
        return "contrasts all images of a batch"

    def _featured(self, rows: Batch) -> Batch:
        """Rows with features in the plain view instead of images; copies, because the memory's own rows change."""
        mode = self.training
        self.eval()
        features = plain_features(self.backbone, self.view, rows.x.to(self.device))
        self.train(mode)
        return Batch(features.cpu(), rows.y.clone(), rows.ids.clone())


class Projection(nn.Module):
    """h: two linear layers with a ReLU between, to vectors of length 1."""

    def __init__(self, dim: int, projection_dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(dim, dim), nn.Linear(dim, projection_dim)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(dim**-0.5), dim**-0.5, generator=generator)

    def forward(self, features: Tensor) -> Tensor:
        return F.normalize(self.out(F.relu(self.hidden(features))), dim=1)


def _stages(epochs: int) -> list[int]:
    """How many epochs the head is fitted at each learning rate."""
    ends = [0, *(round(fraction * epochs) for fraction in DECAY), epochs]
    return [end - begin for begin, end in pairwise(ends)]
