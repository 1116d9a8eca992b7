"""CORe50 as a stream of domains: one session after the other, judged on three sessions never trained on."""

from __future__ import annotations

import torch

from promptpool.data.images import Entry, read_images
from promptpool.data.readers.core50 import OBJECTS, SESSIONS, TEST_SESSIONS, read_core50
from promptpool.data.sets import DomainSet
from promptpool.errors import BadFileError
from promptpool.files import data_folder


def core50(*, variant: int = 128, train_per_class: int | None = None, test_per_class: int | None = None) -> DomainSet:
    """Fifty things in eleven sessions; the numbers are for each thing in each session, spread evenly over time."""
    for name, value in (("train_per_class", train_per_class), ("test_per_class", test_per_class)):
        if value is not None and value < 1:
            raise ValueError(f"{name} = {value}: must be at least 1")
    small = data_folder() / "core50-32"  # where `promptpool data get core50-32` puts it
    folder = small if variant == 32 and small.is_dir() else data_folder() / "core50"
    store, entries = read_core50(folder, variant)
    series: dict[tuple[str, str], list[Entry]] = {}
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
    )


def _spread(frames: list[Entry], count: int | None) -> list[Entry]:
    """`count` frames at even distances, all where there are no more."""
    if count is None or count >= len(frames):
        return frames
    return [frames[i * len(frames) // count] for i in range(count)]
