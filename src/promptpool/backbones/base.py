"""What a backbone is: the two halves of f = f_r after f_e, and nothing else."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from promptpool.checks import at_least, one_of
from promptpool.data.views import Range

ROWS = ("class", "patches", "both")


@dataclass(frozen=True)
class Readout:
    """What is read of a frozen transformer: rows of each of its last `blocks` blocks, the final norm applied.

    `rows` are the [class] row ("class"), the mean of the rows of patches ("patches"), or the one and then the other
    ("both"). The default is f(x)[0].
    """

    blocks: int = 1
    rows: str = "class"

    def __post_init__(self) -> None:
        at_least(1, readout_blocks=self.blocks)
        one_of(ROWS, readout_rows=self.rows)

    @property
    def parts(self) -> int:
        """How many vectors of the backbone's width are read."""
        return self.blocks * (2 if self.rows == "both" else 1)


class FeatureExtractor(nn.Module, ABC):
    """A model that makes one vector of each input: all that a learner with a head on top needs.

    `origin` says which file the weights came from (its SHA-256), or "random". `values` are the mean and deviation
    the weights were trained with, when the file says so.
    """

    dim: int
    origin: str = "random"
    values: Range | None = None
    compiled: bool = False  # its blocks are run by compiled code, which rounds otherwise
    checkpointing: bool = False  # its blocks are computed a second time in the backward pass, to the same numbers

    def fingerprint(self) -> str:
        """A hash of what this model computes: its class and sizes, and every weight as it now is."""
        sizes = {name: value for name, value in vars(self).items() if isinstance(value, int | float | str)}
        sizes = {name: value for name, value in sizes.items() if name not in ("origin", "training", "checkpointing")}
        digest = hashlib.sha256(f"{type(self).__name__} {sorted(sizes.items())}".encode())
        for name, value in self.state_dict().items():
            digest.update(f"{name} {value.dtype} {[*value.shape]}".encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    @contextmanager
    def plainly(self) -> Iterator[None]:
        """Within this context the model is run by torch's usual operators alone, for the transforms of torch.func."""
        yield

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Model inputs to one vector each: [B, D]."""

    def embedding(self) -> Iterable[nn.Parameter]:
        """The parameters of f_e, for a model that has tokens."""
        raise ValueError(f"train_embedding = False: must be True for {type(self).__name__}")

    def check_readout(self, readout: Readout) -> None:
        """Raise a ValueError if this model cannot be read so."""
        if readout != Readout():
            raise ValueError(
                f"readout_blocks = {readout.blocks}, readout_rows = {readout.rows!r}: {type(self).__name__} has one "
                "vector for an image, set 1 and 'class'"
            )

    def read(self, x: Tensor, readout: Readout) -> Tensor:
        """What a readout has of the inputs, in one pass: [B, parts * D]."""
        self.check_readout(readout)
        return self.features(x)

    def read_with_features(self, x: Tensor, readout: Readout) -> tuple[Tensor, Tensor | None]:
        """The same, and f(x)[0] to the bits that `features` gives, or None where it would take another pass."""
        return self.read(x, readout), None


class Backbone(FeatureExtractor):
    """A pre-trained model whose input tokens can be reached."""

    @abstractmethod
    def embed(self, x: Tensor) -> Tensor:
        """f_e: model inputs to tokens with positions added, [class] first: [B, L, D]."""

    @abstractmethod
    def encode(self, tokens: Tensor, rows: int | None = None, first: int = 0) -> Tensor:
        """f_r: tokens to the features of the first `rows` of them (all when None): [B, rows, D].

        With `first` above 0 tokens are those that `begin` made, and f_r goes on from that block.
        """

    def check_first(self, first: int) -> None:
        """Raise a ValueError if prompts cannot enter this model at block `first`."""
        if first:
            raise ValueError(f"enter = {first}: blocks of {type(self).__name__} cannot be reached one by one, set 0")

    def begin(self, tokens: Tensor, blocks: int) -> Tensor:
        """The tokens of `embed` after the first `blocks` blocks of f_r: [B, L, D]."""
        self.check_first(blocks)
        return tokens

    @property
    def patches(self) -> int:
        """The place of the first patch among the tokens of `embed`."""
        return 1

    @property
    @abstractmethod
    def class_position(self) -> Tensor:
        """The position embedding that `embed` added to the [class] token: [D]."""

    def features(self, x: Tensor) -> Tensor:
        """f(x)[0]: the [class] feature: [B, D]."""
        return self.encode(self.embed(x), rows=1)[:, 0]
