"""Steps that hold a known number of bytes, for a process of their own."""

from __future__ import annotations

from collections.abc import Callable

import torch


def holding(megabytes: int) -> Callable[[], object]:
    """A step that holds so many megabytes twice, once at a time."""

    def step() -> None:
        for _ in range(2):
            torch.ones(megabytes * 250_000)

    return step
