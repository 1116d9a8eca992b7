"""Five unlike sets of ten, as 5-datasets are: each has its own characters, look and composition.

A scene takes the tiles of its ten characters, labels and draws, and returns colours, [B, 3, SIZE, SIZE].
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from promptpool.data.glyphs.drawing import (
    SIZE,
    Draws,
    Floats,
    Labels,
    away,
    blur,
    choose,
    over,
    ramp,
    rotation,
    sample,
    smooth,
    stripes,
    warp,
)
from promptpool.data.glyphs.looks import thicken
from promptpool.data.glyphs.shapes import TILE, Tiles
from promptpool.data.glyphs.styles import chalk

Scene = Callable[[Tiles, Labels, Draws], Floats]


def street_number(tiles: Tiles, labels: Labels, draws: Draws) -> Floats:
    """A digit on a house, cropped close, with parts of its neighbours at its sides; blurred, unevenly lit."""
    figure = warp(tiles.pixels[choose(tiles, labels, draws)], draws, 0.7, scale=(0.7, 1.0))
    for side, column in ((-1, 24), (1, 25)):
        beside = (draws.u[:, column] * len(tiles.first)).astype(np.int64)
        pixels = tiles.pixels[choose(tiles, beside, draws)]
        grid = _centred()
        x = (grid[None, None, :] - np.float32(side) * draws.between(26, 17, 20)[:, None, None]) * np.float32(2.3)
        x, y = np.broadcast_arrays(x, grid[None, :, None] * np.float32(2.3))
        figure = np.maximum(figure, sample(pixels, x, y))
    wall, light = draws.colour(27, 0.15, 0.85), ramp(draws, 30)[:, None] * np.float32(0.5)
    paint = wall + away(wall) * (np.float32(0.22) + np.float32(0.5) * draws.colour(33))
    picture = over(wall + light, paint + light, figure)
    picture = blur(blur(picture, draws.between(36, 0, 0.33)[:, None, None, None]), 0.15)
    seen: Floats = picture + np.float32(0.16) * (draws.grain[:, :3] - np.float32(0.5))
    return seen


def blackboard(tiles: Tiles, labels: Labels, draws: Draws) -> Floats:
    """A letter in chalk, slanted and half wiped."""
    ink = warp(tiles.pixels[choose(tiles, labels, draws)], draws, 1.0, scale=(0.6, 1.15))
    wiped = np.clip(smooth(draws.grain[:, 0, :4, :4]) * np.float32(2.2) - np.float32(0.25), np.float32(0.15), 1)
    return chalk(ink * wiped, draws)


def game_piece(tiles: Tiles, labels: Labels, draws: Draws) -> Floats:
    """A small white or black piece on a board of turned wooden squares."""
    grid = _centred()
    cosine, sine = rotation(draws.between(24, -0.2, 0.2))
    side = draws.between(25, 13, 19)[:, None, None]
    x, y = grid[None, None, :], grid[None, :, None]
    column = np.floor((cosine * x + sine * y) / side + draws.between(26, 0.3, 0.7)[:, None, None])
    row = np.floor((cosine * y - sine * x) / side + draws.between(27, 0.3, 0.7)[:, None, None])
    dark_square = ((column + row) % 2).astype(np.float32)
    wood = np.float32(0.12) * (stripes(draws, 28, (2, 5)) - np.float32(0.5))
    pale, brown = _colour(0.86, 0.72, 0.50), _colour(0.48, 0.29, 0.16)
    board = over(pale, brown, dark_square) + wood[:, None] + draws.colour(31, -0.08, 0.08)
    ink = warp(tiles.pixels[choose(tiles, labels, draws)], draws, 1.0, scale=(0.5, 0.8))
    white = (draws.u[:, 34] < 0.5)[:, None, None, None]
    body = np.where(white, _colour(0.95, 0.92, 0.85), _colour(0.08, 0.07, 0.07))
    rim = np.where(white, _colour(0.15, 0.1, 0.08), _colour(0.7, 0.6, 0.5))
    around = np.clip(blur(ink, 0.33) * np.float32(2.2), 0, 1)
    noise = np.float32(0.14) * (draws.grain[:, :3] - np.float32(0.5))
    return over(over(board, rim, around * np.float32(0.8)), body, ink) + noise


def road_sign(tiles: Tiles, labels: Labels, draws: Draws) -> Floats:
    """An arrow on a round, square or diamond plate before a landscape, in sun or dusk."""
    grid = _centred()
    x = grid[None, None, :] - draws.between(4, -3, 3)[:, None, None]  # the arrow moves by the same draws
    y = grid[None, :, None] - draws.between(5, -3, 3)[:, None, None]
    across, down = np.abs(x), np.abs(y)
    kind = draws.u[:, 24, None, None]
    distance = np.where(
        kind < 0.34,
        np.sqrt(x * x + y * y),
        np.where(kind < 0.67, np.maximum(across, down) * np.float32(1.1), (across + down) * np.float32(0.8)),
    )
    radius = draws.between(25, 10.5, 13)[:, None, None]
    plate, border = np.clip(radius - distance, 0, 1), np.clip(radius + np.float32(1.6) - distance, 0, 1)
    horizon = draws.between(26, -6, 8)[:, None, None]
    hills = np.clip(
        grid[None, :, None] - horizon + np.float32(8) * (smooth(draws.grain[:, 3, :5, :5]) - np.float32(0.5)),
        0,
        1,
    )
    scene = over(
        _colour(0.55, 0.72, 0.92) + draws.colour(27, -0.2, 0.1),
        _colour(0.25, 0.42, 0.18) + draws.colour(30, -0.15, 0.15),
        hills,
    )
    choice = (draws.u[:, 33] * 4).astype(np.int64)
    face = _table((0.08, 0.25, 0.70), (0.95, 0.78, 0.10), (0.05, 0.45, 0.25), (0.93, 0.93, 0.93))[choice]
    mark = _table((0.96, 0.96, 0.96), (0.08, 0.08, 0.08), (0.96, 0.96, 0.96), (0.75, 0.08, 0.08))[choice]
    ink = warp(tiles.pixels[choose(tiles, labels, draws)], draws, 1.0, scale=(0.5, 0.66))
    picture = over(over(scene, mark, border), face, plate)
    picture = over(picture, mark, thicken(ink, draws.between(34, 0.0, 0.2)))
    light = draws.between(35, 0.35, 1.1)[:, None, None, None]
    seen: Floats = blur(picture * light, 0.12) + np.float32(0.22) * (draws.grain[:, :3] - np.float32(0.5))
    return seen


def fabric(tiles: Tiles, labels: Labels, draws: Draws) -> Floats:
    """A cloth printed all over with one small motif, every other row shifted."""
    grid = _centred()
    cosine, sine = rotation(draws.between(0, -0.3, 0.3))
    x = cosine * grid[None, None, :] + sine * grid[None, :, None]
    y: Floats = cosine * grid[None, :, None] - sine * grid[None, None, :]
    period = draws.between(1, 11, 17)[:, None, None]
    down = y / period + draws.u[:, 2, None, None]
    row = np.floor(down)
    across: Floats = x / period + draws.u[:, 3, None, None] + np.float32(0.5) * (row % 2)
    motif_x: Floats = (across - np.floor(across) - np.float32(0.5)) * np.float32(TILE)
    motif_y = (down - row - np.float32(0.5)) * np.float32(TILE)
    ink = sample(tiles.pixels[choose(tiles, labels, draws)], motif_x, motif_y)
    weave = np.float32(0.12) * (stripes(draws, 33, (2, 3)) - np.float32(0.5))
    cloth = draws.colour(24)
    print_ = cloth + away(cloth) * (np.float32(0.3) + np.float32(0.5) * draws.colour(27))
    folds = np.float32(0.5) * (smooth(draws.grain[:, 3, :4, :4]) - np.float32(0.5))
    return (
        over(cloth, print_, ink) + (weave + folds)[:, None] + np.float32(0.12) * (draws.grain[:, :3] - np.float32(0.5))
    )


def _centred() -> Floats:
    return np.arange(SIZE, dtype=np.float32) - np.float32(SIZE / 2 - 0.5)


def _colour(red: float, green: float, blue: float) -> Floats:
    return _table((red, green, blue))


def _table(*colours: tuple[float, float, float]) -> Floats:
    return np.array(colours, dtype=np.float32)[:, :, None, None]


SCENES: dict[str, Scene] = {
    "digits": street_number,
    "greek": blackboard,
    "pieces": game_piece,
    "arrows": road_sign,
    "fabric": fabric,
}
