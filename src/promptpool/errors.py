"""The one error of our own."""

from __future__ import annotations


class BadFileError(ValueError):
    """A file that cannot be used; the message names the file and what is wrong with it."""
