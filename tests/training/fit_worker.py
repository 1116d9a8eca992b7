"""Fits on fewer rows than ranks; started by torchrun.

    torchrun --nproc-per-node 2 fit_worker.py FILE

Ranks hold one model also where it has batch statistics. Rank 0 leaves what was fitted in FILE. Without torchrun the
same function serves a single process.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from rank_worker import assert_one_model
from safetensors.torch import save_file
from torch import Tensor

from promptpool import distributed
from promptpool.learners.gdumb import GDumb
from promptpool.learners.state import state
from promptpool.training.checkpoint import learn
from toys import RANDOM_VIEW, THREADS, VIEW, backbone_of, toy_learner, toy_plan_for_ranks, toy_stream

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


def main() -> None:
    torch.set_num_threads(THREADS)
    distributed.start()
    found = {
        f"{case}/{key}": value.contiguous() for case, made in CASES.items() for key, value in fitted(*made).items()
    }
    learner = GDumb(backbone_of("dualnet"), VIEW, capacity=12, epochs=2, batch_size=12)
    list(learn(learner, toy_stream(per_class=5), toy_plan_for_ranks()))
    assert_one_model(learner)
    if distributed.rank() == 0:
        save_file(found, sys.argv[1])
    distributed.total(torch.zeros(1))  # a rank that leaves while another is at work can take it down
    distributed.stop()


if __name__ == "__main__":
    main()
