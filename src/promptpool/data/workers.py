"""Work done on threads while the caller is busy with what came before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from promptpool.cores import core_count

Item = TypeVar("Item")
Made = TypeVar("Made")

MOST_THREADS = 8


def in_advance(make: Callable[[Item], Made], items: Iterable[Item], *, threads: int = 1) -> Generator[Made, None, None]:
    """make(item) for each item, in order; while the caller has one, the next `threads` are being made.

    The items are taken on the caller's own thread. What `make` raises is raised where its result would have been.
    No thread is left when the generator ends or is closed.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="in-advance")
    waiting: deque[Future[Made]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(make, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def threads_here() -> int:
    """As many threads as this process has processors, within reason."""
    return min(core_count(), MOST_THREADS)
