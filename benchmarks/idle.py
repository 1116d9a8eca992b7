"""Is the machine at rest? Beside other work a benchmark measures that work, so it says so and gives no verdict.

    python benchmarks/idle.py          the share of the processors that others take now

What others take is `Meanwhile`, which `promptpool tune` and `--dry-run` look at too.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from promptpool.experiments.machine import MOST, Meanwhile

__all__ = ["MOST", "Meanwhile", "beside", "busy", "no_verdict", "refuse_if_busy"]


def busy(seconds: float = 1.0) -> float:
    """The share of all processors that other processes take over some seconds."""
    meanwhile = Meanwhile()
    time.sleep(seconds)
    return meanwhile.share()


def refuse_if_busy(*, anyway: bool = False, most: float = MOST) -> None:
    """End with a sentence if others are at work; with `anyway` say it and go on."""
    share = busy()
    if share <= most:
        return
    said = f"other processes take {share:.0%} of the processors (at most {most:.0%}): this would measure theirs too"
    if not anyway:
        raise SystemExit(f"{said}. Let them end first; --anyway runs all the same")
    print(f"note: {said}", file=sys.stderr)


def beside(path: Path | None, mark: str) -> Path | None:
    """The name beside this one of a file that is no result: `speed-busy.csv`."""
    return None if path is None else path.with_stem(f"{path.stem}-{mark}")


def no_verdict(share: float, *files: Path | None) -> str:
    """Why nothing is judged, and where what was measured all the same was written, away from earlier results."""
    said = f"no verdict: other processes took {share:.0%} of the processors meanwhile"
    names = [file.name for file in files if file is not None]
    return f"{said}; what was measured is in {' and '.join(names)}" if names else said


if __name__ == "__main__":
    print(f"{busy():.0%} of the processors are taken by other processes")
