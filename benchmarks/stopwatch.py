"""Where the time of a whole run goes: functions are watched while it runs, each second counted once.

Seconds are those of the thread that trains. What other threads decode ahead of it costs it the time that it waits, and
an image that nobody read ahead is waited for where it is looked at, be it in a step.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from promptpool.backbones.features import FrozenFeatures
from promptpool.data import stream
from promptpool.data.stream import Examples, Unread
from promptpool.data.views import ImageView
from promptpool.data.workers import in_advance
from promptpool.learners.l2p import L2P
from promptpool.training import checkpoint, loop

OTHER, WAITING = "other", "waiting for images"


class Stopwatch:
    """Seconds by name. What is watched within something that is watched counts by its own name alone."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._names = [OTHER]
        self._thread = threading.current_thread()
        self._since = time.perf_counter()

    def _turn(self) -> None:
        now = time.perf_counter()
        self.seconds[self._names[-1]] += now - self._since
        self._since = now

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        self._turn()
        self._names.append(name)
        try:
            yield
        finally:
            self._turn()
            self._names.pop()

    def watched(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def timed(*positional: Any, **keywords: Any) -> Any:
            if threading.current_thread() is not self._thread:
                return function(*positional, **keywords)
            with self.running(name):
                return function(*positional, **keywords)

        return timed

    def waited(self, function: Callable[..., Iterator[Any]], name: str) -> Callable[..., Generator[Any, None, None]]:
        """The same for what is made ahead of time: the name has the time until the next item is there."""

        def timed(*positional: Any, **keywords: Any) -> Generator[Any, None, None]:
            items = function(*positional, **keywords)
            while True:
                with self.running(name):
                    item = next(items, OTHER)
                if item is OTHER:
                    return
                yield item

        return timed

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


@contextmanager
def watching() -> Iterator[Stopwatch]:
    """A stopwatch on the parts of the library's own loop while the context lasts."""
    watch = Stopwatch()
    parts: list[tuple[Any, str, str]] = [
        (L2P, "step", "steps"),
        (FrozenFeatures, "__call__", "features"),
        (FrozenFeatures, "with_tokens", "queries and tokens"),
        (ImageView, "plain", "views"),
        (Examples, "batch", "data"),
        (Unread, "to", WAITING),
        (loop, "announce", "evaluation"),
        (loop, "count_correct", "evaluation"),
        (checkpoint, "save_checkpoint", "checkpoints"),
    ]
    with ExitStack() as patches:
        for owner, attribute, name in parts:
            function = watch.watched(getattr(owner, attribute), name)
            patches.enter_context(patch.object(owner, attribute, function))
        patches.enter_context(patch.object(stream, "in_advance", watch.waited(in_advance, WAITING)))
        yield watch
        with watch.running(OTHER):  # counts what came last
            pass


def lines(watches: dict[str, Stopwatch]) -> list[str]:
    """A Markdown table: a column for each run, a row for each part."""
    found = dict.fromkeys(name for watch in watches.values() for name in watch.seconds)  # in the order they came up
    names = sorted(found, key=lambda name: name == OTHER)
    rows = [f"| seconds | {' | '.join(watches)} |", f"|---|{'---:|' * len(watches)}"]
    for name in names:
        cells = (f"{watch.seconds[name]:.1f} ({watch.seconds[name] / watch.total:.0%})" for watch in watches.values())
        rows.append(f"| {name} | {' | '.join(cells)} |")
    rows.append(f"| all | {' | '.join(f'{watch.total:.1f}' for watch in watches.values())} |")
    return rows
