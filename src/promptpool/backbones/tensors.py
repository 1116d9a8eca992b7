"""Three kinds of weights file behind one face: names, shapes and types first, tensors on demand.

A caller can so refuse a file before anything large is allocated. Whatever is wrong with a file, the error is one
BadFileError that names it. A pickle is read with `weights_only=True`: it can hold tensors, never run code.
"""

from __future__ import annotations

import lzma
import math
import pickle
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from promptpool.errors import BadFileError

FLOATS = {"F16", "BF16", "F32", "F64", "float16", "bfloat16", "float32", "float64"}
NESTS = ("model", "state_dict", "model_state")  # where training scripts put the weights beside other things

# What the three readers raise on damaged files, found by reading them and by the fuzz test.
FAULTS = (
    SafetensorError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    OSError,
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    SyntaxError,
    tokenize.TokenError,
    RuntimeError,
    MemoryError,
)


class TensorEntry(NamedTuple):
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class TensorFile:
    """An open weights file. `read` gives the tensor of a name in float32, in memory of its own."""

    path: Path
    entries: dict[str, TensorEntry]
    read: Callable[[str], Tensor]
    metadata: dict[str, str]


@contextmanager
def open_tensor_file(path: Path) -> Iterator[TensorFile]:
    """The archive at `path`, of the kind its suffix says; open until the block ends."""
    if path.suffix not in READERS:
        kinds = ", ".join(READERS)
        raise BadFileError(f"{path}: a weights file must end in one of {kinds}")
    if not path.is_file():
        raise BadFileError(f"{path}: there is no such file")
    with ExitStack() as stack:
        with _faults(path):
            if path.stat().st_size == 0:
                raise BadFileError(f"{path}: the file is empty")
            archive = stack.enter_context(READERS[path.suffix](path))
        yield archive  # outside _faults: an error in the caller's block is the caller's


@contextmanager
def _faults(path: Path, tensor: str | None = None) -> Iterator[None]:
    try:
        yield
    except BadFileError:
        raise
    except FAULTS as error:
        place = "" if tensor is None else f"tensor {tensor}: "
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadFileError(f"{path}: {place}damaged, or not a weights file of this kind ({reason})") from error


def _own(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float32, copy=True, memory_format=torch.contiguous_format)


@contextmanager
def _safetensors(path: Path) -> Iterator[TensorFile]:
    with safe_open(path, framework="pt") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (it has no __iter__)
        entries = {name: TensorEntry(tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}

        def read(name: str) -> Tensor:
            with _faults(path, name):
                return _own(file.get_tensor(name))

        yield TensorFile(path, entries, read, file.metadata() or {})


@contextmanager
def _npz(path: Path) -> Iterator[TensorFile]:
    """As np.load reads it with allow_pickle=False, but with every header seen before any array."""
    with zipfile.ZipFile(path) as file:
        entries = {}
        for info in file.infolist():
            with file.open(info) as stored:
                entries[info.filename.removesuffix(".npy")] = _npy_entry(path, stored, info)

        def read(name: str) -> Tensor:
            with _faults(path, name), file.open(f"{name}.npy") as stored:
                return _own(torch.from_numpy(np.lib.format.read_array(stored, allow_pickle=False)))

        yield TensorFile(path, entries, read, {})


def _npy_entry(path: Path, stored: IO[bytes], info: zipfile.ZipInfo) -> TensorEntry:
    """An array's header, after a check that the array is as long as it says: numpy allocates before it reads."""
    version = np.lib.format.read_magic(stored)
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in headers:
        raise BadFileError(f"{path}: tensor {info.filename}: version {version} of the format, expected 1.0 or 2.0")
    shape, _, dtype = headers[version](stored)
    expected = math.prod(shape) * dtype.itemsize
    if info.file_size - stored.tell() != expected:
        held = info.file_size - stored.tell()
        raise BadFileError(f"{path}: tensor {info.filename}: {held} bytes for shape {[*shape]}, expected {expected}")
    return TensorEntry(tuple(shape), str(dtype))


@contextmanager
def _pickle(path: Path) -> Iterator[TensorFile]:
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise BadFileError(
            f"{path}: damaged, or a pickle that holds more than tensors, which could run code and is not read; "
            "save its state dict alone, best as .safetensors"
        ) from error
    for nest in NESTS:
        if isinstance(loaded, dict) and isinstance(loaded.get(nest), dict):
            loaded = loaded[nest]
    if not isinstance(loaded, dict):
        raise BadFileError(f"{path}: holds a {type(loaded).__name__}, expected a state dict")
    tensors = {name: tensor for name, tensor in loaded.items() if isinstance(tensor, Tensor)}
    if len(tensors) < len(loaded) or not all(isinstance(name, str) for name in tensors):
        raise BadFileError(f"{path}: holds {_stranger(loaded)}, expected named tensors only")
    for name, tensor in tensors.items():
        if tensor.layout is not torch.strided or tensor.device.type != "cpu":
            raise BadFileError(f"{path}: tensor {name}: {tensor.layout} on {tensor.device}, expected plain numbers")
        if tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
            raise BadFileError(f"{path}: tensor {name}: fewer numbers stored than shape {[*tensor.shape]} needs")
    entries = {name: TensorEntry(tuple(tensor.shape), str(tensor.dtype)[6:]) for name, tensor in tensors.items()}
    yield TensorFile(path, entries, lambda name: _own(tensors[name]), {})


def _stranger(loaded: dict[object, object]) -> str:
    return next(
        f"a {type(value).__name__} under {str(name)[:80]!r}"
        for name, value in loaded.items()
        if not isinstance(name, str) or not isinstance(value, Tensor)
    )


READERS = {".npz": _npz, ".safetensors": _safetensors, ".pth": _pickle, ".pt": _pickle, ".bin": _pickle}
