"""The processor, how many of its cores this process may use, and how its threads wait."""

from __future__ import annotations

import math
import os
import platform
from pathlib import Path

CGROUPS, CPUINFO = Path("/sys/fs/cgroup"), Path("/proc/cpuinfo")
SPINS = "10000"  # a tenth of a millisecond or less


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


def processor(entry: str) -> str:
    """What the system says of its first processor, such as the "model name"; less where there is no such list."""
    try:
        lines = CPUINFO.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(entry))
    return next(found, platform.machine())


def let_waiting_threads_sleep() -> None:
    """Have threads that wait for each other sleep soon, so that beside other work they do not take its cores and wait.

    GNU's OpenMP lets them spin for milliseconds otherwise. It reads this when torch is imported. Where one of its own
    variables is set, that one holds.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
