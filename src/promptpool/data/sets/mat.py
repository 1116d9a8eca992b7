"""The arrays of a MATLAB 5 file (The MathWorks, MAT-File Format).

What is particular here:
- A file is a row of elements, each with a type and a size; a variable is an element made of elements, and may be
  packed with zlib. No size is believed before it is compared with the bytes that are there.
- Numbers may be stored in a smaller type than their array has, and lie column by column.
- Variables other than real numbers are left out: text, cells, structures; empty, sparse and complex arrays.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from promptpool.data.stores import LARGEST_RATIO
from promptpool.errors import BadFileError

LARGEST_MAT = 2**30  # bytes of all arrays, unpacked; SVHN's training set has 225 million
MOST_DIMENSIONS = 16
HEADER = 128  # bytes
MATRIX, COMPRESSED = 14, 15
FLAGS, SHAPE, NAMES = 6, 5, (1, 2, 16)  # the types of a variable's first three elements
COMPLEX = 0x800
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
ORDERS = {b"IM": "<", b"MI": ">"}


class Element(NamedTuple):
    """A piece of a file and the number of its type."""

    kind: int
    content: memoryview


def read_mat(content: bytes, what: str) -> dict[str, npt.NDArray[np.generic]]:
    """The arrays of numbers by name."""
    order = ORDERS.get(content[126:HEADER])
    if order is None:
        raise BadFileError(f"{what}: not a MATLAB 5 file")
    version = _whole(memoryview(content)[124:126], order)
    if version != 0x100:
        raise BadFileError(f"{what}: a MATLAB file of version {version:#06x}, not 0x0100; save it with -v7")
    found: dict[str, npt.NDArray[np.generic]] = {}
    room = min(LARGEST_MAT, LARGEST_RATIO * len(content) + 2**24)
    for element in _elements(memoryview(content)[HEADER:], order, what):
        if element.kind == COMPRESSED:
            unpacked = _unpacked(element.content, room, what)
            room -= len(unpacked)
            element = next(_elements(memoryview(unpacked), order, what), element)
            if element.kind != MATRIX:
                raise BadFileError(f"{what}: what is packed is no variable")
        if element.kind == MATRIX:
            for name, array in _variables(element.content, order, room, what):
                room -= array.nbytes
                found[name] = array
    return found


def _elements(content: memoryview, order: str, what: str) -> Iterator[Element]:
    """The elements of a file or of a variable; a small one keeps its content in the second half of its tag."""
    place = 0
    while place < len(content):
        if len(content) - place < 8:
            raise BadFileError(f"{what}: ends within a tag")
        kind, begin = _whole(content[place : place + 4], order), place + 8
        if kind >> 16:
            kind, size, begin = kind & 0xFFFF, kind >> 16, place + 4
            after = place + 8
        else:
            size = _whole(content[place + 4 : begin], order)
            after = begin + size + (0 if kind == COMPRESSED else -size % 8)
        if size > (4 if begin == place + 4 else len(content) - begin):
            raise BadFileError(f"{what}: {size} bytes are declared where {len(content) - begin} are left")
        yield Element(kind, content[begin : begin + size])
        place = after


def _variables(content: memoryview, order: str, room: int, what: str) -> Iterator[tuple[str, npt.NDArray[np.generic]]]:
    """The array's name and numbers, or nothing where it holds something else."""
    pieces = _elements(content, order, what)
    flags = next(pieces, None)
    if flags is None or flags.kind != FLAGS or len(flags.content) != 8:
        raise BadFileError(f"{what}: a variable without flags")
    bits = _whole(flags.content[:4], order)
    if bits & 0xFF not in CLASSES or bits & COMPLEX:
        return
    shape, name, numbers = [next(pieces, None) for _ in range(3)]
    if shape is None or name is None or numbers is None or shape.kind != SHAPE or name.kind not in NAMES:
        raise BadFileError(f"{what}: a variable without shape, name or numbers")
    text = name.content.tobytes().decode("latin-1")
    sizes = np.frombuffer(shape.content[: len(shape.content) // 4 * 4], f"{order}i4").tolist()
    if 0 not in sizes:
        yield text, _array(sizes, numbers, CLASSES[bits & 0xFF], order, room, f"{what}: {text[:40]!r}")


def _array(sizes: list[int], numbers: Element, kind: str, order: str, room: int, what: str) -> npt.NDArray[np.generic]:
    if numbers.kind not in STORED:
        raise BadFileError(f"{what}: numbers of the unknown type {numbers.kind}")
    stored, wanted = np.dtype(order + STORED[numbers.kind]), np.dtype(kind)
    if not np.can_cast(stored, wanted) and not (wanted.kind == "f" and stored.kind in "iu"):
        raise BadFileError(f"{what}: {stored.name} numbers in an array of {wanted.name}")
    fits = 1 <= len(sizes) <= MOST_DIMENSIONS and min(sizes) > 0
    if not fits or math.prod(sizes) * stored.itemsize != len(numbers.content):
        raise BadFileError(f"{what}: {len(numbers.content)} bytes do not fit the declared shape")
    if math.prod(sizes) * wanted.itemsize > room:
        raise BadFileError(f"{what}: more bytes when unpacked than a file here may have")
    return np.frombuffer(numbers.content, stored).astype(wanted, copy=False).reshape(sizes, order="F")


def _unpacked(packed: memoryview, room: int, what: str) -> bytes:
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(packed, room + 1)
    except zlib.error as error:
        raise BadFileError(f"{what}: cannot be unpacked: {error}") from error
    if len(content) > room:
        raise BadFileError(f"{what}: more bytes when unpacked than a file here may have")
    if not stream.eof:
        raise BadFileError(f"{what}: a packed variable is cut off")
    return content


def _whole(content: memoryview, order: str) -> int:
    return int.from_bytes(content, "little" if order == "<" else "big")
