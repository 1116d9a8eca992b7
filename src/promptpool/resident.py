"""How much memory this process holds, in bytes, as Linux tells it; None where the system does not tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

PROC = Path("/proc")
Taken = TypeVar("Taken")


def resident() -> int | None:
    """What this process holds now."""
    return _bytes(PROC / "self" / "status", "VmRSS")


def peak(take: Callable[[], Taken]) -> tuple[Taken, int | None]:
    """What `take` returns, and the most that was held meanwhile."""
    try:
        (PROC / "self" / "clear_refs").write_text("5")  # forgets the peak so far
    except OSError:
        return take(), None
    return take(), _bytes(PROC / "self" / "status", "VmHWM")


def available() -> int | None:
    """What the machine could give to processes beside what they hold."""
    return _bytes(PROC / "meminfo", "MemAvailable")


def _bytes(path: Path, name: str) -> int | None:
    """What a line such as "VmRSS:  123 kB" says."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)
