"""The accuracy counts of every learner on the toy stream, so that a refactor shows it changed nothing.

Counts of a new learner, or of one that is meant to change: delete its entry, then

    PYTHONPATH=tests .venv/bin/python tests/learners/test_golden.py
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from promptpool.learners import LEARNERS
from promptpool.training.checkpoint import learn
from toys import toy_learner, toy_plan, toy_stream

GOLDEN = Path(__file__).with_name("golden.json")


def counts(name: str) -> list[list[int | None]]:
    return [list(record.correct) for record in learn(toy_learner(name), toy_stream(), toy_plan(name))]


@pytest.mark.parametrize("name", LEARNERS)
def test_counts_are_as_they_were(name: str) -> None:
    expected, found = json.loads(GOLDEN.read_text())[name], counts(name)
    for then, now in zip(expected, found, strict=True):
        for before, after in zip(then, now, strict=True):
            if before is None or after is None:
                assert before is after
            else:
                assert abs(before - after) <= 1, "one image of 14 for the rounding of another processor"


if __name__ == "__main__":
    torch.set_num_threads(1)
    known = json.loads(GOLDEN.read_text())
    GOLDEN.write_text(json.dumps({name: known.get(name) or counts(name) for name in LEARNERS}, indent=1) + "\n")
