"""What a checkpoint holds of a learner, and how a learner comes back from it.

    {"weights": parameters and buffers by name, "kept": everything else by name}

Frozen weights are in no state: whoever restores a learner has the same backbone. "kept" are the classes, the random
generator and the attributes that the method names in `remembers`: tensors, numbers, text, containers of these, or
objects with `state_dict` and `load_state_dict`, such as a memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from promptpool.learners.base import Learner
from promptpool.optim import copied


def state(learner: Learner) -> dict[str, Any]:
    """All that was learned and drawn; frozen weights are not part of it."""
    return {
        "weights": _weights(learner),
        "kept": {name: _packed(getattr(learner, name)) for name in _remembered(learner)},
    }


def restore(learner: Learner, saved: dict[str, Any]) -> None:
    """Make this the learner whose `state` was saved; no tensor is shared with it."""
    learner.grow(len(saved["weights"]["head.weight"]))
    wrong = (set(_weights(learner)) ^ set(saved["weights"])) | (set(_remembered(learner)) ^ set(saved["kept"]))
    if wrong:
        raise ValueError(f"the state is of another learner: {', '.join(sorted(wrong))} do not match")
    learner.load_state_dict(saved["weights"], strict=False)  # the frozen backbone is not among them
    for name, value in copied(saved["kept"]).items():
        _unpack(learner, name, value)
    learner.check_state()


def _weights(learner: Learner) -> dict[str, Tensor]:
    frozen = "original." if learner.train_backbone else "backbone."
    return {name: value for name, value in learner.state_dict().items() if not name.startswith(frozen)}


def _remembered(learner: Learner) -> tuple[str, ...]:
    return ("current", "seen", "generator", *learner.remembers)


def _packed(value: Any) -> Any:
    if isinstance(value, torch.Generator):
        return value.get_state()
    return value.state_dict() if hasattr(value, "state_dict") else value


def _unpack(learner: Learner, name: str, value: Any) -> None:
    present = getattr(learner, name)
    if isinstance(present, torch.Generator):
        present.set_state(value)
    elif hasattr(present, "load_state_dict"):
        present.load_state_dict(value)
    else:
        setattr(learner, name, value)
