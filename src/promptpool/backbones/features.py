"""Frozen features, computed once.

q(x) depends on backbone, view and example only, never on what was learned. Later epochs, evaluations and runs read it
from the store. An example's id is a hash of its content, so one store serves any number of streams.

Every feature is computed in a chunk of fixed size, at a place that its id decides (`chunks.py`). So it is the same to
the bit, whichever batch, run or process asks for it first. Methods that go on from the tokens of an image ask for both
with `with_tokens`: tokens are kept too, as far as memory goes (`token_store.py`), and a feature is computed from them.

A pass for a wider readout makes f(x)[0] as well, for little more. A store that is given another one as `beside` puts
it there, so that methods of both kinds look at an image once.

In memory they take at most PROMPTPOOL_MEMORY_GB, or 2 GB, with what Python needs to find each by its id: when half of
that is full, the half before it is let go. What is asked for again then is read from files, or without files computed
again.

`share` and `keep` exchange features with other processes and runs by files (`feature_files.py`). Those of another
backbone, view or readout, or of another number of threads or version of torch, are never taken.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache, cached_property
from pathlib import Path

import torch
from torch import Tensor

from promptpool import distributed
from promptpool.backbones.base import Backbone, FeatureExtractor, Readout
from promptpool.backbones.chunks import CHUNK, Chunk, Chunks
from promptpool.backbones.feature_files import FeatureFiles
from promptpool.backbones.token_store import TokenStore
from promptpool.cores import processor
from promptpool.data.stream import Batch, Examples
from promptpool.data.views import ImageView
from promptpool.files import gigabytes

LATELY, BEFORE = 0, 1  # the tables of what was computed here
BOOKKEEPING = 200  # bytes that a row takes beside its numbers: an id, the row's place, and a place for both in a dict


@torch.no_grad()
def plain_features(backbone: FeatureExtractor, view: ImageView, x: Tensor) -> Tensor:
    """f(x)[0] of raw inputs in the plain view, in batches of at most 32: [N, D]."""
    return torch.cat([backbone.features(view.plain(part)) for part in x.split(32)])


class FrozenFeatures:
    """The features of every example seen so far, by id."""

    def __init__(self, backbone: FeatureExtractor, view: ImageView, readout: Readout | None = None) -> None:
        self.backbone = backbone.eval()
        self.view = view
        self.readout = readout or Readout()
        backbone.check_readout(self.readout)
        self.width = self.readout.parts * backbone.dim
        self._slots: dict[int, tuple[int, int]] = {}  # the table and the row of each id
        # What was computed here lately, and before that; then a table for each file, or for what was put here.
        self._tables = [torch.empty(0, self.width), torch.empty(0, self.width)]
        self._computed: list[int] = []  # the ids of the rows of the first table
        self._before: list[int] = []  # and of the second
        self._most = memory_budget() // (2 * row_bytes(self.width))  # rows of either
        self._files: FeatureFiles | None = None
        self._written = 0  # how many rows of the first table are in files
        self._chunks = Chunks()
        self._tokens: TokenStore | None = None
        self.beside: FrozenFeatures | None = None  # where f(x)[0] goes that a pass makes beside the readout

    def __len__(self) -> int:
        return len(self._slots)

    def knows(self, batch: Batch) -> bool:
        """True if the features of a batch are here, so that its raw inputs are not looked at for them."""
        return all(identity in self._slots for identity in batch.ids.tolist())

    def knows_tokens(self, batch: Batch, blocks: int = 0) -> bool:
        """The same of what `with_tokens` gives."""
        tokens = self._tokens
        if tokens is None or tokens.blocks != blocks or not self.knows(batch):
            return False
        return all(identity in tokens for identity in batch.ids.tolist())

    def expect(self, *examples: Examples) -> None:
        """Announce examples that will be asked for soon: they fill chunks that are computed anyway, and nothing else.

        Tokens of theirs that are kept stay until others are announced.
        """
        self._chunks.expect(examples, self._slots)
        if self._tokens is not None:
            self._tokens.expect(*examples)

    def __call__(self, batch: Batch) -> Tensor:
        """What the readout has of each example in the plain view, by default f(x)[0]: [B, width]."""
        return self._read(batch, None)

    def with_tokens(self, batch: Batch, blocks: int = 0) -> tuple[Tensor, Tensor]:
        """The features of each example, [B, width], and its tokens after the first `blocks` blocks, [B, L, D]."""
        tokens = self._tokens
        if tokens is None or tokens.blocks != blocks:
            if not isinstance(self.backbone, Backbone):
                raise ValueError(f"{type(self.backbone).__name__} has no tokens")
            self._tokens = tokens = TokenStore(self.backbone, self.view, blocks=blocks)
            tokens.expect(*self._chunks.expected)
        tokens.touch(batch.ids.tolist())  # so that none of them makes room for another
        features = self._read(batch, tokens if self.readout == Readout() else None)
        return features, tokens(batch)

    def drop_tokens(self) -> None:
        """Let go of all tokens."""
        self._tokens = None

    @torch.no_grad()
    def _read(self, batch: Batch, tokens: TokenStore | None) -> Tensor:
        """The features of a batch, those that are missing computed from pixels or from tokens."""
        missing = sum(identity not in self._slots for identity in batch.ids.tolist())
        self._make_room(CHUNK * missing)  # as many as there may be with those that fill chunks
        for chunk in self._chunks.of(batch, self._slots):
            if tokens is None:
                features = self._of_pixels(chunk)
            else:
                features = tokens.backbone.encode(tokens.of_chunk(chunk), rows=1, first=tokens.blocks)[:, 0]
            self._add(list(chunk.ids.values()), features[list(chunk.ids)])
        return self._rows(batch.ids.tolist()).to(batch.y.device)

    def _of_pixels(self, chunk: Chunk) -> Tensor:
        """The features of a chunk; what is made beside them goes to the store that wants it."""
        x = self.view.plain(chunk.x)
        if self.beside is None:
            return self.backbone.read(x, self.readout)
        features, plain = self.backbone.read_with_features(x, self.readout)
        if plain is not None:
            self.beside._take(chunk.ids, plain)
        return features

    def _take(self, ids: dict[int, int], features: Tensor) -> None:
        """Take rows that were computed elsewhere, of the ids that are new here."""
        new = {place: identity for place, identity in ids.items() if identity not in self._slots}
        if new:
            self._make_room(len(new))
            self._add(list(new.values()), features[list(new)])

    def _rows(self, ids: list[int]) -> Tensor:
        """Copies of the rows of these ids: [B, width]."""
        rows = torch.empty(len(ids), self.width)
        places: dict[int, list[int]] = {}
        for place, identity in enumerate(ids):
            places.setdefault(self._slots[identity][0], []).append(place)
        for table, found in places.items():
            rows[found] = self._tables[table][[self._slots[ids[place]][1] for place in found]]
        return rows

    @property
    def fingerprint(self) -> str:
        """A hash of what the bits of a feature depend on beside the image: model, view, readout and machine."""
        device = next((parameter.device.type for parameter in self.backbone.parameters()), "cpu")
        parts = (self._weights, asdict(self.view), self.readout, device, _machine(), CHUNK)
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    @cached_property
    def _weights(self) -> str:
        return self.backbone.fingerprint()

    def share(self, folder: Path) -> None:
        """Take the features in this folder that are not here yet, and have `keep` write there."""
        if self._files is None or self._files.folder.parent != folder:
            self._files = FeatureFiles(folder, self.fingerprint, self.width)
        self._map(self._files.read())

    def _map(self, files: Iterable[tuple[list[int], Tensor]], *, instead: bool = False) -> None:
        """Take from files what is not here yet; with `instead` what is in memory too, so that it can be let go."""
        in_memory = (LATELY, BEFORE) if instead else ()
        for ids, rows in files:
            places = [(row, identity, self._slots.get(identity)) for row, identity in enumerate(ids)]
            new = [(identity, row) for row, identity, place in places if place is None or place[0] in in_memory]
            if new:
                self._slots.update((identity, (len(self._tables), row)) for identity, row in new)
                self._tables.append(rows)

    def exchange(self, examples: Examples) -> None:
        """Of several ranks, compute this one's part of the features of these examples and take the others' parts.

        Each rank has the same examples. More than find room in memory are left to be computed when they are asked for.
        """
        known = torch.tensor([identity in self._slots for identity in examples.ids.tolist()])
        wanted = examples.select(distributed.total((~known).long()).nonzero().flatten())
        if not 0 < len(wanted) <= self._most:
            return
        part = wanted.select(distributed.rank_slice(len(wanted)))
        self.expect(part)
        for batch in part.batches(32):
            self(batch)
        rows = distributed.gather(self._rows(part.ids.tolist()))
        self._take(dict(enumerate(distributed.gather(part.ids).tolist())), rows)

    def share_as(self, other: FrozenFeatures) -> None:
        """Share the folder of another store, if it has one."""
        if other._files is not None:
            self.share(other._files.folder.parent)

    def keep(self) -> None:
        """Write what was computed since, here and beside; without a shared folder do nothing."""
        if self.beside is not None:
            self.beside.keep()
        if self._files is not None and self._written < len(self._computed):
            end = len(self._computed)
            self._files.write(self._computed[self._written : end], self._tables[0][self._written : end])
            self._written = end

    def put(self, ids: list[int], features: Tensor) -> None:
        """Take features [n, width] that were read earlier for those of these ids, which must be new; they stay."""
        self._slots.update((identity, (len(self._tables), row)) for row, identity in enumerate(ids))
        self._tables.append(features)

    def _make_room(self, count: int) -> None:
        """Let older features go if so many more would be too many."""
        if not count or not self._computed or len(self._computed) + count <= self._most:
            return
        self.keep()
        if self._files is not None:
            self._map(self._files.read(own=True), instead=True)
        for identity in self._before:
            if self._slots[identity][0] == BEFORE:
                del self._slots[identity]
        left = {identity: row for row, identity in enumerate(self._computed) if self._slots[identity][0] == LATELY}
        self._slots.update((identity, (BEFORE, row)) for identity, row in left.items())
        self._tables[BEFORE] = self._tables[LATELY][: len(self._computed) if left else 0]
        self._before, self._computed, self._written = list(left), [], 0
        self._tables[LATELY] = torch.empty(0, self.width)

    def _add(self, ids: list[int], features: Tensor) -> None:
        begin, end = len(self._computed), len(self._computed) + len(ids)
        if end > len(self._tables[0]):
            larger = torch.empty(max(end, min(max(2 * len(self._tables[0]), 1024), self._most)), self.width)
            larger[:begin] = self._tables[0][:begin]
            self._tables[0] = larger
        self._tables[0][begin:end] = features.cpu()
        self._computed += ids
        self._slots.update((identity, (0, row)) for identity, row in zip(ids, range(begin, end), strict=True))


def row_bytes(width: int) -> int:
    """What the features of an image take in memory, with their bookkeeping."""
    return width * torch.get_default_dtype().itemsize + BOOKKEEPING


def memory_budget() -> int:
    """The most bytes that a store's features and their bookkeeping take in memory."""
    return gigabytes("PROMPTPOOL_MEMORY_GB", 2)


def _machine() -> tuple[object, ...]:
    """What rounds: versions, processor, the instructions it may use, and the number of threads."""
    limits = tuple(os.environ.get(name, "") for name in ("MKL_CBWR", "DNNL_MAX_CPU_ISA"))
    return torch.__version__, _processor(), torch.backends.cpu.get_cpu_capability(), limits, torch.get_num_threads()


@cache
def _processor() -> str:
    return processor("model name")
