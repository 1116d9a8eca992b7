"""The methods, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from promptpool.learners.base import Learner
from promptpool.learners.bic import BiC
from promptpool.learners.l2p import L2P
from promptpool.learners.lwf import LwF
from promptpool.learners.nearest_mean import NearestMean

LEARNERS: dict[str, Callable[..., Learner]] = {
    "bic": BiC,
    "ft-seq": Learner,
    "ft-seq-frozen": partial(Learner, train_backbone=False),
    "l2p": L2P,
    "l2p-r": partial(L2P, capacity=1000),
    "lwf": LwF,
    "masked-linear": partial(Learner, train_backbone=False, loss_classes="current"),
    "nearest-mean": NearestMean,
}
