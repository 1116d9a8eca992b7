"""One of several ranks that learn the toy stream together; started by torchrun.

    torchrun --nproc-per-node 2 rank_worker.py FOLDER

Each learner also stops and goes on from its checkpoint. Rank 0 leaves the final weights and records in FOLDER.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from promptpool import distributed
from promptpool.files import write_whole
from promptpool.learners.base import Learner
from promptpool.learners.state import state
from promptpool.training.checkpoint import learn, save_checkpoint
from promptpool.training.loop import Session
from promptpool.training.record import Record
from toys import METHODS, RANDOM_VIEW, THREADS, toy_learner, toy_plan_for_ranks, toy_stream


def weights_of(learner: Learner) -> dict[str, torch.Tensor]:
    return {key: value.contiguous() for key, value in state(learner)["weights"].items()}


def assert_one_model(learner: Learner) -> None:
    """Every rank holds the same numbers, batch statistics included."""
    for key, value in state(learner)["weights"].items():
        first, *others = distributed.gather(value[None])
        assert all(torch.equal(first, other) for other in others), key


def resumed(name: str, checkpoint: Path) -> list[Record]:
    """The records of a session that stops in its second experience and of another that goes on from there."""
    first = Session(toy_learner(name), toy_stream(per_class=15), toy_plan_for_ranks())
    for step in first:
        if step.step == (3 if first.learner.single_pass else 7):
            break
    save_checkpoint(checkpoint, first)
    torch.distributed.barrier()
    return list(learn(toy_learner(name), toy_stream(per_class=15), toy_plan_for_ranks(), checkpoint=checkpoint))


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(THREADS)
    distributed.start()
    for name in METHODS:
        learner = toy_learner(name, view=RANDOM_VIEW)
        list(learn(learner, toy_stream(per_class=15), toy_plan_for_ranks()))
        if distributed.rank() == 0:
            save_file(weights_of(learner), folder / f"{name}.random.safetensors")
        learner = toy_learner(name)
        records = list(learn(learner, toy_stream(per_class=15), toy_plan_for_ranks()))
        assert_one_model(learner)
        again = resumed(name, folder / f"{name}.checkpoint")
        assert [r.to_json() for r in again] == [r.to_json() for r in records]
        if distributed.rank() == 0:
            save_file(weights_of(learner), folder / f"{name}.safetensors")
            write_whole(folder / f"{name}.jsonl", "\n".join(record.to_json() for record in records).encode())
    distributed.stop()


if __name__ == "__main__":
    main()
