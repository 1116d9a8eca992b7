"""From the bytes of an image file to pixels.

What is particular here:
- Any image becomes RGB as a person sees it: turned as its EXIF says, transparency on white, the first frame of
  several, 16-bit grey by its upper byte. Colour profiles are not applied.
- Only formats that Pillow decodes itself are tried, so that no file starts another program (EPS would start
  Ghostscript). TGA has no mark to know it by and is tried for files that are called so.
- Bytes that are no image, or only part of one, end in `BadFileError`. Pillow's warnings stay inside (what libtiff
  itself says of a damaged TIFF goes to stderr past Python).
"""

from __future__ import annotations

import io
import struct
import threading
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, UnidentifiedImageError

from promptpool.errors import BadFileError

Pixels = npt.NDArray[np.uint8]

FITS = ("whole", "centre")
MOST_PIXELS = 2**27  # of one image; a good camera has half as many
FORMATS = (
    *("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "AVIF", "JPEG2000", "PPM", "ICO"),  # the usual first
    *("CUR", "DDS", "DIB", "FLI", "ICNS", "MSP", "PCX", "PSD", "QOI", "SGI", "SUN", "XBM", "XPM"),
)
TGA_SUFFIXES = (".tga", ".icb", ".vda", ".vst")
# What decoders raise when bytes make no sense; none of it is a mistake of ours, and a test feeds them nonsense.
BROKEN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode(content: bytes, what: str, size: int, fit: str = "whole", most_pixels: int = MOST_PIXELS) -> Pixels:
    """The image as RGB: uint8 [3, size, size].

    `fit` says how it becomes a square: "whole" squeezes all of it, "centre" cuts out its central square. `what`
    names the file in errors. An image of more than `most_pixels` is refused before its pixels are decoded.
    """
    check(size, fit)
    with _quiet(), _named(what), Image.open(io.BytesIO(content), formats=_formats(what)) as image:
        check_sides(*image.size, what, most_pixels)
        return _square(image, what, size, fit)


def pixels_of(image: Image.Image, what: str, size: int, fit: str = "whole") -> Pixels:
    """The same of an image that Pillow has opened or made."""
    check(size, fit)
    with _quiet(), _named(what):
        return _square(image, what, size, fit)


def _square(image: Image.Image, what: str, size: int, fit: str) -> Pixels:
    image = _upright(image, what)
    if fit == "centre":
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        image = image.crop((left, top, left + side, top + side))
    image = image.resize((size, size), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Whatever decoders raise is one error that names the file."""
    try:
        yield
    except BadFileError:
        raise
    except BROKEN as error:
        raise BadFileError(f"{what}: {_reason(error)}") from error


def check(size: int, fit: str) -> None:
    """Refuse what `decode` cannot do."""
    if fit not in FITS:
        raise ValueError(f"fit = {fit!r}: must be one of {', '.join(FITS)}")
    if size < 1:
        raise ValueError(f"size = {size}: must be at least 1")


def image_suffixes() -> set[str]:
    """How names of image files end, in small letters."""
    Image.init()
    return {suffix for suffix, kind in Image.registered_extensions().items() if kind in (*FORMATS, "MPO", "TGA")}


def proportions(path: Path) -> float:
    """Width by height of an image as a person sees it, from the head of its file; 1 where that cannot be told."""
    try:
        with _quiet(), Image.open(path, formats=_formats(path.name)) as image:
            turned = image.getexif().get(ExifTags.Base.Orientation, 1) in (5, 6, 7, 8)
            width, height = image.size
            return (height / width) if turned else (width / height)
    except BROKEN:
        return 1.0


def _upright(image: Image.Image, what: str) -> Image.Image:
    """The first frame, upright, in RGB."""
    check_sides(*image.size, what)
    image.load()
    return _coloured(_turned(image))


def check_sides(width: int, height: int, what: str, most_pixels: int = MOST_PIXELS) -> None:
    """Refuse an image without pixels, or with more than memory is taken for."""
    if min(width, height) < 1:
        raise BadFileError(f"{what}: an image without pixels, {width} x {height}")
    if width * height > most_pixels:
        raise BadFileError(f"{what}: {width} x {height} pixels are more than {most_pixels:,}")


def _formats(what: str) -> list[str]:
    Image.init()
    tried = [*FORMATS, "TGA"] if what.lower().endswith(TGA_SUFFIXES) else FORMATS
    return [name for name in tried if name in Image.OPEN]  # some are optional parts of Pillow


def _turned(image: Image.Image) -> Image.Image:
    try:
        method = TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except BROKEN:  # the pixels are there, only the note about them is damaged
        method = None
    return image if method is None else image.transpose(method)


def _coloured(image: Image.Image) -> Image.Image:
    if image.mode == "F" or image.mode.startswith("I"):
        image = _grey(image)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def _grey(image: Image.Image) -> Image.Image:
    """Grey of more than 8 bits in 8: the upper byte of 16; floats between 0 and 1 as shares, others as they are."""
    values = np.asarray(image)
    if image.mode == "F":
        values = np.nan_to_num(values)
        scaled = values * 255 if values.min() >= 0 and values.max() <= 1 else values
        grey = Image.fromarray(scaled.round().clip(0, 255).astype(np.uint8))
    else:
        grey = Image.fromarray((values.astype(np.int64).clip(0, 65535) >> 8).astype(np.uint8))
    see_through = image.info.get("transparency")
    if isinstance(see_through, int):
        grey.putalpha(Image.fromarray(np.where(values == see_through, 0, 255).astype(np.uint8)))
    return grey


def _reason(error: BaseException) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image of a kind that is read here"
    text = " ".join(str(error).split())
    return f"cannot be decoded: {text or type(error).__name__}"


class _Decoding(threading.local):
    """Stands where a filter of warnings has a pattern: matches all of them, on threads that are decoding.

    `warnings.catch_warnings` would silence every other thread too, and leave filters behind when two overlap.
    """

    now = False

    def match(self, text: str) -> bool:
        del text
        return self.now


_decoding, _order = _Decoding(), threading.Lock()
_SILENCE: Any = ("ignore", _decoding, Warning, None, 0)


@contextmanager
def _quiet() -> Iterator[None]:
    """No warning of this thread gets out."""
    filters: Any = warnings.filters
    with _order:
        if filters[:1] != [_SILENCE]:  # others may have put theirs before it, or taken all away
            if _SILENCE in filters:
                filters.remove(_SILENCE)
            filters.insert(0, _SILENCE)
    _decoding.now = True
    try:
        yield
    finally:
        _decoding.now = False
