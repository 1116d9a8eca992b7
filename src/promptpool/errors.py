"""The one error of our own, and what a user should know about data."""

from __future__ import annotations

MOST_NAMED = 10


class BadFileError(ValueError):
    """A file that cannot be used; the message names the file and what is wrong with it."""


class DataWarning(UserWarning):
    """Something about the data that can be meant, and may well not be."""


class SkippedFilesWarning(DataWarning):
    """Files that were passed over, each with its name and the reason."""

    def __init__(self, skipped: tuple[tuple[str, str], ...]) -> None:
        self.skipped = skipped
        super().__init__(skipped_text(skipped))


def skipped_text(skipped: tuple[tuple[str, str], ...]) -> str:
    """How many files were passed over, and the first of them with their reasons."""
    named = "; ".join(f"{name} ({reason})" for name, reason in skipped[:MOST_NAMED])
    more = f"; and {len(skipped) - MOST_NAMED:,} more" if len(skipped) > MOST_NAMED else ""
    return f"{len(skipped):,} {'file' if len(skipped) == 1 else 'files'} skipped: {named}{more}"
