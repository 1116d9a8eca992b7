"""CORe50, cropped: `core50_128x128/s{1..11}/o{1..50}/C_ss_oo_fff.png`, or `core50_128x128.zip` as published.

Fifty things held before a camera in eleven sessions, five things of each of ten categories (Lomonaco and Maltoni,
2017). Sessions 3, 7 and 10 are the test set. The 32 x 32 variant has the same layout.
"""

from __future__ import annotations

import re
from pathlib import Path

from promptpool.data.images import Entry
from promptpool.data.stores import Store, open_store
from promptpool.errors import BadFileError

CATEGORIES = (
    *("plug adapter", "mobile phone", "scissor", "light bulb", "can"),
    *("glass", "ball", "marker", "cup", "remote control"),
)
OBJECTS = tuple(f"{category} {number}" for category in CATEGORIES for number in range(1, 6))
SESSIONS = tuple(range(1, 12))
TEST_SESSIONS = (3, 7, 10)
SIZES = (128, 32)  # pixels of the two variants


def read_core50(folder: Path, variant: int = 128) -> tuple[Store, list[Entry]]:
    """The frames in the order of session, object and time; the group is the session."""
    if variant not in SIZES:
        raise ValueError(f"variant = {variant}: must be 128 or 32")
    name = f"core50_{variant}x{variant}"
    places = [folder / place for place in (name, f"{name}.zip") if (folder / place).exists()]
    if not places:
        known = "core50-32" if variant == 32 else "core50"
        raise BadFileError(f"{folder}: CORe50 is not there; put {name}.zip here, or `promptpool data get {known}`")
    store = open_store(places[0])
    frames = sorted(frame for path in store.names() if (frame := _frame(path, name)) is not None)
    if not frames:
        raise BadFileError(f"{places[0]}: has no frames such as s1/o1/C_01_01_000.png")
    return store, [
        Entry(path, OBJECTS[thing - 1], f"s{session}", "test" if session in TEST_SESSIONS else "train")
        for session, thing, _, path in frames
    ]


def _frame(path: str, name: str) -> tuple[int, int, int, str] | None:
    """Session, object, number of the frame and its path; None for other files."""
    match = re.fullmatch(rf"(?:{name}/)?s(\d+)/o(\d+)/C_(\d\d)_(\d\d)_(\d+)\.png", path)
    if match is None:
        return None
    session, thing, *named = (int(number) for number in match.groups())
    if [session, thing] != named[:2] or session not in SESSIONS or not 1 <= thing <= len(OBJECTS):
        return None
    return session, thing, named[2], path
