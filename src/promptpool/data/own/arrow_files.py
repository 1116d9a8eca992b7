"""Arrow streams and Parquet files, looked at before the package `datasets` reads them; needs pyarrow.

pyarrow believes an Arrow stream: an offset that lies makes it read outside the file and crash. So every column is
validated in full before a value is touched (which looks at offsets and texts, not at the bytes of images), and what
would be unpacked is refused (streams) or counted as it grows, a few rows at a time (Parquet).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from promptpool.data.stores import MOST_FILES, checked_total
from promptpool.errors import BadFileError

BATCH = 64  # rows that Parquet unpacks at once
POINTER = b"version https://git-lfs"
END = b"\xff\xff\xff\xff\0\0\0\0"  # the last bytes of an Arrow stream


def check_arrow(path: Path) -> None:
    """Refuse a stream that is damaged, cut off, or packed, which would be unpacked into memory as a whole."""
    with _readable(path), pa.memory_map(str(path)) as file:
        file.seek(max(file.size() - len(END), 0))
        if file.read() != END:
            raise BadFileError(f"{path}: does not end as an Arrow stream does; is it cut off?")
        file.seek(0)
        for message in pa.ipc.MessageReader.open_stream(file):
            if message.type != "schema" and _is_packed(message.metadata.to_pybytes(), message.type == "dictionary"):
                raise BadFileError(f"{path}: a compressed Arrow stream; datasets writes plain ones")
        file.seek(0)
        with pa.ipc.open_stream(file) as stream:
            for batch in stream:
                batch.validate(full=True)


def check_parquet(path: Path) -> None:
    """Refuse a file that is damaged, or that would become far more than it is."""
    with _readable(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        claimed = file.metadata.num_rows
        if not 0 <= claimed <= MOST_FILES:
            raise BadFileError(f"{path}: claims {claimed} rows")
        rows = size = 0
        for batch in file.iter_batches(BATCH, use_threads=False):
            batch.validate(full=True)
            rows += len(batch)
            size += batch.nbytes
            checked_total(size, rows, path)
        if rows != claimed:
            raise BadFileError(f"{path}: has {rows} rows and claims {claimed}")


def _is_packed(message: bytes, is_dictionary: bool) -> bool:
    """True if the field `compression` of a message's RecordBatch is set (a flatbuffer, Message.fbs of Arrow)."""

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


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        with path.open("rb") as start:
            if start.read(len(POINTER)) == POINTER:
                raise BadFileError(f"{path}: only a pointer to the file; `git lfs pull` in its folder fetches it")
        yield
    except BadFileError:
        raise
    except FileNotFoundError as error:
        raise BadFileError(f"{path}: no such file") from error
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:  # ValueError: names that are no UTF-8
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadFileError(f"{path}: cannot be read: {reason}") from error
