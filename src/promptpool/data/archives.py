"""Files by name, whether they lie in a folder, a zip or a tar.

Nothing is trusted: a name that leads outside, a link, or more bytes than declared or allowed is refused before
anything is written. Reading never unpacks to disk; `unpack` does, beside its place, and renames when it is whole.
"""

from __future__ import annotations

import lzma
import os
import shutil
import stat
import tarfile
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from promptpool.errors import BadFileError

LARGEST_FILE = 2**31  # bytes of one file read into memory
LARGEST_ARCHIVE = 2**36  # bytes of all files of an archive, unpacked
LARGEST_RATIO = 200  # unpacked over packed; images and arrays of bytes stay far below it
MOST_FILES = 10**7
SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)


class Store(Protocol):
    """Files that can be listed and read; names use / and lie inside the store."""

    where: Path

    def names(self) -> list[str]:
        """All regular files, in the order in which they are read fastest."""
        ...

    def stamp(self, name: str) -> str:
        """Changes whenever the file does, as far as can be told without reading it."""
        ...

    def read(self, name: str) -> bytes: ...


def is_archive(path: Path) -> bool:
    return path.name.lower().endswith(SUFFIXES)


def open_store(path: Path) -> Store:
    """The files of a folder, a zip or a tar."""
    if path.is_dir():
        return Folder(path)
    if not path.is_file():
        raise BadFileError(f"{path}: no such file or folder")
    return Zip(path) if path.name.lower().endswith(".zip") else Tar(path)


class Folder:
    """The files below a folder, without hidden ones; links are followed only to files inside."""

    def __init__(self, where: Path) -> None:
        self.where = where

    def names(self) -> list[str]:
        found = []
        for folder, folders, files in os.walk(self.where):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            base = Path(folder).relative_to(self.where)
            found += [(base / name).as_posix() for name in sorted(files) if not name.startswith(".")]
        return found

    def stamp(self, name: str) -> str:
        about = self._about(self._inside(name))
        return f"{about.st_size}-{about.st_mtime_ns}"

    def read(self, name: str) -> bytes:
        path = self._inside(name)
        about = self._about(path)
        if not stat.S_ISREG(about.st_mode):
            raise BadFileError(f"{path}: not a regular file")
        if about.st_size > LARGEST_FILE:
            raise BadFileError(f"{path}: {about.st_size} bytes are more than a file here may have")
        try:
            return path.read_bytes()
        except OSError as error:
            raise BadFileError(f"{path}: cannot be read: {error.strerror}") from error

    def _about(self, path: Path) -> os.stat_result:
        try:
            return path.stat()
        except OSError as error:
            raise BadFileError(f"{path}: {error.strerror}") from error

    def _inside(self, name: str) -> Path:
        try:
            path = (self.where / name).resolve()
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links in a circle; ValueError: a NUL byte
            raise BadFileError(f"{self.where}: {name!r}: {str(error) or 'cannot be found'}") from error
        if not path.is_relative_to(self.where.resolve()):
            raise BadFileError(f"{self.where / name}: lies outside {self.where}")
        return path


