"""A worker that dies whatever it is given."""

from __future__ import annotations

import os


def dies(line: object, threads: int, number: int) -> None:
    del line, threads, number
    os._exit(9)
