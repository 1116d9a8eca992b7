"""notMNIST, small: `notMNIST_small/{A..J}/*.png`, or `notMNIST_small.tar.gz` as published.

The published archive has two files that are no images, `A/RGVtb2NyYXRpY2FCb2xkT2xkc3R5bGUgQm9sZC50dGY=.png` and
`F/Q3Jvc3NvdmVyIEJvbGRPYmxpcXVlLnR0Zg==.png`: they are entries like the others, and end as skipped files.
"""

from __future__ import annotations

import re
from pathlib import Path

from promptpool.data.images import Entry
from promptpool.data.stores import Store, open_store
from promptpool.errors import BadFileError

LETTERS = tuple("ABCDEFGHIJ")
PLACES = ("notMNIST_small", "notMNIST_small.tar.gz")


def read_notmnist(folder: Path) -> tuple[Store, list[Entry]]:
    """The files of the small set, letter by letter and in the order of their names."""
    places = [folder / place for place in PLACES if (folder / place).exists()]
    if not places:
        raise BadFileError(f"{folder}: notMNIST is not there: put {PLACES[1]} into this folder")
    store = open_store(places[0])
    found = ((name, re.fullmatch(r"(?:notMNIST_small/)?([A-J])/[^/]+\.png", name)) for name in store.names())
    entries = [Entry(name, match[1]) for name, match in found if match]
    if missing := set(LETTERS) - {entry.label for entry in entries}:
        raise BadFileError(f"{places[0]}: has no images of the letter {min(missing)}")
    return store, sorted(entries, key=lambda entry: (entry.label, entry.name))
