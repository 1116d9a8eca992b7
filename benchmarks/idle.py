"""Is the machine at rest? Beside other work a benchmark measures that work, so it says so and gives no verdict.

    python benchmarks/idle.py          the share of the processors that others take now

`Meanwhile` compares what all processes used over a stretch of time with what this one and those that it started did.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

MOST = 0.1  # of all processors; a machine at rest takes a few hundredths
STAT = Path("/proc/stat")


class Meanwhile:
    """What others take of the processors from when this is made.

    Where the kernel does not say (no /proc/stat), the load of the last minute in its place.
    """

    def __init__(self) -> None:
        self._began = _ticks(), _own()

    def share(self) -> float:
        """The share of all processors that other processes have taken since; 0 to 1."""
        if not STAT.exists():
            return min(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0)
        (before, own), after = self._began, _ticks()
        total, idle = (later - earlier for later, earlier in zip(after, before, strict=True))
        return min(max((total - idle - (_own() - own)) / total, 0.0), 1.0) if total else 0.0


def busy(seconds: float = 1.0) -> float:
    """The share of all processors that other processes take over some seconds."""
    meanwhile = Meanwhile()
    time.sleep(seconds)
    return meanwhile.share()


def _ticks() -> tuple[float, float]:
    """What all processors had to give since the machine began, and what of it nobody took; zeros if unknown."""
    if not STAT.exists():
        return 0.0, 0.0
    user, nice, system, idle, waiting, *rest = map(float, STAT.read_text().split("\n", 1)[0].split()[1:9])
    return user + nice + system + idle + waiting + sum(rest), idle + waiting


def _own() -> float:
    """What this process took, and those of its children that have ended, in the same unit."""
    return sum(os.times()[:4]) * os.sysconf("SC_CLK_TCK")


def refuse_if_busy(*, anyway: bool = False, most: float = MOST) -> None:
    """End with a sentence if others are at work; with `anyway` say it and go on."""
    share = busy()
    if share <= most:
        return
    said = f"other processes take {share:.0%} of the processors (at most {most:.0%}): this would measure theirs too"
    if not anyway:
        raise SystemExit(f"{said}. Let them end first; --anyway runs all the same")
    print(f"note: {said}", file=sys.stderr)


if __name__ == "__main__":
    print(f"{busy():.0%} of the processors are taken by other processes")
