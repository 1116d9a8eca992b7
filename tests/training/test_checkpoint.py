"""Checkpoints are whole, belong to one run, and are safe to read from strangers."""

from __future__ import annotations

import json
import pickle
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from promptpool.backbones.vit import ViT
from promptpool.errors import BadFileError
from promptpool.files import write_whole
from promptpool.learners import LEARNERS
from promptpool.learners.base import Learner
from promptpool.training.checkpoint import learn, load_checkpoint, save_checkpoint, with_checkpoints
from promptpool.training.loop import Session
from toys import SHORT, VIEW, toy_backbone, toy_learner, toy_stream


def session(name: str = "l2p-r") -> Session:
    return Session(toy_learner(name), toy_stream(), SHORT)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint in the middle of the second experience."""
    path = tmp_path / "checkpoint"
    half = session()
    for step in half:
        if step.step == 10:
            break
    save_checkpoint(path, half)
    return path


def test_one_file_and_nothing_beside_it(path: Path) -> None:
    assert [file.name for file in path.parent.iterdir()] == ["checkpoint"]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads what is mapped as Linux tells it")
def test_a_session_that_goes_on_does_not_hold_the_file(path: Path) -> None:
    """Or Windows could not replace it by the next checkpoint."""
    going_on = session()
    load_checkpoint(path, going_on)
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_a_write_that_fails_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()

    def fail(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_whole(path, b"half")
    assert path.read_bytes() == before


def test_is_written_after_each_experience_and_as_often_as_asked(tmp_path: Path) -> None:
    path, half = tmp_path / "checkpoint", session()
    steps = with_checkpoints(half, path, seconds=3600)
    while next(steps).record is None:
        assert not path.exists()
    assert path.exists()
    path.unlink()
    next(with_checkpoints(half, path, seconds=0))
    assert path.exists()


def test_records_of_experiences_already_over_come_again(path: Path) -> None:
    expected = [record.to_json() for record in learn(toy_learner("l2p-r"), toy_stream(), SHORT)]
    again = [record.to_json() for record in learn(toy_learner("l2p-r"), toy_stream(), SHORT, checkpoint=path)]
    assert again == expected
    finished = [record.to_json() for record in learn(toy_learner("l2p-r"), toy_stream(), SHORT, checkpoint=path)]
    assert finished == expected


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (lambda: Session(toy_learner("l2p"), toy_stream(), SHORT), "learner"),
        (lambda: Session(toy_learner("l2p-r", seed=1), toy_stream(), SHORT), "learner"),
        (lambda: Session(toy_learner("l2p-r"), toy_stream(per_class=15), SHORT), "stream"),
        (lambda: Session(toy_learner("l2p-r"), toy_stream(), replace(SHORT, learning_rate=0.5)), "plan"),
        (lambda: Session(LEARNERS["l2p-r"](other_weights(), VIEW, capacity=24), toy_stream(), SHORT), "backbone"),
        (lambda: Session(other_view(), toy_stream(), SHORT), "view"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_and_says_why(path: Path, other: Any, named: str) -> None:
    with pytest.raises(BadFileError, match=f"another {named}"):
        load_checkpoint(path, other())


def other_view() -> Learner:
    return LEARNERS["l2p-r"](toy_backbone(), replace(VIEW, flip=True), capacity=24)


def other_weights() -> ViT:
    return toy_backbone(seed=1)


class Trap:
    """A pickle that leaves a file behind when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_is_refused_and_does_nothing(path: Path) -> None:
    sprung = path.with_name("sprung")
    path.write_bytes(pickle.dumps(Trap(sprung)))
    with pytest.raises(BadFileError, match="checkpoint"):
        load_checkpoint(path, session())
    torch.save({"state": Trap(sprung)}, path)
    with pytest.raises(BadFileError, match="checkpoint"):
        load_checkpoint(path, session())
    assert not sprung.exists()


def test_weights_of_another_kind_are_refused(path: Path) -> None:
    save_file({"head.weight": torch.zeros(2, 3)}, path)
    with pytest.raises(BadFileError, match="not a checkpoint of ours"):
        load_checkpoint(path, session())


