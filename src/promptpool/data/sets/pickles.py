"""Pickles of numbers, strings, lists, dicts and arrays, read without running code.

A pickle is a program for a small stack machine. This is such a machine, without the instructions that import or
call: the few names that arrays and Python 2 strings need stand for themselves, and `reduce` and `build` know what they
mean. Lists hold no lists and dicts no dicts, so nothing is deep; every length is checked against what is there.
"""

from __future__ import annotations

import math
import pickle  # for the codes of its instructions only
import pickletools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from promptpool.errors import BadFileError

LARGEST_PICKLE = 2**28  # bytes; CIFAR-100's own has 155 million, and 224 million as Python 3 writes it
MOST_STEPS = 2**22  # CIFAR-100 takes some 600 thousand
LONGEST_TUPLE = 16
MOST_MARKS = 100  # open at once: lists within lists
ORDERS = ("|", "<", ">", "=")
NUMBERS = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8")
NAMES = {
    "numpy.core.multiarray _reconstruct": "array",
    "numpy._core.multiarray _reconstruct": "array",
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
}


def load(content: bytes, what: str) -> object:
    """The value that a pickle of protocol 2 to 4 holds; Python 2's strings are bytes."""
    if len(content) > LARGEST_PICKLE:
        raise BadFileError(f"{what}: {len(content)} bytes are more than a pickle here may have")
    try:
        return _Machine(content).run()
    except _Refusal as refusal:
        raise BadFileError(f"{what}: not a pickle of plain arrays and lists: {refusal}") from refusal


class _Refusal(Exception):  # noqa: N818  # never leaves this file
    """Why a pickle is not read."""


@dataclass(frozen=True)
class _Name:
    """What a pickle would import; here it is only a name."""

    means: str


