"""A backbone that reads with prompts is known by all that decides what it reads."""

from collections.abc import Callable

import pytest
import torch

from promptpool.backbones.vit import ViT
from promptpool.data.views import ImageView
from promptpool.learners.adaptation import PromptedBackbone, prompted_learner
from promptpool.prompts import PromptPool
from published import images, random_vit


def prompted(backbone: ViT) -> PromptedBackbone:
    pool = prompted_learner(backbone, ImageView(32), 0).pool.requires_grad_(False).eval()
    pool.unit.fill_(1.0)
    return PromptedBackbone(backbone, pool)


def vit() -> ViT:
    return random_vit(dim=64, heads=1)


def fewer(pool: PromptPool) -> None:
    pool.top_k -= 1


def other_prompts(pool: PromptPool) -> None:
    pool.prompts[0, 0, 0] += 1


def other_keys(pool: PromptPool) -> None:
    pool.keys[0, 0] += 1


def other_unit(pool: PromptPool) -> None:
    pool.unit.fill_(2.0)


@pytest.mark.parametrize("change", [fewer, other_prompts, other_keys, other_unit])
def test_another_pool_is_another_model(change: Callable[[PromptPool], None]) -> None:
    backbone = vit()
    one, other = prompted(backbone), prompted(backbone)
    assert one.fingerprint() == other.fingerprint()
    change(other.pool)
    assert one.fingerprint() != other.fingerprint()


def test_another_backbone_is_another_model() -> None:
    rounded = vit()
    rounded.compute(precision="bfloat16")
    assert prompted(vit()).fingerprint() != prompted(rounded).fingerprint()


def test_what_was_counted_is_no_part_of_it() -> None:
    model = prompted(vit())
    before = model.fingerprint()
    model.features(images())
    model.pool(torch.randn(3, 64))
    assert model.fingerprint() == before
