"""From tiles to images: turn, scale, shear and bend a whole batch of tiles, then colour and spoil the result.

What is particular here:
- An image depends on its own key alone, a short tuple of integers, never on what is drawn beside it.
- The same bytes everywhere: random numbers are PCG64 integers and uniforms, and the arithmetic is additions,
  products, quotients and square roots of arrays, which IEEE 754 fixes. No sine, exponential, normal deviate
  or matrix product, whose last bits differ from one processor to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from promptpool.data.glyphs.shapes import TILE, Tiles

SIZE = 32  # pixels on a side of an image
CHUNK = 256  # images drawn at a time, so that their arrays stay in the processor's cache
Floats = npt.NDArray[np.float32]
Key = tuple[int, ...]  # names an image
Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


class Draws(NamedTuple):
    """All the randomness of a batch."""

    u: Floats  # [B, 64] uniform in [0, 1)
    grain: Floats  # [B, 4, SIZE, SIZE] uniform in [0, 1), for three channels and one more

    def between(self, column: int, low: float, high: float) -> Floats:
        """Column `column` stretched to [low, high): [B]."""
        stretched: Floats = np.float32(low) + np.float32(high - low) * self.u[:, column]
        return stretched

    def colour(self, column: int, low: float = 0.0, high: float = 1.0) -> Floats:
        """A colour from three columns: [B, 3, 1, 1]."""
        stretched: Floats = np.float32(low) + np.float32(high - low) * self.u[:, column : column + 3]
        return stretched[:, :, None, None]


def draws(keys: Iterable[Key]) -> Draws:
    """The random numbers of the images with these keys."""
    words = [np.random.PCG64(key).random_raw(32 + SIZE * SIZE // 2) for key in keys]
    raw = np.stack(words) if words else np.zeros((0, 32 + SIZE * SIZE // 2), dtype=np.uint64)
    raw = raw.astype("<u8", copy=False)
    u = np.ascontiguousarray(raw[:, :32]).view("<u4") >> 8
    grain = np.ascontiguousarray(raw[:, 32:]).view(np.uint8).reshape(-1, 4, SIZE, SIZE)
    return Draws(u.astype(np.float32) / np.float32(2**24), grain.astype(np.float32) / np.float32(256))


def in_chunks(labels: Labels, keys: Sequence[Key], paint: Callable[[Labels, Draws], Floats]) -> Images:
    """The images that `paint` makes of labels and draws: uint8 [n, 3, SIZE, SIZE]."""
    images = np.empty((len(labels), 3, SIZE, SIZE), dtype=np.uint8)
    for begin in range(0, len(labels), CHUNK):
        part = slice(begin, begin + CHUNK)
        images[part] = quantise(paint(labels[part], draws(keys[part])))
    return images


def choose(tiles: Tiles, labels: Labels, draws: Draws) -> npt.NDArray[np.int64]:
    """A font for each image: the rows of `tiles.pixels` to draw, [B]."""
    step = (draws.u[:, 63] * tiles.fonts[labels]).astype(np.int64)
    chosen: npt.NDArray[np.int64] = tiles.first[labels] + step
    return chosen


def warp(pixels: Images, draws: Draws, level: float, *, scale: tuple[float, float] = (0.8, 1.15)) -> Floats:
    """Tiles turned, scaled, sheared, shifted and bent: how much ink each pixel has, [B, SIZE, SIZE] in 0..1.

    `level` goes from 0, upright and centred, to 1, the full range. `scale` is relative to a character that
    fills three quarters of the image.
    """
    middle = (scale[0] + scale[1]) / 2
    least, most = middle + (scale[0] - middle) * level, middle + (scale[1] - middle) * level
    half = draws.between(0, -0.2 * level, 0.2 * level)  # the tangent of half the angle; 0.2 is 23 degrees
    cosine, sine = rotation(half)
    zoom, squeeze = draws.between(1, least, most), draws.between(2, 1 - 0.18 * level, 1 + 0.18 * level)
    shear = draws.between(3, -0.25 * level, 0.25 * level)[:, None, None]
    grid = np.arange(SIZE, dtype=np.float32) - np.float32(SIZE / 2 - 0.5)
    x = grid[None, None, :] - draws.between(4, -3 * level, 3 * level)[:, None, None]
    y = grid[None, :, None] - draws.between(5, -3 * level, 3 * level)[:, None, None]
    bend = np.float32(3.0 * level)
    x = x + bend * (smooth(draws.u[:, 6:15].reshape(-1, 3, 3)) - np.float32(0.5))
    y = y + bend * (smooth(draws.u[:, 15:24].reshape(-1, 3, 3)) - np.float32(0.5))
    across = np.float32(TILE / SIZE) / (zoom * squeeze)[:, None, None]
    down = np.float32(TILE / SIZE) * (squeeze / zoom)[:, None, None]
    turned = cosine * x + sine * y
    return sample(pixels, across * (turned + shear * y), down * (cosine * y - sine * x))


def rotation(half: Floats) -> tuple[Floats, Floats]:
    """Cosine and sine of the angles whose halves have these tangents, [B]: [B, 1, 1] each."""
    square = half * half
    cosine: Floats = (1 - square) / (1 + square)
    sine: Floats = 2 * half / (1 + square)
    return cosine[:, None, None], sine[:, None, None]


def sample(pixels: Images, x: Floats, y: Floats) -> Floats:
    """Tiles read between their pixels at x and y from their centres, nothing outside: [B, h, w] in 0..1."""
    limit = np.float32(TILE - 1.001)
    x = np.clip(x + np.float32(TILE / 2 - 0.5), 0, limit)
    y = np.clip(y + np.float32(TILE / 2 - 0.5), 0, limit)
    left, top = x.astype(np.int32), y.astype(np.int32)
    fx, fy = x - left.astype(np.float32), y - top.astype(np.float32)
    at = (np.arange(len(pixels), dtype=np.int32) * (TILE * TILE))[:, None, None] + top * TILE + left
    flat = pixels.reshape(-1)
    upper = flat[at] * (1 - fx) + flat[at + 1] * fx
    lower = flat[at + TILE] * (1 - fx) + flat[at + TILE + 1] * fx
    ink: Floats = (upper * (1 - fy) + lower * fy) / np.float32(255)
    return ink


def smooth(knots: Floats) -> Floats:
    """A field that passes evenly between k x k knots: [B, SIZE, SIZE] from [B, k, k]."""
    k = knots.shape[1]
    place = np.arange(SIZE, dtype=np.float32) * np.float32((k - 1) / SIZE)
    low = place.astype(np.int64)
    part = place - low.astype(np.float32)
    part = part * part * (3 - 2 * part)
    rows = knots[:, low] * (1 - part)[None, :, None] + knots[:, low + 1] * part[None, :, None]
    field: Floats = rows[:, :, low] * (1 - part) + rows[:, :, low + 1] * part
    return field


def blur(field: Floats, weight: Floats | np.float32 | float) -> Floats:
    """Each pixel of [..., SIZE, SIZE] shares `weight` of itself with either neighbour, along both axes."""
    for axis in (-1, -2):
        lines = np.moveaxis(field, axis, -1)
        before = np.concatenate([lines[..., :1], lines[..., :-1]], axis=-1)
        after = np.concatenate([lines[..., 1:], lines[..., -1:]], axis=-1)
        field = np.moveaxis(lines + weight * (before + after - 2 * lines), -1, axis)
    return field


def ramp(draws: Draws, column: int) -> Floats:
    """A plane from -0.5 to 0.5 or less, in a random direction: [B, SIZE, SIZE]."""
    grid = (np.arange(SIZE, dtype=np.float32) - np.float32(SIZE / 2 - 0.5)) / np.float32(SIZE)
    a, b = draws.between(column, -0.7, 0.7), draws.between(column + 1, -0.7, 0.7)
    plane: Floats = a[:, None, None] * grid[None, None, :] + b[:, None, None] * grid[None, :, None]
    return plane


def stripes(draws: Draws, column: int, period: tuple[float, float]) -> Floats:
    """Stripes of a random direction and period in pixels, from 0 to 1 and back: [B, SIZE, SIZE]."""
    grid = np.arange(SIZE, dtype=np.float32)
    cosine, sine = rotation(draws.between(column, -1, 1))
    along = cosine * grid[None, None, :] + sine * grid[None, :, None]
    phase = along / draws.between(column + 1, *period)[:, None, None] + draws.u[:, column + 2, None, None]
    wave: Floats = np.abs(2 * (phase - np.floor(phase)) - 1)
    return wave


def away(colour: Floats) -> Floats:
    """Where to go from a colour, [B, 3, 1, 1], to stand out: 1, lighter, or -1, darker: [B, 1, 1, 1]."""
    light = colour[:, 0:1] + colour[:, 1:2] + colour[:, 2:3] > 1.5
    return np.where(light, np.float32(-1), np.float32(1))


def over(ground: Floats, paint: Floats, cover: Floats) -> Floats:
    """`paint` laid on `ground`, [B, 3, SIZE, SIZE] or less, where `cover`, [B, SIZE, SIZE], says so."""
    mixed: Floats = ground + (paint - ground) * cover[:, None]
    return mixed


def quantise(image: Floats) -> Images:
    """Colours in 0..1 as bytes."""
    return (np.clip(image, 0, 1) * np.float32(255) + np.float32(0.5)).astype(np.uint8)
