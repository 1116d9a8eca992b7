"""Nearest class mean on frozen features (Mensink et al., 2013; Janson et al., 2022).

    mu_c = mean of the readout, f(x)[0], over the examples of class c
    y = the class whose mean is nearest to that of x: by cosine, or by Euclidean distance

No parameter is trained. Means are exact sums in double precision, so the order of tasks changes nothing.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from promptpool import distributed
from promptpool.backbones.base import FeatureExtractor, Readout
from promptpool.checks import one_of
from promptpool.data.stream import Batch
from promptpool.data.views import ImageView
from promptpool.learners.base import Learner
from promptpool.learners.head import with_rows
from promptpool.optim import Descent

DISTANCES = ("cosine", "euclidean")


class NearestMean(Learner):
    """Nearest class mean; reads each example once.

    Keywords; `seed` is that of `Learner`:
        `distance`: how near a mean is, by "cosine" or "euclidean" distance.
        `readout_blocks`: how many of the last blocks are read.
        `readout_rows`: what is read of each, the [class] row ("class"), the mean of the rows of "patches", or "both".
    """

    remembers = ("sums", "counts")
    single_pass = True

    def __init__(
        self,
        backbone: FeatureExtractor,
        view: ImageView,
        *,
        distance: str = "cosine",
        readout_blocks: int = 1,
        readout_rows: str = "class",
        seed: int = 0,
    ) -> None:
        super().__init__(backbone, view, train_backbone=False, seed=seed)
        one_of(DISTANCES, distance=distance)
        self.distance = distance
        self.readout = Readout(readout_blocks, readout_rows)
        self.readout_blocks, self.readout_rows = readout_blocks, readout_rows
        self.head.requires_grad_(False)  # here it only says how many classes there are
        self.sums = torch.zeros(0, self.frozen.width, dtype=torch.float64)
        self.counts = torch.zeros(0, dtype=torch.long)

    def grow(self, class_count: int) -> None:
        super().grow(class_count)
        self.sums, self.counts = (with_rows(rows, len(self.head.bias)) for rows in (self.sums, self.counts))

    def step(self, batch: Batch, descend: Descent) -> Tensor | None:
        del descend
        features, y = self.frozen(batch).cpu().double(), batch.y.cpu()
        self.sums += distributed.total(torch.zeros_like(self.sums).index_add(0, y, features))
        self.counts += distributed.total(torch.bincount(y, minlength=len(self.counts)))
        return None

    def logits(self, batch: Batch) -> Tensor:
        features = self.frozen(batch)
        means = (self.sums / self.counts.clamp(min=1)[:, None]).to(features.dtype).to(features.device)
        if self.distance == "cosine":
            return F.normalize(features, dim=-1) @ F.normalize(means, dim=-1).T
        return -torch.cdist(
            features, means, compute_mode="donot_use_mm_for_euclid_dist"
        )  # the other modes depend on the batch

    def check_state(self) -> None:
        if self.sums.shape != (len(self.head.bias), self.frozen.width) or self.counts.shape != self.head.bias.shape:
            raise ValueError("the state is of another learner: sums and counts do not match the head")
