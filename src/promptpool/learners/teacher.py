"""The teacher of a distillation: frozen copies of a learner's parts, as they were at one moment."""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import Tensor, nn

from promptpool.backbones.base import FeatureExtractor
from promptpool.data.stream import Batch
from promptpool.learners.base import Learner


class Teacher:
    """Frozen copies of a learner's parts, by name; there are none until `take` is called.

    A part that is not trained is shared instead of copied. An attribute that holds a teacher belongs in the learner's
    `remembers`, so that checkpoints hold it. Parts follow the learner to its device.
    """

    def __init__(self, learner: nn.Module, *names: str) -> None:
        self._learner, self._names = learner, names
        self._parts: dict[str, nn.Module] = {}

    def __bool__(self) -> bool:
        return bool(self._parts)

    def __getitem__(self, name: str) -> nn.Module:
        """A part as it was, on the device where the learner's own now is: a copy does not move by itself."""
        return self._parts[name].to(next(self._learner.get_submodule(name).parameters()))

    def take(self) -> None:
        """Copy the parts as they are now."""
        self._parts = {}  # frees the old copies before new ones are made
        for name in self._names:
            part = self._learner.get_submodule(name)
            trained = any(parameter.requires_grad for parameter in part.parameters())
            self._parts[name] = copy.deepcopy(part).requires_grad_(False).eval() if trained else part

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """The tensors of the copies; shared parts are left out."""
        return {name: part.state_dict() for name, part in self._parts.items() if not self._shared(name)}

    def load_state_dict(self, state: dict[str, dict[str, Tensor]]) -> None:
        self._parts = {}
        if not state:
            return
        self.take()
        for name, tensors in state.items():
            part = self._parts[name]
            for key, holder in (*part.named_parameters(), *part.named_buffers()):
                holder.data = tensors[key].to(holder, copy=True)  # the head may have had fewer rows then

    def _shared(self, name: str) -> bool:
        return self._parts[name] is self._learner.get_submodule(name)


def taught(learner: Learner, teacher: Teacher, *batches: Batch) -> tuple[Tensor, Tensor]:
    """f(x)[0] of these batches by a learner and by its teacher, both in the same view: [B, D] each."""
    if not learner.train_backbone:
        features = torch.cat([learner.features(batch) for batch in batches])
        return features, features
    x = torch.cat([learner.inputs(batch) for batch in batches])
    with torch.no_grad():
        theirs = cast("FeatureExtractor", teacher["backbone"]).features(x)
    return learner.backbone.features(x), theirs
