"""Files by name, whether they lie in a folder, a zip or a tar.

Nothing is trusted: a name that leads outside, a link, or more bytes than declared or allowed is refused before
anything is written. Reading never unpacks to disk; `unpack` does, beside its place, and renames when it is whole.

`tarfile` takes a damaged header for the end of the archive, follows a negative size backwards, and reads whatever an
extended header declares into memory. So `_tar_members` gives it a file that reads no more than headers need, looks at
every member before the next is sought, and looks itself whether the end is one.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import stat
import tarfile
import tempfile
import threading
import weakref
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple, Protocol, cast

from promptpool.errors import BadFileError

LARGEST_FILE = 2**31  # bytes of one file read into memory
LARGEST_ARCHIVE = 2**36  # bytes of all files of an archive, unpacked
LARGEST_RATIO = 200  # unpacked over packed; images and arrays of bytes stay far below it
MOST_FILES = 10**7
PIECE = 2**20  # bytes taken out of a zip at once
LARGEST_HEADERS = 2**17  # bytes before the content of one file in a tar: names and what else is said of it
LARGEST_REST = 2**20  # bytes of padding behind the end of a tar
SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # of others zipfile unpacks more at once than it is asked for
BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError)
PACKED_TARS: dict[bytes, Callable[..., object]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}  # by their first bytes


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


def read_file(path: Path, most: int | None = None) -> bytes:
    """The content of a regular file, if it has no more than `most` bytes, or LARGEST_FILE."""
    try:
        if not path.is_file():
            raise BadFileError(f"{path}: {'not a regular file' if path.exists() else 'no such file'}")
        _checked_size(path.stat().st_size, str(path), most)
        return path.read_bytes()
    except OSError as error:
        raise BadFileError(f"{path}: cannot be read: {error.strerror}") from error


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
        self._about(name)
        return read_file(self.where / name)

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


class Member(NamedTuple):
    """A file of an archive."""

    size: int
    stamp: str
    place: Any  # by which the archive finds it


class Archive:
    """The files of a zip or a tar, read one at a time, from any thread."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self._lock = threading.Lock()
        self._members: dict[str, Member] = {}

    def names(self) -> list[str]:
        return list(self._members)

    def stamp(self, name: str) -> str:
        return self._member(name).stamp

    def read(self, name: str) -> bytes:
        member, what = self._member(name), f"{self.where}: {name}"
        _checked_size(member.size, what)
        try:
            with self._lock:
                content = self._content(member)
        except (*BROKEN, ValueError, RuntimeError) as error:  # RuntimeError: asks for a password
            raise BadFileError(f"{what}: cannot be read: {error}") from error
        if len(content) != member.size:
            raise BadFileError(f"{what}: ends after {len(content)} of {member.size} bytes")
        return content

    def _member(self, name: str) -> Member:
        if name not in self._members:
            raise BadFileError(f"{self.where}: {name} is not in it")
        return self._members[name]

    def _content(self, member: Member) -> bytes:
        raise NotImplementedError


class Zip(Archive):
    """The files of a zip."""

    def __init__(self, where: Path) -> None:
        super().__init__(where)
        try:
            self._file = zipfile.ZipFile(where)
        except (*BROKEN, ValueError, OverflowError, NotImplementedError) as error:
            raise BadFileError(f"{where}: not a readable zip: {error}") from error
        for info in self._file.infolist():
            if stat.S_ISLNK(info.external_attr >> 16):
                raise BadFileError(f"{where}: {info.filename!r}: a link, which no data set here has")
            if info.compress_type not in PACKINGS:
                raise BadFileError(f"{where}: {info.filename!r}: packed in a way that is not read here")
            if not info.filename.endswith("/"):  # is_dir stumbles over an empty name
                member = Member(info.file_size, f"{info.file_size}-{info.CRC:08x}", info)
                self._members[_safe(info.filename, where)] = member
        checked_total(sum(member.size for member in self._members.values()), len(self._members), where)

    def _content(self, member: Member) -> bytes:
        with self._file.open(member.place) as file:
            return b"".join(iter(partial(file.read, PIECE), b""))  # never more at once, whatever was declared


