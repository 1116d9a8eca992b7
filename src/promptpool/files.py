"""Where files go, and files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under a temporary name and rename it, so that a reader never sees a part of it.

    A process that dies leaves the old file, and perhaps a `.partial` beside it that the next writer takes over;
    one process at a time writes one file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def cache_folder() -> Path:
    """What can be made again: PROMPTPOOL_CACHE, or `promptpool` in the user's cache folder."""
    if own := os.environ.get("PROMPTPOOL_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "promptpool"


def data_folder() -> Path:
    """The data sets, one folder each: PROMPTPOOL_DATA, or `data` in the cache folder."""
    own = os.environ.get("PROMPTPOOL_DATA")
    return Path(own).expanduser() if own else cache_folder() / "data"
