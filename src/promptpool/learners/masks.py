"""Binary masks over fixed weights for SupSup: found by edge-popup, stored as bits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn


def best(scores: Tensor, density: float) -> Tensor:
    """1.0 for the share `density` of a layer's weights with the largest |score|, 0.0 for the others."""
    magnitudes = scores.detach().abs().flatten()
    count = max(round(density * len(magnitudes)), 1)
    mask = torch.zeros_like(magnitudes)
    mask[_largest(magnitudes, count)] = 1.0
    return mask.view_as(scores)


def _largest(values: Tensor, count: int) -> Tensor:
    """The indices of the largest values; called at every step, and on a CPU numpy selects faster than torch."""
    if values.device.type != "cpu":
        return values.topk(count, sorted=False).indices
    return torch.from_numpy(np.argpartition(values.numpy(), len(values) - count)[len(values) - count :])


def straight_through(scores: Tensor, density: float) -> Tensor:
    """The mask of the scores, with the gradient of |scores| (edge-popup, Ramanujan et al., 2020)."""
    magnitudes = scores.abs()
    return best(scores, density) + (magnitudes - magnitudes.detach())


def signed_constant(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Weights with random signs and one magnitude, sqrt(2 / fan-in), the deviation of Kaiming initialisation."""
    return torch.randn(*shape, generator=generator).sign() * math.sqrt(2 / math.prod(shape[1:]))


def fixed_values(backbone: nn.Module, layers: Sequence[str], generator: torch.Generator) -> dict[str, Tensor]:
    """Fixed values for every parameter: signed constants in layers, 0 or 1 in vectors, tokens as a ViT starts."""
    drawn = {}
    for name, parameter in backbone.named_parameters():
        if name in layers:
            drawn[name] = signed_constant(parameter.shape, generator)
        elif parameter.ndim > 1:
            drawn[name] = nn.init.trunc_normal_(torch.empty(parameter.shape), std=0.02, generator=generator)
        else:
            drawn[name] = torch.full_like(parameter.detach(), 0.0 if name.endswith("bias") else 1.0)
    return drawn


def pack(masks: Iterable[Tensor]) -> Tensor:
    """Masks one after the other, eight weights to the byte: uint8 [n / 8]."""
    bits = torch.cat([mask.flatten() for mask in masks]).bool().cpu()
    return torch.from_numpy(np.packbits(bits.numpy(), bitorder="little"))


def unpack(packed: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """The masks that were packed, with the shapes, type and device of `like`."""
    bits = torch.from_numpy(np.unpackbits(packed.cpu().numpy(), bitorder="little"))
    parts = bits[: sum(tensor.numel() for tensor in like)].split([tensor.numel() for tensor in like])
    return [part.view(tensor.shape).to(tensor) for part, tensor in zip(parts, like, strict=True)]


class Fixed(nn.Module):
    """Tensors by name that move with a learner and are in no checkpoint, because the seed gives them again."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        self.names = list(tensors)
        for place, tensor in enumerate(tensors.values()):
            self.register_buffer(str(place), tensor, persistent=False)

    def tensors(self) -> dict[str, Tensor]:
        return dict(zip(self.names, self.buffers(), strict=True))
