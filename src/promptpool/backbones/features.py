"""Frozen features, computed once.

q(x) depends on backbone, view and example only, never on what was learned. Later epochs, evaluations and runs read it
from the store. An example's id is a hash of its content, so one store serves any number of streams.

With several threads the last bits of a feature depend on the size of the batch it is computed in, and on its place in
that batch. So every feature is computed in a chunk of fixed size, at a place that its id decides. It is then the same
to the bit, whichever batch, run or process asks for it first. Free places of a chunk are filled with examples that
`expect` announced.

`save` and `load` share features between processes. A file is ignored if it is damaged, belongs to another backbone or
view, or was made with another number of threads or another version of torch.
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
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from promptpool.backbones.base import FeatureExtractor
from promptpool.data.stream import Batch, Examples, in_memory
from promptpool.data.views import ImageView
from promptpool.files import write_whole

CHUNK = 8  # images in one pass; larger chunks are hardly faster on a CPU


@torch.no_grad()
def plain_features(backbone: FeatureExtractor, view: ImageView, x: Tensor) -> Tensor:
    """f(x)[0] of raw inputs in the plain view, in batches of at most 32: [N, D]."""
    return torch.cat([backbone.features(view.plain(part)) for part in x.split(32)])


class FrozenFeatures:
    """The features of every example seen so far, by id."""

    def __init__(self, backbone: FeatureExtractor, view: ImageView) -> None:
        self.backbone = backbone.eval()
        self.view = view
        self._slots: dict[int, int] = {}
        self._table = torch.empty(0, backbone.dim)
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
        """f(x)[0] of each example in the plain view: [B, D]."""
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
        return self._table[[self._slots[identity] for identity in ids]].to(batch.x.device)

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
        features = self.backbone.features(self.view.plain(images))
        self._keep(list(chunk.values()), features[list(chunk)])

    @property
    def fingerprint(self) -> str:
        """A hash of what the bits of a feature depend on beside the image: backbone, view, machine and threads."""
        device = next((parameter.device.type for parameter in self.backbone.parameters()), "cpu")
        return hashlib.sha256(repr((self._weights, asdict(self.view), device, _machine(), CHUNK)).encode()).hexdigest()

    @cached_property
    def _weights(self) -> str:
        return self.backbone.fingerprint()

    def save(self, path: Path) -> None:
        """Write all features to a file."""
        tensors = {"ids": torch.tensor(list(self._slots)), "features": self._table[: len(self)].contiguous()}
        write_whole(path, save(tensors, metadata={"of": self.fingerprint}))

    def load(self, path: Path) -> None:
        """Add the features of a file that are not here yet."""
        try:
            with safe_open(path, framework="pt") as file:
                if (file.metadata() or {}).get("of") != self.fingerprint:
                    return
                ids, features = file.get_tensor("ids"), file.get_tensor("features")
        except (SafetensorError, OSError):
            return
        if (
            ids.dtype != torch.long
            or features.dtype != torch.float32
            or features.shape != (*ids.shape, self.backbone.dim)
            or features.ndim != 2
            or len(ids.unique()) < len(ids)
        ):
            return
        new = [row for row, identity in enumerate(ids.tolist()) if identity not in self._slots]
        self._keep(ids[new].tolist(), features[new])

    def _keep(self, ids: list[int], features: Tensor) -> None:
        needed = len(self._slots) + len(ids)
        if needed > len(self._table):
            larger = torch.empty(max(needed, 2 * len(self._table), 1024), self._table.shape[1])
            larger[: len(self._slots)] = self._table[: len(self._slots)]
            self._table = larger
        self._table[len(self._slots) : needed] = features.cpu()
        self._slots.update(zip(ids, range(len(self._slots), needed), strict=True))


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
