"""Errors of our own, and how skipped files are told of."""

from __future__ import annotations

from collections.abc import Sequence

MOST_NAMED = 10


class BadFileError(ValueError):
    """A file that cannot be used; the message names the file and what is wrong with it."""


class UnfitError(ValueError):
    """Something that does not fit the data, as shows while they are learned; the message says what."""


def skipped_text(skipped: Sequence[tuple[str, str]]) -> str:
    """How many files were skipped, and the first of them with their reasons."""
    named = "; ".join(f"{name} ({reason})" for name, reason in skipped[:MOST_NAMED])
    more = f"; and {len(skipped) - MOST_NAMED:,} more" if len(skipped) > MOST_NAMED else ""
    return f"{len(skipped):,} {'file' if len(skipped) == 1 else 'files'} skipped: {named}{more}"
