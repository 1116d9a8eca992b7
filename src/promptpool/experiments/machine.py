"""What the machine at hand has, and how much of it is in use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch

from promptpool import resident as host
from promptpool.experiments.runner import device

MOST = 0.1  # of all processors; a machine at rest takes a few hundredths
STAT = Path("/proc/stat")


class Meanwhile:
    """What others take of the processors from when this is made.

    What all processes used is held beside what this one and those that it started did. Where the kernel does not say
    (no /proc/stat), the load of the minute before counts in its place.
    """

    def __init__(self) -> None:
        self._began, self._load = (_ticks(), _own()), _load()

    def share(self) -> float:
        """The share of all processors that other processes have taken since; 0 to 1."""
        return self._shares()[0]

    def crowded(self) -> float | None:
        """That share, if it is more than a little and less than one processor was left; None otherwise."""
        others, left = self._shares()
        return others if others > MOST and left * (os.cpu_count() or 1) < 1 else None

    def _shares(self) -> tuple[float, float]:
        """What others took of all processors, and what nobody took."""
        if not STAT.exists():
            return self._load, 1 - self._load
        (before, own), after = self._began, _ticks()
        total, idle = (later - earlier for later, earlier in zip(after, before, strict=True))
        if not total:
            return 0.0, 1.0
        return min(max((total - idle - (_own() - own)) / total, 0.0), 1.0), idle / total


def _ticks() -> tuple[float, float]:
    """What all processors had to give since the machine began, and what of it nobody took; zeros if unknown."""
    if not STAT.exists():
        return 0.0, 0.0
    user, nice, system, idle, waiting, *rest = map(float, STAT.read_text().split("\n", 1)[0].split()[1:9])
    return user + nice + system + idle + waiting + sum(rest), idle + waiting


def _own() -> float:
    """What this process took, and those of its children that have ended, in the same unit; 0 if that is unknown."""
    return 0.0 if not STAT.exists() else sum(os.times()[:4]) * os.sysconf("SC_CLK_TCK")


def _load() -> float:
    """The load of the last minute, as a share of the processors; 0 where the system does not tell."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return min(load / (os.cpu_count() or 1), 1.0)


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
