"""Characters as grey tiles: each one drawn once in every font that has it, large, upright and centred.

The fonts come with matplotlib: nothing is downloaded, and the same versions draw the same everywhere.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import ImageFont

TILE = 64  # pixels on a side
INK = 48  # the longer side of a character in its tile

FONTS = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSans-BoldOblique",
    "DejaVuSansMono",
    "DejaVuSansMono-Bold",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-Italic",
    "DejaVuSerif-BoldItalic",
    "STIXGeneral",
    "STIXGeneralBol",
    "STIXGeneralItalic",
    "STIXGeneralBolIta",
)


class Tiles(NamedTuple):
    """The drawings of some characters: character c has drawings first[c] to first[c] + fonts[c] - 1."""

    pixels: npt.NDArray[np.uint8]  # [T, TILE, TILE]
    first: npt.NDArray[np.int64]  # [C]
    fonts: npt.NDArray[np.int64]  # [C] how many


@cache
def tiles(characters: str) -> Tiles:
    """Every character in every font that has it."""
    drawn: list[npt.NDArray[np.uint8]] = []
    first, count = [], []
    for character in characters:
        here = [tile for font in FONTS if (tile := draw(character, font)) is not None]
        if not here:
            raise ValueError(f"{character!r}: none of matplotlib's fonts has it")
        first.append(len(drawn))
        count.append(len(here))
        drawn.extend(here)
    return Tiles(np.stack(drawn), np.array(first), np.array(count))


def draw(character: str, font: str) -> npt.NDArray[np.uint8] | None:
    """One character in one font, or None when the font lacks it: [TILE, TILE]."""
    if ord(character) not in _covered(font):
        return None
    probe = _ink(character, font, INK)
    size = round(INK * INK / max(probe.shape))
    ink = _ink(character, font, size)[:TILE, :TILE]
    tile = np.zeros((TILE, TILE), dtype=np.uint8)
    top, left = (TILE - ink.shape[0]) // 2, (TILE - ink.shape[1]) // 2
    tile[top : top + ink.shape[0], left : left + ink.shape[1]] = ink
    return tile


@cache
def fonts_digest() -> str:
    """A hash of the fonts' files and of the version of the library that draws with them."""
    from PIL import __version__, features

    digest = hashlib.sha256(f"{__version__} {features.version('freetype2')}".encode())
    for font in FONTS:
        digest.update(_path(font).read_bytes())
    return digest.hexdigest()


def _ink(character: str, font: str, size: int) -> npt.NDArray[np.uint8]:
    mask = _face(font, size).getmask(character, mode="L")
    grey = np.array(mask, dtype=np.uint8).reshape(mask.size[1], mask.size[0])
    rows, columns = np.flatnonzero(grey.max(axis=1)), np.flatnonzero(grey.max(axis=0))
    return grey[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


@cache
def _face(font: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(_path(font)), size, layout_engine=ImageFont.Layout.BASIC)


@cache
def _covered(font: str) -> frozenset[int]:
    from matplotlib.ft2font import FT2Font  # slow to import, and of use only when something is drawn

    return frozenset(FT2Font(str(_path(font))).get_charmap())


def _path(font: str) -> Path:
    import matplotlib

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"
