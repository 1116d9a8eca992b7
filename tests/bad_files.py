"""Pictures, archives and tables that are not what they say, one function for each kind."""

from __future__ import annotations

import io
import os
import socket
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from image_files import image_bytes, pack_zip, write_images

BadFile = Callable[[Path], None]  # puts one there


def saved(kind: str, side: int = 24) -> bytes:
    """A picture of noise in any format."""
    file = io.BytesIO()
    pixels = np.random.default_rng(side).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def cut(kind: str) -> bytes:
    """The first half of a picture."""
    whole = saved(kind)
    return whole[: len(whole) // 2]


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(width: int, height: int, *more: bytes) -> bytes:
    """A PNG that says it is so large, with one row of pixels in it."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(bytes(100)))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(more) + body + chunk(b"IEND", b"")


def gif(width: int, height: int) -> bytes:
    frame = b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x02\x44\x01\x00;"
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6) + frame


def webp(width: int, height: int) -> bytes:
    """A lossless WebP of which there is only the beginning."""
    bits = (width - 1) | (height - 1) << 14
    body = b"VP8L" + struct.pack("<IBI", 10, 0x2F, bits) + bytes(5)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def webp_canvas(width: int, height: int) -> bytes:
    """An animated WebP with a large canvas and nothing on it."""
    size = struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
    body = b"VP8X" + struct.pack("<II", 10, 0x02) + size + b"ANIM" + struct.pack("<IIH", 6, 0, 0)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def tiff(width: int, height: int) -> bytes:
    tags = ((256, width), (257, height), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, height), (279, 100))
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<I", 108) + bytes(100) + struct.pack("<H", len(tags)) + entries + bytes(4)


def bmp(width: int, height: int) -> bytes:
    return (
        b"BM" + struct.pack("<IHHIIiiHHIIiiII", 100, 0, 0, 54, 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0) + bytes(46)
    )


def jpeg(width: int, height: int) -> bytes:
    """A small JPEG whose frame says that it is so large."""
    content = bytearray(saved("JPEG"))
    place = content.index(b"\xff\xc0")
    content[place + 5 : place + 9] = struct.pack(">HH", height, width)
    return bytes(content)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def door(path: Path) -> None:
    """A socket; its name may be longer than sockets take, so it is made from inside its folder."""
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)
        os.close(here)


def circle(path: Path) -> None:
    path.symlink_to(path.name)


def written(content: bytes) -> BadFile:
    def put(path: Path) -> None:
        path.write_bytes(content)

    return put


# Each lies among good pictures under its name, is skipped and told of.
AMONG_PICTURES: dict[str, tuple[str, BadFile, str]] = {
    "zero bytes": ("empty.png", written(b""), "not an image"),
    "text": ("text.jpg", written(b"this is no picture\n"), "not an image"),
    "a page": ("page.jpg", written(b"<!DOCTYPE html><html>not found</html>"), "not an image"),
    "nothing but zeros": ("zeros.png", written(bytes(5000)), "not an image"),
    "a mark alone": ("mark.png", written(b"\x89PNG\r\n\x1a\n"), "not an image|cannot be decoded"),
    "a drawing of lines": ("lines.svg", written(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), "not an image"),
    "PostScript": ("page.png", written(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"), "not an image"),
    "an archive": ("inner.png", written(b"PK\x05\x06" + bytes(18)), "not an image"),
    "half a PNG": ("half.png", written(cut("PNG")), "cannot be decoded"),
    "half a JPEG": ("half.jpg", written(cut("JPEG")), "cannot be decoded"),
    "half a GIF": ("half.gif", written(cut("GIF")), "not an image|cannot be decoded"),
    "half a WebP": ("half.webp", written(cut("WEBP")), "not an image|cannot be decoded"),
    "half a BMP": ("half.bmp", written(cut("BMP")), "cannot be decoded"),
    "half a TIFF": ("half.tiff", written(cut("TIFF")), "not an image|cannot be decoded"),
    "half a PPM": ("half.ppm", written(cut("PPM")), "cannot be decoded"),
    "a side of 30,000": ("side.png", written(png(30_000, 30_000)), "pixels|bomb"),
    "a huge PNG": ("huge.png", written(png(2**31 - 1, 2**31 - 1)), "pixels|bomb|cannot be decoded"),
    "a huge GIF": ("huge.gif", written(gif(65_535, 65_535)), "pixels|bomb"),
    "a huge WebP": ("huge.webp", written(webp(16_384, 16_384)), "pixels|bomb|not an image|cannot be decoded"),
    "a huge canvas": ("canvas.webp", written(webp_canvas(16_384, 16_384)), "pixels|bomb|not an image|cannot be"),
    "a huge TIFF": ("huge.tiff", written(tiff(60_000, 60_000)), "pixels|bomb"),
    "a huge BMP": ("huge.bmp", written(bmp(60_000, 60_000)), "pixels|bomb"),
    "a huge JPEG": ("huge.jpg", written(jpeg(65_000, 65_000)), "pixels|bomb"),
    "a huge PPM": ("huge.ppm", written(b"P6 60000 60000 255\n" + bytes(99)), "pixels|bomb"),
    "no pixels": ("none.png", written(png(0, 0)), "cannot be decoded|without pixels|not an image"),
    "text that swells": (
        "swells.png",
        written(png(8, 8, chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**7))))),
        "cannot be decoded|not an image",
    ),
    "a FIFO": ("fifo.png", fifo, "not a regular file"),
    "a socket": ("door.png", door, "not a regular file"),
    "a link to nothing": ("nothing.png", lambda path: path.symlink_to("gone.png"), "No such file|no such file"),
    "a link to itself": ("circle.png", circle, "[Ll]oop|symbolic|no such file"),
    "a link out of the folder": ("out.png", lambda path: path.symlink_to("/etc/hostname"), "outside|not an image"),
}


def zipped(path: Path, contents: dict[str, bytes], packing: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return path


def encrypted(path: Path) -> Path:
    """A zip whose files say that they need a password."""
    content = bytearray(zipped(path, {f"{label}/1.png": image_bytes(1) for label in "ab"}).read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = content.find(mark)
        while place >= 0:
            content[place + offset] |= 1
            place = content.find(mark, place + 1)
    path.write_bytes(content)
    return path


def linked(path: Path) -> Path:
    info = zipfile.ZipInfo("a/link.png")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    return path


def nested(path: Path) -> Path:
    inner = pack_zip(write_images(path.with_name("inner"), ["a/1.png", "b/1.png"]), path.with_name("inner.zip"))
    return zipped(path, {"a/inner.zip": inner.read_bytes()})


def half(path: Path) -> Path:
    zipped(path, {f"{label}/1.png": image_bytes(1) for label in "ab"})
    path.write_bytes(path.read_bytes()[:200])
    return path


def tarred(path: Path, name: str, link: str = "") -> Path:
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo(name)
        content = image_bytes(1)
        info.size = 0 if link else len(content)
        info.type, info.linkname = (tarfile.SYMTYPE, link) if link else (tarfile.REGTYPE, "")
        archive.addfile(info, io.BytesIO(content))
    return path


ARCHIVES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "zip that leads up": (lambda here: zipped(here / "x.zip", {"../a/1.png": image_bytes(1)}), "outside the archive"),
    "zip from the root": (lambda here: zipped(here / "x.zip", {"/a/1.png": image_bytes(1)}), "outside the archive"),
    "zip with a drive": (lambda here: zipped(here / "x.zip", {"C:/a/1.png": image_bytes(1)}), "outside the archive"),
    "zip with a password": (lambda here: encrypted(here / "x.zip"), "password"),
    "zip with a link": (lambda here: linked(here / "x.zip"), "a link"),
    "zip of a zip": (lambda here: nested(here / "x.zip"), "no image that can be read"),
    "zip that swells": (lambda here: zipped(here / "x.zip", {"a/1.png": bytes(10**8)}), "would become"),
    "zip cut off": (lambda here: half(here / "x.zip"), "not a readable zip"),
    "zip packed otherwise": (
        lambda here: zipped(here / "x.zip", {"a/1.png": image_bytes(1)}, zipfile.ZIP_LZMA),
        "packed in a way",
    ),
    "empty zip": (lambda here: zipped(here / "x.zip", {}), "holds no files"),
    "zip of empty folders": (lambda here: zipped(here / "x.zip", {"a/": b"", "b/": b""}), "holds no files"),
    "text as zip": (lambda here: _text(here / "x.zip"), "not a readable zip"),
    "tar that leads up": (lambda here: tarred(here / "x.tar", "../1.png"), "outside the archive"),
    "tar with a link": (lambda here: tarred(here / "x.tar", "a/1.png", "/etc/passwd"), "a link or device"),
    "text as tar": (lambda here: _text(here / "x.tar"), "not a readable tar"),
    "text as tar.gz": (lambda here: _text(here / "x.tar.gz"), "not a readable tar"),
}


def _text(path: Path) -> Path:
    path.write_text("no archive at all\n" * 100)
    return path


# Tables that lie beside the pictures a/0.png and b/0.png, and what is said of each.
TABLES: dict[str, tuple[bytes, str]] = {
    "table of nothing": (b"", "no rows"),
    "table of column names": (b"path,label\n", "no rows"),
    "table without labels": (b"path\na/0.png\n", "no column for its label"),
    "table without paths": (b"label\na\n", "no column for the picture"),
    "table of a column twice": (b"path,label,label\na/0.png,a,b\n", "twice"),
    "table of three bare columns": (b"a/0.png,a,b\n", "3 columns"),
    "table with a line too long": (b"path,label\na/0.png,a,b\n", "line 2: 3 columns"),
    "table with a label missing": (b"path,label\na/0.png,\n", "line 2: no label"),
    "table with a path missing": (b"path,label\n,a\n", "line 2: no path"),
    "table of files that are gone": (b"path,label\na/8.png,a\nb/9.png,b\n", "no image that can be read"),
    "table that leads up": (b"path,label\n../a/0.png,a\n", "does not go up"),
    "table that leads up inside": (b"path,label\na/../../x.png,a\n", "does not go up"),
    "table of absolute and relative": (b"path,label\n/a/0.png,a\na/0.png,a\n", "absolute and relative"),
    "table of absolute paths to nothing": (b"path,label\n/nowhere/0.png,a\n", "no image that can be read"),
    "table of the root": (b"path,label\n/,a\n", "names no file"),
    "table with a drive letter": (b"path,label\nC:\\a\\0.png,a\n", "drive letter"),
    "table of folders": (b"path,label\na,a\nb,b\n", "no image that can be read"),
    "table with a NUL": (b"path,label\na/0.png,a\0\n", "a NUL byte"),
    "table in another encoding": ("path,label\na/0.png,é\n".encode("latin-1"), "not UTF-8"),
    "table in UTF-16": ("path,label\na/0.png,a\n".encode("utf-16"), "not UTF-8"),
    "table of bytes": (bytes(range(128, 256)), "not UTF-8"),
    "table with a quote left open": (b'path,label\n"a/0.png,a\n', "line 2"),
    "table with comma and semicolon": (b"a/0.png;a,b\n", "comma and semicolon"),
    "table with a label of two lines": (b'path,label\na/0.png,"a\nb"\n', "text that can be printed"),
    "table with the label unknown": (b"path,label\na/0.png,unknown\n", "like none that were learned"),
    "table with a long label": (b"path,label\na/0.png," + b"a" * 300 + b"\n", "300 characters"),
    "table with a split of another name": (b"path,label,split\na/0.png,a,monday\n", "expected train, test"),
    "table with a split missing": (b"path,label,split\na/0.png,a,train\nb/0.png,b,\n", "empty split"),
    "table with task and domain": (b"path,label,task,domain\na/0.png,a,1,2\n", "not both"),
    "table of names that are too long": (b"path,label\n" + b"a" * 300 + b".png,a\n", "no image that can be read"),
}
