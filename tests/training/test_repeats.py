"""The same machine with the same number of threads gives the same bytes again, whatever that number is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from promptpool.learners.state import restore, state
from promptpool.training.checkpoint import load_checkpoint, save_checkpoint
from promptpool.training.loop import Session
from toys import METHODS, SHORT, tensors, toy_learner, toy_stream

TESTS = Path(__file__).parents[1]
REPEATED = (*METHODS, "l2p@onednn", "ft-seq@onednn")


def ends(what: str, threads: int, folder: Path) -> dict[str, list[str]]:
    """What a process of its own prints: hashes for each learner."""
    command = [sys.executable, str(TESTS / "training/repeat_worker.py"), what, str(threads), str(folder), *REPEATED]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}",
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "passive",
    }
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return {name: hashes for name, *hashes in map(str.split, ended.stdout.splitlines())}


@pytest.fixture(scope="module", params=[2, 3], ids=["2 threads", "3 threads"])
def hashes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """For each learner: a run that leaves a checkpoint; in another process one that does not, and one resumed."""
    folder = tmp_path_factory.mktemp("repeats")
    first, again = (ends(what, request.param, folder) for what in ("first", "again"))
    return {name: first[name] + again[name] for name in REPEATED}


@pytest.mark.parametrize("name", REPEATED)
def test_every_learner_repeats_and_resumes_to_the_byte(name: str, hashes: dict[str, list[str]]) -> None:
    once, again, resumed = hashes[name]
    assert again == once, "does not repeat"
    assert resumed == once, "does not resume"


def inner(learner: Any) -> Iterator[torch.Tensor]:
    """All the tensors of a learner's state as they lie in memory."""
    for name in learner.remembers:
        value = getattr(learner, name)
        yield from tensors(value.state_dict() if hasattr(value, "state_dict") else value)


@pytest.mark.parametrize("name", METHODS)
def test_what_is_restored_is_a_copy_at_its_own_aligned_place(name: str, tmp_path: Path) -> None:
    first = Session(toy_learner(name), toy_stream(), SHORT)
    for step in first:
        if step.step == 8:
            break
    save_checkpoint(tmp_path / "checkpoint", first)
    second = Session(toy_learner(name), toy_stream(), SHORT)
    load_checkpoint(tmp_path / "checkpoint", second)
    held = [*inner(second.learner), *state(second.learner)["weights"].values()]
    if second.descend is not None:
        held += [*tensors(second.descend.state_dict())]
    large = [value for value in held if value.numel() > 1]
    for value in large:
        assert value.data_ptr() % 64 == 0, f"{name}: {[*value.shape]} is not aligned"
        assert value.untyped_storage().data_ptr() == value.data_ptr(), f"{name}: {[*value.shape]} lies inside another"
    again = Session(toy_learner(name), toy_stream(), SHORT)
    saved = state(second.learner)
    restore(again.learner, saved)
    theirs = {value.untyped_storage().data_ptr() for value in tensors(saved) if value.numel()}
    ours = {value.untyped_storage().data_ptr() for value in tensors(state(again.learner)) if value.numel()}
    assert not ours & theirs, "a learner restored from another one's state shares nothing with it"
