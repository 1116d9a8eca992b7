"""A device that is not there: its tensors lie in main memory, but nothing may take them for the CPU's.

As on Apple's mps, a tensor of float64 on it is an error; as on any device, so is an operation on its tensors together
with the CPU's. Run as a script, it prints as JSON what the device refuses, and what goes wrong when every learner
learns on it.

A process that calls `pretend` has the device for good, and must do so before it takes a gradient.
"""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from promptpool.training.checkpoint import load_checkpoint, save_checkpoint
from promptpool.training.loop import Session
from toys import METHODS, RANDOM_VIEW, SHORT, tensors, toy_learner, toy_stream

NAME = "pretended"
DEVICE = f"{NAME}:0"
# Every learner, and values that have them calculate in another way.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in METHODS},
    "ewc, sampled": ("ewc", {"fisher": "sampled"}),
    "nearest-mean, euclidean": ("nearest-mean", {"distance": "euclidean"}),
    "ranpac, features as they are": ("ranpac", {"projections": 0}),
    "ft-seq, random view": ("ft-seq", {"view": RANDOM_VIEW}),
}
aten = torch.ops.aten
BETWEEN = {aten._to_copy.default, aten.copy_.default}  # what takes tensors from one device to another
INDEXED = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}


class Away(Tensor):
    """A tensor on the device; `lies` is where its numbers are."""

    lies: Tensor

    @staticmethod
    def __new__(cls, lies: Tensor) -> Away:
        if lies.dtype == torch.float64:
            raise TypeError("a tensor of float64 on a device that has none")
        return torch.Tensor._make_wrapper_subclass(
            cls,
            lies.shape,
            strides=lies.stride(),
            storage_offset=lies.storage_offset(),
            dtype=lies.dtype,
            device=torch.device(DEVICE),
        )

    def __init__(self, lies: Tensor) -> None:
        self.lies = lies

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Away({self.lies})"

    def tolist(self) -> Any:
        return self.lies.tolist()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, operation: Any, types: Any, arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None
    ) -> Any:
        del types
        return carried_out(operation, arguments, keywords or {})


class Everywhere(TorchDispatchMode):
    """Also operations that make a tensor on the device from none that is there."""

    def __torch_dispatch__(
        self, operation: Any, types: Any, arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None
    ) -> Any:
        del types
        return carried_out(operation, arguments, keywords or {})


def carried_out(operation: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    given = [*tensors((arguments, keywords))]
    away = [value for value in given if isinstance(value, Away)]
    to = keywords.get("device")
    there = bool(away) if to is None else torch.device(to).type == NAME
    if operation is aten.copy_.default:
        there = isinstance(arguments[0], Away)
    elif away and operation not in BETWEEN:
        beside = given[:1] + given[-1:] if operation in INDEXED else given
        if any(value.ndim and not isinstance(value, Away) for value in beside):
            raise RuntimeError(f"{operation}: tensors on {NAME} and on the CPU")
    if to is not None:
        keywords = {**keywords, "device": "cpu"}
    result = operation(*mapped(_here, arguments), **mapped(_here, keywords))
    if not there:
        return result
    same = {id(value.lies): value for value in away}  # what is changed in place is itself

    def taken(value: Any) -> Any:
        return (same[id(value)] if id(value) in same else Away(value)) if isinstance(value, Tensor) else value

    return mapped(taken, result)


def mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """A nested value with each of its leaves changed; torch's own function takes three times as long."""
    if isinstance(value, dict):
        return {key: mapped(change, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([mapped(change, item) for item in value])
    return change(value)


def _here(value: Any) -> Any:
    return value.lies if isinstance(value, Away) else value


def pretend() -> None:
    """Have the device from now on."""
    _setup_privateuseone_for_python_backend(NAME)
    torch._C._set_only_lift_cpu_tensors(True)  # so that `torch.tensor(..., device=...)` is seen as a move


def learned(name: str, values: dict[str, Any], checkpoint: Path) -> None:
    """Learn a stream on the device, stopped and gone on with in its second task."""
    stream, plan = toy_stream(per_class=10), replace(SHORT, epochs=1, test_batch_size=50)  # two steps a task
    first = Session(toy_learner(name, **values).to(DEVICE), stream, plan)
    for step in first:
        if step.experience == 1:
            break
    save_checkpoint(checkpoint, first)
    second = Session(toy_learner(name, **values).to(DEVICE), stream, plan)
    load_checkpoint(checkpoint, second)
    for _ in second:
        pass
    assert len(second.records) == 3
    assert second.learner.device == torch.device(DEVICE)
    assert {value.device.type for value in second.learner.backbone.parameters()} == {NAME}


def problem(name: str, values: dict[str, Any]) -> str:
    """What goes wrong on the device; nothing if nothing does."""
    with tempfile.TemporaryDirectory() as folder, Everywhere():  # type: ignore[no-untyped-call]
        try:
            learned(name, values, Path(folder) / "checkpoint")
        except Exception:  # noqa: BLE001 - the test shows whatever it is
            return traceback.format_exc()
    return ""


def refused() -> list[str]:
    """The errors of what no such device can do, after the sum of two tensors on it and where that is."""
    with Everywhere():  # type: ignore[no-untyped-call]
        there = torch.ones(3).to(DEVICE)
        said = [f"{(there + there).cpu().tolist()} {there.device.type}"]
        for wrong in (
            there.double,
            lambda: there.sum(dtype=torch.float64),
            lambda: torch.zeros(2, device=DEVICE, dtype=torch.float64),
            lambda: torch.zeros(2, dtype=torch.float64).to(DEVICE),
            lambda: torch.nn.Linear(2, 2).double().to(DEVICE),
            lambda: there + torch.ones(3),
        ):
            try:
                wrong()
            except (RuntimeError, TypeError) as error:
                said.append(type(error).__name__)
    return said


if __name__ == "__main__":
    pretend()
    torch.set_num_threads(1)
    problems = {label: problem(*case) for label, case in CASES.items()}
    json.dump({"refused": refused(), "problems": problems}, sys.stdout)
