"""Image files of every kind: the pixels a person would see, or one clear error."""

from __future__ import annotations

import io
import struct
import threading
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from promptpool.data import decoding
from promptpool.data.decoding import decode, pixels_of
from promptpool.errors import BadFileError

Pixels = npt.NDArray[np.uint8]
ORIENTATION = 0x0112


def saved(image: Image.Image, kind: str, **values: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **values)
    return file.getvalue()


def pattern(side: int = 6, channels: int = 3) -> Pixels:
    """No two pixels alike, and no symmetry."""
    shape = (side, side, channels) if channels > 1 else (side, side)
    return np.random.default_rng(side).integers(0, 256, shape, dtype=np.uint8)


def pixels(content: bytes, side: int = 6, name: str = "image", fit: str = "whole") -> Pixels:
    """As image libraries have it: [side, side, 3]."""
    found = decode(content, name, side, fit)
    assert found.shape == (3, side, side)
    assert found.dtype == np.uint8
    assert found.flags["C_CONTIGUOUS"]
    return found.transpose(1, 2, 0)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM", "TGA", "QOI", "SGI", "PCX", "DDS", "WEBP", "JPEG2000"])
def test_colour_in_any_lossless_format(kind: str) -> None:
    values = {"WEBP": {"lossless": True}, "JPEG2000": {"irreversible": False}}.get(kind, {})
    content = saved(Image.fromarray(pattern()), kind, **values)
    name = "image.TGA" if kind == "TGA" else "image"
    assert np.array_equal(pixels(content, name=name), pattern())


@pytest.mark.parametrize("kind", ["JPEG", "AVIF"])
def test_colour_in_lossy_formats(kind: str) -> None:
    smooth = np.asarray(Image.fromarray(pattern(3)).resize((48, 48), Image.Resampling.BICUBIC))
    content = saved(Image.fromarray(smooth), kind, quality=98, subsampling="4:4:4" if kind == "AVIF" else 0)
    assert np.abs(pixels(content, 48).astype(int) - smooth).max() < 16


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "TIFF", "BMP", "PPM"])
def test_grey(kind: str) -> None:
    grey = np.repeat(np.repeat(pattern(2, 1), 24, axis=0), 24, axis=1)
    found = pixels(saved(Image.fromarray(grey), kind), 48)
    assert (found[..., 0] == found[..., 1]).all()
    assert np.abs(found[..., 0].astype(int) - grey).max() <= (3 if kind == "JPEG" else 0)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP", "PPM", "GIF", "XBM"])
def test_one_bit(kind: str) -> None:
    marks = pattern(6, 1) > 127
    found = pixels(saved(Image.fromarray(marks), kind))
    assert np.array_equal(found, np.repeat(np.where(marks, 255, 0)[..., None], 3, axis=2))


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM", "JPEG2000"])
def test_sixteen_bits_of_grey_keep_the_upper_byte(kind: str) -> None:
    deep = np.random.default_rng(0).integers(0, 65536, (6, 6), dtype=np.uint16)
    content = saved(Image.fromarray(deep), kind)
    assert np.array_equal(pixels(content)[..., 1], deep >> 8)


def test_sixteen_bits_of_colour() -> None:
    deep = np.random.default_rng(0).integers(0, 65536, (6, 6, 3), dtype=np.uint16)
    content = b"P6 6 6 65535 " + deep.astype(">u2").tobytes()
    assert np.abs(pixels(content).astype(int) - (deep >> 8)).max() <= 1
    assert np.array_equal(pixels(png(6, 6, 16, 2, deep.astype(">u2"))), deep >> 8)


@pytest.mark.parametrize(("largest", "scale"), [(1.0, 255), (255.0, 1)])
def test_grey_as_floats(largest: float, scale: int) -> None:
    shares = np.linspace(0, largest, 36, dtype=np.float32).reshape(6, 6)
    found = pixels(saved(Image.fromarray(shares), "TIFF"))
    assert np.array_equal(found[..., 2], np.round(shares * scale))


def test_palette() -> None:
    image = Image.fromarray(pattern()).quantize(16)
    for kind in ("PNG", "GIF", "TIFF", "BMP"):
        assert np.array_equal(pixels(saved(image, kind)), np.asarray(image.convert("RGB")))


def test_cmyk_and_other_colours() -> None:
    ink = Image.merge("CMYK", [Image.fromarray(pattern(channels=4)[..., c]) for c in range(4)])
    assert np.array_equal(pixels(saved(ink, "TIFF")), np.asarray(ink.convert("RGB")))
    flat = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    assert np.abs(pixels(saved(flat, "JPEG", quality=100), 16).astype(int) - [255, 0, 0]).max() <= 3, "red in print"
    video = Image.fromarray(pattern()).convert("YCbCr")
    assert np.array_equal(pixels(saved(video, "TIFF")), np.asarray(video.convert("RGB")))


