"""The methods, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from promptpool.learners.base import Learner
from promptpool.learners.bic import BiC
from promptpool.learners.closed_form import ClosedForm
from promptpool.learners.co2l import Co2L
from promptpool.learners.der import DER
from promptpool.learners.dualnet import DualNet
from promptpool.learners.er import ER
from promptpool.learners.ewc import EWC
from promptpool.learners.ewc_online import OnlineEWC
from promptpool.learners.gdumb import GDumb
from promptpool.learners.l2p import L2P
from promptpool.learners.linear_head import LinearHead
from promptpool.learners.lwf import LwF
from promptpool.learners.nearest_mean import NearestMean
from promptpool.learners.ranpac import RanPAC
from promptpool.learners.supsup import SupSup

LEARNERS: dict[str, Callable[..., Learner]] = {
    "bic": BiC,
    "closed-form": ClosedForm,
    "co2l": Co2L,
    "der++": DER,
    "dualnet": DualNet,
    "er": ER,
    "ewc": EWC,
    "ewc-online": OnlineEWC,
    "ft-seq": Learner,
    "ft-seq-frozen": LinearHead,
    "gdumb": GDumb,
    "l2p": L2P,
    "l2p-r": partial(L2P, capacity=1000),
    "lwf": LwF,
    "masked-linear": partial(LinearHead, loss_classes="current"),
    "nearest-mean": NearestMean,
    "ranpac": RanPAC,
    "supsup": SupSup,
}
