"""The data sets, by name, and what is known of those that are published.

One file for each published set says where it is, how its files are read and what it becomes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from promptpool.data.glyphs.sets import glyph_five, glyph_styles, glyphs100, glyphs_validation
from promptpool.data.own.own import own
from promptpool.data.sets import cifar, core50, five, mnist, notmnist, svhn
from promptpool.data.sets.published import Published

# Functions that return what a scenario takes.
DATASETS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "5-datasets": five.five_datasets,
    "cifar100": cifar.cifar100,
    "core50": core50.core50,
    "glyph-five": glyph_five,
    "glyph-styles": glyph_styles,
    "glyphs-validation": glyphs_validation,
    "glyphs100": glyphs100,
    "own": own,
}
# What `promptpool data` gets and checks.
PUBLISHED: dict[str, Published] = {
    **cifar.PUBLISHED,
    **mnist.PUBLISHED,
    **svhn.PUBLISHED,
    **notmnist.PUBLISHED,
    **core50.PUBLISHED,
}
