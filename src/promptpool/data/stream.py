"""A stream is data: experiences that arrive in turn, and the test sets that judge what was learned.

What is particular here:
- An example's id is made of its content: the hash of the array it lies in plus its row, or of an image file the hash
  of its pixels. The same id therefore always means the same input, in any stream and any process, and a cached
  feature is never somebody else's.
- Labels are positions in `Stream.class_names`. Where classes come in turn they are numbered in the order in which
  they appear, so a head grows at its end.
- Inputs stay raw (uint8, channels first) until a view makes model input of them. Those that do not lie in memory are
  read when they are looked at, and not at all where everything that is asked of them is known already.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from promptpool.data.workers import in_advance


class Source(Protocol):
    """Raw inputs by row number: a tensor, or a source that decodes when asked."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Tensor, /) -> Tensor: ...


class Unread:
    """Some rows of a source, read once, when they are first asked for; from any thread."""

    def __init__(self, source: Source, rows: Tensor) -> None:
        self._source, self._rows = source, rows
        self._lock = threading.Lock()
        self._read: Tensor | None = None

    def __getitem__(self, index: slice) -> Tensor | Unread:
        return Unread(self._source, self._rows[index]) if self._read is None else self._read[index]

    def to(self, device: torch.device) -> Tensor:
        with self._lock:
            found = self._source[self._rows] if self._read is None else self._read
            self._read = found.to(device)
            return self._read


class Batch(NamedTuple):
    """Examples on their way through a learner."""

    raw: Tensor | Unread
    y: Tensor  # labels: int64 [B]
    ids: Tensor  # int64 [B]
    fresh: bool = True  # the stream shows these examples for the first time
    extra: Mapping[str, Tensor] = MappingProxyType({})  # what a memory kept beside the examples

    @property
    def x(self) -> Tensor:
        """The raw inputs: uint8 [B, C, H, W]."""
        return self.raw if isinstance(self.raw, Tensor) else self.raw.to(self.y.device)

    def part(self, rows: slice) -> Batch:
        """Some of the examples, as fresh as all of them."""
        extra = {name: value[rows] for name, value in self.extra.items()}
        return self._replace(raw=self.raw[rows], y=self.y[rows], ids=self.ids[rows], extra=extra)

    def to(self, device: torch.device) -> Batch:
        extra = {name: value.to(device) for name, value in self.extra.items()}
        raw = self.raw.to(device) if isinstance(self.raw, Tensor) else self.raw
        return self._replace(raw=raw, y=self.y.to(device), ids=self.ids.to(device), extra=extra)


def in_memory(source: Source) -> bool:
    """True if the rows lie in memory: reading them ahead of time gains nothing."""
    return all(map(in_memory, source.parts)) if isinstance(source, Joined) else isinstance(source, Tensor)


@dataclass(frozen=True, eq=False)
class Examples:
    """Some rows of a source, with labels and ids."""

    source: Source
    rows: Tensor  # int64 [n]
    y: Tensor  # int64 [n]
    ids: Tensor  # int64 [n]

    def __post_init__(self) -> None:
        if not len(self.rows) == len(self.y) == len(self.ids):
            raise ValueError(f"{len(self.rows)} rows, {len(self.y)} labels and {len(self.ids)} ids do not match")

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, index: Tensor | slice) -> Examples:
        """The examples at these positions, in this order."""
        return replace(self, rows=self.rows[index], y=self.y[index], ids=self.ids[index])

    def relabel(self, table: Tensor) -> Examples:
        """The same examples with label y called table[y]."""
        if len(self) and not 0 <= int(self.y.min()) <= int(self.y.max()) < len(table):
            raise ValueError(
                f"labels lie between 0 and {len(table) - 1}, not {int(self.y.min())} to {int(self.y.max())}"
            )
        return replace(self, y=table[self.y])

    def batch(self, index: Tensor | slice, fresh: bool = True) -> Batch:
        rows = self.rows[index]
        raw = self.source[rows] if in_memory(self.source) else Unread(self.source, rows)
        return Batch(raw, self.y[index], self.ids[index], fresh)

    def batches(self, size: int, looks: Callable[[Batch], bool] | None = None) -> Iterator[Batch]:
        """All examples once, in order; `looks` as in `read_ahead`."""
        if size < 1:
            raise ValueError(f"size = {size}: a batch holds at least one example")
        parts = [slice(begin, begin + size) for begin in range(0, len(self), size)]
        made = map(self.batch, parts)
        yield from made if in_memory(self.source) else read_ahead(made, looks)

    @property
    def classes(self) -> tuple[int, ...]:
        return tuple(self.y.unique().tolist())


