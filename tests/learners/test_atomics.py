"""No learner adds up a gradient with atomic additions, whose order changes from run to run with several threads."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from promptpool.training.checkpoint import learn
from toys import METHODS, SHORT, toy_learner, toy_stream

ACCUMULATING = ("index_put", "_index_put_impl", "put", "_unsafe_index_put")


class Listening(TorchDispatchMode):
    """Notes every operation that adds to places named by indices, on as many threads as there are."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.heard: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _plain(func) in ACCUMULATING:
            names = [argument.name for argument in func._schema.arguments]
            if (dict(zip(names, args, strict=False)) | (kwargs or {})).get("accumulate"):
                self.heard.add(func._schema.name)
        return func(*args, **(kwargs or {}))


@cache
def _plain(operation: Any) -> str:
    """The name of an operation, whether it changes its input or not."""
    name: str = operation._schema.name
    return name.removeprefix("aten::").removesuffix("_")


@pytest.mark.parametrize("name", METHODS)
def test_no_gradient_is_added_up_by_atomics(name: str) -> None:
    with Listening() as listening:
        list(learn(toy_learner(name), toy_stream(per_class=10), replace(SHORT, epochs=1, test_batch_size=50)))
    assert not listening.heard


def test_what_is_listened_for_is_heard() -> None:
    table = torch.zeros(3, 2, requires_grad=True)
    with Listening() as listening:
        table[torch.tensor([0, 0, 1])].sum().backward()
    assert listening.heard
