"""One of several ranks that learn the toy stream together; started by torchrun.

    torchrun --nproc-per-node 2 rank_worker.py FOLDER

Each learner also goes on from a checkpoint that it leaves on its way. Rank 0 leaves the final weights and records in
FOLDER, and there too all that learners end with which solve equations, the Fisher information of EWC, what is fitted on
fewer rows than ranks and what trials of prompts decide. One start serves all, because torch takes longer to start than
most of it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from fisher_on_ranks import CASES as FISHER
from fisher_on_ranks import information
from fits_on_ranks import CASES as FITS
from fits_on_ranks import fitted, with_batch_statistics
from safetensors.torch import save_file
from trials_on_ranks import tried

from promptpool import distributed
from promptpool.backbones.token_store import TokenStore
from promptpool.data.stream import Batch
from promptpool.files import write_whole
from promptpool.learners.base import Learner
from promptpool.learners.state import state
from promptpool.optim import Descent
from promptpool.training.checkpoint import learn, save_checkpoint
from promptpool.training.evaluation import predict
from promptpool.training.loop import Session
from promptpool.training.record import Record
from toys import METHODS, RANDOM_VIEW, THREADS, tensors, toy_learner, toy_plan_for_ranks, toy_stream

IN_PARTS = ("l2p", "ft-seq")
SOLVED = ("closed-form", "nearest-mean", "ranpac", "ranpac-sums")  # from sums in double precision


def weights_of(learner: Learner) -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = state(learner)["weights"]
    return weights


def labels_of(learner: Learner) -> torch.Tensor:
    """The label that a learner gives to each test image."""
    return torch.cat([predict(learner, test.batch(slice(None))) for test in toy_stream(per_class=15).tests])


def solved(learner: Learner) -> dict[str, torch.Tensor]:
    """Everything that a learner ends with, and its labels."""
    numbers = {str(place): value.clone() for place, value in enumerate(tensors(state(learner)))}
    return {**numbers, "labels": labels_of(learner)}


def assert_one_model(learner: Learner) -> None:
    """Every rank holds the same numbers, batch statistics included."""
    for key, value in state(learner)["weights"].items():
        first, *others = distributed.gather(value[None])
        assert all(torch.equal(first, other) for other in others), key


def learned(name: str, checkpoint: Path) -> tuple[Learner, list[Record]]:
    """A learner at the end of the stream and its records; in its second experience it leaves a checkpoint."""
    session = Session(toy_learner(name), toy_stream(per_class=15), toy_plan_for_ranks())
    for step in session:
        if step.step == (3 if session.learner.single_pass else 7):
            save_checkpoint(checkpoint, session)
            torch.distributed.barrier()
    return session.learner, session.records


def resumed(name: str, checkpoint: Path) -> list[Record]:
    return list(learn(toy_learner(name), toy_stream(per_class=15), toy_plan_for_ranks(), checkpoint=checkpoint))


def every_learner(folder: Path) -> None:
    for name in METHODS:
        learner = toy_learner(name, view=RANDOM_VIEW)
        list(learn(learner, toy_stream(per_class=15), toy_plan_for_ranks()))
        leave(weights_of(learner), folder / f"{name}.random.safetensors")
        learner, records = learned(name, folder / f"{name}.checkpoint")
        assert_one_model(learner)
        again = resumed(name, folder / f"{name}.checkpoint")
        assert [r.to_json() for r in again] == [r.to_json() for r in records]
        leave({**weights_of(learner), "labels": labels_of(learner)}, folder / f"{name}.safetensors")
        if name in SOLVED:
            leave(solved(learner), folder / f"{name}.solved.safetensors")
        if distributed.rank() == 0:
            write_whole(folder / f"{name}.jsonl", "\n".join(record.to_json() for record in records).encode())


def in_parts(folder: Path) -> None:
    """The same with batches in parts: of 15, one rank has seven images and the other eight."""
    for name in IN_PARTS:
        learner = toy_learner(name)
        list(learn(learner, toy_stream(per_class=15), replace(toy_plan_for_ranks(), micro_batch=3)))
        leave(weights_of(learner), folder / f"{name}.parts.safetensors")


def assert_features_are_computed_once() -> None:
    """Each image's query is computed by one rank alone, though an epoch deals images out anew."""
    learner, computed = toy_learner("l2p"), list[int]()
    add = learner.frozen._read

    def noted(batch: Batch, tokens: TokenStore | None) -> torch.Tensor:
        before = len(learner.frozen)
        found = add(batch, tokens)
        computed.extend([*learner.frozen._slots][before:])
        return found

    learner.frozen._read = noted  # type: ignore[method-assign]
    list(learn(learner, toy_stream(per_class=15), toy_plan_for_ranks()))
    everyone = distributed.gather(torch.tensor(computed))
    assert len(everyone) == len(everyone.unique()) > 0