def read_ahead(batches: Iterable[Batch], looks: Callable[[Batch], bool] | None = None) -> Generator[Batch, None, None]:
    """The same batches, each read while the one before is in use.

    Those of which `looks` says that nobody will look at their raw inputs are left unread.
    """

    def read(batch: Batch) -> Batch:
        return batch._replace(raw=batch.x) if looks is None or looks(batch) else batch

    return in_advance(read, batches)


def examples(x: npt.NDArray[np.uint8] | Tensor, y: npt.ArrayLike | Tensor) -> Examples:
    """Examples held in memory.

    `x` is uint8: [n, H, W] grey, [n, H, W, C] as image libraries have it, or [n, C, H, W]; C is 1 or 3.
    """
    images = torch.from_numpy(_copied(x))
    if images.dtype != torch.uint8:
        raise ValueError(f"raw inputs are uint8 in 0..255, not {str(images.dtype).removeprefix('torch.')}")
    if images.ndim == 3:
        images = images.unsqueeze(1)
    elif images.ndim == 4 and images.shape[1] not in (1, 3) and images.shape[3] in (1, 3):
        images = images.permute(0, 3, 1, 2)
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(f"raw inputs are [n, H, W], [n, H, W, C] or [n, C, H, W] with C 1 or 3, not {[*x.shape]}")
    images = images.contiguous()
    numbers = _copied(y)
    if numbers.dtype.kind not in "iu":
        raise ValueError(f"labels are whole numbers, not {numbers.dtype}")
    labels = torch.from_numpy(numbers.astype(np.int64))
    if labels.shape != images.shape[:1]:
        raise ValueError(f"{len(images)} inputs need as many labels in one dimension, not {[*labels.shape]}")
    rows = torch.arange(len(images))
    return Examples(images, rows, labels, content_id(images.numpy()) + rows)


def concatenate(parts: Sequence[Examples]) -> Examples:
    """Several sets of examples as one."""
    if not parts:
        raise ValueError("nothing to join: no examples were given")
    if all(part.source is parts[0].source for part in parts):
        source, offsets = parts[0].source, [0] * len(parts)
    else:
        source = Joined(tuple(part.source for part in parts))
        offsets = source.offsets[:-1].tolist()
    rows = torch.cat([part.rows + offset for part, offset in zip(parts, offsets, strict=True)])
    return Examples(source, rows, torch.cat([part.y for part in parts]), torch.cat([part.ids for part in parts]))


@dataclass(frozen=True, eq=False)
class Joined:
    """Several sources as one; their rows must have one shape."""

    parts: tuple[Source, ...]

    @cached_property
    def offsets(self) -> Tensor:
        return torch.tensor([0, *(len(part) for part in self.parts)]).cumsum(0)

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def __getitem__(self, index: Tensor) -> Tensor:
        owner = torch.searchsorted(self.offsets, index, right=True) - 1
        found: Tensor | None = None
        for part in owner.unique().tolist():
            here = owner == part
            rows = self.parts[part][index[here] - self.offsets[part]]
            if found is None:
                found = rows.new_empty(len(index), *rows.shape[1:])
            if rows.shape[1:] != found.shape[1:]:
                raise ValueError(f"examples of {[*rows.shape[1:]]} and {[*found.shape[1:]]} do not fit one batch")
            found[here] = rows
        return self.parts[0][index] if found is None else found


