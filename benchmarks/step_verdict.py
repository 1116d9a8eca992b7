"""What `make bench` judges: how fast a step is beside the textbook and beside the floor, and what memory it takes.

A step whose products are by oneDNN is judged beside the textbook that has its own from there, so that what is judged is
the step alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from step_table import (
    BY_ONEDNN,
    FLOOR,
    HALVES,
    ONEDNN,
    OURS,
    TEXTBOOK,
    TEXTBOOK_ONEDNN,
    TORCH,
    Group,
    Library,
    Measured,
    groups,
    memory,
    ratio,
)

# At least so many times as fast as the textbook: with queries kept, and in the first epoch.
FASTER = {"ViT-B/16": 1.75, "ViT-Ti/16": 1.8, "vit-glyphs": 2.0}
FIRST_EPOCH = 1.15
EVALUATION = 2.1
ABOVE_FLOOR = {"ViT-B/16": 1.2, "ViT-Ti/16": 1.5, "vit-glyphs": 3.0}  # at most so many times as long as the floor
MEMORY = 0.7  # at most this share of the textbook's


class Aim(NamedTuple):
    """What was found, and what it should be at least (">=") or at most ("<=")."""

    said: str
    value: float
    sign: str
    bound: float

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.sign == ">=" else self.value <= self.bound


def judged(rows: Sequence[Measured]) -> list[str]:
    """A line for each aim: what was found, what it should be, and whether it is."""
    lines = []
    for (model, what), group in groups(rows).items():
        found = [*_speed_aims(model, what, group, TORCH), *_speed_aims(model, what, group, BY_ONEDNN)]
        for aim in (*found, *_memory_aims(group)):
            met = "yes" if aim.met else "NO "
            lines.append(f"{met:4}{model} {what}: {aim.value:.2f} {aim.said} (aim {aim.sign} {aim.bound})")
        both = ratio(group, ONEDNN, TEXTBOOK)
        lines.append(f"    {model} {what}: {both:.2f} times as fast as the textbook, ours alone by oneDNN")
    return lines


def _speed_aims(model: str, what: str, group: Group, library: Library) -> list[Aim]:
    """Beside the textbook by the same library, so that what is judged is the step; and beside the floor."""
    textbook, faster = f"the textbook{library.said}", ratio(group, library.ours, library.textbook)
    if what == "evaluation":
        return [Aim(f"times as fast as {textbook}", faster, ">=", EVALUATION)]
    if model not in FASTER:
        return []
    early, floors = ratio(group, library.first, library.textbook), ratio(group, FLOOR, library.ours)
    return [
        Aim(f"times as fast as {textbook}", faster, ">=", FASTER[model]),
        Aim(f"times as fast as {textbook}, in the first epoch", early, ">=", FIRST_EPOCH),
        Aim(
            f"times as long as the floor{'' if library is TORCH else f', {library.ours}'}",
            floors,
            "<=",
            ABOVE_FLOOR[model],
        ),
    ]


def _memory_aims(group: Group) -> list[Aim]:
    aims = []
    for who, textbook, said in (
        (OURS, TEXTBOOK, ""),
        (ONEDNN, TEXTBOOK_ONEDNN, BY_ONEDNN.said),
        (HALVES, TEXTBOOK, f", {HALVES}"),
    ):
        part, whole = memory(group, who), memory(group, textbook)
        if part and whole:
            aims.append(Aim(f"of the textbook's memory{said}", part / whole, "<=", MEMORY))
    return aims
