"""Frozen features, computed once.

q(x) depends on backbone, view and example only, never on what was learned. Later epochs, evaluations and runs read it
from the store. An example's id is a hash of its content, so one store serves any number of streams.

With several threads the last bits of a feature depend on the size of the batch it is computed in, and on its place in
that batch. So every feature is computed in a chunk of fixed size, at a place that its id decides. It is then the same
to the bit, whichever batch, run or process asks for it first. Free places of a chunk are filled with examples that
`expect` announced.

`share` and `keep` exchange features with other processes and runs by files (`feature_files.py`). Those of another
backbone, view or readout, or of another number of threads or version of torch, are never taken.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections import deque
from dataclasses import asdict
from functools import cache, cached_property
from pathlib import Path

import torch
from torch import Tensor

from promptpool.backbones.base import FeatureExtractor, Readout
from promptpool.backbones.feature_files import FeatureFiles
from promptpool.data.stream import Batch, Examples, in_memory
from promptpool.data.views import ImageView

CHUNK = 8  # images in one pass; larger chunks are hardly faster on a CPU


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
        self._tables = [torch.empty(0, self.width)]  # what was computed here, then a table for each file
        self._computed: list[int] = []  # the ids of the rows of the first table
        self._files: FeatureFiles | None = None
        self._written = 0  # how many rows of the first table are in files
        self._expected: Examples | None = None
        self._waiting: list[deque[int]] = [deque() for _ in range(CHUNK)]  # expected rows, by place in a chunk

    def __len__(self) -> int:
        return len(self._slots)

    def expect(self, examples: Examples) -> None:
        """Announce examples that will be asked for soon; they only fill chunks that are computed anyway."""
        self._expected = examples if in_memory(examples.source) else None  # images on disk would be decoded twice
        self._waiting = [deque() for _ in range(CHUNK)]
        if self._expected is not None:
            for row, identity in enumerate(examples.ids.tolist()):
                if identity not in self._slots:
                    self._waiting[identity % CHUNK].append(row)

    def __call__(self, batch: Batch) -> Tensor:
        """What the readout has of each example in the plain view, by default f(x)[0]: [B, width]."""
        ids = batch.ids.tolist()
        rows = {identity: row for row, identity in enumerate(ids) if identity not in self._slots}
        asked: list[deque[int]] = [deque() for _ in range(CHUNK)]
        for identity in rows:
            asked[identity % CHUNK].append(identity)
        while any(asked):
            chunk = {place: waiting.popleft() for place, waiting in enumerate(asked) if waiting}
            x = {place: batch.x[rows[identity]] for place, identity in chunk.items()}
            self._fill(chunk, x, rows, batch.x.device)
            self._compute(chunk, x)
        return self._rows(ids).to(batch.x.device)

    def _fill(self, chunk: dict[int, int], x: dict[int, Tensor], asked: dict[int, int], device: torch.device) -> None:
        """Fill the free places of a chunk with expected examples."""
        if self._expected is None:
            return
        found: dict[int, int] = {}
        for place in set(range(CHUNK)) - chunk.keys():
            while self._waiting[place] and place not in found:
                row = self._waiting[place].popleft()
                identity = int(self._expected.ids[row])
                if identity not in self._slots and identity not in asked:
                    found[place] = row
        if not found:
            return
        batch = self._expected.batch(torch.tensor(list(found.values())))
        if batch.x.shape[1:] == next(iter(x.values())).shape:
            for number, place in enumerate(found):
                chunk[place], x[place] = int(batch.ids[number]), batch.x[number].to(device)

    @torch.no_grad()
    def _compute(self, chunk: dict[int, int], x: dict[int, Tensor]) -> None:
        """Compute the features of a chunk, each example at its place; places still free repeat one of them."""
        filler = next(iter(x.values()))
        images = torch.stack([x.get(place, filler) for place in range(CHUNK)])
        features = self.backbone.read(self.view.plain(images), self.readout)
        self._add(list(chunk.values()), features[list(chunk)])

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
        for ids, rows in self._files.read():
            new = [(identity, row) for row, identity in enumerate(ids) if identity not in self._slots]
            self._slots.update((identity, (len(self._tables), row)) for identity, row in new)
            self._tables.append(rows)

    def keep(self) -> None:
        """Write what was computed since; without a shared folder do nothing."""
        if self._files is not None and self._written < len(self._computed):
            end = len(self._computed)
            self._files.write(self._computed[self._written : end], self._tables[0][self._written : end])
            self._written = end

    def put(self, ids: list[int], features: Tensor) -> None:
        """Take features [n, width] that were read earlier for those of these ids, which must be new."""
        self._add(ids, features)

    def _add(self, ids: list[int], features: Tensor) -> None:
        begin, end = len(self._computed), len(self._computed) + len(ids)
        if end > len(self._tables[0]):
            larger = torch.empty(max(end, 2 * len(self._tables[0]), 1024), self.width)
            larger[:begin] = self._tables[0][:begin]
            self._tables[0] = larger
        self._tables[0][begin:end] = features.cpu()
        self._computed += ids
        self._slots.update((identity, (0, row)) for identity, row in zip(ids, range(begin, end), strict=True))


def _machine() -> tuple[object, ...]:
    """What rounds: versions, processor, the instructions it may use, and the number of threads."""
    limits = tuple(os.environ.get(name, "") for name in ("MKL_CBWR", "DNNL_MAX_CPU_ISA"))
    return torch.__version__, _processor(), torch.backends.cpu.get_cpu_capability(), limits, torch.get_num_threads()


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
