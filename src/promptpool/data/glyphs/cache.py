"""Drawn images kept on disk, in the user's cache folder.

A file carries a hash of its images, and one that does not match is drawn again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from promptpool.data.glyphs.drawing import Images
from promptpool.data.glyphs.shapes import fonts_digest
from promptpool.files import cache_folder, locked, write_whole
from promptpool.progress import report

VERSION = "1"  # changes whenever the same arguments would draw other images


def cached(name: str, arguments: Mapping[str, object], draw: Callable[[], dict[str, Images]]) -> dict[str, Images]:
    """What `draw` returns, from disk when it was drawn before with these arguments."""
    described = json.dumps({"version": VERSION, "fonts": fonts_digest(), **arguments}, sort_keys=True)
    path = cache_folder() / "glyphs" / f"{name}-{hashlib.sha256(described.encode()).hexdigest()[:16]}.safetensors"
    images = _read(path)
    if images is None:
        images = draw()
        with suppress(OSError):  # a folder that cannot be written to only means that they are drawn again next time
            path.parent.mkdir(parents=True, exist_ok=True)
            with locked(path.with_suffix(".lock"), waiting=report):
                write_whole(path, save(images, metadata={"sha256": _digest(images)}))
    return images


def _read(path: Path) -> dict[str, Images] | None:
    """The images in the file, or None when it is not there or not whole."""
    try:
        with safe_open(path, framework="numpy") as file:
            images = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
            expected = (file.metadata() or {}).get("sha256")
    except (OSError, SafetensorError):
        return None
    return images if expected == _digest(images) else None


def _digest(images: dict[str, Images]) -> str:
    digest = hashlib.sha256()
    for name in sorted(images):
        digest.update(f"{name} {images[name].dtype} {images[name].shape}".encode())
        digest.update(np.ascontiguousarray(images[name]).data)
    return digest.hexdigest()