def on_white(colour: Pixels, alpha: Pixels) -> npt.NDArray[np.float64]:
    share = alpha[..., None] / 255
    return colour * share + 255 * (1 - share)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF", "ICO", "TGA"])
def test_transparency_lies_on_white(kind: str) -> None:
    clear = pattern(16, 4)
    clear[0, :, 3], clear[1, :, 3] = 0, 255
    values = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    found = pixels(saved(Image.fromarray(clear), kind, **values), 16, name="image.tga")
    assert (found[0] == 255).all()
    assert np.array_equal(found[1], clear[1, :, :3])
    assert np.abs(found - on_white(clear[..., :3], clear[..., 3])).max() <= 1


def test_transparent_grey_lies_on_white() -> None:
    clear = pattern(6, 4)[..., :2]
    image = Image.merge("LA", [Image.fromarray(clear[..., 0]), Image.fromarray(clear[..., 1])])
    for kind in ("PNG", "TIFF"):
        expected = on_white(clear[..., :1].repeat(3, axis=2), clear[..., 1])
        assert np.abs(pixels(saved(image, kind)) - expected).max() <= 1


def test_a_transparent_colour_lies_on_white() -> None:
    red_is_clear = Image.fromarray(np.array([[[255, 0, 0], [0, 0, 255]]] * 2, dtype=np.uint8))
    found = pixels(saved(red_is_clear, "PNG", transparency=(255, 0, 0)), 2)
    assert np.array_equal(found, [[[255, 255, 255], [0, 0, 255]]] * 2)
    grey = Image.fromarray(np.array([[10, 20]] * 2, dtype=np.uint8))
    assert np.array_equal(pixels(saved(grey, "PNG", transparency=10), 2)[..., 0], [[255, 20]] * 2)
    marks = Image.fromarray(np.array([[True, False]] * 2))
    assert (pixels(saved(marks, "PNG", transparency=0), 2) == 255).all()
    deep = Image.fromarray(np.array([[257, 2570]] * 2, dtype=np.uint16))
    assert np.array_equal(pixels(saved(deep, "PNG", transparency=257), 2)[..., 0], [[255, 10]] * 2)


@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_a_palette_with_a_transparent_entry(kind: str) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([200, 0, 0, 0, 200, 0])
    image.putpixel((1, 0), 1)
    found = pixels(saved(image, kind, transparency=0), 2)
    assert np.array_equal(found[0], [[255, 255, 255], [0, 200, 0]])


def test_a_palette_with_half_transparent_entries() -> None:
    image = Image.new("P", (2, 2))
    image.putpalette([200, 0, 0, 0, 200, 0])
    image.putpixel((1, 0), 1)
    image.putpixel((1, 1), 1)
    found = pixels(saved(image, "PNG", transparency=bytes([128, 255])), 2)
    assert np.abs(found[0].astype(int) - [[227, 127, 127], [0, 200, 0]]).max() <= 1
    assert np.array_equal(np.asarray(decoding._coloured(image.convert("PA"))), np.asarray(image.convert("RGB")))


# What each orientation does to an upright image when it is stored, so that turning it makes it upright again.
STORED: dict[int, Callable[[Pixels], Pixels]] = {
    1: lambda image: image,
    2: lambda image: image[:, ::-1],
    3: lambda image: image[::-1, ::-1],
    4: lambda image: image[::-1],
    5: lambda image: image.transpose(1, 0, 2),
    6: lambda image: np.rot90(image, 1),
    7: lambda image: image[::-1, ::-1].transpose(1, 0, 2),
    8: lambda image: np.rot90(image, -1),
}


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF", "JPEG"])
def test_images_are_turned_as_their_exif_says(kind: str, orientation: int) -> None:
    upright = np.kron(pattern(2), np.ones((16, 24, 1), dtype=np.uint8))  # wider than tall
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    values: dict[str, Any] = {"exif": exif, "lossless": True} if kind == "WEBP" else {"exif": exif}
    values |= {"quality": 100, "subsampling": 0} if kind == "JPEG" else {}
    stored = Image.fromarray(np.ascontiguousarray(STORED[orientation](upright)))
    assert stored.size == ((48, 32) if orientation < 5 else (32, 48))
    found = pixels(saved(stored, kind, **values), 32, fit="centre").astype(int)
    assert np.abs(found - upright[:, 8:40]).max() <= (4 if kind == "JPEG" else 0)


