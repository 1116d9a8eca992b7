"""Which column of a table is the picture, which its label, from the names that people give them.

Case does not matter. Where several names fit, the first of `PICTURES` or `LABELS` is taken; which it was, and which
columns were not read, is said.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from promptpool.data.decoding import image_suffixes
from promptpool.errors import MOST_NAMED, BadFileError

PICTURES = ("path", "filepath", "file", "filename", "file_name", "image")
LABELS = ("label", "class", "category", "target")  # words before numbers, where a table has both
OTHERS = ("task", "domain", "split")
LONGEST_SHOWN = 40  # characters of a cell in a message


class Columns(NamedTuple):
    """What the columns of a table hold: path, label, task, domain, split, or "" for one that is not read."""

    meant: tuple[str, ...]
    named: bool  # the first line names them, and is no row
    notes: tuple[str, ...] = ()


def columns_of(path: Path, line: int, cells: Sequence[str]) -> Columns:
    """The columns of a table by its first line that is not blank."""
    names = [cell.lower() for cell in cells]
    if not {*PICTURES, *LABELS} & set(names) or any(map(_is_picture, cells)):
        _check_row(path, line, cells)
        return Columns(("path", "label"), named=False)
    for name in (*PICTURES, *LABELS, *OTHERS):
        if names.count(name) > 1:
            raise BadFileError(f"{path}: line {line}: column {name!r} twice")
    if {"task", "domain"} <= set(names):
        raise BadFileError(f"{path}: line {line}: columns task and domain; one of them groups the images, not both")
    meant = {name: name for name in OTHERS}
    for known, what, own in ((PICTURES, "path", "the picture"), (LABELS, "label", "its label")):
        taken = next((name for name in known if name in names), None)
        if taken is None:
            raise BadFileError(
                f"{path}: line {line}: no column for {own}: there are {_quoted(cells)}; "
                f"any of {', '.join(known)} would do"
            )
        meant[taken] = what
    found = tuple(meant.get(name, "") for name in names)
    return Columns(found, True, tuple(_notes(cells, found)))


def _is_picture(cell: str) -> bool:
    """True for what is called like a picture, so that a line with it does not name columns."""
    return PurePosixPath(cell.replace("\\", "/")).suffix.lower() in image_suffixes()


def _check_row(path: Path, line: int, cells: Sequence[str]) -> None:
    """Column names that are not known must not pass for a picture."""
    if not PurePosixPath(cells[0]).suffix and not os.path.isfile(path.parent / cells[0]):
        raise BadFileError(
            f"{path}: line {line}: {_quoted(cells)}: neither a picture and its label nor columns that are known; "
            f"for the picture any of {', '.join(PICTURES)} would do, for its label any of {', '.join(LABELS)}"
        )
    if len(cells) > 2:
        raise BadFileError(
            f"{path}: line {line}: {len(cells)} columns and no line that names them; "
            "expected path, label and perhaps task or domain, split"
        )


def _notes(cells: Sequence[str], meant: Sequence[str]) -> Iterator[str]:
    """Which of several columns was taken, and which were not read."""
    for known, what in ((PICTURES, "path"), (LABELS, "label")):
        fitting = [cell for cell in cells if cell.lower() in known]
        if len(fitting) > 1:
            taken = cells[meant.index(what)]
            yield f"each of the columns {_quoted(fitting)} could be the {what}: {taken!r} was taken"
    rest = [cell for cell, what in zip(cells, meant, strict=True) if cell and not what]
    if unread := [cell for cell in rest if cell.lower() not in (*PICTURES, *LABELS)]:
        yield f"columns that were not read: {_quoted(unread)}"


def _quoted(cells: Sequence[str]) -> str:
    shown = [cell if len(cell) <= LONGEST_SHOWN else f"{cell[:LONGEST_SHOWN]}..." for cell in cells[:MOST_NAMED]]
    return ", ".join(map(repr, shown)) + (f" and {len(cells) - MOST_NAMED} more" if len(cells) > MOST_NAMED else "")