def assert_columns_are_gathered_to_the_bit() -> None:
    """Of columns of several types, which ranks have different numbers of; one has a row, or none."""
    generator = torch.Generator().manual_seed(0)
    for counts in ((3, 5), (1, 0), (0, 2), (1, 1)):
        count = sum(counts)
        columns = [
            torch.randn(count, 5, generator=generator).half(),
            torch.randint(-(2**62), 2**62, (count,), generator=generator),
            torch.randn(count, 3, 2, generator=generator, dtype=torch.float64),
        ]
        place = slice(0, counts[0]) if distributed.rank() == 0 else slice(counts[0], None)
        found = distributed.gather_together(*(column[place] for column in columns))
        assert all(map(torch.equal, found, columns))


def assert_the_closed_form_exchanges_rows_alone(keep: str) -> None:
    """One exchange for a step, of how many rows there are and of the rows; none for a block, and none to solve."""
    heard: Counter[str] = Counter()

    def noted(name: str) -> Callable[..., Any]:
        said = getattr(torch.distributed, name)

        def exchange(*arguments: Any, **values: Any) -> Any:
            heard[name] += 1
            return said(*arguments, **values)

        return exchange

    learner, steps = toy_learner("closed-form", keep=keep), 0
    some = toy_stream(tasks=1, per_class=15).experiences[0].train
    learner.add_classes(some.classes)
    names = ("all_gather", "all_reduce", "broadcast", "all_gather_into_tensor", "all_to_all", "reduce", "gather")
    with ExitStack() as held:
        held.enter_context(patch("promptpool.learners.closed_form.BLOCK", 20))
        for name in names:
            held.enter_context(patch.object(torch.distributed, name, noted(name)))
        for batch in some.batches(15):
            learner.step(batch.part(distributed.rank_slice(15)), Descent([]))
            steps += 1
        assert heard == {"all_gather": 2 * steps}, heard
        learner.before_evaluation()
        assert heard == {"all_gather": 2 * steps}, heard


def leave(found: dict[str, torch.Tensor], path: Path) -> None:
    if distributed.rank() == 0:
        save_file({key: value.contiguous() for key, value in found.items()}, path)


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(THREADS)
    distributed.start()
    every_learner(folder)
    in_parts(folder)
    assert_features_are_computed_once()
    assert_columns_are_gathered_to_the_bit()
    for keep in ("sums", "features"):
        assert_the_closed_form_exchanges_rows_alone(keep)
    fisher = {f"{case}/{key}": value for case, made in FISHER.items() for key, value in information(*made).items()}
    leave(fisher, folder / "fisher.safetensors")
    fits = {f"{case}/{key}": value for case, made in FITS.items() for key, value in fitted(*made).items()}
    leave(fits, folder / "fits.safetensors")
    assert_one_model(with_batch_statistics())
    for wins in (True, False):
        learner, facts = tried(wins=wins)
        assert_one_model(learner)
        leave(weights_of(learner), folder / f"trial-{wins}.safetensors")
        if distributed.rank() == 0:
            write_whole(folder / f"trial-{wins}.json", json.dumps(facts).encode())
    distributed.total(torch.zeros(1))  # a rank that leaves while another is at work can take it down
    distributed.stop()


if __name__ == "__main__":
    main()
