"""Frozen features on disk, shared by processes and runs.

    FOLDER/FINGERPRINT/NAME.safetensors    rows of features with the ids of their images, and a checksum

A file is written once, under a name of its own, and never changed, so that no process waits for another. Files are
mapped into memory: a row is read from disk when it is asked for. A damaged file is removed, and its features are
computed again. The folder stays below a limit, PROMPTPOOL_FEATURES_GB or 4 GB; what was not used for longest goes
first, and with a limit of 0 nothing is written.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from promptpool.errors import BadFileError
from promptpool.files import gigabytes, write_whole

MANY = 16  # files of one fingerprint, above which they are joined


class FeatureFiles:
    """The files of one fingerprint; `width` is that of a row."""

    def __init__(self, folder: Path, fingerprint: str, width: int) -> None:
        self.folder = folder / fingerprint[:16]
        self.fingerprint, self.width = fingerprint, width
        self._known: set[Path] = set()  # that were read
        self._own: set[Path] = set()  # that were written here, and have nothing that was not here

    def read(self, *, own: bool = False) -> Iterator[tuple[list[int], Tensor]]:
        """Ids and rows of every file that was not read yet; with `own` of those that were written here too."""
        for path in sorted(self.folder.glob("*.safetensors")):
            if path in self._known or (path in self._own and not own):
                continue
            try:
                ids, rows = self._read(path)
            except FileNotFoundError:  # another process joined it with others
                continue
            except (BadFileError, SafetensorError, OSError):
                with suppress(OSError):
                    path.unlink()
                continue
            self._known.add(path)
            with suppress(OSError):
                path.touch()  # used
            yield ids.tolist(), rows

    def _read(self, path: Path) -> tuple[Tensor, Tensor]:
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                ids, rows = file.get_tensor("ids"), file.get_tensor("features")
        except RuntimeError as error:  # torch opens the file a second time, and another process may have joined it
            raise FileNotFoundError(f"{path}: {error}") from error
        fits = (
            metadata.get("of") == self.fingerprint
            and ids.dtype == torch.long
            and ids.ndim == 1
            and rows.dtype == torch.float32
            and rows.shape == (len(ids), self.width)
        )
        if not fits or metadata.get("crc") != _checksum(ids, rows) or len(ids.unique()) < len(ids):
            raise BadFileError(f"{path}: damaged")
        return ids, rows

    def write(self, ids: list[int], rows: Tensor) -> None:
        """Add a file; a disk that is full is no reason to stop, features can be computed again."""
        if limit() == 0:
            return
        with suppress(OSError):
            self._own.add(self._write(torch.tensor(ids, dtype=torch.long), rows.contiguous()))
            self._join()
            trim(self.folder.parent, limit())

    def _write(self, ids: Tensor, rows: Tensor) -> Path:
        path = self.folder / f"{uuid4().hex}.safetensors"
        metadata = {"of": self.fingerprint, "crc": _checksum(ids, rows)}
        write_whole(path, save({"ids": ids, "features": rows}, metadata=metadata))
        return path

    def _join(self) -> None:
        """Make one file of many small ones; a file goes when its rows are in the new one."""
        paths = sorted(self.folder.glob("*.safetensors"))
        if len(paths) <= MANY:
            return
        rows: dict[int, Tensor] = {}
        joined = []
        for path in paths:
            with suppress(BadFileError, SafetensorError, OSError):  # another process may have joined them meanwhile
                ids, features = self._read(path)
                rows |= dict(zip(ids.tolist(), features, strict=True))
                joined.append(path)
        if not rows:
            return
        path = self._write(torch.tensor(list(rows)), torch.stack(list(rows.values())))
        if self._own.union(self._known).issuperset(joined):
            self._own.add(path)
        for path in joined:
            path.unlink(missing_ok=True)


def limit() -> int:
    """The most bytes that all files together may have."""
    return gigabytes("PROMPTPOOL_FEATURES_GB", 4)


def trim(folder: Path, most: int) -> None:
    """Remove files until the others have at most so many bytes; those that were not used for longest go first."""
    found = []
    for path in folder.glob("*/*.safetensors"):
        with suppress(FileNotFoundError):
            found.append((path.stat().st_mtime_ns, path.stat().st_size, path))
    left = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if left <= most:
            return
        with suppress(OSError):  # Windows removes no file that another process reads
            path.unlink()
            left -= size


def _checksum(ids: Tensor, rows: Tensor) -> str:
    return str(zlib.crc32(rows.numpy().data, zlib.crc32(ids.numpy().data)))
