"""The data sets, by name: functions that return what a scenario takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from promptpool.data.datasets.cifar import cifar100
from promptpool.data.datasets.core50 import core50
from promptpool.data.datasets.five import five_datasets
from promptpool.data.datasets.own import own
from promptpool.data.glyphs.sets import glyph_five, glyph_styles, glyphs100, glyphs_validation

DATASETS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "5-datasets": five_datasets,
    "cifar100": cifar100,
    "core50": core50,
    "glyph-five": glyph_five,
    "glyph-styles": glyph_styles,
    "glyphs-validation": glyphs_validation,
    "glyphs100": glyphs100,
    "own": own,
}
