"""Pictures that wait to be learned: on disk before anybody is told that they were accepted.

    lessons/ab12....jpg          a picture as it came, named by its content
    lessons/ab12....json         its label and the name that it came with; a picture without this is none
    lessons/job-cd34....csv      the table of pictures that a job is learning

Each file is whole or not there. When a job ends in a version, the version's lesson carries the job's name, and only
then the pictures go. So after a kill at any moment it is plain what to do with a table that is found: if its job made
a version, its pictures were learned and go now; if not, they wait again.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
import re
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePath

from promptpool.classifier.pictures import checked_label
from promptpool.data.decoding import image_suffixes
from promptpool.data.images import printable
from promptpool.files import write_whole
from promptpool.serve.limits import Limits, RefusedError, conflict, full

FOLDER = "lessons"
LONGEST_NAME = 200
ID = re.compile("[0-9a-f]{32}")
LEARNED_NOW = "this picture is being learned now"


@dataclass(frozen=True)
class Waiting:
    """A picture that waits."""

    id: str
    name: str
    label: str
    file: str  # its name in the folder
    size: int  # bytes
    order: int  # when it came


class Lessons:
    """The waiting pictures of a classifier; for one process and any of its threads."""

    def __init__(self, folder: Path, limits: Limits, learned: Iterable[str] = ()) -> None:
        """`learned` are the jobs that the present version comes from."""
        self.folder, self.limits = folder, limits
        self._guard = threading.RLock()
        folder.mkdir(exist_ok=True)
        self._pictures = {each.id: each for each in sorted(_found(folder), key=lambda each: each.order)}
        self._taken: dict[str, tuple[Waiting, ...]] = {}  # by the job that learns them
        finished = set(learned)
        for table in folder.glob("job-*.csv"):
            if table.stem.removeprefix("job-") in finished:
                self._remove(_listed(table))
            table.unlink()
        self._tidy()

    @property
    def waiting(self) -> list[Waiting]:
        """Those that no job has taken, in the order in which they came."""
        with self._guard:
            taken = self._ids_taken()
            return [each for each in self._pictures.values() if each.id not in taken]

    def add(self, pictures: Sequence[tuple[str, str, bytes]]) -> tuple[list[Waiting], list[str]]:
        """Keep pictures, each with its name and its label; when this returns they are on disk.

        A picture that waits already gets the new label. Second come the names of those that are being learned now,
        which are left as they are. If something goes wrong, none is kept.
        """
        with self._guard:
            taken = self._ids_taken()
            new = {(each := self._described(*picture)).id: (each, picture[2]) for picture in pictures}
            free = {identity: each for identity, each in new.items() if identity not in taken}
            self._check_room([each for each, _ in free.values()])
            before = dict(self._pictures)
            try:
                for each, content in free.values():
                    if each.id not in before:
                        write_whole(self.folder / each.file, content)
                    self._write(each)
                sync(self.folder)
            except OSError:
                self._restore(before, free)
                raise
            return [self._pictures[identity] for identity in free], [new[id_][0].name for id_ in new if id_ in taken]

    def find(self, identity: str) -> Waiting:
        with self._guard:
            if identity not in self._pictures:
                raise RefusedError(404, f"{printable(identity)[:40]}: no picture of this id waits")
            return self._pictures[identity]

    def content(self, identity: str) -> bytes:
        """The picture as it came."""
        found = self.find(identity)
        try:
            return (self.folder / found.file).read_bytes()
        except FileNotFoundError as error:  # learned meanwhile
            raise RefusedError(404, f"{identity}: no picture of this id waits") from error

    def relabel(self, identity: str, label: str) -> Waiting:
        with self._guard:
            self._write(replace(self._free(identity), label=checked_label(label)))
            sync(self.folder)
            return self._pictures[identity]

    def remove(self, identity: str) -> None:
        with self._guard:
            self._remove([self._free(identity).id])

    def clear(self) -> None:
        """Throw away all that wait."""
        self._remove([each.id for each in self.waiting])

    def take(self, job: str) -> tuple[Path, tuple[Waiting, ...]]:
        """Give all that wait to a job: the table to learn from, and its pictures."""
        with self._guard:
            found = tuple(self.waiting)
            if not found:
                raise conflict("no picture waits to be learned: add some to the lesson first")
            text = io.StringIO()
            rows = csv.writer(text, lineterminator="\n")
            rows.writerow(["path", "label"])
            rows.writerows((each.file, each.label) for each in found)
            write_whole(self._table(job), text.getvalue().encode())
            sync(self.folder)
            self._taken[job] = found
            return self._table(job), found

    def learned(self, job: str) -> None:
        """The job's pictures are in a version that is on disk."""
        with self._guard:
            found = self._taken.pop(job, ())
            with suppress(OSError):  # then they go at the next start
                self._remove([each.id for each in found])
                self._table(job).unlink(missing_ok=True)

    def put_back(self, job: str) -> None:
        """The job came to nothing."""
        with self._guard:
            self._taken.pop(job, None)
            with suppress(OSError):
                self._table(job).unlink(missing_ok=True)

    def _table(self, job: str) -> Path:
        return self.folder / f"job-{job}.csv"

    def _ids_taken(self) -> set[str]:
        return {each.id for found in self._taken.values() for each in found}

    def _free(self, identity: str) -> Waiting:
        found = self.find(identity)
        if identity in self._ids_taken():
            raise conflict(f"{found.name}: {LEARNED_NOW}", retry=5)
        return found

    def _check_room(self, new: Sequence[Waiting]) -> None:
        fresh = {each.id: each.size for each in new if each.id not in self._pictures}
        if len(self._pictures) + len(fresh) > self.limits.waiting:
            raise full(
                f"{len(self._pictures)} pictures wait already, at most {self.limits.waiting} can: learn first", 60
            )
        if sum(each.size for each in self._pictures.values()) + sum(fresh.values()) > self.limits.waiting_bytes:
            raise full(f"pictures of {self.limits.waiting_bytes:,} bytes can wait, not more: learn first", 60)

    def _write(self, each: Waiting) -> None:
        write_whole(self.folder / f"{each.id}.json", json.dumps(asdict(each), ensure_ascii=False).encode())
        self._pictures[each.id] = each

    def _described(self, name: str, label: str, content: bytes) -> Waiting:
        identity = hashlib.sha256(content).hexdigest()[:32]
        shown = printable(name)[:LONGEST_NAME]
        if identity in self._pictures:
            return replace(self._pictures[identity], name=shown, label=checked_label(label))
        suffix = PurePath(name).suffix.lower()
        suffix = suffix if suffix in image_suffixes() else ""  # of what a client calls a file, no more than this
        return Waiting(identity, shown, checked_label(label), identity + suffix, len(content), time.time_ns())

    def _restore(self, before: dict[str, Waiting], changed: Iterable[str]) -> None:
        """Be as before a change that failed half-way; what cannot be written back stays as it is."""
        for identity in changed:
            if identity not in before:
                with suppress(OSError):
                    self._remove([identity])
            elif self._pictures[identity] != before[identity]:  # another label
                with suppress(OSError):
                    self._write(before[identity])
        with suppress(OSError):
            self._tidy()

    def _remove(self, identities: Iterable[str]) -> None:
        for identity in identities:
            found = self._pictures.pop(identity, None)
            (self.folder / f"{identity}.json").unlink(missing_ok=True)
            if found is not None:
                (self.folder / found.file).unlink(missing_ok=True)
        sync(self.folder)

    def _tidy(self) -> None:
        """Take away what was never finished."""
        known = {each.file for each in self._pictures.values()}
        for path in self.folder.iterdir():
            unfinished = path.name.endswith(".partial")
            nameless = ID.match(path.name) and path.suffix != ".json" and path.name not in known
            if unfinished or nameless:
                path.unlink(missing_ok=True)


def _found(folder: Path) -> list[Waiting]:
    """The pictures of a folder that are whole."""
    found = []
    for path in folder.glob("*.json"):
        try:
            each = Waiting(**json.loads(path.read_bytes()))
            fits = ID.fullmatch(each.id) and path.stem == each.id and PurePath(each.file).stem == each.id
            if fits and PurePath(each.file).name == each.file and (folder / each.file).is_file():
                checked_label(each.label)
                found.append(each)
        except (OSError, TypeError, ValueError):
            continue
    return found


def _listed(table: Path) -> list[str]:
    """The ids of a table."""
    rows = csv.reader(io.StringIO(table.read_text(encoding="utf-8")))
    return [identity for row in rows if row and ID.fullmatch(identity := PurePath(row[0]).stem)]


def sync(folder: Path) -> None:
    """Have the names in a folder on disk too."""
    if os.name == "nt":  # which opens no folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that has no such thing
            raise
    finally:
        os.close(descriptor)
