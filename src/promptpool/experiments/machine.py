"""What the machine at hand has, and how much of it is in use."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch

from promptpool import resident as host
from promptpool.cores import core_count
from promptpool.experiments.runner import device

BUSY = 0.3  # the load for each core, from which the machine is busy


def busy() -> float | None:
    """The load of the last minute, if others use the machine; None if nobody does or the system does not tell."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return load if load > BUSY * core_count() else None


def memory_there() -> int | None:
    """The bytes that this process holds or could get: of its GPU, or of the machine where it tells."""
    if torch.cuda.is_available():
        return int(torch.cuda.get_device_properties(device()).total_memory)
    free, held = host.available(), host.resident()
    return None if free is None or held is None else free + held


def resident() -> int | None:
    """The bytes that this process holds on its device now; None where the system does not tell."""
    return torch.cuda.memory_allocated() if torch.cuda.is_available() else host.resident()


def peak(take: Callable[[], float | None]) -> tuple[float | None, int | None]:
    """What `take` returns, and the most bytes that were held meanwhile; None where the system does not tell."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        return take(), torch.cuda.max_memory_allocated()
    return host.peak(take)
