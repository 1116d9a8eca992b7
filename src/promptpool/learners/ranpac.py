"""RanPAC: exact statistics of randomly projected, pre-trained features (McDonnell et al., 2023).

    h = max(0, f(x)[0] R)                             R random normal, D x M, drawn once
    G = sum of h h^T over all examples,   C_c = sum of h over class c
    W = (G + ridge I)^-1 C,   y = the class with the greatest h W_c

G and C are sums, so the order of tasks changes nothing but the choice of the ridge. As in the authors' code, it is the
one of 10^-8, 10^-7, ..., 10^8 with the least squared error on a fifth of the present experience, fitted to the rest.

Deviations: the backbone is not adapted to the first task (the paper's phase 1). Projections, sums and solution are in
double precision on the CPU; the authors have single precision. The ridge is chosen on the latest `recent` examples if
an experience has more, or if the stream has no boundaries. The default of `projections` is 2000, not 10000.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from promptpool import distributed
from promptpool.backbones.base import FeatureExtractor, Readout
from promptpool.checks import one_of
from promptpool.data.stream import Batch, Experience
from promptpool.data.views import ImageView
from promptpool.learners.base import Learner
from promptpool.learners.head import SolvedHead, with_rows
from promptpool.learners.sums import choose_ridge
from promptpool.optim import Descent

RIDGES = tuple(10.0**power for power in range(-8, 9))
CHOICES = ("held-out", "sums")
FIT_SHARE = 0.8  # the rest of the examples chooses the ridge


class RanPAC(Learner):
    """A ridge classifier of randomly projected frozen features; reads each example once.

    It takes 8 M^2 bytes of memory, and as much in each checkpoint: 32 MB at M = 2000, 800 MB at 10000.

    Keywords; `seed` is that of `Learner`:
        `projections`: M, the number of random directions; 0 for the features as they are.
        `ridge`: a fixed ridge, or None to choose it.
        `recent`: the ridge is chosen on at most this many examples, the latest.
        `choose_by`: the ridge is chosen by the "held-out" part of those examples, or by the "sums": by generalised
            cross-validation, which is in no way a matter of order.
        `readout_blocks`: how many of the last blocks are read.
        `readout_rows`: what is read of each, the [class] row ("class"), the mean of the rows of "patches", or "both".
    """

    directions: Tensor  # R
    here: Tensor  # an empty tensor that tells the device: it moves with the learner, the head does not
    remembers = ("gram", "sums", "count", "recent_features", "recent_labels", "chosen_ridge")
    at_the_end = "a system of equations is solved"
    single_pass = True

    def __init__(
        self,
        backbone: FeatureExtractor,
        view: ImageView,
        *,
        projections: int = 2000,
        ridge: float | None = None,
        recent: int = 5000,
        choose_by: str = "held-out",
        readout_blocks: int = 1,
        readout_rows: str = "class",
        seed: int = 0,
    ) -> None:
        super().__init__(backbone, view, train_backbone=False, seed=seed)
        if projections < 0:
            raise ValueError(f"projections = {projections}: must be 0 (features as they are) or more")
        if ridge is not None and not 0 < ridge < math.inf:
            raise ValueError(f"ridge = {ridge}: must be above 0, or None to choose it as choose_by says")
        if recent < 2:
            raise ValueError(f"recent = {recent}: must be at least 2, one example to fit and one to judge")
        one_of(CHOICES, choose_by=choose_by)
        self.projections, self.ridge, self.recent, self.choose_by = projections, ridge, recent, choose_by
        self.readout = Readout(readout_blocks, readout_rows)
        self.readout_blocks, self.readout_rows = readout_blocks, readout_rows
        size = projections or self.frozen.width
        # Not a buffer: the seed draws them again, and they stay on the CPU.
        self.directions = torch.randn(self.frozen.width, projections, generator=self.generator, dtype=torch.float64)
        self.head = SolvedHead(size, generator=self.generator)  # W
        self.register_buffer("here", torch.empty(0), persistent=False)
        self.gram = torch.zeros(size, size, dtype=torch.float64)
        self.sums = torch.zeros(0, size, dtype=torch.float64)
        self.count = 0  # examples in the sums
        self.recent_features = torch.zeros(0, self.frozen.width)
        self.recent_labels = torch.zeros(0, dtype=torch.long)
        self.chosen_ridge = 1.0 if ridge is None else ridge

    def grow(self, class_count: int) -> None:
        super().grow(class_count)
        self.sums = with_rows(self.sums, len(self.head.bias))

    def before(self, experience: Experience) -> None:
        del experience
        self.recent_features = self.recent_features.new_empty(0, self.frozen.width)
        self.recent_labels = self.recent_labels.new_empty(0)

    def step(self, batch: Batch, descend: Descent) -> Tensor | None:
        """Add to the sums; ranks exchange features, which are smaller than the sums."""
        del descend
        features, y = distributed.gather(self.frozen(batch)).cpu(), distributed.gather(batch.y).cpu()
        projected = self.project(features)
        self.gram.addmm_(projected.T, projected)
        self.sums.index_add_(0, y, projected)
        self.count += len(y)
        if self.ridge is None and self.choose_by == "held-out":
            self.recent_features = torch.cat([self.recent_features, features])[-self.recent :]
            self.recent_labels = torch.cat([self.recent_labels, y])[-self.recent :]
        return None

    def before_evaluation(self) -> None:
        if self.ridge is None and self.choose_by == "sums" and self.count > 1:
            self.chosen_ridge = choose_ridge(self.gram, self.sums, self.count)
        elif self.ridge is None and len(self.recent_labels) > 1:
            self.chosen_ridge = self.held_out_ridge()
        system = self.gram.clone()
        system.diagonal().add_(self.chosen_ridge)
        self.head.weight.data.copy_(torch.linalg.solve(system, self.sums.T).T)

    def held_out_ridge(self) -> float:
        """The ridge that predicts held-out examples best, fitted to the others; the seed decides which are held out."""
        order = torch.randperm(len(self.recent_labels), generator=torch.Generator().manual_seed(self.seed))
        h = self.project(self.recent_features[order])
        y = F.one_hot(self.recent_labels[order], len(self.sums)).double()
        count = max(int(FIT_SHARE * len(y)), 1)
        errors = held_out_errors(h[:count], y[:count], h[count:], y[count:], RIDGES)
        return RIDGES[min(range(len(RIDGES)), key=errors.__getitem__)]

    def logits(self, batch: Batch) -> Tensor:
        """A score for each class of the head, on the CPU: [B, C]."""
        return self.head(self.project(self.frozen(batch)))  # type: ignore[no-any-return]

    def project(self, features: Tensor) -> Tensor:
        """h, on the CPU and in double precision so that it hardly depends on the batch: [B, M]."""
        features = features.cpu().double()
        return F.relu(features @ self.directions) if self.projections else features

    @property
    def device(self) -> torch.device:
        return self.here.device

    def diagnostics(self, notes: Sequence[Any]) -> dict[str, Any]:
        del notes
        return {"ridge": self.chosen_ridge}

    def check_state(self) -> None:
        if self.gram.shape != 2 * (self.head.dim,) or self.sums.shape != self.head.weight.shape:
            raise ValueError("the state is of another learner: gram and sums do not match the head")


def held_out_errors(h: Tensor, y: Tensor, held_h: Tensor, held_y: Tensor, ridges: Sequence[float]) -> list[float]:
    """The mean squared error of the ridge regression of y on h on held-out rows, for each ridge.

    One eigendecomposition serves them all, of h^T h or of h h^T, whichever is smaller: (h^T h + r)^-1 h^T y is also
    h^T (h h^T + r)^-1 y.
    """
    few = len(h) < h.shape[1]
    values, vectors = torch.linalg.eigh(h @ h.T if few else h.T @ h)
    left = (held_h @ h.T if few else held_h) @ vectors
    right = vectors.T @ (y if few else h.T @ y)
    values = values.clamp(min=0)  # negative only by rounding
    return [float(F.mse_loss((left / (values + ridge)) @ right, held_y)) for ridge in ridges]
