"""The accuracy counts of every learner on the toy stream, so that a refactor shows it changed nothing.

Runs are in double precision, where rounding cannot move an image: the scores of the two best classes of every test
image differ by more than processors and numbers of threads do, which is checked, and so counts are compared exactly.

Counts of a new learner, or of one that is meant to change: delete its entry, then

    PYTHONPATH=tests .venv/bin/python tests/learners/test_golden.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from torch import Tensor

from promptpool.data.views import ImageView
from promptpool.learners import LEARNERS
from promptpool.losses import only
from promptpool.training.loop import Session
from toys import toy_learner, toy_plan, toy_stream, toy_view

GOLDEN = Path(__file__).with_name("golden.json")
MARGIN = 1e-5  # of the best score over the second, a billion times what rounding does in double precision


class DoubleView(ImageView):
    """A view whose inputs are in double precision."""

    def _scaled(self, images: Tensor) -> Tensor:
        return super()._scaled(images.double())


@contextmanager
def double_precision() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@torch.no_grad()
def margin(session: Session) -> float:
    """How far the best score is ahead of the second, for the test image where it is least."""
    learner, seen = session.learner, torch.tensor(session.learner.seen)
    least = torch.inf
    for test in session.stream.tests:
        scores = only(learner.logits(test.batch(slice(None))), seen)[:, seen]
        best = scores.topk(2, dim=1).values
        least = min(least, float((best[:, 0] - best[:, 1]).min()))
    return least


def run(name: str) -> tuple[list[list[int | None]], float]:
    """The counts of each record, and the least margin at the end of an experience."""
    view = toy_view(name)
    with double_precision():
        double = DoubleView(**{field.name: getattr(view, field.name) for field in fields(view)})
        session = Session(toy_learner(name, view=double), toy_stream(), toy_plan(name))
        margins = [margin(session) for step in session if step.record is not None]
    return [list(record.correct) for record in session.records], min(margins)


@pytest.mark.parametrize("name", LEARNERS)
def test_counts_are_as_they_were(name: str) -> None:
    found, least = run(name)
    assert least > MARGIN, f"rounding could move an image: train {name} otherwise in toys.py"
    assert found == json.loads(GOLDEN.read_text())[name]


if __name__ == "__main__":
    torch.set_num_threads(1)
    known = json.loads(GOLDEN.read_text())
    GOLDEN.write_text(json.dumps({name: known.get(name) or run(name)[0] for name in LEARNERS}) + "\n")
