"""Files by name, whether they lie in a folder, a zip or a tar.

Nothing is trusted: a name that leads outside, a link, or more bytes than declared or allowed is refused before
anything is written. Reading never unpacks to disk; `unpack` does, beside its place, and renames when it is whole.
"""

from __future__ import annotations

import lzma
import os
import shutil
import stat
import tempfile
import threading
import weakref
import zipfile
import zlib
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol, TypeVar

from promptpool.data import tars
from promptpool.errors import BadFileError

LARGEST_FILE = 2**31  # bytes of one file read into memory
LARGEST_ARCHIVE = 2**36  # bytes of all files of an archive, unpacked
LARGEST_RATIO = 200  # unpacked over packed; images and arrays of bytes stay far below it
MOST_FILES = 10**7
PIECE = 2**20  # bytes taken out of a zip at once
SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # of others zipfile unpacks more at once than it is asked for
BROKEN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError)


Found = TypeVar("Found")


class Packed(Protocol):
    """What is unpacked while it is read."""

    def read(self, size: int, /) -> bytes: ...


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
    if not is_archive(path):
        raise BadFileError(f"{path}: neither a folder nor one of {', '.join(SUFFIXES)}")
    return Zip(path) if path.name.lower().endswith(".zip") else Tar(path)


class Folder:
    """The files below a folder, without hidden ones; links are followed only to files inside."""

    def __init__(self, where: Path) -> None:
        self.where = where

    def names(self) -> list[str]:
        found = []
        for folder, folders, files in os.walk(self.where, onerror=_unreadable):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            base = Path(folder).relative_to(self.where)
            found += [(base / name).as_posix() for name in sorted(files) if not name.startswith(".")]
        return found

    def stamp(self, name: str) -> str:
        about = self._about(name)
        return f"{about.st_size}-{about.st_mtime_ns}"

    def read(self, name: str) -> bytes:
        about = self._about(name)
        if not stat.S_ISREG(about.st_mode):
            raise BadFileError(f"{self.where / name}: not a regular file")
        _checked_size(about.st_size, str(self.where / name))
        try:
            return (self.where / name).read_bytes()
        except OSError as error:
            raise BadFileError(f"{self.where / name}: cannot be read: {error.strerror}") from error

    def _about(self, name: str) -> os.stat_result:
        path = self.where / name
        try:
            inside = path.resolve(strict=True).is_relative_to(self.where.resolve())
            about = path.stat()
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a circle
            raise BadFileError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from error
        if not inside:
            raise BadFileError(f"{path}: lies outside {self.where}")
        return about


class Zip:
    """The files of a zip, in any order and from several threads."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self._lock = threading.Lock()
        try:
            self._file = zipfile.ZipFile(where)
        except (*BROKEN, ValueError, OverflowError, NotImplementedError) as error:
            raise BadFileError(f"{where}: not a readable zip: {error}") from error
        self._members = _zip_members(self._file, where)

    def names(self) -> list[str]:
        return list(self._members)

    def stamp(self, name: str) -> str:
        member = _member(self._members, name, self.where)
        return f"{member.file_size}-{member.CRC:08x}"

    def read(self, name: str) -> bytes:
        member = _member(self._members, name, self.where)
        _checked_size(member.file_size, f"{self.where}: {name}")
        try:
            with self._lock, self._file.open(member) as file:
                content = b"".join(iter(partial(file.read, PIECE), b""))  # never more at once, whatever was declared
        except (*BROKEN, ValueError, RuntimeError) as error:  # RuntimeError: asks for a password
            raise BadFileError(f"{self.where}: {name}: cannot be read: {error}") from error
        return _whole(content, member.file_size, f"{self.where}: {name}")


class Tar:
    """The files of a tar; a packed one is quick only when read in its own order."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self._lock = threading.Lock()
        try:
            self._file = tars.open_tar(where)
            weakref.finalize(self, self._file.close)
            self._members = _tar_members(self._file, where)
        except BROKEN as error:
            raise BadFileError(f"{where}: not a readable tar: {error}") from error

    def names(self) -> list[str]:
        return list(self._members)

    def stamp(self, name: str) -> str:
        member = _member(self._members, name, self.where)
        return f"{member.size}-{member.changed}"

    def read(self, name: str) -> bytes:
        member = _member(self._members, name, self.where)
        _checked_size(member.size, f"{self.where}: {name}")
        try:
            with self._lock:
                self._file.seek(member.begin)
                content = self._file.read(member.size)
        except BROKEN as error:
            raise BadFileError(f"{self.where}: {name}: cannot be read: {error}") from error
        return _whole(content, member.size, f"{self.where}: {name}")