class Tar(Archive):
    """The files of a tar; `packed` if files can only be reached by unpacking all that lies before them."""

    def __init__(self, where: Path) -> None:
        super().__init__(where)
        with where.open("rb") as file:
            start = file.read(6)
        packing = next((opened for mark, opened in PACKED_TARS.items() if start.startswith(mark)), None)
        self.packed = packing is not None
        try:
            self._file = where.open("rb") if packing is None else cast(BinaryIO, packing(where))
            weakref.finalize(self, self._file.close)
            self._members = _tar_members(self._file, where)
        except BadFileError:
            raise
        except (*BROKEN, ArithmeticError, LookupError, RecursionError, ValueError) as error:
            raise BadFileError(f"{where}: not a readable tar: {' '.join(str(error).split())}") from error

    def _content(self, member: Member) -> bytes:
        self._file.seek(member.place)
        return self._file.read(member.size)


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


class _Headers:
    """A tar's file for `tarfile`, from which it reads so much before each member and no more."""

    def __init__(self, file: BinaryIO, where: Path) -> None:
        self._file, self._where = file, where
        self.room = LARGEST_HEADERS
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= self.room:
            raise BadFileError(f"{self._where}: an extended header is larger than any name needs, or no size at all")
        self.room -= size
        return self._file.read(size)


def _tar_members(file: BinaryIO, where: Path) -> dict[str, Member]:
    found: dict[str, Member] = {}
    headers = _Headers(file, where)
    with tarfile.open(fileobj=cast(BinaryIO, headers), mode="r:", encoding="utf-8", errors="replace") as archive:
        while (member := archive.next()) is not None:
            if member.size < 0:
                raise BadFileError(f"{where}: {member.name!r}: a size below zero")
            if not (member.isdir() or member.isreg()) or _is_sparse(member):
                raise BadFileError(f"{where}: {member.name!r}: a link or device, which no data set here has")
            if member.isreg():
                stamp = f"{member.size}-{member.mtime}"
                found[_safe(member.name, where)] = Member(member.size, stamp, member.offset_data)
                checked_total(member.offset_data + member.size, len(found), where)
            archive.members = []  # type: ignore[attr-defined]  # or it keeps all, also those of one name
            headers.room = LARGEST_HEADERS
        end = archive.offset
    file.seek(end)
    if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise BadFileError(f"{where}: not a tar, cut off or damaged: at byte {end} there is neither a file nor the end")
    file.read(LARGEST_REST)  # what packs the tar may have a checksum at its end
    return found


def _is_sparse(member: tarfile.TarInfo) -> bool:
    return member.issparse() or any(key.startswith("GNU.sparse") for key in member.pax_headers)


def _unreadable(error: OSError) -> None:
    raise BadFileError(f"{error.filename}: cannot be read: {error.strerror}") from error


def _safe(name: str, where: Path) -> str:
    """The name, if it leads to a place inside on every system."""
    plain = name.replace("\\", "/").removeprefix("./")
    parts = PurePosixPath(plain).parts
    if not parts or plain.startswith("/") or ".." in parts or ":" in parts[0] or min(plain) < " ":
        raise BadFileError(f"{where}: {name!r}: leads outside the archive")
    return "/".join(parts)


def _checked_size(size: int, what: str, most: int | None = None) -> None:
    if size > (most or LARGEST_FILE):
        raise BadFileError(f"{what}: {size} bytes are more than a file here may have")


def checked_total(total: int, count: int, where: Path) -> None:
    packed = max(where.stat().st_size, 1)
    if total > LARGEST_ARCHIVE or total > LARGEST_RATIO * packed + 2**24 or count > MOST_FILES:
        raise BadFileError(f"{where}: {packed} bytes would become {count} files of {total}; refused")
