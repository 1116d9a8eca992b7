"""The command `promptpool`: verbs only, one file each."""

from promptpool.cli.main import app

__all__ = ["app"]
