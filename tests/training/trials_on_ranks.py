"""A closed form that tries prompts on its first task, on one rank of several or in a single process."""

from __future__ import annotations

from unittest.mock import patch

from promptpool.learners import adaptation, trial
from promptpool.learners.base import Learner
from promptpool.training.checkpoint import learn
from toys import toy_learner, toy_plan_for_ranks, toy_stream

FACTS = ("adapt", "adapt_gain", "adapt_error")


def tried(*, wins: bool) -> tuple[Learner, list[object]]:
    """A learner after a stream of one task, and what it says of its trial, in which prompts win or do not."""
    learner = toy_learner("closed-form", adapt="auto")
    with (
        patch.object(adaptation, "EPOCHS", 1),
        patch.object(adaptation, "LEAST_STEPS", 5),
        patch.object(trial, "LEAST_ERRORS", 0),
        patch.object(trial.Trial, "won", wins),
    ):
        (record,) = learn(learner, toy_stream(tasks=1, per_class=5), toy_plan_for_ranks())
    return learner, [record.facts[name] for name in FACTS]
