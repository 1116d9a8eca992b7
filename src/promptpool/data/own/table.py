"""A table of images: CSV or TSV with the columns path and label, perhaps task or domain, perhaps split.

As people and spreadsheets write it: with or without a line of column names, with comma, semicolon or tab, quoted or
not, UTF-8 with or without a mark at the start; columns may have other usual names (`columns.py`). Paths start at the
table's folder and stay inside; a table of absolute paths only is read from the folder they share. Whatever is wrong is
one line with its number.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from promptpool.data.images import ImageFile
from promptpool.data.own.columns import LABELS, PICTURES, Columns, columns_of
from promptpool.data.own.splits import WORDS, meanings
from promptpool.data.stores import MOST_FILES, Folder, Store, read_file
from promptpool.errors import BadFileError

TABLES = (".csv", ".tsv")
Line = tuple[int, list[str]]  # its number and its cells


class Listed(Folder):
    """The files of a folder that a table names; what else lies there is not looked for."""

    def __init__(self, where: Path, names: list[str], notes: tuple[str, ...] = ()) -> None:
        super().__init__(where)
        self._names = list(dict.fromkeys(names))
        self.notes = notes  # which columns were taken, where that is not plain

    def names(self) -> list[str]:
        return self._names


class TableRow(NamedTuple):
    """A line of the table."""

    line: int
    path: str
    label: str
    group: str
    split: str


def read_table(path: Path) -> tuple[Store, list[ImageFile]]:
    """The images that a table names, in its order, and the folder they are read from.

    Rows that say validation test where no row says test; beside test rows they are left out.
    """
    lines = _lines(path, _text(path))
    columns, first = _columns(path, lines)
    rows = list(_rows(path, columns.meant, chain(first, lines)))
    if not rows:
        raise BadFileError(f"{path}: no rows")
    for column, values in (("task or domain", [row.group for row in rows]), ("split", [row.split for row in rows])):
        if any(values) and not all(values):
            line = rows[values.index("")].line
            raise BadFileError(f"{path}: line {line}: empty {column}, while other lines have one")
    where, names = _names(path, rows)
    split = meanings({row.split for row in rows})
    entries = [
        ImageFile(name, row.label, row.group, part)
        for name, row in zip(names, rows, strict=True)
        if (part := split[row.split]) is not None
    ]
    return Listed(where, [entry.name for entry in entries], columns.notes), entries


def table_notes(path: Path) -> tuple[str, ...]:
    """Which columns of a table are taken, where that is not plain; nothing of what is no table."""
    if path.suffix.lower() not in TABLES:
        return ()
    return _columns(path, _lines(path, _text(path)))[0].notes


def _text(path: Path) -> str:
    content = read_file(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadFileError(f"{path}: line {line}: not UTF-8; save the table as CSV in UTF-8") from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise BadFileError(f"{path}: line {line}: a NUL byte")
    return text


def _columns(path: Path, lines: Iterator[Line]) -> tuple[Columns, list[Line]]:
    """The columns, and the first line if it is a row."""
    first = next(lines, None)
    if first is None:
        return Columns((), named=True), []
    columns = columns_of(path, *first)
    return columns, [] if columns.named else [first]


def _rows(path: Path, columns: Sequence[str], lines: Iterable[Line]) -> Iterator[TableRow]:
    for count, (line, cells) in enumerate(lines):
        if count >= MOST_FILES:
            raise BadFileError(f"{path}: line {line}: more than {MOST_FILES} rows")
        yield _row(path, columns, line, cells)


def _lines(path: Path, text: str) -> Iterator[Line]:
    """Number and stripped cells of the lines that are not blank; empty cells at the end dropped."""
    delimiter = _delimiter(path, text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    start = 1
    try:
        for cells in reader:
            while cells and not cells[-1].strip():
                cells.pop()
            if cells:
                yield start, [cell.strip() for cell in cells]
            start = reader.line_num + 1
    except csv.Error as error:
        raise BadFileError(f"{path}: line {start}: {error}") from error


def _delimiter(path: Path, text: str) -> str:
    if path.suffix.lower() == ".tsv":
        return "\t"
    number, line = next(((n, line) for n, line in enumerate(io.StringIO(text, newline=""), 1) if line.strip()), (1, ""))
    if "\t" in line:
        return "\t"
    bare = re.sub(r'"[^"]*"', "", line)
    if "," in bare and ";" in bare and not re.match(rf"\W*({'|'.join(PICTURES + LABELS)})\b", line, re.I):
        raise BadFileError(f"{path}: line {number}: comma and semicolon; name the columns in a first line")
    return ";" if ";" in bare else ","


def _row(path: Path, columns: Sequence[str], line: int, cells: list[str]) -> TableRow:
    if len(cells) > len(columns):
        raise BadFileError(f"{path}: line {line}: {len(cells)} columns, expected {len(columns)}")
    found = dict(zip(columns, cells, strict=False))
    for column in ("path", "label"):
        if not found.get(column):
            raise BadFileError(f"{path}: line {line}: no {column}")
    split = found.get("split", "")
    if split and split.lower() not in WORDS:
        raise BadFileError(f"{path}: line {line}: split {split!r}: expected train, test or validation")
    group = found.get("task") or found.get("domain") or ""
    return TableRow(line, re.sub("^//+", "/", found["path"].replace("\\", "/")), found["label"], group, split)


def _names(path: Path, rows: list[TableRow]) -> tuple[Path, list[str]]:
    """The folder and the rows' names in it; `..` is refused, and so is a mixture of absolute and relative paths."""
    is_absolute = os.path.isabs(rows[0].path)
    for row in rows:
        parts = PurePosixPath(row.path).parts
        if not parts or parts == ("/",):
            raise BadFileError(f"{path}: line {row.line}: {row.path!r} names no file")
        if ".." in parts:
            raise BadFileError(f"{path}: line {row.line}: {row.path!r}: a path here does not go up with ..")
        if os.path.isabs(row.path) != is_absolute:
            raise BadFileError(f"{path}: line {row.line}: {row.path!r}: absolute and relative paths in one table")
        if re.match("[A-Za-z]:/", row.path) and not is_absolute:
            raise BadFileError(f"{path}: line {row.line}: {row.path!r}: a drive letter leads nowhere on this system")
    if not is_absolute:
        return path.parent, [PurePosixPath(row.path).as_posix() for row in rows]
    root = Path(os.path.commonpath({os.path.dirname(row.path) for row in rows}))
    return root, [Path(row.path).relative_to(root).as_posix() for row in rows]
