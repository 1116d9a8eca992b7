"""A backbone that reads with prompts: what it reads, by what it is known, and how its prompts are learned."""

from collections.abc import Callable

import pytest
import torch

from promptpool.backbones.base import Readout
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


@pytest.mark.parametrize("rows", ["class", "patches", "both"])
@pytest.mark.parametrize(("distilled", "registers"), [(False, 0), (False, 4), (True, 0), (True, 4)])
def test_neither_prompts_nor_registers_are_patches(distilled: bool, registers: int, rows: str) -> None:
    """Prompts follow [class]; the mean is over the rows that the patches become, which are the last."""
    backbone = random_vit(distilled=distilled, registers=registers).eval()
    model, expected = prompted(backbone), []
    with torch.no_grad():
        tokens = backbone.embed(images())
        prompts = model.pool(backbone.features(images())).prompts + backbone.pos_embed[0, 0]
        tokens = torch.cat([tokens[:, :1], prompts, tokens[:, 1:]], dim=1)
        for number, block in enumerate(backbone.blocks):
            tokens = block(tokens)
            normed = backbone.norm(tokens)
            if number >= backbone.depth - 2:
                expected += [normed[:, 0]] if rows != "patches" else []
                expected += [normed[:, -((32 // 8) ** 2) :].mean(dim=1)] if rows != "class" else []
        found = model.read(images(), Readout(2, rows))
    torch.testing.assert_close(found, torch.cat(expected, dim=1), rtol=1e-5, atol=1e-5)


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
