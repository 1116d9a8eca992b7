"""Where files go, files that are there whole or not at all, and locks between processes."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

_data: ContextVar[Path | None] = ContextVar("data", default=None)
PAUSE = 0.1  # seconds between two looks at a lock, where nothing tells that it is free


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under a temporary name and rename it, so that a reader never sees a part of it.

    A process that dies leaves the old file, and perhaps a `.partial` beside it that the next writer takes over;
    one process at a time writes one file.
    """
    temporary = write_beside(path, content)
    with _or_none(temporary):
        temporary.replace(path)


def write_beside(path: Path, content: bytes) -> Path:
    """Write what is to become a file under its temporary name, which is returned; a disk that is full keeps no part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")
    with _or_none(temporary), temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return temporary


@contextmanager
def _or_none(temporary: Path) -> Iterator[None]:
    """Remove what was begun if it cannot be finished."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


@contextmanager
def locked(path: Path, *, waiting: Callable[[str, int], None] | None = None) -> Iterator[None]:
    """Hold a lock file, which no other process holds meanwhile; it goes away with the lock.

    With `waiting`, wait for another process, and say so to `waiting` once; without, raise `BlockingIOError` at once.
    """
    while True:
        with path.open("ab", buffering=0) as file:
            _lock(file, path, waiting)
            try:
                if not _is_at(file, path):  # whoever had it was done with it
                    continue
                try:
                    yield
                finally:
                    if _is_at(file, path) and not path.stat().st_size:
                        with suppress(PermissionError):  # Windows removes no open file: there it stays
                            path.unlink()
                return
            finally:
                _unlock(file)


def _lock(file: io.FileIO, path: Path, waiting: Callable[[str, int], None] | None) -> None:
    try:
        if _took(file):
            return
    except OSError as error:  # a file system without locks
        if waiting is None:
            raise BlockingIOError(f"{path}: cannot be locked ({error})") from error
        return  # whoever waits can bear that two write at once
    if waiting is None:
        raise BlockingIOError(f"{path}: another process has it")
    waiting(f"waiting for another process: {path.name}", 0)
    while not _took(file, wait=True):
        time.sleep(PAUSE)


def _took(file: io.FileIO, *, wait: bool = False) -> bool:
    """True if the file is locked now; on POSIX, `wait` returns when it is."""
    try:
        import fcntl
    except ImportError:  # Windows, which locks bytes: the first, whether or not it is there
        from msvcrt import LK_NBLCK, locking  # type: ignore[attr-defined]

        file.seek(0)
        try:
            locking(file.fileno(), LK_NBLCK, 1)
        except PermissionError:
            return False
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def _unlock(file: io.FileIO) -> None:
    try:
        import fcntl
    except ImportError:
        from msvcrt import LK_UNLCK, locking  # type: ignore[attr-defined]

        file.seek(0)
        with suppress(OSError):  # a file system without locks
            locking(file.fileno(), LK_UNLCK, 1)
        return
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_UN)


def _is_at(file: io.FileIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def gigabytes(name: str, usual: float) -> int:
    """The bytes that an environment variable allows, given in gigabytes."""
    text = os.environ.get(name) or str(usual)
    try:
        return max(int(float(text) * 1e9), 0)
    except (ValueError, OverflowError):
        raise ValueError(f"{name} = {text!r}: must be a number, the most gigabytes to keep") from None


def cache_folder() -> Path:
    """What can be made again: PROMPTPOOL_CACHE, or `promptpool` in the user's cache folder."""
    if own := os.environ.get("PROMPTPOOL_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "promptpool"


def weights_folder() -> Path:
    """The weights of hub names, by owner and name: PROMPTPOOL_WEIGHTS, or `weights` in the cache folder."""
    own = os.environ.get("PROMPTPOOL_WEIGHTS")
    return Path(own).expanduser() if own else cache_folder() / "weights"


@contextmanager
def data_in(folder: Path | None) -> Iterator[None]:
    """While this lasts, the data sets are in this folder; with None they are where they were."""
    token = _data.set(_data.get() if folder is None else folder.expanduser())
    try:
        yield
    finally:
        _data.reset(token)


def data_folder() -> Path:
    """The data sets, one folder each: that of `data_in`, PROMPTPOOL_DATA, or `data` in the cache folder."""
    if (given := _data.get()) is not None:
        return given
    own = os.environ.get("PROMPTPOOL_DATA")
    return Path(own).expanduser() if own else cache_folder() / "data"
