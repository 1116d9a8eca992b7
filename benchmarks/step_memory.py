"""The most memory that a step takes, each in a fresh process.

What counts is the resident set at its highest while steps are taken, less what it was before the model was made:
weights (the textbook's two copies too), activations, gradients and what the allocator keeps of them: all that is freed,
as in a run (`keep_freed_memory`). Code is left out: a step of a small model comes first, whose memory is given back. So
is the making of the model. Linux alone tells the highest value since a moment (/proc/self/clear_refs); `getrusage` may
tell that of the process which started this one.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

from promptpool.allocator import keep_freed_memory

Make = Callable[[], Callable[[], object]]
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
STEPS = 3


def peak(make: Make, small: Make) -> float | None:
    """Megabytes that some steps take in a new process, None if unknown.

    `make` makes the model and returns the step; `small` does so for a small model.
    """
    if not RESET.exists():
        return None
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        return alone.submit(_measured, make, small, torch.get_num_threads()).result()


def _measured(make: Make, small: Make, threads: int) -> float:
    torch.set_num_threads(threads)
    keep_freed_memory()
    small()()
    _give_back()
    before = _kilobytes("VmRSS")
    step = make()
    _give_back()
    RESET.write_text("5")
    for _ in range(STEPS):
        step()
    return (_kilobytes("VmHWM") - before) / 1000


def _give_back() -> None:
    """Return to the system what nobody uses any more."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _kilobytes(name: str) -> int:
    lines = STATUS.read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])