@dataclass(frozen=True, eq=False)
class Experience:
    """One stretch of a stream: a task, a domain, or a window of a schedule."""

    index: int
    train: Examples
    classes: tuple[int, ...]


class Notes(NamedTuple):
    """What a user should know of the data: files that were skipped, each with the reason, and all else in words."""

    skipped: tuple[tuple[str, str], ...] = ()
    texts: tuple[str, ...] = ()


NO_NOTES = Notes()


@dataclass(frozen=True, eq=False)
class Stream:
    """Experiences in the order in which they arrive, and the test sets.

    `boundaries` says whether a learner is told where one experience ends. Without boundaries the order of the
    examples is the schedule itself: they are neither shuffled nor shown twice.
    """

    experiences: tuple[Experience, ...]
    tests: tuple[Examples, ...]
    class_names: tuple[str, ...]
    class_order: tuple[int, ...] = ()  # class_order[k] is the source's label of our class k, where it has one
    boundaries: bool = True
    task_tests: bool = False  # test set i belongs to experience i
    joins: str | None = None  # the fingerprint of the stream whose data came in turn and are here all at once
    notes: Notes = NO_NOTES  # they change nothing that is learned, and are no part of the fingerprint

    def __post_init__(self) -> None:
        if not self.experiences or not self.tests:
            raise ValueError("a stream has at least one experience and one test set")
        if self.task_tests and len(self.tests) != len(self.experiences):
            raise ValueError(f"{len(self.experiences)} experiences need as many test sets, not {len(self.tests)}")
        for experience in self.experiences:
            if not set(experience.train.classes) <= set(experience.classes):
                raise ValueError(f"experience {experience.index} holds labels that are not among its classes")
        for part in (*(experience.train for experience in self.experiences), *self.tests):
            if len(part) == 0:
                raise ValueError("every experience and every test set of a stream holds at least one example")
            if not 0 <= int(part.y.min()) <= int(part.y.max()) < len(self.class_names):
                raise ValueError(f"labels lie between 0 and {len(self.class_names) - 1}, one per class name")

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that can change what is learned: ids (and so contents), labels, order, tests."""
        digest = hashlib.sha256()
        for part in (*(experience.train for experience in self.experiences), *self.tests):
            digest.update(part.ids.numpy().tobytes())
            digest.update(part.y.numpy().tobytes())
        shape = {
            "classes": [experience.classes for experience in self.experiences],
            "sizes": [len(experience.train) for experience in self.experiences],
            "tests": [len(test) for test in self.tests],
            "names": self.class_names,
            "boundaries": self.boundaries,
            "task_tests": self.task_tests,
        }
        digest.update(json.dumps(shape).encode())
        return digest.hexdigest()


def class_counts(stream: Stream, stretches: int) -> list[list[int]]:
    """How many images of each class arrive in equal stretches of the stream: [stretches][classes]."""
    labels = torch.cat([experience.train.y for experience in stream.experiences])
    parts = labels.tensor_split(min(stretches, len(labels)))
    return [torch.bincount(part, minlength=len(stream.class_names)).tolist() for part in parts]


def content_id(pixels: npt.NDArray[np.uint8]) -> int:
    """62 bits of a hash of the pixels and their shape; this leaves room below 2**63 to add the row of an array."""
    digest = hashlib.sha256(str([*pixels.shape]).encode())
    digest.update(pixels.data)
    return int.from_bytes(digest.digest()[:8], "big") >> 2


def _copied(values: npt.ArrayLike | Tensor) -> npt.NDArray[np.generic]:
    """An array of our own: ids are made of the content, which must not change behind them."""
    return np.array(values.numpy() if isinstance(values, Tensor) else values)
