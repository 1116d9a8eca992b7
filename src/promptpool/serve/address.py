"""The note that a server leaves in the classifier's folder, so that others find it; it holds no token."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from promptpool.classifier import files
from promptpool.errors import BadFileError
from promptpool.files import write_whole

NOTE = "server.json"


@dataclass(frozen=True)
class Running:
    """A server of a classifier; whoever may read its token file may ask it."""

    address: str
    pid: int
    token_file: str | None = None

    def token(self) -> str | None:
        """The token that the server wants."""
        if self.token_file is None:
            return None
        try:
            return Path(self.token_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadFileError(f"{self.token_file}: the server's token cannot be read ({error})") from error


def leave_note(folder: Path, address: str, token_file: Path | None) -> None:
    note = Running(address, os.getpid(), None if token_file is None else str(token_file.resolve()))
    write_whole(folder / NOTE, json.dumps(asdict(note), indent=2).encode())


def take_note(folder: Path) -> None:
    (folder / NOTE).unlink(missing_ok=True)


def server_of(folder: Path) -> Running | None:
    """The server that has this classifier at present, if there is one."""
    try:
        found = Running(**json.loads((folder / NOTE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    try:
        with files.alone(folder):
            return None  # one that was killed left its note
    except BadFileError:
        return found