@pytest.mark.parametrize("orientation", [0, 9, 77])
def test_an_orientation_that_does_not_exist_is_upright(orientation: int) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    assert np.array_equal(pixels(saved(Image.fromarray(pattern()), "PNG", exif=exif)), pattern())


def test_a_damaged_exif_note_costs_only_the_note() -> None:
    content = saved(Image.fromarray(pattern()), "PNG", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\xff" * 40)
    assert np.array_equal(pixels(content), pattern())


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_the_first_frame_of_several(kind: str) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ((200, 0, 0), (0, 200, 0), (0, 0, 200))]
    values = {"lossless": True} if kind == "WEBP" else {}
    content = saved(frames[0], kind, save_all=True, append_images=frames[1:], **values)
    assert np.array_equal(pixels(content, 4), np.broadcast_to([200, 0, 0], (4, 4, 3)))


def test_the_whole_image_or_its_centre() -> None:
    wide = np.zeros((20, 60, 3), dtype=np.uint8)
    wide[:, :20] = (250, 0, 0)
    wide[:, 40:] = (0, 0, 250)
    content = saved(Image.fromarray(wide), "PNG")
    whole, centre = pixels(content, 12), pixels(content, 12, fit="centre")
    assert np.array_equal(whole, np.asarray(Image.fromarray(wide).resize((12, 12), Image.Resampling.BILINEAR)))
    assert (whole[:, 0] == (250, 0, 0)).all()
    assert (whole[:, -1] == (0, 0, 250)).all()
    assert (centre == 0).all()
    tall = saved(Image.fromarray(np.ascontiguousarray(wide.transpose(1, 0, 2))), "PNG")
    assert (pixels(tall, 12, fit="centre") == 0).all()


def test_reducing_averages_and_does_not_pick() -> None:
    chequered = (np.indices((64, 64)).sum(axis=0) % 2 * 255).astype(np.uint8)
    found = pixels(saved(Image.fromarray(chequered), "PNG"), 8)
    assert np.abs(found.astype(int) - 127).max() < 8


@pytest.mark.parametrize(("size", "fit"), [(0, "whole"), (-3, "whole"), (8, "stretch")])
def test_values_that_cannot_be_meant(size: int, fit: str) -> None:
    with pytest.raises(ValueError, match=r"size = |fit = 'stretch'"):
        decode(saved(Image.fromarray(pattern()), "PNG"), "image", size, fit)


def png(width: int, height: int, depth: int, colour: int, rows: npt.NDArray[Any] | bytes) -> bytes:
    """A PNG by hand, for what Pillow does not write."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    lines = rows if isinstance(rows, bytes) else b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize(
    ("width", "height"), [(60000, 60000), (2**31 - 1, 2**31 - 1), (13000, 13000), (10**9, 1), (12000, 12000)]
)
def test_a_bomb_is_refused_before_it_goes_off(width: int, height: int) -> None:
    with pytest.raises(BadFileError, match=r"pixels|bomb|decoded"):
        decode(png(width, height, 8, 2, b"\0" * 1000), "bomb.png", 8)


def test_a_large_photograph_is_no_bomb() -> None:
    content = png(11000, 9000, 1, 0, b"\0" * (9000 * (11000 // 8 + 1)))  # above where Pillow warns
    assert (pixels(content, 4) == 0).all()


@pytest.mark.parametrize(("width", "height"), [(0, 5), (5, 0), (0, 0)])
def test_an_image_without_pixels(width: int, height: int) -> None:
    with pytest.raises(BadFileError, match=r"empty\.png: "):
        decode(png(width, height, 8, 2, b""), "empty.png", 8)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0",
        b"\0" * 5000,
        b"just a note\n" * 20,
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%PDF-1.4\n",
        b"PK\x03\x04" + b"\0" * 60,
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xd8\xff\xe0",
        b"GIF89a",
        b"RIFF\0\0\0\0WEBP",
    ],
    ids=lambda content: repr(content[:8]),
)
def test_what_is_no_image_is_one_line(content: bytes) -> None:
    for name in ("note.jpg", "note.tga"):
        with pytest.raises(BadFileError, match=f"^{name}: .") as caught:
            decode(content, name, 8)
        assert "\n" not in str(caught.value)


EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 10 10
%%EndComments
(owned) (w) file closefile
showpage
%%EOF
"""