def _with(state: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    return {"dict": [[key, value if key == name else item] for key, item in state["dict"]]}


def changed(path: Path, change: Any) -> None:
    """The checkpoint with its header and tensors put through `change`."""
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["promptpool"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(header, tensors)
    save_file(tensors, path, metadata={"promptpool": json.dumps(header)})


@pytest.mark.parametrize(
    "change",
    [
        lambda header, tensors: tensors.clear(),
        lambda header, tensors: tensors.update({name: value.flatten()[:1] for name, value in tensors.items()}),
        lambda header, tensors: tensors.update({name: torch.zeros(3, 3) for name in tensors}),
        lambda header, tensors: header.update(state={"code": "import os"}),
        lambda header, tensors: header.update(state={"dict": []}),
        lambda header, tensors: header.update(state=None),
        lambda header, tensors: header.pop("state"),
        lambda header, tensors: header.update(state=_with(header["state"], "place", {"list": [0, 0, 0, -1]})),
        lambda header, tensors: header.update(state=_with(header["state"], "place", {"list": [3, 0, 0, 10]})),
        lambda header, tensors: header.update(state=_with(header["state"], "place", {"list": [0, 0, "1", 1]})),
        lambda header, tensors: header.update(state=_with(header["state"], "place", None)),
        lambda header, tensors: header.update(state=_with(header["state"], "losses", "none")),
        lambda header, tensors: header.update(state=_with(header["state"], "records", 7)),
        lambda header, tensors: header.update(state=_with(header["state"], "records", {"list": ["7"]})),
        lambda header, tensors: header.update(state=_with(header["state"], "learner", 7)),
        lambda header, tensors: header.update(state=_with(header["state"], "descend", {"list": []})),
    ],
)
def test_a_damaged_state_is_one_clear_error(path: Path, change: Any) -> None:
    changed(path, change)
    with pytest.raises(BadFileError, match=str(path)) as caught:
        load_checkpoint(path, session())
    assert "\n" not in str(caught.value)


def test_records_of_any_size_are_no_part_of_the_header(path: Path) -> None:
    """safetensors reads and writes headers of up to 100 MB."""
    half, again = session(), session()
    load_checkpoint(path, half)
    half.records = [replace(record, facts={"listed": "x" * 101_000_000}) for record in half.records]
    save_checkpoint(path, half)
    load_checkpoint(path, again)
    assert again.records == half.records
    with safe_open(path, framework="pt") as file:
        assert len(file.metadata()["promptpool"]) < 100_000


def test_a_checkpoint_of_an_earlier_version_has_records_in_its_header(path: Path) -> None:
    whole = session()
    load_checkpoint(path, whole)

    def as_before(header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        ((_, records),) = (item for item in header["state"]["dict"] if item[0] == "records")
        lines = {"list": [record.to_json() for record in whole.records]}
        del tensors[records["tensor"]]
        header.update(state=_with(header["state"], "records", lines))

    changed(path, as_before)
    again = session()
    load_checkpoint(path, again)
    assert len(again.records) == 1
    assert again.records == whole.records
    assert again.step_count == whole.step_count == 10


def test_a_header_nested_without_end_is_refused(path: Path) -> None:
    deep = "[" * 200_000
    save_file({"0": torch.zeros(1)}, path, metadata={"promptpool": deep})
    with pytest.raises(BadFileError, match="not a checkpoint of ours"):
        load_checkpoint(path, session())


def test_cut_and_flipped_files_load_or_are_refused(path: Path) -> None:
    whole = path.read_bytes()
    dice = random.Random(0)  # noqa: S311
    for trial in range(120):
        damaged = bytearray(whole)
        if trial % 2:
            damaged = damaged[: dice.randrange(len(whole))]
        else:
            for _ in range(4):
                damaged[dice.randrange(len(whole) if trial % 4 else 9000)] = dice.randrange(256)
        path.write_bytes(damaged)
        try:
            load_checkpoint(path, session())
        except BadFileError as error:
            assert "\n" not in str(error)  # noqa: PT017
