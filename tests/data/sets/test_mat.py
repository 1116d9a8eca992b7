"""MATLAB 5 files in both byte orders, packed and plain."""

from __future__ import annotations

import struct
import tracemalloc
import zlib

import numpy as np
import pytest

from array_files import Matlab
from damage import damaged, outcome
from promptpool.data.sets import mat
from promptpool.data.sets.mat import read_mat

WRITERS = [
    pytest.param(Matlab(order, compress, small), id=f"{order}{'packed' if compress else 'plain'}{'-small' * small}")
    for order in "<>"
    for compress in (True, False)
    for small in (True, False)
]


def refusal(content: bytes) -> str:
    message = outcome(read_mat, content, "numbers.mat")
    assert message.startswith("numbers.mat: ")
    return message


@pytest.mark.parametrize("writer", WRITERS)
def test_arrays_of_every_type(writer: Matlab) -> None:
    arrays = {
        kind: np.arange(24).reshape(2, 3, 4).astype(kind)
        for kind in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8")
    }
    found = read_mat(writer.dumps(arrays), "numbers.mat")
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


@pytest.mark.parametrize("writer", WRITERS)
def test_numbers_stored_in_a_smaller_type(writer: Matlab) -> None:
    arrays = {"a": np.array([[1.0, 2.0, 250.0]]), "b": np.array([[-3], [70]], "i8"), "c": np.array([[7.0]], "f4")}
    found = read_mat(writer.dumps(arrays, {"a": "u1", "b": "i1", "c": "i4"}), "numbers.mat")
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_bytes_as_matlab_writes_them() -> None:
    """x = uint8([1 2; 3 4]) on a little-endian machine, worked by hand."""
    head = b"MATLAB 5.0 MAT-file".ljust(124) + bytes.fromhex("0001") + b"IM"
    flags = bytes.fromhex("06000000 08000000 09000000 00000000")
    shape = bytes.fromhex("05000000 08000000 02000000 02000000")
    name_and_numbers = bytes.fromhex("01000100 78000000 02000400 01030204")
    variable = bytes.fromhex("0e000000 30000000") + flags + shape + name_and_numbers
    assert read_mat(head + variable, "numbers.mat")["x"].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("order", "<>")
def test_what_is_not_real_numbers_is_left_out(order: str) -> None:
    writer = Matlab(order, compress=False)
    text = writer.packed(writer.flags(4) + writer.rest([1, 2], "text", 4, b"\0a\0b"))
    cell = writer.packed(writer.flags(1) + writer.element(5, bytes(8)) + writer.element(1, b"cell"))
    complex_numbers = writer.packed(
        writer.flags(0x806) + writer.rest([1, 1], "z", 9, bytes(8)) + writer.element(9, bytes(8))
    )
    empty = writer.packed(writer.flags(6) + writer.rest([0, 2**31 - 1, 2**31 - 1], "empty", 9, b""))
    content = writer.dumps({"x": np.ones((2, 2))})
    assert list(read_mat(content + text + cell + complex_numbers + empty, "numbers.mat")) == ["x"]


PLAIN = Matlab(compress=False, small=False)
HEAD = PLAIN.dumps({})
FLAGS = PLAIN.flags(9)


def variable(content: bytes) -> bytes:
    return HEAD + PLAIN.element(14, content)


def array(shape: list[int], kind: int, numbers: bytes) -> bytes:
    return variable(FLAGS + PLAIN.rest(shape, "x", kind, numbers))


def packed(content: bytes) -> bytes:
    return struct.pack("<II", 15, len(content)) + content


WRONG = {
    "empty": b"",
    "a start only": HEAD[:127],
    "another byte order": HEAD[:126] + b"II",
    "version 7.3": HEAD[:124] + b"\x00\x02IM",
    "text": b"<html>" * 50,
    "half a tag": HEAD + b"\x0e\0\0\0",
    "a size of four thousand million": HEAD + struct.pack("<II", 14, 2**32 - 1),
    "a packed size of four thousand million": HEAD + struct.pack("<II", 15, 2**32 - 1),
    "a small element that is not small": HEAD + struct.pack("<II", 5 << 16 | 14, 0),
    "nothing in a variable": variable(b""),
    "no flags": variable(PLAIN.element(5, bytes(8))),
    "short flags": variable(PLAIN.element(6, bytes(4))),
    "flags alone": variable(FLAGS),
    "no numbers": variable(FLAGS + PLAIN.element(5, bytes([1, 0, 0, 0] * 2)) + PLAIN.element(1, b"x")),
    "a name for a shape": variable(FLAGS + PLAIN.element(1, b"x") * 3),
    "numbers of no type": array([1, 1], 8, b"1"),
    "floats in an array of bytes": array([1, 1], 9, bytes(8)),
    "negative numbers in an array of bytes": array([1, 1], 1, bytes(1)),
    "too few numbers": array([2, 2], 2, bytes(3)),
    "too many numbers": array([2, 2], 2, bytes(5)),
    "less than nothing": array([-2, -2], 2, bytes(4)),
    "a product that wraps": array([2**16, 2**16, 2**16, 2**16], 2, b""),
    "a hundred dimensions": array([1] * 100, 2, bytes(1)),
    "no dimensions": array([], 2, bytes(1)),
    "no zlib": HEAD + packed(b"text"),
    "zlib of nothing": HEAD + packed(zlib.compress(b"")),
    "zlib of zlib": HEAD + packed(zlib.compress(Matlab().packed(FLAGS))),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_that_is_wrong(wrong: str) -> None:
    refusal(WRONG[wrong])


def test_version_7_3_says_what_to_do() -> None:
    assert "version 0x0200, not 0x0100; save it with -v7" in refusal(WRONG["version 7.3"])


@pytest.mark.parametrize("writer", WRITERS)
def test_every_truncation_is_refused_or_lacks_the_last_array(writer: Matlab) -> None:
    content = writer.dumps({"a": np.ones((2, 3), "u1"), "b": np.ones((3, 3))})
    for end in range(len(content)):
        if not outcome(read_mat, content[:end], "numbers.mat"):
            assert len(read_mat(content[:end], "numbers.mat")) < 2


def test_an_array_that_would_fill_memory_is_refused() -> None:
    zeros = zlib.compress(PLAIN.element(14, FLAGS + PLAIN.rest([2**13, 2**13], "x", 2, bytes(2**26))), 9)
    content = HEAD + packed(zeros)
    assert len(content) < 2**17
    tracemalloc.start()
    try:
        assert "more bytes when unpacked" in refusal(content)
        assert tracemalloc.get_traced_memory()[1] < 2**27
    finally:
        tracemalloc.stop()


def test_many_arrays_that_would_fill_memory_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mat, "LARGEST_MAT", 100_000)
    arrays = {f"x{index}": np.zeros((1000, 8), "u1") for index in range(20)}
    assert "more bytes when unpacked" in refusal(Matlab().dumps(arrays))
    widened = Matlab(compress=False).dumps({"x": np.zeros((1000, 20))}, {"x": "u1"})
    assert "more bytes when unpacked" in refusal(widened)


@pytest.mark.parametrize("writer", WRITERS)
def test_damaged_files_are_read_or_refused(writer: Matlab) -> None:
    whole = writer.dumps({"x": np.arange(60, dtype=np.uint8).reshape(3, 4, 5), "y": np.ones((3, 1))})
    for content in damaged(whole, 200, seed=3, fields=250):
        outcome(read_mat, content, "numbers.mat")
