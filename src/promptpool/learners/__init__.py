"""The methods, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from promptpool.learners.base import Learner
from promptpool.learners.dualnet import DualNet
from promptpool.learners.l2p import L2P
from promptpool.learners.nearest_mean import NearestMean
from promptpool.learners.supsup import SupSup

LEARNERS: dict[str, Callable[..., Learner]] = {
    "dualnet": DualNet,
    "ft-seq": Learner,
    "ft-seq-frozen": partial(Learner, train_backbone=False),
    "l2p": L2P,
    "l2p-r": partial(L2P, capacity=1000),
    "masked-linear": partial(Learner, train_backbone=False, loss_classes="current"),
    "nearest-mean": NearestMean,
    "supsup": SupSup,
}