def unpack(archive: Path, into: Path) -> None:
    """Put an archive's files below `into`; what is there by the same name is replaced as a whole.

    Files are written to a folder beside `into` first, so that one who is stopped leaves nothing half done.
    """
    store = open_store(archive)
    into.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(dir=into, prefix=".unpacking-"))
    try:
        for name in store.names():
            content = store.read(name)
            path = beside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        for top in sorted(beside.iterdir()):
            target = into / top.name
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            elif top.is_dir():
                target.unlink(missing_ok=True)
            top.replace(target)
    except OSError as error:  # a full disk, a name that is too long, a file that is also a folder
        raise BadFileError(f"{archive}: cannot be unpacked into {into}: {error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _zip_members(file: zipfile.ZipFile, where: Path) -> dict[str, zipfile.ZipInfo]:
    found: dict[str, zipfile.ZipInfo] = {}
    for member in file.infolist():
        if stat.S_ISLNK(member.external_attr >> 16):
            raise BadFileError(f"{where}: {member.filename!r}: a link, which no data set here has")
        if member.compress_type not in PACKINGS:
            raise BadFileError(f"{where}: {member.filename!r}: packed in a way that is not read here")
        if not member.filename.endswith("/"):  # is_dir stumbles over an empty name
            found[_safe(member.filename, where)] = member
    _checked_total(sum(member.file_size for member in found.values()), len(found), where)
    return found


def _tar_members(file: BinaryIO, where: Path) -> dict[str, tars.Member]:
    found: dict[str, tars.Member] = {}
    for member in tars.members(file, where):
        if member.kind == "other":
            raise BadFileError(f"{where}: {member.name!r}: a link or device, which no data set here has")
        if member.kind == "file":
            found[_safe(member.name, where)] = member
            _checked_total(member.begin + member.size, len(found), where)
    return found


def _member(members: dict[str, Found], name: str, where: Path) -> Found:
    if name not in members:
        raise BadFileError(f"{where}: {name} is not in it")
    return members[name]


def _unreadable(error: OSError) -> None:
    raise BadFileError(f"{error.filename}: cannot be read: {error.strerror}") from error


def _safe(name: str, where: Path) -> str:
    """The name, if it leads to a place inside on every system."""
    plain = name.replace("\\", "/").removeprefix("./")
    parts = PurePosixPath(plain).parts
    if not parts or plain.startswith("/") or ".." in parts or ":" in parts[0] or min(plain) < " ":
        raise BadFileError(f"{where}: {name!r}: leads outside the archive")
    return "/".join(parts)


def _whole(content: bytes, size: int, what: str) -> bytes:
    if len(content) != size:
        raise BadFileError(f"{what}: ends after {len(content)} of {size} bytes")
    return content


def _checked_size(size: int, what: str) -> None:
    if size > LARGEST_FILE:
        raise BadFileError(f"{what}: {size} bytes are more than a file here may have")


def _checked_total(total: int, count: int, where: Path) -> None:
    packed = max(where.stat().st_size, 1)
    if total > LARGEST_ARCHIVE or total > LARGEST_RATIO * packed + 2**24 or count > MOST_FILES:
        raise BadFileError(f"{where}: {packed} bytes would become {count} files of {total}; refused")


def read_packed(file: Packed, limit: int, what: str) -> bytes:
    """All that a decompressing file holds, unless it is more than `limit` bytes."""
    pieces, room = [], limit + 1
    try:
        while room and (piece := file.read(min(room, 2**20))):
            pieces.append(piece)
            room -= len(piece)
    except BROKEN as error:
        raise BadFileError(f"{what}: cannot be unpacked: {error}") from error
    if not room:
        raise BadFileError(f"{what}: more than {limit} bytes when unpacked")
    return b"".join(pieces)
