"""CORe50, cropped: `core50_128x128/s{1..11}/o{1..50}/C_ss_oo_fff.png`, or `core50_128x128.zip` as published.

Fifty things held before a camera in eleven sessions, five things of each of ten categories (Lomonaco and Maltoni,
2017). Sessions 3, 7 and 10 are the test set. The 32 x 32 variant has the same layout.

It becomes a stream of domains: one session after the other, judged on three sessions never trained on.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import torch

from promptpool.data.images import ImageFile, read_images
from promptpool.data.scenarios import DomainSet
from promptpool.data.sets.published import Contents, Published, Remote
from promptpool.data.stores import Store, open_store
from promptpool.data.stream import Notes
from promptpool.errors import BadFileError
from promptpool.files import data_folder

CATEGORIES = (
    *("plug adapter", "mobile phone", "scissor", "light bulb", "can"),
    *("glass", "ball", "marker", "cup", "remote control"),
)
OBJECTS = tuple(f"{category} {number}" for category in CATEGORIES for number in range(1, 6))
SESSIONS = tuple(range(1, 12))
TEST_SESSIONS = (3, 7, 10)
SIZES = (128, 32)  # pixels of the two variants


def core50(*, variant: int = 128, train_per_class: int | None = None, test_per_class: int | None = None) -> DomainSet:
    """Fifty things in eleven sessions; the numbers are for each thing in each session, spread evenly over time."""
    for name, value in (("train_per_class", train_per_class), ("test_per_class", test_per_class)):
        if value is not None and value < 1:
            raise ValueError(f"{name} = {value}: must be at least 1")
    small = data_folder() / "core50-32"  # where `promptpool data get core50-32` puts it
    folder = small if variant == 32 and small.is_dir() else data_folder() / "core50"
    store, entries = core50_files(folder, variant)
    series: dict[tuple[str, str], list[ImageFile]] = {}
    for entry in entries:
        series.setdefault((entry.group, entry.label), []).append(entry)
    for session in SESSIONS:
        for thing in OBJECTS:
            if (f"s{session}", thing) not in series:
                raise BadFileError(f"{store.where}: not all of CORe50: session {session} has no {thing}")
    counts = {"train": train_per_class, "test": test_per_class}
    chosen = [entry for frames in series.values() for entry in _spread(frames, counts[frames[0].split])]
    decoded = read_images(store, chosen, size=variant)
    found = decoded.examples(OBJECTS)
    sessions = torch.tensor([int(entry.group[1:]) for entry in decoded.entries])
    tested = torch.isin(sessions, torch.tensor(TEST_SESSIONS))
    return DomainSet(
        tuple(found.select(sessions == session) for session in SESSIONS if session not in TEST_SESSIONS),
        found.select(tested),
        OBJECTS,
        Notes(decoded.skipped),
    )


def core50_files(folder: Path, variant: int = 128) -> tuple[Store, list[ImageFile]]:
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
        ImageFile(path, OBJECTS[thing - 1], f"s{session}", "test" if session in TEST_SESSIONS else "train")
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


def _spread(frames: list[ImageFile], count: int | None) -> list[ImageFile]:
    """`count` frames at even distances, all where there are no more."""
    if count is None or count >= len(frames):
        return frames
    return [frames[i * len(frames) // count] for i in range(count)]


def _contents(folder: Path, variant: int) -> Contents:
    _, entries = core50_files(folder, variant)
    tested = sum(entry.split == "test" for entry in entries)
    return Contents(len(entries) - tested, tested, len({entry.label for entry in entries}))


PUBLISHED = {
    "core50": Published(
        title="CORe50",
        home="https://vlomonaco.github.io/core50/",
        licence="CC BY 4.0",
        classes=50,
        train=119_894,
        test=44_972,
        files=(
            Remote(
                "core50_128x128.zip",
                ("http://bias.csr.unibo.it/maltoni/download/core50/core50_128x128.zip",),
                5_892_103_007,
                "745f3373fed08d69343f1058ee559e13",
                holds=("core50_128x128",),
            ),
        ),
        contents=partial(_contents, variant=128),
    ),
    "core50-32": Published(
        title="CORe50 32x32",
        home="https://vlomonaco.github.io/core50/",
        licence="CC BY 4.0",
        classes=50,
        train=119_894,
        test=44_972,
        files=(
            Remote(
                "core50_32x32.zip",
                ("http://vps.continualai.org/data/core50_32x32.zip",),
                None,  # neither the publisher nor anyone else gives one
                "d89d34cdc0281fa84074430e9a22b728",
                holds=("core50_32x32",),
            ),
        ),
        contents=partial(_contents, variant=32),
    ),
}
