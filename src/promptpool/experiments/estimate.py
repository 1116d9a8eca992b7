"""What a run will cost, from a few steps of it."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch

from promptpool.experiments.build import Built
from promptpool.experiments.runner import peak_memory
from promptpool.learners.base import trained_parameter_count
from promptpool.training.loop import Session


class Estimate(NamedTuple):
    """Seconds and bytes for a whole run on this machine; `memory` is None where the system does not tell."""

    seconds: float
    memory: int | None
    steps: int
    trained_parameters: int


def estimate(built: Built, *, probes: int = 3) -> Estimate:
    """Take a few steps and test a few batches, then multiply; the learner is no use for a run afterwards.

    The first step of each example is timed apart from later ones, for which frozen features are already there.
    """
    session = Session(built.learner, built.stream, built.plan)
    fresh, known = _step_seconds(session, probes)
    per_image = _test_seconds(built)
    tested, seen = 0, set[int]()
    for experience in built.stream.experiences:
        seen.update(experience.classes)
        tested += sum(len(test) for test in built.stream.tests if not seen.isdisjoint(test.classes))
    first = session.steps // session.epochs
    seconds = first * fresh + (session.steps - first) * known + tested * per_image
    trained = trained_parameter_count(built.learner, len(built.stream.class_names))
    return Estimate(seconds, peak_memory(), session.steps, trained)


def _step_seconds(session: Session, probes: int) -> tuple[float, float]:
    """How long a step takes when its examples are new, and when they were seen before."""
    experience = session.stream.experiences[0]
    session.begin(experience)
    index = session.order(experience)[: session.plan.batch_size]
    seconds = []
    for _ in range(probes + 1):
        begin = time.perf_counter()
        session.learn(experience, index)
        seconds.append(time.perf_counter() - begin)
    return seconds[0], sorted(seconds[1:])[len(seconds[1:]) // 2]


@torch.no_grad()
def _test_seconds(built: Built) -> float:
    """How long a test image takes when its frozen feature is there."""
    built.learner.eval()
    batch = built.stream.tests[0].batch(slice(0, built.plan.test_batch_size)).to(built.learner.device)
    built.learner.logits(batch)
    begin = time.perf_counter()
    built.learner.logits(batch)
    return (time.perf_counter() - begin) / len(batch.y)
