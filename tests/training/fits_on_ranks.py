"""Fits on fewer rows than ranks, on one rank of several or in a single process."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from promptpool.learners.gdumb import GDumb
from promptpool.learners.state import state
from promptpool.training.checkpoint import learn
from toys import RANDOM_VIEW, VIEW, backbone_of, toy_learner, toy_plan_for_ranks, toy_stream

# Batches of one row; and of two and one, of which the odd row comes last. Both draw views and boxes.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gdumb": ("gdumb", {"capacity": 6, "epochs": 2, "batch_size": 1}),
    "gdumb-odd": ("gdumb", {"capacity": 7, "epochs": 3, "batch_size": 2, "cutmix": 1.0}),
    "co2l": ("co2l", {"head_epochs": 1, "head_batch_size": 1}),
}


def fitted(name: str, values: dict[str, Any]) -> dict[str, Tensor]:
    """The weights of a learner whose last fit is over, and where its random numbers have got to."""
    learner = toy_learner(name, view=RANDOM_VIEW, **values)
    list(learn(learner, toy_stream(per_class=5), toy_plan_for_ranks()))
    return {**state(learner)["weights"], "generator": learner.generator.get_state()}


def with_batch_statistics() -> GDumb:
    """A learner whose last fit is over, on a network with batch normalisation."""
    learner = GDumb(backbone_of("dualnet"), VIEW, capacity=12, epochs=2, batch_size=12)
    list(learn(learner, toy_stream(per_class=5), toy_plan_for_ranks()))
    return learner
