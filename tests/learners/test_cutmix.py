"""CutMix against a loop over pixels, with the random numbers drawn beforehand."""

from __future__ import annotations

import math

import pytest
import torch

from promptpool.learners.cutmix import cutmix


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("seed", range(12))
def test_a_box_of_each_image_and_its_share_of_the_label_come_from_another(seed: int) -> None:
    height, width, count = 8, 12, 5
    x = torch.randn(count, 3, height, width, generator=generator(100 + seed))
    y = torch.arange(count)
    before = x.clone()
    mixed, other, share = cutmix(x, y, generator(seed))
    assert torch.equal(x, before)
    numbers = generator(seed)
    own, down, across = torch.rand(3, generator=numbers, dtype=torch.float64).tolist()
    partners = torch.randperm(count, generator=numbers).tolist()
    assert other.tolist() == partners
    tall, wide = math.floor(height * math.sqrt(1 - own)), math.floor(width * math.sqrt(1 - own))
    row, column = math.floor(down * height), math.floor(across * width)
    foreign = 0
    for i in range(height):
        for j in range(width):
            inside = row - tall // 2 <= i < row + tall // 2 and column - wide // 2 <= j < column + wide // 2
            foreign += inside
            for image, partner in enumerate(partners):
                assert torch.equal(mixed[image, :, i, j], x[partner if inside else image, :, i, j])
    assert share == pytest.approx(1 - foreign / (height * width))


def test_shares_go_from_all_to_none() -> None:
    numbers, x = generator(0), torch.zeros(2, 3, 32, 32)
    shares = [cutmix(x, torch.zeros(2), numbers)[2] for _ in range(300)]
    assert all(0 <= share <= 1 for share in shares)
    assert min(shares) < 0.2
    assert max(shares) > 0.95
