"""Published files on this disk: fetched, checked, unpacked; what is here and whether it is right.

A set lies in a folder of its name: root/cifar100/cifar-100-python.tar.gz, and unpacked beside it. A file has its name
only when size and checksum are right; until then it is NAME.part, which the next call goes on with. A process at work
on a file holds NAME.lock, and others wait. Nothing that was put here by hand is ever replaced.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import time
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from promptpool.data.sets import PUBLISHED
from promptpool.data.sets.published import Remote
from promptpool.data.stores import unpack
from promptpool.data.transfer import BrokenError, RefusedError, UnreachableError, receive
from promptpool.errors import BadFileError
from promptpool.files import locked
from promptpool.progress import report

TIMEOUT = 30.0  # seconds without a byte
PAUSES = (1.0, 3.0, 10.0, 30.0)  # seconds before asking a server again that broke off
HEADWAY = 2**20  # bytes after which a server that breaks off has all its chances again
SUMS = {"md5": "md5", "sha256": "sha256", "blob": "sha1"}  # the sums of a `Remote`, and what makes them

State = Literal["right", "there", "unpacked only", "missing", "in part", "wrong size", "wrong checksum"]


class Finding(NamedTuple):
    """What is known of one file of a set; `text` says more than `state` where there is more to say."""

    path: Path
    state: State
    text: str = ""

    @property
    def good(self) -> bool:
        return self.state in ("right", "there", "unpacked only")


def get(name: str, root: Path) -> Path:
    """The folder of a set, with every file that was missing; what is there unpacked is not fetched."""
    folder = root / name
    for remote in PUBLISHED[name].files:
        if unpacked(remote, folder) is None:
            archive = fetch(remote, folder)
            if remote.unpack:
                _unpack(remote, archive)
    return folder


def check(name: str, root: Path, *, sums: bool = True) -> list[Finding]:
    """What is here of a set, file by file; without `sums` no file is read, and one of the right size is "there"."""
    return [_check(remote, root / name, sums) for remote in PUBLISHED[name].files]


def fetch(remote: Remote, folder: Path, *, token: str | None = None) -> Path:
    """The file in `folder`, downloaded unless it is there."""
    target = folder / remote.name
    if not _is_there(remote, target):
        folder.mkdir(parents=True, exist_ok=True)
        with locked(_lock(remote, folder), waiting=report):
            if not _is_there(remote, target):  # nor did another process fetch it while we waited
                _fetch(remote, target, token)
    return target


def _fetch(remote: Remote, target: Path, token: str | None) -> None:
    path = _part(remote, target.parent)
    try:
        with path.open("ab", buffering=0) as part:
            _fill(part, remote, target, token)
            os.fsync(part.fileno())
        path.replace(target)  # closed first: Windows renames no open file
    finally:
        if path.exists() and not path.stat().st_size:
            path.unlink()


def unpacked(remote: Remote, folder: Path) -> Path | None:
    """What stands for the file because it is its content."""
    return next((folder / name for name in remote.holds if (folder / name).exists()), None)


def _check(remote: Remote, folder: Path, sums: bool) -> Finding:
    path, content = folder / remote.name, unpacked(remote, folder)
    if not path.is_file():
        if content is not None:
            return Finding(path, "unpacked only", f"{content.name} is there; without the file no checksum tells more")
        part = _part(remote, folder)
        if part.is_file() and (got := part.stat().st_size):
            return Finding(path, "in part", f"{got:,} bytes of it are here; the rest is at {remote.urls[0]}")
        return Finding(path, "missing", f"it is at {remote.urls[0]}")
    if problem := _wrong_size(remote, path):
        return Finding(path, "wrong size", problem)
    if not sums:
        return Finding(path, "there")
    if problem := _wrong_sum(remote, path):
        return Finding(path, "wrong checksum", problem)
    return Finding(path, "right", "not unpacked" if remote.unpack and content is None else "")


def _is_there(remote: Remote, path: Path) -> bool:
    if not path.exists():
        return False
    if problem := _wrong_size(remote, path) or _wrong_sum(remote, path):
        raise BadFileError(f"{path}: not the published file: {problem}; move it away and it is downloaded")
    return True


def _wrong_size(remote: Remote, path: Path) -> str:
    size = path.stat().st_size
    return f"has {size:,} bytes instead of {remote.size:,}" if remote.size not in (None, size) else ""


def _wrong_sum(remote: Remote, path: Path) -> str:
    if not (kind := next((kind for kind in SUMS if getattr(remote, kind)), "")):
        return ""
    done, size, expected = 0, path.stat().st_size, getattr(remote, kind)
    digest = hashlib.new(SUMS[kind], f"blob {size}\0".encode() if kind == "blob" else b"", usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
            done += len(piece)
            report(f"checking {remote.name}", done, size)
    return f"has the {kind} {digest.hexdigest()} instead of {expected}" if digest.hexdigest() != expected else ""


def _fill(part: io.FileIO, remote: Remote, target: Path, token: str | None) -> None:
    """Bring the part to its end, from whichever address has the right bytes."""
    path = _part(remote, target.parent)
    if remote.size is not None:
        if path.stat().st_size > remote.size:
            part.truncate(0)
        wanted, free = remote.size - path.stat().st_size, shutil.disk_usage(target.parent).free
        if free < wanted:
            raise BadFileError(f"{target}: needs {wanted:,} bytes more, and {free:,} are free there")
    urls, reasons, afresh = list(remote.urls), dict[str, str](), True
    for url in urls:
        try:
            if remote.size is None or path.stat().st_size < remote.size:
                _persist(url, part, remote, token)
        except (RefusedError, BrokenError) as error:
            reasons[url] = str(error)
            continue
        problem = _wrong_size(remote, path) or _wrong_sum(remote, path)
        if not problem:
            return
        reasons[url] = problem
        part.truncate(0)
        if afresh:  # what it began with may have been another's, so this address has one more turn
            urls.append(url)
            afresh = False
    raise BadFileError(_in_vain(remote, target, reasons, path.stat().st_size))


def _checked_room(target: Path, wanted: int) -> None:
    free = shutil.disk_usage(target.parent).free
    if free < wanted:
        raise BadFileError(f"{target}: needs {wanted:,} bytes more, and {free:,} are free there")


def _persist(url: str, part: io.FileIO, remote: Remote, token: str | None) -> None:
    """Ask again, after a pause, whenever the server breaks off; but not if there is none."""
    left, answered = list(PAUSES), False
    while True:
        before = part.seek(0, os.SEEK_END)
        try:
            receive(url, part, what=remote.name, size=remote.size, timeout=TIMEOUT, token=token)
            return
        except BrokenError as error:
            gained = part.seek(0, os.SEEK_END) - before
            answered = answered or gained > 0 or not isinstance(error, UnreachableError)
            if gained >= HEADWAY:
                left = list(PAUSES)
            if not left or not answered:
                raise
            time.sleep(left.pop(0))


def _in_vain(remote: Remote, target: Path, reasons: dict[str, str], kept: int) -> str:
    why = "; ".join(f"{urlsplit(url).netloc}: {reason}" for url, reason in reasons.items())
    rest = f"; {kept:,} bytes are kept, and the same command goes on from there" if kept else ""
    by_hand = f"get it by hand from {' or '.join(remote.urls)} and put it at {target.absolute()}"
    return f"{remote.name} cannot be downloaded ({why}); {by_hand}{rest}"


def _part(remote: Remote, folder: Path) -> Path:
    return folder / f"{remote.name}.part"


def _lock(remote: Remote, folder: Path) -> Path:
    return folder / f"{remote.name}.lock"


def _unpack(remote: Remote, archive: Path) -> None:
    folder = archive.parent
    with locked(_lock(remote, folder), waiting=report):
        if unpacked(remote, folder) is not None:
            return
        for left in folder.glob(".unpacking-*"):  # by a process that was killed
            shutil.rmtree(left)
        size = archive.stat().st_size
        report(f"unpacking {archive.name}", 0, size)
        unpack(archive, folder)
        report(f"unpacking {archive.name}", size, size)
    if not (folder / remote.holds[0]).exists():
        raise BadFileError(f"{archive}: has no {remote.holds[0]}")
