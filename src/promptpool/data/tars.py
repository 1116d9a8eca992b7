"""The members of a tar, from its headers.

Python's own reader takes a damaged header for the end of the file, follows a negative size backwards, and reads
whatever an extended header declares into memory. This one knows the few headers that archives of data have (POSIX
ustar, its extended paths and sizes, GNU's long names) and stops at anything else.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from promptpool.errors import BadFileError

BLOCK = 512
LARGEST_EXTENSION = 2**16  # bytes of an extended header or a long name
MOST_EXTENSIONS = 8  # before one member
MOST_RECORDS = 64  # of one extended header
LARGEST_REST = 2**20  # bytes of padding behind the end
DECIMAL = b"0123456789"
FILES = (b"0", b"\0", b"7")
FOLDER = b"5"
LONG_NAME, LONG_LINK, EXTENDED, FOR_ALL = b"L", b"K", b"x", b"g"


class Member(NamedTuple):
    """A file, a folder or something else."""

    name: str
    kind: str
    begin: int  # the first byte of its content in the unpacked tar
    size: int
    changed: str  # when, as its header has it


def open_tar(where: Path) -> BinaryIO:
    """The tar as it is once unpacked; what packs it is told by its first bytes."""
    with where.open("rb") as file:
        start = file.read(6)
    if start.startswith(b"\x1f\x8b"):
        return cast(BinaryIO, gzip.open(where))
    if start.startswith(b"BZh"):
        return cast(BinaryIO, bz2.open(where))
    if start == b"\xfd7zXZ\0":
        return cast(BinaryIO, lzma.open(where))
    return where.open("rb")


def members(file: BinaryIO, where: Path) -> Iterator[Member]:
    """Each member before its content is passed over, so that one who asks can stop at a size that is too large."""
    place, extensions = 0, 0
    told: dict[str, str] = {}  # what extended headers say of the member that follows
    while (header := _block(file, where)) != bytes(BLOCK):
        place += BLOCK
        kind, size = header[156:157], _number(header[124:136], where)
        if kind in (LONG_NAME, LONG_LINK, EXTENDED, FOR_ALL):
            extensions += 1
            if size > LARGEST_EXTENSION or extensions > MOST_EXTENSIONS:
                raise BadFileError(f"{where}: an extended header at byte {place} is larger than any name needs")
            content = file.read(size)
            if kind == LONG_NAME:
                told["path"] = _text(content)
            elif kind == EXTENDED:
                told |= _records(content, where)
        else:
            size = _number(told["size"].encode(), where, DECIMAL) if "size" in told else size
            name = told.get("path") or _name(header)
            member = Member(name, _kind(kind, name, told), place, size, header[136:148].hex())
            yield member
            told, extensions = {}, 0
            size = size if member.kind == "file" else 0
        place += size + -size % BLOCK
        file.seek(place)
    file.read(LARGEST_REST)  # what packs the tar may have a checksum at its end


def _block(file: BinaryIO, where: Path) -> bytes:
    header = file.read(BLOCK)
    if len(header) < BLOCK:
        raise BadFileError(f"{where}: cut off: a tar ends with an empty header")
    declared, blank = header[148:156], header[:148] + b" " * 8 + header[156:]
    if header != bytes(BLOCK) and sum(blank) != _number(declared, where):
        raise BadFileError(f"{where}: not a tar, or damaged: the sum of a header is wrong")
    return header


def _name(header: bytes) -> str:
    name, prefix = _text(header[:100]), _text(header[345:500])
    return f"{prefix}/{name}" if prefix and header[257:263] == b"ustar\0" else name


def _kind(kind: bytes, name: str, told: dict[str, str]) -> str:
    if kind == FOLDER or (kind == b"\0" and name.endswith("/")):
        return "folder"
    sparse = any(key.startswith("GNU.sparse") for key in told)
    return "file" if kind in FILES and not sparse else "other"


def _number(field: bytes, where: Path, digits: bytes = b"01234567") -> int:
    """Digits, or where they do not suffice a first byte of 128 and the number itself."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    written = field.strip(b" \0") or b"0"
    if written.strip(digits) or len(written) > 20:
        raise BadFileError(f"{where}: not a tar, or damaged: {field[:20]!r} is no number")
    return int(written, len(digits))


def _records(content: bytes, where: Path) -> dict[str, str]:
    """Lines of their own length, a blank, a key, = and a value."""
    found: dict[str, str] = {}
    place, last = 0, len(content.rstrip(b"\0"))
    while place < last:
        length, _, _ = content[place : place + 8].partition(b" ")
        end = place + _number(length, where, DECIMAL)
        key, equals, value = content[place + len(length) + 1 : end - 1].partition(b"=")
        if not equals or content[end - 1 : end] != b"\n" or len(found) == MOST_RECORDS:
            raise BadFileError(f"{where}: damaged: an extended header is no list of keys and values")
        found[_text(key)] = _text(value)
        place = end
    return found


def _text(content: bytes) -> str:
    return content.split(b"\0", 1)[0].decode("utf-8", "replace")
