"""Continual learning with a pool of prompts: L2P (Wang et al., CVPR 2022) and the methods it is compared with.

    from promptpool import LEARNERS, ImageView, Plan, from_arrays, learn, load_backbone

Names are imported when they are first used, so that `import promptpool` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from promptpool.backbones.base import Backbone, FeatureExtractor, Readout
    from promptpool.backbones.weights import load_backbone
    from promptpool.classifier.answers import Prediction
    from promptpool.classifier.classifier import ContinualClassifier
    from promptpool.classifier.estimator import ContinualEstimator as ContinualEstimator
    from promptpool.data.scenarios import (
        class_incremental,
        domain_incremental,
        from_arrays,
        gaussian_schedule,
        joint,
    )
    from promptpool.data.stream import Examples, Experience, Stream, examples
    from promptpool.data.views import ImageView
    from promptpool.learners import LEARNERS
    from promptpool.learners.base import Learner
    from promptpool.learners.closed_form import ClosedForm
    from promptpool.learners.l2p import L2P
    from promptpool.prompts import PromptPool
    from promptpool.training import Plan, Record, Session, accuracy_matrix, learn

__version__ = "0.1.0"

_HOME = {
    "promptpool.backbones.base": ("Backbone", "FeatureExtractor", "Readout"),
    "promptpool.backbones.weights": ("load_backbone",),
    "promptpool.classifier.answers": ("Prediction",),
    "promptpool.classifier.classifier": ("ContinualClassifier",),
    "promptpool.classifier.estimator": ("ContinualEstimator",),
    "promptpool.data.scenarios": (
        "class_incremental",
        "domain_incremental",
        "from_arrays",
        "gaussian_schedule",
        "joint",
    ),
    "promptpool.data.stream": ("Examples", "Experience", "Stream", "examples"),
    "promptpool.data.views": ("ImageView",),
    "promptpool.learners": ("LEARNERS",),
    "promptpool.learners.base": ("Learner",),
    "promptpool.learners.closed_form": ("ClosedForm",),
    "promptpool.learners.l2p": ("L2P",),
    "promptpool.prompts": ("PromptPool",),
    "promptpool.training": ("Plan", "Record", "Session", "accuracy_matrix", "learn"),
}

__all__ = [
    "L2P",
    "LEARNERS",
    "Backbone",
    "ClosedForm",
    "ContinualClassifier",
    "Examples",
    "Experience",
    "FeatureExtractor",
    "ImageView",
    "Learner",
    "Plan",
    "Prediction",
    "PromptPool",
    "Readout",
    "Record",
    "Session",
    "Stream",
    "__version__",
    "accuracy_matrix",
    "class_incremental",
    "domain_incremental",
    "examples",
    "from_arrays",
    "gaussian_schedule",
    "joint",
    "learn",
    "load_backbone",
]
_WITH_EXTRAS = ["ContinualEstimator"]  # not in `__all__`: `import *` must work without the extra


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'promptpool' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_WITH_EXTRAS])
