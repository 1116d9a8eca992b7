"""A value that cannot be meant is named, with what would be right."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from promptpool.checks import above_zero, at_least, at_most, below_one, one_of, whole_number, zero_or_more


def test_values_that_can_be_meant_pass() -> None:
    one_of(("near", "far"), distance="far")
    at_least(1, epochs=1, batch_size=16)
    zero_or_more(pull=0.0, strength=3)
    above_zero(rate=1e-8)
    at_most(4, parts=4)
    whole_number(1, top=1)
    below_one(share=0)


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (lambda: one_of(("near", "far"), distance="nigh"), "distance = 'nigh': must be one of near, far"),
        (lambda: at_least(2, outputs=3, recent=1), "recent = 1: must be at least 2"),
        (lambda: at_most(4, parts=5), "parts = 5: must be at most 4"),
        (lambda: whole_number(1, top=0), "top = 0: must be a whole number, at least 1"),
        (lambda: whole_number(1, top=1.5), "top = 1.5: must be a whole number, at least 1"),
        (lambda: whole_number(1, top=None), "top = None: must be a whole number, at least 1"),
        (lambda: below_one(share=1), "share = 1: must be 0 or more and below 1"),
        (lambda: below_one(share="all"), "share = 'all': must be 0 or more and below 1"),  # type: ignore[arg-type]
        (lambda: zero_or_more(pull=-0.5), "pull = -0.5: must be 0 or more"),
        (lambda: zero_or_more(pull=math.inf), "pull = inf: must be 0 or more"),
        (lambda: zero_or_more(pull=math.nan), "pull = nan: must be 0 or more"),
        (lambda: above_zero(rate=0), "rate = 0: must be above 0"),
        (lambda: above_zero(rate=math.nan), "rate = nan: must be above 0"),
    ],
)
def test_others_are_named(check: Callable[[], None], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}$"):
        check()
