"""Arrow streams and Parquet files, a row at a time and never held whole; needs pyarrow.

pyarrow believes an Arrow stream: an offset that lies makes it read outside the file and crash. So the columns that are
used are validated in full before a value is touched (which looks at offsets and texts, not at the bytes of images), and
what pyarrow would unpack into memory is refused (streams) or counted as it grows (Parquet).
"""

from __future__ import annotations

import struct
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from promptpool.data.stores import MOST_FILES
from promptpool.errors import BadFileError

LARGEST_GROUP = 2**30  # bytes of the images of one Parquet row group, unpacked
GROUPS_KEPT = 2  # threads that read in order meet at the border of two row groups
BATCH = 64  # rows that Parquet unpacks at once
POINTER = b"version https://git-lfs"
END = b"\xff\xff\xff\xff\0\0\0\0"  # the last bytes of an Arrow stream


class Header(NamedTuple):
    """What a file says of its columns: whether each is a picture, a label or other, and the JSON of `datasets`."""

    kinds: dict[str, str]
    notes: bytes


class Picture(NamedTuple):
    """An encoded image, or the path of one."""

    content: bytes | None
    path: str | None


class Rows(Protocol):
    """The rows of one file; any number of threads may ask."""

    stamp: str

    def __len__(self) -> int: ...

    def values(self, column: str) -> list[Any]:
        """A column of texts or whole numbers."""
        ...

    def picture(self, row: int) -> Picture: ...


def read_header(path: Path) -> Header:
    if not path.is_file():
        raise BadFileError(f"{path}: no such file")
    with _readable(path):
        with path.open("rb") as start:
            if start.read(len(POINTER)) == POINTER:
                raise BadFileError(f"{path}: only a pointer to the file; `git lfs pull` in its folder fetches it")
        if path.suffix == ".parquet":
            with pq.ParquetFile(path) as file:
                schema = file.schema_arrow
        else:
            with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
                schema = stream.schema
        counts = Counter(schema.names)
        kinds = {field.name: _kind(field.type) for field in schema if counts[field.name] == 1}
        return Header(kinds, (schema.metadata or {}).get(b"huggingface", b"{}"))


def open_rows(path: Path, picture: str, others: Sequence[str]) -> Rows:
    with _readable(path):
        return Parquet(path, picture) if path.suffix == ".parquet" else Stream(path, picture, others)


class Stream:
    """An Arrow stream, mapped into memory: the system reads the pages that are looked at."""

    def __init__(self, path: Path, picture: str, others: Sequence[str]) -> None:
        self.stamp = _stamp(path)
        with pa.memory_map(str(path)) as file:
            _check_plain(path, file)
            with pa.ipc.open_stream(file) as stream:
                fields = [stream.schema.get_field_index(name) for name in (picture, *others)]
                type_ = stream.schema.field(picture).type
            file.seek(0)
            with pa.ipc.open_stream(file, options=pa.ipc.IpcReadOptions(included_fields=fields)) as stream:
                self._batches = list(stream)  # stay mapped when the file is closed
        for batch in self._batches:
            batch.validate(full=True)
        self._pictures = pa.chunked_array([batch.column(picture) for batch in self._batches], type_)

    def __len__(self) -> int:
        return int(self._pictures.length())

    def values(self, column: str) -> list[Any]:
        return [value for batch in self._batches for value in batch.column(column).to_pylist()]

    def picture(self, row: int) -> Picture:
        return _picture(self._pictures[row])


