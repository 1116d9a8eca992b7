"""Method names as people write them: in tables, plots, pages and progress."""

from __future__ import annotations

UPPER_BOUND = "Upper bound"

# By the name of a learner, or of a method that is a learner with other values.
METHODS = {
    "ft-seq-frozen": "FT-seq-frozen",
    "ft-seq": "FT-seq",
    "ft-seq-sgd": "FT-seq (SGD)",
    "ewc": "EWC",
    "ewc-online": "Online EWC",
    "lwf": "LwF",
    "l2p": "L2P",
    "er": "ER",
    "gdumb": "GDumb",
    "bic": "BiC",
    "der++": "DER++",
    "co2l": "Co2L",
    "l2p-r": "L2P-R",
    "l2p-r-trained": "L2P-R (backbone trained)",
    "upper-bound": UPPER_BOUND,
    "masked-linear": "Masked linear head",
    "one-prompt": "One prompt",
    "nearest-mean": "Nearest class mean",
    "ranpac": "RanPAC",
    "closed-form": "Closed form",
    "closed-form-prompts": "Closed form with prompts",
    "supsup": "SupSup",
    "dualnet": "DualNet",
    "resnet18-upper-bound": UPPER_BOUND,
    "resnet18-ft-seq": "FT-seq",
    "no-key": "Mean of prompts as key",
    "no-diversity": "No diversified selection",
}


def method_name(learner: str, *, joint: bool = False) -> str:
    """What to call a run of this learner; `joint`: on all data at once. A learner that is not listed keeps its name."""
    name = METHODS.get(learner, learner)
    if not joint:
        return name
    return UPPER_BOUND if learner == "ft-seq" else f"{UPPER_BOUND} ({name})"
