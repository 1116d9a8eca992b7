"""What a backbone is: the two halves of f = f_r after f_e, and nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn


class Backbone(nn.Module, ABC):
    """A pre-trained model whose input tokens can be reached.

    `origin` says which file the weights came from (its SHA-256), or "random".
    """

    dim: int
    origin: str = "random"

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