class _Type:
    """A number type before and after its byte order is told."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.order = "="


class _Array:
    """An array before and after its content is told."""

    def __init__(self) -> None:
        self.value: npt.NDArray[np.generic] | None = None


class _Machine:
    def __init__(self, content: bytes) -> None:
        self.content = content
        self.position = 0
        self.stack: list[object] = []
        self.outer: list[list[object]] = []  # the stacks below the marks
        self.memo: dict[int, object] = {}
        self.unspent = len(content)  # bytes that strings may still become; each is written out once

    def run(self) -> object:
        for _ in range(MOST_STEPS):
            code = self.take(1)
            if code == pickle.STOP:
                return self.finished()
            if code not in INSTRUCTIONS:
                raise _Refusal(f"instruction {_called(code)} at byte {self.position - 1}")
            INSTRUCTIONS[code](self)
        raise _Refusal(f"more than {MOST_STEPS} instructions")

    def finished(self) -> object:
        value = _given(self.pop())
        if self.stack or self.outer or self.position != len(self.content):
            raise _Refusal(f"it ends at byte {self.position - 1}, and more follows")
        if not isinstance(value, int | str | bytes | list | dict | np.ndarray | None):
            raise _Refusal("it holds an unfinished array")
        return value

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self.content) - self.position:
            raise _Refusal(f"{count} bytes wanted at byte {self.position} of {len(self.content)}")
        self.position += count
        return self.content[self.position - count : self.position]

    def number(self, size: int, signed: bool = False) -> int:
        return int.from_bytes(self.take(size), "little", signed=signed)

    def line(self) -> str:
        end = self.content.find(b"\n", self.position, self.position + 100)
        if end < 0:
            raise _Refusal(f"no name at byte {self.position}")
        return self.take(end + 1 - self.position)[:-1].decode("latin-1")

    def push(self, value: object) -> None:
        self.stack.append(value)

    def pop(self) -> object:
        if not self.stack:
            raise _Refusal(f"nothing is left to work on at byte {self.position}")
        return self.stack.pop()

    def pop_mark(self) -> list[object]:
        if not self.outer:
            raise _Refusal(f"no mark is left at byte {self.position}")
        items, self.stack = self.stack, self.outer.pop()
        return items

    def mark(self) -> None:
        if len(self.outer) >= MOST_MARKS:
            raise _Refusal(f"more than {MOST_MARKS} open marks at byte {self.position}")
        self.outer.append(self.stack)
        self.stack = []

    def top(self) -> object:
        value = self.pop()
        self.push(value)
        return value

    def keep(self, key: int) -> None:
        self.memo[key] = self.top()

    def recall(self, key: int) -> None:
        if key not in self.memo:
            raise _Refusal(f"nothing was kept as {key}")
        self.push(_given(self.memo[key]))

    def text(self, size: int) -> None:
        try:
            self.push(self.take(size).decode())
        except UnicodeDecodeError as error:
            raise _Refusal(f"text before byte {self.position} is not UTF-8") from error

    def extend(self, items: list[object]) -> None:
        target = self.top()
        if not isinstance(target, list) or not all(
            item is None or isinstance(item, int | str | bytes) for item in items
        ):
            raise _Refusal(f"at byte {self.position} a list would hold more than numbers and strings")
        target.extend(items)

    def update(self, items: list[object]) -> None:
        target = self.top()
        if not isinstance(target, dict) or len(items) % 2:
            raise _Refusal(f"no pairs for a dict at byte {self.position}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | bytes) or not isinstance(value, int | str | bytes | list | np.ndarray | None):
                raise _Refusal(f"a dict at byte {self.position} holds something else by name than numbers and lists")
            target[key] = value

    def group(self, items: list[object]) -> None:
        """A tuple; the states of arrays have tuples of at most two levels."""
        inner = [item for item in items if isinstance(item, tuple)]
        if len(items) > LONGEST_TUPLE or any(isinstance(item, tuple) for each in inner for item in each):
            raise _Refusal(f"a tuple at byte {self.position} is longer or deeper than an array needs")
        self.push(tuple(items))

    def last(self, count: int) -> list[object]:
        return [self.pop() for _ in range(count)][::-1]

    def name(self, module: object, attribute: object) -> None:
        name = f"{module} {attribute}" if isinstance(module, str) and isinstance(attribute, str) else ""
        if name not in NAMES:
            raise _Refusal(f"it asks for {name[:100]!r}, which could run code")
        self.push(_Name(NAMES[name]))

    def reduce(self) -> None:
        arguments, name = self.pop(), self.pop()
        match name, arguments:
            case _Name("array"), (_Name("ndarray"), (0,), "b" | b"b"):
                self.push(_Array())
            case _Name("dtype"), (str() | bytes() as code, 0, 0 | 1) if _text(code) in NUMBERS:
                self.push(_Type(_text(code)))
            case _Name("encode"), (str() as text, "latin1" | "latin-1"):
                self.push(self.encoded(text))
            case _:
                raise _Refusal(f"a call at byte {self.position - 1} that makes no plain array")

    def encoded(self, text: str) -> bytes:
        self.unspent -= len(text)
        if self.unspent < 0:
            raise _Refusal("its strings would become more bytes than it has")
        try:
            return text.encode("latin-1")
        except UnicodeEncodeError as error:
            raise _Refusal(f"the string before byte {self.position} is not Latin-1") from error

    def build(self) -> None:
        state, target = self.pop(), self.pop()
        match target, state:
            case _Type(), (3, str() | bytes() as order, None, None, None, -1, -1, 0) if _text(order) in ORDERS:
                target.order = _text(order)
                self.push(target)
            case _Array(value=None), (1, tuple() as shape, _Type() as kind, 0 | 1 as fortran, bytes() as content):
                target.value = _array(shape, kind, bool(fortran), content)
                self.push(target.value)
            case _:
                raise _Refusal(f"a state at byte {self.position - 1} that is not a plain array's")


def _called(code: bytes) -> str:
    return next((known.name for known in pickletools.opcodes if known.code == code.decode("latin-1")), code.hex())


def _given(value: object) -> object:
    return value.value if isinstance(value, _Array) and value.value is not None else value


def _text(code: str | bytes) -> str:
    return code.decode("latin-1") if isinstance(code, bytes) else code


def _array(shape: tuple[object, ...], kind: _Type, fortran: bool, content: bytes) -> npt.NDArray[np.generic]:
    dtype = np.dtype(kind.order + kind.name)
    sizes = [size for size in shape if isinstance(size, int) and 0 <= size <= len(content)]
    if len(sizes) != len(shape) or math.prod(sizes) * dtype.itemsize != len(content):
        raise _Refusal(f"an array's shape does not fit its {len(content)} bytes")
    return np.frombuffer(content, dtype).reshape(sizes, order="F" if fortran else "C")


INSTRUCTIONS: dict[bytes, Callable[[_Machine], object]] = {
    pickle.PROTO: lambda machine: machine.take(1),
    pickle.FRAME: lambda machine: machine.take(8),
    pickle.NONE: lambda machine: machine.push(None),
    pickle.NEWTRUE: lambda machine: machine.push(True),
    pickle.NEWFALSE: lambda machine: machine.push(False),
    pickle.BININT: lambda machine: machine.push(machine.number(4, signed=True)),
    pickle.BININT1: lambda machine: machine.push(machine.number(1)),
    pickle.BININT2: lambda machine: machine.push(machine.number(2)),
    pickle.LONG1: lambda machine: machine.push(machine.number(machine.number(1), signed=True)),
    pickle.SHORT_BINSTRING: lambda machine: machine.push(machine.take(machine.number(1))),
    pickle.BINSTRING: lambda machine: machine.push(machine.take(machine.number(4, signed=True))),
    pickle.SHORT_BINBYTES: lambda machine: machine.push(machine.take(machine.number(1))),
    pickle.BINBYTES: lambda machine: machine.push(machine.take(machine.number(4))),
    pickle.BINBYTES8: lambda machine: machine.push(machine.take(machine.number(8))),
    pickle.SHORT_BINUNICODE: lambda machine: machine.text(machine.number(1)),
    pickle.BINUNICODE: lambda machine: machine.text(machine.number(4)),
    pickle.BINUNICODE8: lambda machine: machine.text(machine.number(8)),
    pickle.EMPTY_LIST: lambda machine: machine.push([]),
    pickle.APPEND: lambda machine: machine.extend(machine.last(1)),
    pickle.APPENDS: lambda machine: machine.extend(machine.pop_mark()),
    pickle.EMPTY_DICT: lambda machine: machine.push({}),
    pickle.SETITEM: lambda machine: machine.update(machine.last(2)),
    pickle.SETITEMS: lambda machine: machine.update(machine.pop_mark()),
    pickle.EMPTY_TUPLE: lambda machine: machine.push(()),
    pickle.TUPLE: lambda machine: machine.group(machine.pop_mark()),
    pickle.TUPLE1: lambda machine: machine.group(machine.last(1)),
    pickle.TUPLE2: lambda machine: machine.group(machine.last(2)),
    pickle.TUPLE3: lambda machine: machine.group(machine.last(3)),
    pickle.MARK: lambda machine: machine.mark(),
    pickle.BINPUT: lambda machine: machine.keep(machine.number(1)),
    pickle.LONG_BINPUT: lambda machine: machine.keep(machine.number(4)),
    pickle.MEMOIZE: lambda machine: machine.keep(len(machine.memo)),
    pickle.BINGET: lambda machine: machine.recall(machine.number(1)),
    pickle.LONG_BINGET: lambda machine: machine.recall(machine.number(4)),
    pickle.GLOBAL: lambda machine: machine.name(machine.line(), machine.line()),
    pickle.STACK_GLOBAL: lambda machine: machine.name(*machine.last(2)),
    pickle.REDUCE: lambda machine: machine.reduce(),
    pickle.BUILD: lambda machine: machine.build(),
}
