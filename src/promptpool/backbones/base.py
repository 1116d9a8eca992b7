"""What a backbone is: the two halves of f = f_r after f_e, and nothing else."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from promptpool.data.views import Range


class FeatureExtractor(nn.Module, ABC):
    """A model that makes one vector of each input: all that a learner with a head on top needs.

    `origin` says which file the weights came from (its SHA-256), or "random". `values` are the mean and deviation
    the weights were trained with, when the file says so.
    """

    dim: int
    origin: str = "random"
    values: Range | None = None

    def fingerprint(self) -> str:
        """A hash of what this model computes: its class and sizes, and every weight as it now is."""
        sizes = {name: value for name, value in vars(self).items() if isinstance(value, int | float | str)}
        sizes = {name: value for name, value in sizes.items() if name not in ("origin", "training")}
        digest = hashlib.sha256(f"{type(self).__name__} {sorted(sizes.items())}".encode())
        for name, value in self.state_dict().items():
            digest.update(f"{name} {value.dtype} {[*value.shape]}".encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Model inputs to one vector each: [B, D]."""


class Backbone(FeatureExtractor):
    """A pre-trained model whose input tokens can be reached."""

    @abstractmethod
    def embed(self, x: Tensor) -> Tensor:
        """f_e: model inputs to tokens with positions added, [class] first: [B, L, D]."""

    @abstractmethod
    def encode(self, tokens: Tensor, rows: int | None = None) -> Tensor:
        """f_r: tokens to the features of the first `rows` of them (all when None): [B, rows, D]."""

    @property
    @abstractmethod
    def class_position(self) -> Tensor:
        """The position embedding that `embed` added to the [class] token: [D]."""

    def features(self, x: Tensor) -> Tensor:
        """f(x)[0]: the [class] feature: [B, D]."""
        return self.encode(self.embed(x), rows=1)[:, 0]
