"""How far long work is, told to whoever listens; nobody does unless asked to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")
Listener = Callable[[str, int, int | None], None]  # what is done, how much of it, and how much there is if known

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Tell `listener` of all that is reported meanwhile."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report(what: str, done: int, total: int | None = None) -> None:
    listener = _listener.get()
    if listener is not None:
        listener(what, done, total)


def track(items: Iterable[Item], what: str, total: int | None = None) -> Iterator[Item]:
    """The items, reporting after each."""
    report(what, 0, total)
    for done, item in enumerate(items, start=1):
        yield item
        report(what, done, total)
