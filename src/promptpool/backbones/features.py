"""Frozen features, computed once.

q(x) depends on backbone, view and example only, never on what was learned. Later epochs, evaluations and runs
read it. Ids are made of contents, so one store serves any number of streams; and every feature is computed in a
batch of one fixed size, so it is the same to the bit whichever batch asked for it first. `save` and `load` keep them
between processes; a file that is damaged or of something else is as good as none.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from promptpool.backbones.base import FeatureExtractor
from promptpool.data.stream import Batch
from promptpool.data.views import View
from promptpool.files import write_whole

CHUNK = 32


@torch.no_grad()
def plain_features(backbone: FeatureExtractor, view: View, x: Tensor) -> Tensor:
    """f(x)[0] of raw inputs, in batches of one size (the last filled up with its own first row): [N, D]."""
    computed = []
    for chunk in x.split(CHUNK):
        filler = chunk[:1].expand(CHUNK - len(chunk), *chunk.shape[1:])
        computed.append(backbone.features(view.plain(torch.cat([chunk, filler])))[: len(chunk)])
    return torch.cat(computed)


class FrozenFeatures:
    """The features of every example met so far, by id."""

    def __init__(self, backbone: FeatureExtractor, view: View) -> None:
        self.backbone = backbone.eval()
        self.view = view
        self._slots: dict[int, int] = {}
        self._table = torch.empty(0, backbone.dim)

    def __len__(self) -> int:
        return len(self._slots)

    def __call__(self, batch: Batch) -> Tensor:
        """f(x)[0] of each example in the plain view: [B, D]."""
        ids = batch.ids.tolist()
        missing = list({identity: row for row, identity in enumerate(ids) if identity not in self._slots}.values())
        if missing:
            self._keep([ids[row] for row in missing], plain_features(self.backbone, self.view, batch.x[missing]))
        return self._table[[self._slots[identity] for identity in ids]].to(batch.x.device)

    @cached_property
    def of(self) -> str:
        """What the features depend on, beside the images."""
        return hashlib.sha256(repr((self.backbone.fingerprint(), asdict(self.view))).encode()).hexdigest()

    def save(self, path: Path) -> None:
        """Write all that is known."""
        tensors = {"ids": torch.tensor(list(self._slots)), "features": self._table[: len(self)].contiguous()}
        write_whole(path, save(tensors, metadata={"of": self.of}))

    def load(self, path: Path) -> None:
        """Take in what a file knows and this does not."""
        try:
            with safe_open(path, framework="pt") as file:
                if (file.metadata() or {}).get("of") != self.of:
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