class Zip:
    """The files of a zip, in any order and from several threads."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self._lock = threading.Lock()
        try:
            self._file = zipfile.ZipFile(where)
        except (*BROKEN, ValueError) as error:
            raise BadFileError(f"{where}: not a readable zip: {error}") from error
        self._members = _zip_members(self._file, where)

    def names(self) -> list[str]:
        return list(self._members)

    def stamp(self, name: str) -> str:
        member = self._members[name]
        return f"{member.file_size}-{member.CRC:08x}"

    def read(self, name: str) -> bytes:
        member = self._members[name]
        _checked_size(member.file_size, f"{self.where}: {name}")
        try:
            with self._lock:
                return self._file.read(member)
        except (*BROKEN, RuntimeError, OSError) as error:  # RuntimeError: asks for a password
            raise BadFileError(f"{self.where}: {name}: cannot be read: {error}") from error


class Tar:
    """The files of a tar; a packed one is quick only when read in its own order."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self._lock = threading.Lock()
        try:
            self._file = tarfile.open(where)  # noqa: SIM115  # stays open for reading
            self._members = _tar_members(self._file, where)
        except (*BROKEN, OSError) as error:
            raise BadFileError(f"{where}: not a readable tar: {error}") from error

    def names(self) -> list[str]:
        return list(self._members)

    def stamp(self, name: str) -> str:
        return f"{self._members[name].size}-{self._members[name].mtime}"

    def read(self, name: str) -> bytes:
        member = self._members[name]
        _checked_size(member.size, f"{self.where}: {name}")
        try:
            with self._lock:
                file = self._file.extractfile(member)
                content = b"" if file is None else file.read()
        except (*BROKEN, OSError) as error:
            raise BadFileError(f"{self.where}: {name}: cannot be read: {error}") from error
        if len(content) != member.size:
            raise BadFileError(f"{self.where}: {name}: ends after {len(content)} of {member.size} bytes")
        return content


def unpack(archive: Path, into: Path) -> None:
    """Put an archive's files below `into`; what is there by the same name is replaced as a whole.

    Files are written to a folder beside `into` first, so that one who is stopped leaves nothing half done.
    """
    store = open_store(archive)
    into.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(dir=into, prefix=".unpacking-"))
    try:
        for name in store.names():
            path = beside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(store.read(name))
        for top in sorted(beside.iterdir()):
            target = into / top.name
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            top.replace(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _zip_members(file: zipfile.ZipFile, where: Path) -> dict[str, zipfile.ZipInfo]:
    found: dict[str, zipfile.ZipInfo] = {}
    for member in file.infolist():
        if stat.S_ISLNK(member.external_attr >> 16):
            raise BadFileError(f"{where}: {member.filename}: a link, which no data set here has")
        if not member.is_dir():
            found[_safe(member.filename, where)] = member
    _checked_total(sum(member.file_size for member in found.values()), len(found), where)
    return found


def _tar_members(file: tarfile.TarFile, where: Path) -> dict[str, tarfile.TarInfo]:
    found: dict[str, tarfile.TarInfo] = {}
    total = 0
    for member in _each(file):
        if member.isfile():
            found[_safe(member.name, where)] = member
            total += member.size
            _checked_total(total, len(found), where)
        elif not member.isdir():
            raise BadFileError(f"{where}: {member.name}: a link or device, which no data set here has")
    return found


def _each(file: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (member := file.next()) is not None:
        yield member


def _safe(name: str, where: Path) -> str:
    """The name, if it leads to a place inside on every system."""
    plain = name.replace("\\", "/").removeprefix("./")
    parts = PurePosixPath(plain).parts
    if not parts or plain.startswith("/") or ".." in parts or ":" in parts[0] or "\0" in plain:
        raise BadFileError(f"{where}: {name!r}: leads outside the archive")
    return "/".join(parts)


def _checked_size(size: int, what: str) -> None:
    if size > LARGEST_FILE:
        raise BadFileError(f"{what}: {size} bytes are more than a file here may have")


def _checked_total(total: int, count: int, where: Path) -> None:
    packed = max(where.stat().st_size, 1)
    if total > LARGEST_ARCHIVE or total > LARGEST_RATIO * packed + 2**24 or count > MOST_FILES:
        raise BadFileError(f"{where}: {packed} bytes would become {count} files of {total}; refused")


def read_packed(file: IO[bytes], limit: int, what: str) -> bytes:
    """All that a decompressing file holds, unless it is more than `limit` bytes."""
    try:
        content = file.read(limit + 1)
    except (*BROKEN, OSError) as error:
        raise BadFileError(f"{what}: cannot be unpacked: {error}") from error
    if len(content) > limit:
        raise BadFileError(f"{what}: more than {limit} bytes when unpacked")
    return content
