"""Eleven ways to draw the same character, as unlike as the sessions of CORe50 are in light and place.

A style takes ink, [B, SIZE, SIZE] in 0..1, and draws, and returns colours, [B, 3, SIZE, SIZE].
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from promptpool.data.glyphs.drawing import (
    SIZE,
    Draws,
    Floats,
    Labels,
    blur,
    choose,
    over,
    ramp,
    smooth,
    stripes,
    warp,
)
from promptpool.data.glyphs.looks import thicken
from promptpool.data.glyphs.shapes import Tiles

Style = Callable[[Floats, Draws], Floats]


def wet_ink(ink: Floats, draws: Draws) -> Floats:
    """A blue or black pen on cream paper; the ink bleeds along the fibres."""
    fibres = blur(draws.grain[:, 3], 0.25)
    wide = blur(blur(ink, 0.25), 0.2)
    bled = np.maximum(ink, np.clip((wide + np.float32(0.9) * (fibres - np.float32(0.5)) - np.float32(0.3)) * 3, 0, 1))
    paper = _colour(0.96, 0.92, 0.80) - np.float32(0.10) * fibres[:, None]
    pen = _colour(0.06, 0.07, 0.14) + draws.colour(24, 0, 0.12) + _colour(0, 0.02, 0.3) * draws.colour(27)
    return over(paper, pen, bled * (np.float32(0.82) + np.float32(0.18) * fibres))


def chalk(ink: Floats, draws: Draws) -> Floats:
    """Pale crumbling strokes on a wiped green or black board."""
    board = _colour(0.10, 0.24, 0.19) + draws.colour(24, -0.06, 0.06)
    wiped = smooth(draws.grain[:, 3, :5, :5])[:, None] * np.float32(0.16)
    crumbs = np.clip((draws.grain[:, 2] - np.float32(0.15)) * np.float32(2.0), 0, 1)
    stick = _colour(0.86, 0.86, 0.84) + draws.colour(27, -0.25, 0.14)
    return over(board + wiped, stick, thicken(ink, draws.between(30, 0.0, 0.2)) * crumbs)


def neon(ink: Floats, draws: Draws) -> Floats:
    """A white-hot tube and its coloured halo in the night."""
    halo = thicken(ink, draws.between(33, 0.0, 0.1))
    for _ in range(5):
        halo = blur(halo, 0.3)
    tube = _vivid(draws, 24)
    night = _colour(0.03, 0.02, 0.07) + draws.colour(27, 0, 0.06)
    glow = night + tube * np.clip(halo * np.float32(1.5), 0, 1)[:, None]
    return over(glow, np.float32(0.75) + np.float32(0.25) * tube, ink * np.float32(0.9))


def embossed(ink: Floats, draws: Draws) -> Floats:
    """A relief pressed in paper or metal of one colour, seen by light from a corner."""
    raised = blur(ink, 0.22)
    slope = _moved(raised, -1, -1) - _moved(raised, 1, 1)
    sheet = np.float32(0.55) + draws.colour(24, -0.14, 0.14) + np.float32(0.2) * ramp(draws, 27)[:, None]
    rough = np.float32(0.05) * (draws.grain[:, 3] - np.float32(0.5))
    relief: Floats = sheet + (rough - np.float32(0.62) * slope)[:, None]
    return relief


def stencil(ink: Floats, draws: Draws) -> Floats:
    """Sprayed on board or concrete through a plate whose bridges leave gaps."""
    grid = np.arange(SIZE, dtype=np.float32)[None, None, :]
    bridge = np.abs(grid - draws.between(33, 12, 19)[:, None, None])
    open_ = np.clip(bridge - np.float32(0.9), 0, 1)
    mist = ink
    for _ in range(3):
        mist = blur(mist, 0.3)
    specks = (draws.grain[:, 3] < np.float32(0.55) * mist + np.float32(0.015)).astype(np.float32)
    wall = _colour(0.66, 0.58, 0.46) + draws.colour(24, -0.1, 0.1)
    wall = wall + np.float32(0.22) * (blur(draws.grain[:, :1], 0.25) - np.float32(0.5))
    spray = _colour(0.70, 0.10, 0.06) * draws.between(27, 0.2, 1.1)[:, None, None, None] + draws.colour(28, 0, 0.12)
    return over(wall, spray, np.maximum(thicken(ink, draws.between(34, 0.0, 0.1)) * open_, specks * np.float32(0.7)))


def halftone(ink: Floats, draws: Draws) -> Floats:
    """Newspaper dots, fat where there is ink, in two bright colours."""
    x, y = np.meshgrid(np.arange(SIZE, dtype=np.float32), np.arange(SIZE, dtype=np.float32))
    shift = draws.between(33, 0, 4)[:, None, None]
    across, down = (x[None] + y[None] + shift) / np.float32(4), (x[None] - y[None] + shift) / np.float32(4)
    near_x, near_y = (
        np.abs(across - np.floor(across) - np.float32(0.5)),
        np.abs(down - np.floor(down) - np.float32(0.5)),
    )
    distance = np.sqrt(near_x * near_x + near_y * near_y)
    radius = np.float32(0.14) + np.float32(0.38) * thicken(ink, draws.between(34, 0.05, 0.2))
    dots = np.clip((radius - distance) * np.float32(5) + np.float32(0.5), 0, 1)
    return over(np.float32(1) - np.float32(0.25) * draws.colour(24), _vivid(draws, 27) * np.float32(0.75), dots)


def outline(ink: Floats, draws: Draws) -> Floats:
    """A comic book's black contour around a bright fill, on a flat bright page."""
    body = thicken(ink, draws.between(33, 0.15, 0.25))
    wide = blur(body, 0.33)
    around = np.clip(wide * np.float32(3.5), 0, 1)
    page = over(_vivid(draws, 24), _colour(0.04, 0.04, 0.05), around)
    return over(page, np.float32(1) - np.float32(0.35) * draws.colour(27), np.clip(body * 2 - np.float32(0.9), 0, 1))


