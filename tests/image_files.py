"""Image files in folders, as people have them: drawn by number, in any format."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

KINDS = {".png": "PNG", ".jpg": "JPEG", ".gif": "GIF", ".webp": "WEBP", ".bmp": "BMP"}
TINTS = ((220, 40, 40), (40, 200, 40), (50, 60, 220), (220, 210, 40), (200, 50, 210), (40, 210, 210))


def image_bytes(number: int, suffix: str = ".png", tint: tuple[int, int, int] | None = None) -> bytes:
    """An image like no other: noise on a ground of one colour, its size by its number too."""
    dice = np.random.default_rng(number)
    ground = np.array(tint or dice.integers(0, 256, 3))
    noise = dice.integers(-30, 31, (14 + number % 5, 12 + number % 3, 3))
    file = io.BytesIO()
    Image.fromarray(np.clip(ground + noise, 0, 255).astype(np.uint8)).save(file, KINDS[suffix])
    return file.getvalue()


def write_images(folder: Path, names: Iterable[str], first: int = 0) -> Path:
    """An image of its own under each of the names, numbered from `first`; one that ends in .txt is a note."""
    for number, name in enumerate(names, start=first):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"a note\n" if path.suffix == ".txt" else image_bytes(number, path.suffix))
    return folder


def pack_zip(folder: Path, archive: Path, around: str = "") -> Path:
    """The folder as a zip, its files in an order of no meaning."""
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(folder.rglob("*"), reverse=True):
            file.write(path, around + path.relative_to(folder).as_posix())
    return archive


def pack_tar(folder: Path, archive: Path, around: str = "") -> Path:
    kind = archive.suffix.removeprefix(".")
    with tarfile.open(archive, "w:gz" if kind == "gz" else "w") as file:
        for path in sorted(folder.rglob("*"), reverse=True):
            file.add(path, around + path.relative_to(folder).as_posix(), recursive=False)
    return archive
