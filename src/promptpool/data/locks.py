"""A file for one process at a time."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from promptpool.progress import report


@contextmanager
def alone(path: Path) -> Iterator[io.FileIO]:
    """The file, opened to append, while no other process has it so; one that stays empty goes away."""
    while True:
        with path.open("ab", buffering=0) as file:
            _lock(file, path)
            if not _is_at(file, path):  # whoever had it was done with it
                continue
            try:
                yield file
            finally:
                if _is_at(file, path) and not path.stat().st_size:
                    path.unlink()
            return


def _lock(file: io.FileIO, path: Path) -> None:
    import fcntl  # not on Windows, where all but downloading works

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        report(f"waiting for another process: {path.name}", 0)
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:  # a file system without locks: should two write at once, the checksum tells
        return


def _is_at(file: io.FileIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
