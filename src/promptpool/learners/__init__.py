"""The methods, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from promptpool.learners.base import Learner
from promptpool.learners.der import DER
from promptpool.learners.er import ER
from promptpool.learners.gdumb import GDumb
from promptpool.learners.l2p import L2P
from promptpool.learners.nearest_mean import NearestMean

LEARNERS: dict[str, Callable[..., Learner]] = {
    "der++": DER,
    "er": ER,
    "ft-seq": Learner,
    "ft-seq-frozen": partial(Learner, train_backbone=False),
    "gdumb": GDumb,
    "l2p": L2P,
    "l2p-r": partial(L2P, capacity=1000),
    "masked-linear": partial(Learner, train_backbone=False, loss_classes="current"),
    "nearest-mean": NearestMean,
}
