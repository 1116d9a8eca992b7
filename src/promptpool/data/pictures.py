"""Pictures that are read when they are needed."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """A picture of a store and what is said about it."""

    name: str
    label: str
    group: str = ""  # task or domain
    split: str = ""  # train, test or, where it is not said, empty
