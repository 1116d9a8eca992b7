"""Small files in the publishers' layouts, written byte by byte."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

Pickled = int | bytes | list[int] | list[bytes] | npt.NDArray[np.generic]
Array = npt.NDArray[np.generic]


class Python2:
    """What cPickle of Python 2 writes in protocol 2, as CIFAR's files have it; its memo begins at one."""

    def __init__(self, numpy_module: str = "numpy.core.multiarray") -> None:
        self.numpy_module = numpy_module.encode()
        self.kept = 0

    def dumps(self, entries: Mapping[bytes, Pickled]) -> bytes:
        items = b"".join(self.string(key) + self.value(value) for key, value in entries.items())
        return b"\x80\x02}" + self.put() + b"(" + items + b"u."

    def put(self) -> bytes:
        self.kept += 1
        return struct.pack("<BB", ord("q"), self.kept) if self.kept < 256 else struct.pack("<BI", ord("r"), self.kept)

    def value(self, value: Pickled) -> bytes:
        if isinstance(value, bytes):
            return self.string(value)
        if isinstance(value, int):
            return number(value)
        if isinstance(value, np.ndarray):
            return self.array(value)
        batches = (value[begin : begin + 1000] for begin in range(0, len(value), 1000))
        start = b"]" + self.put()
        return start + b"".join(b"(" + b"".join(self.value(item) for item in batch) + b"e" for batch in batches)

    def string(self, value: bytes) -> bytes:
        head = (
            struct.pack("<BB", ord("U"), len(value)) if len(value) < 256 else struct.pack("<Bi", ord("T"), len(value))
        )
        return head + value + self.put()

    def array(self, value: Array, content: bytes | None = None) -> bytes:
        fortran = value.flags.f_contiguous and not value.flags.c_contiguous
        empty = b"c" + self.numpy_module + b"\n_reconstruct\n" + self.put() + b"cnumpy\nndarray\n" + self.put()
        empty += b"K\x00\x85U\x01b\x87R" + self.put()
        shape = b"(" + b"".join(number(size) for size in value.shape) + b"t"
        kind = (
            b"cnumpy\ndtype\n"
            + self.put()
            + self.string(value.dtype.str[1:].encode())
            + b"K\x00K\x01\x87R"
            + self.put()
        )
        kind += b"(K\x03U\x01" + value.dtype.str[:1].encode() + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        body = self.string(value.tobytes("F" if fortran else "C") if content is None else content)
        return empty + b"(K\x01" + shape + kind + (b"\x88" if fortran else b"\x89") + body + b"tb"


def number(value: int) -> bytes:
    if 0 <= value < 256:
        return struct.pack("<BB", ord("K"), value)
    if 0 <= value < 65536:
        return struct.pack("<BH", ord("M"), value)
    if -(2**31) <= value < 2**31:
        return struct.pack("<Bi", ord("J"), value)
    return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)


def random_rows(count: int, seed: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def pictures(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """CIFAR's rows as images, one pixel at a time."""
    images = np.zeros((len(rows), 32, 32, 3), np.uint8)
    for channel in range(3):
        for y in range(32):
            images[:, y, :, channel] = rows[:, channel * 1024 + y * 32 : channel * 1024 + y * 32 + 32]
    return images


def binary_records(rows: npt.NDArray[np.uint8], *labels: Iterable[int]) -> bytes:
    heads = zip(*labels, strict=True)
    return b"".join(bytes(head) + row.tobytes() for head, row in zip(heads, rows, strict=True))


def packed(files: Mapping[str, bytes], path: Path) -> None:
    """A tar, packed as the end of its name says."""
    mode = "w:" + path.suffix[1:] if path.suffix != ".tar" else "w"
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def zeros_packed(count: int) -> bytes:
    """`count` times 16 million zero bytes, gzipped in little time and space."""
    return gzip.compress(bytes(2**24), mtime=0) * count


def idx(array: Array) -> bytes:
    shape = b"".join(struct.pack(">I", size) for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + shape + array.astype(np.uint8).tobytes()


MAT_TYPES = {"i1": 1, "u1": 2, "i2": 3, "u2": 4, "i4": 5, "u4": 6, "f4": 7, "f8": 9, "i8": 12, "u8": 13}
MAT_CLASSES = {"f8": 6, "f4": 7, "i1": 8, "u1": 9, "i2": 10, "u2": 11, "i4": 12, "u4": 13, "i8": 14, "u8": 15}


class Matlab:
    """A writer of MATLAB 5 files in either byte order; elements of up to four bytes are small when `small` says so."""

    def __init__(self, order: str = "<", compress: bool = True, small: bool = True) -> None:
        self.order, self.compress, self.small = order, compress, small

    def dumps(self, arrays: Mapping[str, Array], stored: Mapping[str, str] | None = None) -> bytes:
        """`stored` names a smaller type in which an array's numbers lie."""
        text = b"MATLAB 5.0 MAT-file, Platform: test".ljust(116)
        head = text + bytes(8) + struct.pack(self.order + "H", 0x100) + (b"IM" if self.order == "<" else b"MI")
        kinds = stored or {}
        return head + b"".join(self.variable(name, array, kinds.get(name)) for name, array in arrays.items())

    def variable(self, name: str, array: Array, stored: str | None = None) -> bytes:
        kind = array.dtype.str[1:]
        numbers = array.astype(self.order + (stored or kind)).tobytes("F")
        return self.packed(
            self.flags(MAT_CLASSES[kind]) + self.rest(array.shape, name, MAT_TYPES[stored or kind], numbers)
        )

    def flags(self, bits: int) -> bytes:
        return self.element(6, struct.pack(self.order + "II", bits, 0))

    def rest(self, shape: Iterable[int], name: str, kind: int, numbers: bytes) -> bytes:
        sizes = b"".join(struct.pack(self.order + "i", size) for size in shape)
        return self.element(5, sizes) + self.element(1, name.encode()) + self.element(kind, numbers)

    def packed(self, variable: bytes) -> bytes:
        matrix = self.element(14, variable)
        if not self.compress:
            return matrix
        content = zlib.compress(matrix)
        return struct.pack(self.order + "II", 15, len(content)) + content

    def element(self, kind: int, content: bytes) -> bytes:
        if self.small and 0 < len(content) <= 4:
            return struct.pack(self.order + "I", len(content) << 16 | kind) + content.ljust(4, b"\0")
        return struct.pack(self.order + "II", kind, len(content)) + content + bytes(-len(content) % 8)
