"""What values must be. Each check raises a `ValueError` that names the value and says what would be right."""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Integral, Real


def one_of(allowed: Collection[str], **values: object) -> None:
    for name, value in values.items():
        if value not in allowed:
            raise ValueError(f"{name} = {value!r}: must be one of {', '.join(allowed)}")


def at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if value < least:
            raise ValueError(f"{name} = {value}: must be at least {least}")


def at_most(most: int, **values: int) -> None:
    for name, value in values.items():
        if value > most:
            raise ValueError(f"{name} = {value}: must be at most {most}")


def whole_number(least: int, **values: object) -> None:
    for name, value in values.items():
        if not isinstance(value, Integral) or value < least:
            raise ValueError(f"{name} = {value!r}: must be a whole number, at least {least}")


def zero_or_more(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} = {value}: must be 0 or more")


def below_one(**values: float) -> None:
    for name, value in values.items():
        if not isinstance(value, Real) or not 0 <= value < 1:
            raise ValueError(f"{name} = {value!r}: must be 0 or more and below 1")


def inside_zero_one(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < 1:
            raise ValueError(f"{name} = {value}: must be above 0 and below 1")


def above_zero_or_none(**values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not value > 0:
            raise ValueError(f"{name} = {value}: must be above 0, or None not to {name}")


def above_zero(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} = {value}: must be above 0")
