"""Examples in chunks of one size, each at the place that its id decides.

With several threads the last bits of what a backbone computes depend on the size of the batch, and on the place in it.
In a chunk of fixed size, at a place that its id decides, an example gives the same bits whichever batch, run or process
asks for it first. Free places of a chunk are filled with examples that `expect` announced.
"""

from __future__ import annotations

from bisect import bisect
from collections import deque
from collections.abc import Container, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from promptpool.data.stream import Batch, Examples, in_memory

CHUNK = 8  # images in one pass; larger chunks are hardly faster on a CPU


class Chunk(NamedTuple):
    """What is computed in one pass."""

    ids: dict[int, int]  # the example at each place that is in use
    x: Tensor  # raw inputs: uint8 [CHUNK, C, H, W]; places that are free repeat one of the others

    @property
    def rows(self) -> list[int]:
        """The example at every place."""
        filler = next(iter(self.ids.values()))
        return [self.ids.get(place, filler) for place in range(CHUNK)]


class Chunks:
    """Makes chunks of batches, and knows the examples that come next."""

    def __init__(self) -> None:
        self.expected: tuple[Examples, ...] = ()
        self._begins: list[int] = []  # the number of the first of each, if all expected examples are counted
        self._waiting: list[deque[int]] = [deque() for _ in range(CHUNK)]  # these numbers, by place in a chunk

    def expect(self, examples: Sequence[Examples], known: Container[int]) -> None:
        """Announce examples that will be asked for soon; they only fill chunks that are computed anyway."""
        self.expected = tuple(part for part in examples if in_memory(part.source))  # others would be decoded twice
        self._begins = list(accumulate(map(len, self.expected), initial=0))[:-1]
        self._waiting = [deque() for _ in range(CHUNK)]
        for begin, part in zip(self._begins, self.expected, strict=True):
            for number, identity in enumerate(part.ids.tolist(), start=begin):
                if identity not in known:
                    self._waiting[identity % CHUNK].append(number)

    def of(self, batch: Batch, known: Container[int], *, fill: bool = True) -> Iterator[Chunk]:
        """Chunks with all examples of a batch that are not known; whoever asks makes those of a chunk known."""
        rows = {identity: row for row, identity in enumerate(batch.ids.tolist()) if identity not in known}
        asked: list[deque[int]] = [deque() for _ in range(CHUNK)]
        for identity in rows:
            asked[identity % CHUNK].append(identity)
        while any(asked):
            ids = {place: waiting.popleft() for place, waiting in enumerate(asked) if waiting}
            x = {place: batch.x[rows[identity]] for place, identity in ids.items()}
            if fill:
                self._fill(ids, x, rows, known)
            filler = next(iter(x.values()))
            yield Chunk(ids, torch.stack([x.get(place, filler) for place in range(CHUNK)]))

    def _fill(self, ids: dict[int, int], x: dict[int, Tensor], asked: Container[int], known: Container[int]) -> None:
        """Fill the free places of a chunk with expected examples."""
        other = next(iter(x.values()))
        for place in set(range(CHUNK)) - ids.keys():
            while self._waiting[place] and place not in ids:
                part, row = self._place(self._waiting[place].popleft())
                identity = int(part.ids[row])
                if identity in known or identity in asked:
                    continue
                found = part.batch(slice(row, row + 1)).x[0]
                if found.shape == other.shape:
                    ids[place], x[place] = identity, found.to(other.device)

    def _place(self, number: int) -> tuple[Examples, int]:
        """Where an expected example is: in which of those that were announced, and in which row."""
        part = bisect(self._begins, number) - 1
        return self.expected[part], number - self._begins[part]
