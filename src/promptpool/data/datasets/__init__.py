"""The data sets, by name: functions that return training data, a test set and class names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from promptpool.data.glyphs.sets import glyph_five, glyph_styles, glyphs100, glyphs_validation

DATASETS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "glyph-five": glyph_five,
    "glyph-styles": glyph_styles,
    "glyphs-validation": glyphs_validation,
    "glyphs100": glyphs100,
}
