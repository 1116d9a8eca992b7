"""Masks against sorted lists, their gradient, and their bits."""

from __future__ import annotations

import math

import pytest
import torch

from promptpool.learners.masks import best, pack, signed_constant, straight_through, unpack
from toys import toy_backbone


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(("density", "count"), [(0.5, 12), (0.1, 2), (0.99, 24), (0.001, 1), (0.25, 6)])
def test_a_mask_keeps_the_largest_magnitudes(density: float, count: int) -> None:
    scores = drawn(4, 3, 2)
    ranked = sorted((abs(value) for value in scores.flatten().tolist()), reverse=True)
    expected = [float(abs(value) >= ranked[count - 1]) for value in scores.flatten().tolist()]
    assert best(scores, density).flatten().tolist() == expected


def test_the_gradient_goes_straight_through_to_the_magnitudes() -> None:
    scores, weight = drawn(3, 5).requires_grad_(), torch.arange(15.0, dtype=torch.float64).view(3, 5)
    mask = straight_through(scores, 0.4)
    assert torch.equal(mask, best(scores, 0.4)), "exactly 0 and 1"
    (mask * weight).sum().backward()
    expected = [w if s > 0 else -w for s, w in zip(scores.flatten().tolist(), range(15), strict=True)]
    assert scores.grad is not None
    assert scores.grad.flatten().tolist() == expected


def test_signed_constants_have_the_deviation_of_a_kaiming_start() -> None:
    weights = signed_constant((40, 3, 5, 5), torch.Generator().manual_seed(0))
    assert weights.abs().unique().tolist() == pytest.approx([math.sqrt(2 / 75)])
    assert abs(float((weights > 0).float().mean()) - 0.5) < 0.05


@pytest.mark.parametrize("sizes", [[(3, 5), (2, 2)], [(8,)], [(1,)], [(4, 3, 3, 3), (7,), (16, 2)]])
def test_bits_come_back_as_they_were(sizes: list[tuple[int, ...]]) -> None:
    masks = [best(drawn(*size), 0.5) for size in sizes]
    packed = pack(masks)
    assert packed.dtype == torch.uint8
    assert len(packed) == math.ceil(sum(mask.numel() for mask in masks) / 8)
    assert all(torch.equal(a, b) for a, b in zip(unpack(packed, masks), masks, strict=True))


def test_a_layer_of_a_vit_takes_a_bit_per_weight() -> None:
    weight = toy_backbone().get_submodule("blocks.0.mlp.fc1").weight
    assert isinstance(weight, torch.Tensor)
    assert pack([best(weight, 0.5)]).nbytes * 8 == weight.numel()