def mosaic(ink: Floats, draws: Draws) -> Floats:
    """Small stones of uneven colour set in mortar, two pixels to a stone."""
    body = thicken(ink, draws.between(33, 0.05, 0.2))
    stones = (body[:, ::2, ::2] + body[:, 1::2, ::2] + body[:, ::2, 1::2] + body[:, 1::2, 1::2]) * np.float32(0.25)
    figure = np.clip((stones - np.float32(0.5)) * 4 + np.float32(0.5), 0, 1)
    light = _colour(0.88, 0.80, 0.62) + draws.colour(24, -0.1, 0.1)
    dark = _colour(0.10, 0.22, 0.42) + draws.colour(27, -0.1, 0.3)
    laid = over(light, dark, figure) + np.float32(0.4) * (draws.grain[:, :3, ::2, ::2] - np.float32(0.5))
    picture = laid.repeat(2, axis=2).repeat(2, axis=3)
    picture[:, :, 1::2] *= np.float32(0.82)
    picture[:, :, :, 1::2] *= np.float32(0.82)
    return picture


def blueprint(ink: Floats, draws: Draws) -> Floats:
    """White contours on blue squared paper."""
    grid = np.arange(SIZE, dtype=np.float32)
    offset = np.floor(draws.between(30, 0, 6))[:, None]
    lines = ((grid[None] + offset) % 6 == 0).astype(np.float32) * np.float32(0.3)
    squares = np.maximum(lines[:, None, :], lines[:, :, None])
    body = thicken(ink, draws.between(33, 0.1, 0.2))
    inner = blur(body, 0.33)
    contour = np.clip(np.float32(5) * inner * (1 - inner) - np.float32(0.25), 0, 1)
    paper = _colour(0.08, 0.22, 0.55) + draws.colour(24, -0.06, 0.08)
    paper = paper + np.float32(0.06) * (draws.grain[:, 3:4] - np.float32(0.5))
    return over(over(paper, _colour(0.6, 0.75, 0.95), squares), _colour(0.95, 0.97, 1.0), contour)


def hatched(ink: Floats, draws: Draws) -> Floats:
    """A pencil's strokes, close together in the character and faint around it, on white paper."""
    body = thicken(ink, draws.between(36, 0.1, 0.25))
    strokes = np.clip(stripes(draws, 33, (2.6, 3.6)) * 2 - np.float32(0.5), 0, 1)
    edge = np.clip(np.float32(4) * blur(body, 0.25) * (1 - blur(body, 0.25)) - np.float32(0.35), 0, 1)
    grey = np.maximum(body * strokes * np.float32(0.9), edge * np.float32(0.75))
    grey = grey * (np.float32(0.65) + np.float32(0.5) * draws.grain[:, 3])
    paper = _colour(0.97, 0.97, 0.95) - np.float32(0.06) * draws.grain[:, :1]
    return over(paper, _colour(0.2, 0.2, 0.24) + draws.colour(24, -0.1, 0.15), np.clip(grey, 0, 1))


def shadowed(ink: Floats, draws: Draws) -> Floats:
    """Paper cut out and laid on a pastel poster, with a long shadow to one side."""
    shadow = ink
    for step in (1, 1, 2, 4):
        shadow = np.maximum(shadow, _moved(shadow, step, step))
    poster = np.float32(0.45) + np.float32(0.5) * _vivid(draws, 24)
    ground = over(poster, poster * np.float32(0.62), shadow)
    return over(ground, np.float32(0.94) + draws.colour(27, -0.08, 0.06), ink)


def styled(style: Style, tiles: Tiles, labels: Labels, draws: Draws) -> Floats:
    """Characters in one style, moderately turned, scaled and bent: [B, 3, SIZE, SIZE]."""
    pixels = tiles.pixels[choose(tiles, labels, draws)]
    return style(warp(pixels, draws, 0.7, scale=(0.85, 1.2)), draws)


def _colour(red: float, green: float, blue: float) -> Floats:
    return np.array([red, green, blue], dtype=np.float32).reshape(1, 3, 1, 1)


def _vivid(draws: Draws, column: int) -> Floats:
    """A full colour of random hue: one channel high, one low, one anywhere."""
    third = np.float32(1 / 3)
    turn = (draws.u[:, column, None] + np.array([0, third, 2 * third], dtype=np.float32)) % np.float32(1)
    channels: Floats = np.clip(np.abs(turn * 6 - 3) - 1, np.float32(0.08), np.float32(1))
    return channels[:, :, None, None]


def _moved(field: Floats, right: int, down: int) -> Floats:
    """The field moved by whole pixels; what moves in is empty."""
    moved = np.zeros_like(field)
    to_y, to_x = slice(max(down, 0), SIZE + min(down, 0)), slice(max(right, 0), SIZE + min(right, 0))
    from_y, from_x = slice(max(-down, 0), SIZE + min(-down, 0)), slice(max(-right, 0), SIZE + min(-right, 0))
    moved[:, to_y, to_x] = field[:, from_y, from_x]
    return moved


STYLES: dict[str, Style] = {
    "ink": wet_ink,
    "chalk": chalk,
    "neon": neon,
    "embossed": embossed,
    "stencil": stencil,
    "halftone": halftone,
    "outline": outline,
    "mosaic": mosaic,
    "blueprint": blueprint,
    "hatched": hatched,
    "shadowed": shadowed,
}
