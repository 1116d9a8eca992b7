"""The plain look of `glyphs100` and of the pre-training characters: any ink on any ground, spoiled.

Columns 0 to 23 and 63 of the draws belong to the warp and the font; a look uses those in between.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from promptpool.data.glyphs import drawing
from promptpool.data.glyphs.drawing import (
    SIZE,
    Draws,
    Floats,
    Images,
    Key,
    Labels,
    away,
    blur,
    over,
    ramp,
    rotation,
    smooth,
    stripes,
)
from promptpool.data.glyphs.shapes import Tiles


def plain_images(tiles: Tiles, labels: Labels, keys: Sequence[Key], level: float) -> Images:
    """One image for each label and key: uint8 [n, 3, SIZE, SIZE]."""

    def paint(labels: Labels, draws: Draws) -> Floats:
        ink = drawing.warp(tiles.pixels[drawing.choose(tiles, labels, draws)], draws, level)
        return plain(ink, draws, level)

    return drawing.in_chunks(labels, keys, paint)


def plain(ink: Floats, draws: Draws, level: float) -> Floats:
    """Ink of one colour on a textured ground of another, crossed, blurred, noisy: [B, 3, SIZE, SIZE].

    `level` goes from 0, a clean print, to 1.
    """
    ink = thicken(ink, draws.between(53, -0.1, -0.1 + 0.5 * level))
    ground = _ground(draws, level)
    image = over(ground, _paint(draws, level), ink)
    image = _crossed(image, draws, level)
    image = blur(image, draws.between(52, 0, 0.28 * level)[:, None, None, None])
    noise = draws.between(51, 0.02, 0.42)[:, None, None, None] * np.float32(level)
    noisy: Floats = image + noise * (draws.grain[:, :3] - np.float32(0.5))
    return noisy


def thicken(ink: Floats, amount: Floats) -> Floats:
    """Strokes made thicker, from an `amount`, [B], of 0 on."""
    wide = blur(ink, 0.25)
    cut = (np.float32(0.5) - amount)[:, None, None]
    grown: Floats = np.maximum(ink, np.clip((wide - cut) * np.float32(2.5) + np.float32(0.5), 0, 1))
    return grown


def _base(draws: Draws, level: float) -> Floats:
    """The ground's colour: white at level 0, anything from the middle of the levels on."""
    white = np.float32(1)
    return white + (draws.colour(24) - white) * np.float32(min(1.0, 2 * level))


def _paint(draws: Draws, level: float) -> Floats:
    """The ink's colour: lighter than a dark ground and darker than a light one, by less as it gets harder."""
    base = _base(draws, level)
    contrast = draws.between(57, 0.8 - 0.4 * level, 0.8)[:, None, None, None]
    paint: Floats = base + away(base) * contrast * (np.float32(0.6) + np.float32(0.8) * draws.colour(27))
    return paint


def _ground(draws: Draws, level: float) -> Floats:
    """Two colours that mix in clouds or in stripes, under a slanting light."""
    base = _base(draws, level)
    cloud = smooth(draws.grain[:, 3, :5, :5]) - np.float32(0.5)
    lines = stripes(draws, 33, (4, 14)) - np.float32(0.5)
    striped = (draws.u[:, 36] < 0.35)[:, None, None]
    pattern = np.where(striped, lines * np.float32(0.6), cloud * np.float32(1.3))
    other = (draws.colour(30) - np.float32(0.5)) * np.float32(level)
    light = ramp(draws, 37) * np.float32(0.35 * level)
    ground: Floats = base + other * pattern[:, None] + light[:, None]
    return ground


def _crossed(image: Floats, draws: Draws, level: float) -> Floats:
    """Two thin lines of random colours across the picture, each there half the time at level 1."""
    grid = np.arange(SIZE, dtype=np.float32) - np.float32(SIZE / 2 - 0.5)
    for line in range(2):
        cosine, sine = rotation(draws.between(39 + 3 * line, -1, 1))
        offset = draws.between(40 + 3 * line, -12, 12)[:, None, None]
        distance = np.abs(cosine * grid[None, None, :] + sine * grid[None, :, None] - offset)
        there = (draws.u[:, 41 + 3 * line] < np.float32(0.5 * level))[:, None, None]
        image = over(image, draws.colour(45 + 3 * line), np.clip(np.float32(1.2) - distance, 0, 1) * there)
    return image
