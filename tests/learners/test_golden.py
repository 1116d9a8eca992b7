"""The accuracy counts and scores of every learner on the toy stream, so that a refactor shows it changed nothing.

Runs are in double precision, where rounding cannot move an image: the scores of the two best classes of every test
image differ by more than processors and numbers of threads do, which is checked, and so counts are compared exactly.
Scores are compared to six digits; they tell learners apart that are right on the same images.

What a new learner does, or one that is meant to change: delete its entry, then

    PYTHONPATH=tests .venv/bin/python tests/learners/test_golden.py
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from doubles import double_precision, double_view
from promptpool.losses import only
from promptpool.training.loop import Session
from toys import METHODS, toy_learner, toy_plan, toy_stream, toy_view

GOLDEN = Path(__file__).with_name("golden.json")
# Many steps of these blow up the last bit of a double a billionfold: a few tell as much.
PLANS = {
    "bic": replace(toy_plan("bic"), epochs=3),
    "dualnet": replace(toy_plan("dualnet"), epochs=2, learning_rate=0.03),
}
MARGIN = 1e-5  # of the best score over the second, a billion times what rounding does in double precision


@torch.no_grad()
def judged(session: Session) -> tuple[float, float]:
    """The mean square of the scores, and by how much the best is ahead of the second where that is least."""
    learner, seen = session.learner, torch.tensor(session.learner.seen)
    tests = [only(learner.logits(test.batch(slice(None))), seen)[:, seen] for test in session.stream.tests]
    scores = torch.cat(tests)
    best = scores.topk(2, dim=1).values
    real = scores[scores > torch.finfo(scores.dtype).min / 2]  # SupSup has none for other tasks than the inferred
    return float(real.square().mean()), float((best[:, 0] - best[:, 1]).min())


def run(name: str, **values: Any) -> tuple[dict[str, Any], float]:
    """The counts and mean square scores of each record, and the least margin at the end of an experience."""
    with double_precision():
        learner = toy_learner(name, view=double_view(toy_view(name)), **values)
        session = Session(learner, toy_stream(), PLANS.get(name, toy_plan(name)))
        found = [judged(session) for step in session if step.record is not None]
    counts = [list(record.correct) for record in session.records]
    return {"counts": counts, "scores": [square for square, _ in found]}, min(least for _, least in found)


@pytest.mark.parametrize("name", METHODS)
def test_counts_and_scores_are_as_they_were(name: str) -> None:
    found, least = run(name)
    known = json.loads(GOLDEN.read_text())[name]
    assert least > MARGIN, f"rounding could move an image: train {name} otherwise in toys.py"
    assert found["counts"] == known["counts"]
    assert found["scores"] == pytest.approx(known["scores"], rel=1e-6)


@pytest.mark.parametrize(
    ("name", "values"), [("ewc", {"strength": 0.0}), ("der++", {"alpha": 0.0}), ("lwf", {"distill": 0.0})]
)
def test_a_learner_without_one_of_its_terms_is_another(name: str, values: dict[str, Any]) -> None:
    known = json.loads(GOLDEN.read_text())[name]
    assert run(name, **values)[0]["scores"] != pytest.approx(known["scores"], rel=1e-6)


def test_no_two_learners_are_the_same() -> None:
    scores = [tuple(entry["scores"]) for entry in json.loads(GOLDEN.read_text()).values()]
    assert len({tuple(f"{score:.6e}" for score in each) for each in scores}) == len(scores)


if __name__ == "__main__":
    torch.set_num_threads(1)
    known = json.loads(GOLDEN.read_text())
    lines = [f"{json.dumps(name)}: {json.dumps(known.get(name) or run(name)[0])}" for name in METHODS]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
