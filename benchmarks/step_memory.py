"""The most memory that a step takes, each in a fresh process.

What counts is the resident set at its highest while steps are taken, less what it was before the model was made:
weights (the textbook's two copies too), activations, gradients and what the allocator keeps of them: all that is freed,
as in a run (`keep_freed_memory`). Code is left out: a step of a small model comes first, whose memory is given back. So
is the making of the model. Linux alone tells the highest value since a moment; `getrusage` may tell that of the process
which started this one.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

from promptpool import resident
from promptpool.allocator import keep_freed_memory

Make = Callable[[], Callable[[], object]]
STEPS = 3


def peak(make: Make, small: Make) -> float | None:
    """Megabytes that some steps take in a new process, None if unknown.

    `make` makes the model and returns the step; `small` does so for a small model.
    """
    if resident.resident() is None:
        return None
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        return alone.submit(_measured, make, small, torch.get_num_threads()).result()


def _measured(make: Make, small: Make, threads: int) -> float | None:
    torch.set_num_threads(threads)
    keep_freed_memory()
    small()()
    _give_back()
    before = resident.resident()
    step = make()
    _give_back()
    _, most = resident.peak(lambda: [step() for _ in range(STEPS)])
    return None if before is None or most is None else (most - before) / 1e6


def _give_back() -> None:
    """Return to the system what nobody uses any more."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
