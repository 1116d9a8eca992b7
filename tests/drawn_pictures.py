"""Pictures that the model of the package can tell apart: characters with names, drawn as PNG files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from promptpool.data.glyphs.looks import plain_images
from promptpool.data.glyphs.shapes import tiles

SIGNS = {"heart": "♥", "star": "★", "umbrella": "☂", "anchor": "⚓", "airplane": "✈", "snowflake": "❄", "scissors": "✂"}
OTHERS = {"telephone": "☎", "moon": "☾"}


def draw_pictures(folder: Path, names: list[str], count: int, *, first: int = 0, level: float = 0.4) -> Path:
    """`count` pictures of each name, numbered from `first`, in a folder of that name."""
    known = SIGNS | OTHERS
    characters = "".join(known[name] for name in names)
    labels = np.repeat(np.arange(len(names)), count)
    numbers = np.tile(np.arange(first, first + count), len(names))
    keys = [(7, ord(characters[label]), int(number)) for label, number in zip(labels, numbers, strict=True)]
    for image, label, number in zip(plain_images(tiles(characters), labels, keys, level), labels, numbers, strict=True):
        path = folder / names[label] / f"{names[label]} {number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.transpose(1, 2, 0)).save(path)
    return folder
