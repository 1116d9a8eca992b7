"""What values must be. Each check raises a `ValueError` that names the value and says what would be right."""

from __future__ import annotations

import math
from collections.abc import Collection


def one_of(allowed: Collection[str], **values: object) -> None:
    for name, value in values.items():
        if value not in allowed:
            raise ValueError(f"{name} = {value!r}: must be one of {', '.join(allowed)}")


def at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if value < least:
            raise ValueError(f"{name} = {value}: must be at least {least}")


def zero_or_more(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} = {value}: must be 0 or more")


def above_zero(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} = {value}: must be above 0")