@pytest.mark.parametrize(
    "content",
    [
        EPS,
        b"\xc5\xd0\xd3\xc6" + struct.pack("<II", 32, len(EPS)) + b"\0" * 20 + EPS,
        b"\xd7\xcd\xc6\x9a\0\0" + b"\0" * 80,
    ],
    ids=["EPS", "EPS with a preview", "WMF"],
)
def test_no_file_starts_another_program(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*values: Any, **more: Any) -> None:
        raise AssertionError(f"started {values} {more}")

    monkeypatch.setattr("subprocess.Popen", started)
    monkeypatch.setattr("os.system", started)
    for name in ("image.eps", "image.png", "image.tga"):
        with pytest.raises(BadFileError, match="not an image of a kind"):
            decode(content, name, 8)


def samples() -> dict[str, bytes]:
    colour, clear = Image.fromarray(pattern(24)), Image.fromarray(pattern(24, 4))
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    exif[0x010F] = "a maker"
    return {
        "PNG": saved(clear, "PNG", exif=exif),
        "PNG palette": saved(colour.quantize(16), "PNG", transparency=bytes(range(0, 160, 10))),
        "APNG": saved(colour, "PNG", save_all=True, append_images=[Image.new("RGB", (24, 24))]),
        "JPEG": saved(colour, "JPEG", exif=exif, progressive=True),
        "GIF": saved(colour.quantize(16), "GIF", save_all=True, append_images=[Image.new("P", (24, 24))]),
        "WEBP": saved(clear, "WEBP", exif=exif),
        "TIFF": saved(colour, "TIFF", compression="tiff_lzw", exif=exif),
        "BMP": saved(colour, "BMP"),
        "ICO": saved(clear, "ICO"),
        "TGA": saved(clear, "TGA", compression="tga_rle"),
    }


@pytest.mark.parametrize("kind", samples())
def test_a_file_cut_short_is_refused(kind: str) -> None:
    content = samples()[kind]
    refused = 0
    for length in range(0, len(content) * 3 // 5, 37):
        try:
            decode(content[:length], "cut.tga", 8)
        except BadFileError:
            refused += 1
        else:
            assert kind == "GIF", "the first frame may be whole while the second is not"
    assert refused > 3


@pytest.mark.parametrize("kind", samples())
def test_nonsense_ends_in_one_error_and_no_warning(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    content = np.frombuffer(samples()[kind], dtype=np.uint8)
    dice = np.random.default_rng(0)
    refused: list[str] = []
    for _ in range(60):
        damaged = content.copy()
        places = dice.integers(0, min(len(damaged), dice.choice([40, 200, len(damaged)])), dice.integers(1, 12))
        damaged[places] = dice.integers(0, 256, len(places))
        try:
            found = decode(damaged.tobytes(), "damaged.tga", 8)
        except BadFileError as error:
            refused.append(str(error))
        else:
            assert found.shape == (3, 8, 8)
    assert refused
    assert "\n" not in "".join(refused)
    said = capfd.readouterr().err
    assert said == "" or kind == "TIFF", "libtiff complains past Python"


def test_warnings_of_others_are_not_silenced() -> None:
    warning_image = Image.new("P", (2, 2))
    content = saved(warning_image, "PNG", transparency=b"\0\1")
    decode(content, "image.png", 2)
    with pytest.warns(UserWarning, match="mine"):
        warnings.warn("mine", UserWarning, stacklevel=1)
    before = len(warnings.filters)
    for _ in range(5):
        warnings.simplefilter("error", ResourceWarning)
        decode(content, "image.png", 2)
    assert len(warnings.filters) <= before + 2


def test_decoding_on_threads_silences_only_itself() -> None:
    content, stop, failures = samples()["TIFF"][:300] + b"\xff" * 50, threading.Event(), []

    def decoding_all_the_time() -> None:
        while not stop.is_set():
            try:
                decode(content, "image.tif", 8)
            except BadFileError:
                continue
            except Warning as error:
                failures.append(error)

    threads = [threading.Thread(target=decoding_all_the_time) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(200):
            with pytest.warns(UserWarning, match="mine"):
                warnings.warn("mine", UserWarning, stacklevel=1)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []


def test_an_image_that_is_open_has_the_pixels_of_its_file() -> None:
    """Upright and on white, as its file is."""
    turned, file = Image.Exif(), io.BytesIO()
    turned[ORIENTATION] = 6
    pixels = np.random.default_rng(0).integers(0, 256, (9, 14, 4), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG", exif=turned)
    opened = pixels_of(Image.open(file), "open", 8)
    np.testing.assert_array_equal(opened, decode(file.getvalue(), "file", 8))
