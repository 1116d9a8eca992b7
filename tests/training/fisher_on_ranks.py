"""The Fisher information of EWC and of its online version, on one rank of several or in a single process."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from promptpool.learners.ewc import EWC
from promptpool.learners.ewc_online import OnlineEWC
from promptpool.training.loop import Session
from toys import RANDOM_VIEW, toy_learner, toy_plan_for_ranks, toy_stream

# Seven examples do not divide by two; five of a batch of fifteen are all on the first rank.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ewc": ("ewc", {}),
    "ewc-some": ("ewc", {"fisher_examples": 7, "micro_batch": 2}),
    "ewc-sampled": ("ewc", {"fisher": "sampled", "fisher_examples": 1}),
    "online": ("ewc-online", {}),
    "online-some": ("ewc-online", {"fisher_examples": 5, "micro_batch": 2}),
    "online-sampled": ("ewc-online", {"fisher": "sampled", "loss_classes": "seen"}),
}


def information(name: str, values: dict[str, Any]) -> dict[str, Tensor]:
    """All Fisher information that a learner holds after two tasks."""
    learner = toy_learner(name, view=RANDOM_VIEW, **values)
    for step in Session(learner, toy_stream(per_class=15), toy_plan_for_ranks()):
        if step.record is not None and step.experience == 1:
            break
    assert isinstance(learner, EWC | OnlineEWC)
    held = {f"anchor.{key}": value for key, value in learner.anchor.weights.items()}
    if isinstance(learner, OnlineEWC):
        held |= {f"running.{key}": value.clone() for key, value in learner.running.items()}
    return held
