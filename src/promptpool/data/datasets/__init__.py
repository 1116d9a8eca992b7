"""The data sets, by name: functions that return training data, a test set and class names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from promptpool.data.datasets.core50 import core50
from promptpool.data.datasets.own import own
from promptpool.data.glyphs.sets import glyph_five, glyph_styles, glyphs100, glyphs_validation

DATASETS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "core50": core50,
    "glyph-five": glyph_five,
    "glyph-styles": glyph_styles,
    "glyphs-validation": glyphs_validation,
    "glyphs100": glyphs100,
    "own": own,
}
