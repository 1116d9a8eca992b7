"""How many bytes tensors hold at a time while something is computed, and how many they would hold for more images.

Every operator is noted, with what is held once it is done: what the backward pass waits for, what it computes a second
time, gradients, and all that is let go soon. Few images are enough: what is held at one moment is a straight line in
their number, and its slope is seen by one image more. The largest of all moments is none: with few images it may be
one of gradients, as large for one image as for a hundred.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FEW = (2, 3)  # images; of one alone some models cannot learn


class Moment(NamedTuple):
    """What is held once an operator is done."""

    operator: str
    held: int


class Held(TorchDispatchMode):
    """Within this context, notes what is held of the tensors that are made in it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.moments: list[Moment] = []
        self.now = 0
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        kwargs = kwargs or {}
        given = {id(storage) for storage in _storages((args, kwargs))}
        made = func(*args, **kwargs)
        for storage in _storages(made):
            if id(storage) not in given and id(storage) not in self._storages:
                self._note(storage)
        self.moments.append(Moment(str(func), self.now))
        return made

    def _note(self, storage: torch.UntypedStorage) -> None:
        key, size = id(storage), storage.nbytes()

        def release(_: object) -> None:
            del self._storages[key]
            self.now -= size

        self._storages[key] = weakref.ref(storage, release)
        self.now += size


def most_held(take: Callable[[int], object], images: int) -> float:
    """The most bytes that `take(images)` holds at a time, found by taking few."""
    if images <= FEW[1]:
        return max((moment.held for moment in _moments(take, images)), default=0)
    few, more = (_moments(take, count) for count in FEW)
    found = [moment.held for moment in more]
    for one, other in _pairs(few, more):
        slope = (more[other].held - few[one].held) / (FEW[1] - FEW[0])
        found[other] = round(more[other].held + slope * (images - FEW[1]))
    return max(found, default=0)


def _moments(take: Callable[[int], object], images: int) -> list[Moment]:
    held = Held()
    with held:
        take(images)
    return held.moments


def _pairs(few: list[Moment], more: list[Moment]) -> Iterator[tuple[int, int]]:
    """The places of the same moments; some are of one image alone, such as that of its place in a memory."""
    names, others = ([moment.operator for moment in moments] for moments in (few, more))
    if names == others:
        yield from ((place, place) for place in range(len(few)))
        return
    for one, other, length in SequenceMatcher(None, names, others, autojunk=False).get_matching_blocks():
        yield from ((one + step, other + step) for step in range(length))


def _storages(values: Any) -> Iterator[torch.UntypedStorage]:
    return (value.untyped_storage() for value in tree_leaves(values) if isinstance(value, Tensor))
