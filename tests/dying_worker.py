"""A worker that dies whatever it is given."""

from __future__ import annotations

import os


def dies(line: object, threads: int) -> None:
    del line, threads
    os._exit(9)
