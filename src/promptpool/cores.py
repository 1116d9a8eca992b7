"""How many cores this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def core_count() -> int:
    """The cores of the machine that this process may run on, or those that a container grants it, if they are fewer."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    granted = _granted(CGROUPS)
    return cores if granted is None else max(1, min(cores, math.ceil(granted)))


def _granted(folder: Path) -> float | None:
    """The processor time that a container has in each second; None where there is no limit, or none that is known."""
    try:
        quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):  # no container, or one of the first version of control groups
        try:
            quota, period = (
                (folder / "cpu" / name).read_text(encoding="ascii").strip()
                for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            )
        except (OSError, ValueError):
            return None
    if not (quota.isdecimal() and period.isdecimal() and int(period)):
        return None  # "max", or -1: no limit
    return int(quota) / int(period)
