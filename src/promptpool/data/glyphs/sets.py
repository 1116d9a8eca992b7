"""The three sets, in the shapes of the paper's benchmarks.

| set | classes | stands for | stream |
|---|---|---|---|
| `glyphs100` | 100 characters | CIFAR-100 | `class_incremental(*set, tasks=10)` or `gaussian_schedule` |
| `glyph_styles` | 50 characters, 8 styles to train on and 3 to test | CORe50 | `domain_incremental(*set)` |
| `glyph_five` | 5 unlike sets of 10 | 5-datasets | `class_incremental(*set, tasks=5)` |

`glyphs_validation` is like `glyphs100` in other characters: hyper-parameters are chosen there.

Image i of a class is the same however many are asked for, and whatever else is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from promptpool.checks import at_least
from promptpool.data.glyphs import drawing
from promptpool.data.glyphs.cache import cached
from promptpool.data.glyphs.characters import FIVE, GLYPHS_100, STYLED_50, VALIDATION
from promptpool.data.glyphs.drawing import Images, Key, Labels
from promptpool.data.glyphs.five import SCENES
from promptpool.data.glyphs.looks import plain_images
from promptpool.data.glyphs.shapes import tiles
from promptpool.data.glyphs.styles import STYLES, styled
from promptpool.data.scenarios import DomainSet, LabelledSet
from promptpool.data.stream import examples

LEVEL = 1.0  # the difficulty of `glyphs100`, the one at which pre-training ends
STYLES_TO_TEST = ("embossed", "mosaic", "hatched")
SETS = {
    "glyphs100": 1,
    "glyph-styles": 2,
    "glyph-five": 3,
    "glyphs-validation": 4,
}  # the second number of an image's key
TRAIN, TEST = 0, 1  # the third


def glyphs100(*, train_per_class: int = 100, test_per_class: int = 50, seed: int = 0) -> LabelledSet:
    """One hundred characters, any ink on any ground."""
    return _plain_set("glyphs100", GLYPHS_100, _checked(train_per_class, test_per_class, seed), seed)


def glyphs_validation(*, train_per_class: int = 100, test_per_class: int = 50, seed: int = 0) -> LabelledSet:
    """Other characters drawn as in glyphs100, to choose hyper-parameters on."""
    return _plain_set("glyphs-validation", VALIDATION, _checked(train_per_class, test_per_class, seed), seed)


def _plain_set(name: str, characters: str, counts: tuple[int, int], seed: int) -> LabelledSet:
    def draw(split: int) -> Images:
        labels, indices = _grid(len(characters), counts[split])
        keys = _keys(name, split, seed, characters, labels, indices)
        return plain_images(tiles(characters), labels, keys, LEVEL)

    described = {"characters": characters, "level": LEVEL, "counts": counts, "seed": seed}
    return _drawn_set(name, described, draw, counts, tuple(characters))


def glyph_styles(*, train_per_class: int = 20, test_per_class: int = 20, seed: int = 0) -> DomainSet:
    """Fifty characters in eleven styles; the numbers are for each class in each style."""
    counts = _checked(train_per_class, test_per_class, seed)
    split_of = {style: TEST if style in STYLES_TO_TEST else TRAIN for style in STYLES}

    def draw(style: str) -> Images:
        labels, indices = _grid(len(STYLED_50), counts[split_of[style]])
        number = list(STYLES).index(style)
        keys = _keys("glyph-styles", split_of[style], seed, STYLED_50, labels, indices, number)
        return drawing.in_chunks(labels, keys, partial(styled, STYLES[style], tiles(STYLED_50)))

    images = cached(
        "glyph-styles",
        {"characters": STYLED_50, "styles": split_of, "counts": counts, "seed": seed},
        lambda: {style: draw(style) for style in STYLES},
    )
    labels = [_grid(len(STYLED_50), n)[0] for n in counts]
    domains = tuple(examples(images[style], labels[TRAIN]) for style, split in split_of.items() if split == TRAIN)
    test = examples(
        np.concatenate([images[style] for style in STYLES_TO_TEST]),
        np.tile(labels[TEST], len(STYLES_TO_TEST)),
    )
    return DomainSet(domains, test, tuple(STYLED_50))


def glyph_five(*, train_per_class: int = 100, test_per_class: int = 50, seed: int = 0) -> LabelledSet:
    """Street numbers, Greek in chalk, game pieces, road signs, printed cloth: ten of each, in turn."""
    counts = _checked(train_per_class, test_per_class, seed)

    def draw(split: int) -> Images:
        parts = []
        for number, (name, characters) in enumerate(FIVE.items()):
            labels, indices = _grid(len(characters), counts[split])
            keys = _keys("glyph-five", split, seed, characters, labels, indices, number)
            parts.append(drawing.in_chunks(labels, keys, partial(SCENES[name], tiles(characters))))
        return np.concatenate(parts)

    names = tuple(f"{name} {character}" for name, characters in FIVE.items() for character in characters)
    return _drawn_set("glyph-five", {"characters": FIVE, "counts": counts, "seed": seed}, draw, counts, names)


def _drawn_set(
    name: str,
    described: dict[str, object],
    draw: Callable[[int], Images],
    counts: tuple[int, int],
    class_names: tuple[str, ...],
) -> LabelledSet:
    images = cached(name, described, lambda: {"train": draw(TRAIN), "test": draw(TEST)})
    train, test = (
        examples(images[split], _grid(len(class_names), count)[0])
        for split, count in zip(("train", "test"), counts, strict=True)
    )
    return LabelledSet(train, test, class_names)


def _grid(classes: int, each: int) -> tuple[Labels, Labels]:
    """The label of every image and its number within its class, class by class."""
    return np.repeat(np.arange(classes), each), np.tile(np.arange(each), classes)


def _keys(name: str, split: int, seed: int, characters: str, labels: Labels, indices: Labels, *more: int) -> list[Key]:
    points = [ord(character) for character in characters]
    head = (seed, SETS[name], split, *more)
    return [(*head, points[label], index) for label, index in zip(labels.tolist(), indices.tolist(), strict=True)]


def _checked(train_per_class: int, test_per_class: int, seed: int) -> tuple[int, int]:
    at_least(1, train_per_class=train_per_class, test_per_class=test_per_class)
    at_least(0, seed=seed)
    return train_per_class, test_per_class
