"""Pickles of numbers, strings, lists, dicts and arrays, read without running code.

`pickle.Unpickler` asks `find_class` for every name that a pickle would import, and gets stand-ins here: numpy's array,
its type of numbers, and the encoding that Python 3 writes for Python 2's strings. A stand-in knows the few arguments
that a plain array has and refuses all others, so nothing is ever called that a pickle chose.

Before the unpickler runs, `_check` looks at what it would believe: more instructions than a data set has, a memo that
begins at a number it would make room for, whole numbers that all fall on one place of a dict, and tuples so deep that
their hash overflows the stack.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import struct
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from promptpool.errors import BadFileError

LARGEST_PICKLE = 2**28  # bytes; CIFAR-100's own has 155 million, and 224 million as Python 3 writes it
MOST_STEPS = 2**22  # CIFAR-100 takes some 600 thousand
MOST_NESTED = 5000  # marks, and tuples that nothing is called with at once; CIFAR-100 has some 200
INSTRUCTIONS = (
    *("PROTO", "FRAME", "STOP", "MARK", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD"),
    *("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1"),
    *("SHORT_BINSTRING", "BINSTRING", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"),
    *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS"),
    *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
    *("BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET"),
)
TUPLES, CALLS = ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"), ("REDUCE", "BUILD")
KEEPS = ("BINPUT", "LONG_BINPUT", "MEMOIZE")
NUMBERS = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8")
ORDERS = ("|", "<", ">", "=")
# What the unpickler and the stand-ins raise when bytes make no sense; a test feeds them nonsense.
BROKEN = (
    pickle.UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)


def load(content: bytes, what: str) -> dict[str | bytes, object]:
    """The dict that a pickle of protocol 2 to 4 holds; Python 2's strings are bytes."""
    if len(content) > LARGEST_PICKLE:
        raise BadFileError(f"{what}: {len(content)} bytes are more than a pickle here may have")
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes in strings of protocol 0, which are refused anyway
            _check(content)
        return _plain(_Unpickler(content).load())
    except BROKEN as error:
        reason = " ".join(str(error).split())[:150] or type(error).__name__
        raise BadFileError(f"{what}: not a pickle of plain arrays and lists: {reason}") from error


def _check(content: bytes) -> None:
    """Refuse instructions that arrays and lists do not need, and more than the unpickler can bear."""
    position, last, nested = 0, "", 0
    argument: Any
    for step, (code, argument, place) in enumerate(pickletools.genops(content)):
        name, position = code.name, place or 0
        if name not in INSTRUCTIONS:
            raise ValueError(f"instruction {name} at byte {position}")
        if step >= MOST_STEPS:
            raise ValueError(f"more than {MOST_STEPS} instructions")
        if name == "LONG_BINPUT" and argument > MOST_STEPS:
            raise ValueError(f"something is kept as {argument} at byte {position}")
        if name == "LONG1" and not -(2**63) <= argument < 2**63:
            raise ValueError(f"a number of more than 64 bits at byte {position}")
        if name not in KEEPS:
            nested += name == "MARK" or (last in TUPLES and name not in CALLS)
            last = name
        if nested > MOST_NESTED:
            raise ValueError(f"more than {MOST_NESTED} marks and tuples at byte {position}")
    if position != len(content) - 1:
        raise ValueError(f"it ends at byte {position}, and more follows")


class _Unpickler(pickle.Unpickler):
    """Gives a pickle the stand-ins, and no other name."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), fix_imports=False, encoding="bytes")
        self._unspent = len(content)  # bytes that strings may still become; each is written out once
        self._names = {
            "numpy.core.multiarray _reconstruct": _StandIn(_array),
            "numpy._core.multiarray _reconstruct": _StandIn(_array),
            "numpy ndarray": _StandIn(),
            "numpy dtype": _StandIn(_Type),
            "_codecs encode": _StandIn(self._encoded),
        }

    def find_class(self, module: str, name: str, /) -> object:
        asked = f"{module} {name}"
        if asked not in self._names:
            raise ValueError(f"it asks for {asked[:100]!r}, which could run code")
        return self._names[asked]

    def _encoded(self, text: object, codec: object) -> bytes:
        if not isinstance(text, str) or codec not in ("latin1", "latin-1"):
            raise ValueError("a string in another encoding than Latin-1")
        self._unspent -= len(text)
        if self._unspent < 0:
            raise ValueError("its strings would become more bytes than it has")
        return text.encode("latin-1")


class _StandIn:
    """What a pickle may name, call if it `makes` something, and not change."""

    def __init__(self, makes: Callable[..., object] | None = None) -> None:
        self._makes = makes

    def __call__(self, *arguments: object) -> object:
        if self._makes is None:
            raise ValueError("a call that makes no plain array")
        return self._makes(*arguments)

    def __setstate__(self, state: object) -> None:
        raise ValueError("a state for what is no array")


class _Type:
    """A number type; its byte order comes as its state."""

    def __init__(self, code: object, align: object, copy: object) -> None:
        if _text(code) not in NUMBERS or align != 0 or copy not in (0, 1):
            raise ValueError("numbers of another type than whole ones and fractions")
        self._name, self._order = _text(code), "="

    def __setstate__(self, state: object) -> None:
        match state:
            case (3, order, None, None, None, -1, -1, 0) if _text(order) in ORDERS:
                self._order = _text(order)
            case _:
                raise ValueError("a state that is not a plain number type's")

    def dtype(self) -> np.dtype[np.generic]:
        return np.dtype(self._order + self._name)


class _Array:
    """An array; its content comes as its state."""

    value: npt.NDArray[np.generic] | None = None

    def __setstate__(self, state: object) -> None:
        match state:
            case (1, tuple() as shape, _Type() as kind, 0 | 1 as fortran, bytes() as content) if self.value is None:
                sizes = [size for size in shape if isinstance(size, int) and 0 <= size <= len(content)]
                if len(sizes) != len(shape) or math.prod(sizes) * kind.dtype().itemsize != len(content):
                    raise ValueError(f"an array's shape does not fit its {len(content)} bytes")
                self.value = np.frombuffer(content, kind.dtype()).reshape(sizes, order="F" if fortran else "C")
            case _:
                raise ValueError("a state that is not a plain array's")


def _array(kind: object, shape: object, code: object) -> _Array:
    """What numpy calls to make an empty array, of which the state then makes another."""
    if not isinstance(kind, _StandIn) or shape != (0,) or _text(code) != "b":
        raise ValueError("a call that makes no plain array")
    return _Array()


def _plain(value: object) -> dict[str | bytes, object]:
    """The dict by name of numbers, strings, lists of them, and finished arrays."""
    if not isinstance(value, dict) or not all(isinstance(key, str | bytes) for key in value):
        raise ValueError("it holds something else than a dict by name")
    return {key: _plain_value(entry) for key, entry in value.items()}


def _plain_value(value: object) -> object:
    if isinstance(value, _Array) and value.value is not None:
        return value.value
    for item in value if isinstance(value, list) else [value]:
        if not (item is None or isinstance(item, int | str | bytes)):
            raise ValueError("a dict holds something else by name than numbers, strings, lists of them and arrays")
        if isinstance(item, str):
            item.encode()  # a half of a pair of surrogates is no text
    return value


def _text(code: object) -> str:
    return code.decode("latin-1") if isinstance(code, bytes) else str(code) if isinstance(code, str) else ""