class Parquet:
    """A Parquet file, of which the row groups read last are kept; open only while it is read."""

    def __init__(self, path: Path, picture: str) -> None:
        self.stamp = _stamp(path)
        self._path = path
        self._column = picture
        self._lock = threading.Lock()
        self._kept: dict[int, Any] = {}
        with pq.ParquetFile(path) as file:
            self._metadata = file.metadata
        groups = range(self._metadata.num_row_groups)
        self._sizes: list[int] = [self._metadata.row_group(group).num_rows for group in groups]
        if min(self._sizes, default=0) < 0 or sum(self._sizes) > MOST_FILES:
            raise BadFileError(f"{path}: claims {sum(self._sizes)} rows")
        self._starts = list(accumulate(self._sizes, initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    def values(self, column: str) -> list[Any]:
        with _readable(self._path):
            groups = [group for group, size in enumerate(self._sizes) if size]
            return [value for group in groups for value in self._read(group, column).to_pylist()]

    def picture(self, row: int) -> Picture:
        group = bisect_right(self._starts, row) - 1
        with self._lock, _readable(self._path):
            if group not in self._kept:
                while len(self._kept) >= GROUPS_KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[group] = self._read(group, self._column)
            pictures = self._kept[group]
        return _picture(pictures[row - self._starts[group]])

    def _read(self, group: int, column: str) -> Any:
        """A column of a row group, read a few rows at a time to stop where it is more than it claims or may be."""
        found = []
        rows = size = 0
        with pq.ParquetFile(self._path, metadata=self._metadata, page_checksum_verification=True) as file:
            for batch in file.iter_batches(BATCH, row_groups=[group], columns=[column], use_threads=False):
                batch.validate(full=True)
                found.append(batch.column(column))
                rows += len(batch)
                size += batch.nbytes
                if rows > self._sizes[group] or size > LARGEST_GROUP:
                    break
        if size > LARGEST_GROUP:
            raise BadFileError(f"{self._path}: a row group of more than {LARGEST_GROUP} bytes; write smaller ones")
        if rows != self._sizes[group]:
            raise BadFileError(f"{self._path}: row group {group} does not have the {self._sizes[group]} rows it claims")
        return pa.chunked_array(found)


def _check_plain(path: Path, file: Any) -> None:
    """Refuses a stream that is cut off, or whose batches are packed and would be unpacked into memory as a whole."""
    file.seek(max(file.size() - len(END), 0))
    if file.read() != END:
        raise BadFileError(f"{path}: does not end as an Arrow stream does; is it cut off?")
    file.seek(0)
    for message in pa.ipc.MessageReader.open_stream(file):
        if message.type != "schema" and _is_packed(message.metadata.to_pybytes(), message.type == "dictionary"):
            raise BadFileError(f"{path}: a compressed Arrow stream; datasets writes plain ones")
    file.seek(0)


def _is_packed(message: bytes, is_dictionary: bool) -> bool:
    """Whether the field `compression` of a message's RecordBatch is set (a flatbuffer, Message.fbs of Arrow)."""

    def place(table: int, field: int) -> int:
        vtable = table - struct.unpack_from("<i", message, table)[0]
        length = struct.unpack_from("<H", message, vtable)[0]
        offset = struct.unpack_from("<H", message, vtable + 4 + 2 * field)[0] if 4 + 2 * field < length else 0
        return table + offset if offset else 0

    def follow(at: int) -> int:
        return int(at + struct.unpack_from("<I", message, at)[0])

    batch = follow(place(follow(0), 2))
    if is_dictionary:
        batch = follow(place(batch, 1))
    return place(batch, 3) != 0


def _kind(type_: Any) -> str:
    """Pictures are struct<bytes, path>; labels texts or whole numbers, perhaps through a dictionary."""
    types = pa.types
    if types.is_struct(type_):
        parts = {field.name: field.type for field in type_}
        is_bytes = "bytes" in parts and (types.is_binary(parts["bytes"]) or types.is_large_binary(parts["bytes"]))
        return "picture" if is_bytes and len(parts) == type_.num_fields else "other"
    value = type_.value_type if types.is_dictionary(type_) else type_
    is_text = types.is_string(value) or types.is_large_string(value)
    return "label" if is_text or types.is_integer(value) or types.is_boolean(value) else "other"


def _picture(scalar: Any) -> Picture:
    if not scalar.is_valid:
        return Picture(None, None)
    path = scalar["path"].as_py() if "path" in scalar else None
    return Picture(scalar["bytes"].as_py(), path if isinstance(path, str) else None)


def _stamp(path: Path) -> str:
    about = path.stat()
    return f"{about.st_size}-{about.st_mtime_ns}"


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except BadFileError:
        raise
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:  # ValueError: names that are no UTF-8
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadFileError(f"{path}: cannot be read: {reason}") from error
