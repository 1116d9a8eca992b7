"""A backbone that reads with prompts: what it reads, by what it is known, and how its prompts are learned."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from promptpool.backbones.base import Readout
from promptpool.backbones.vit import ViT
from promptpool.data.stream import Batch
from promptpool.data.views import ImageView
from promptpool.learners.adaptation import PromptedBackbone, learn_prompts, prompted_learner
from promptpool.prompts import PromptPool
from published import images, random_vit
from toys import VIEW, toy_backbone, toy_examples


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


@pytest.mark.parametrize(("per_class", "steps"), [(1, 300), (7, 300), (10, 304), (100, 375)])
def test_prompts_take_the_steps_that_the_docs_say(per_class: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five epochs of eight images, at least 300 steps, Adam at 0.001, gradients of norm 1 at most."""
    learner, sizes, taken = prompted_learner(toy_backbone(dim=16), VIEW, 0), list[int](), list[tuple[float, float]]()

    def steep(batch: Batch) -> Tensor:
        sizes.append(len(batch.y))
        return 1000 * learner.pool.prompts.square().sum() + 0 * learner.head.weight.sum()

    def noted(optimiser: torch.optim.Optimizer, *_: Any) -> None:
        assert isinstance(optimiser, torch.optim.Adam)
        (group,) = optimiser.param_groups
        gradients = [parameter.grad for parameter in group["params"] if parameter.grad is not None]
        taken.append((group["lr"], float(torch.nn.utils.get_total_norm(gradients))))

    monkeypatch.setattr(learner, "loss", steep)
    handle = register_optimizer_step_pre_hook(noted)
    try:
        learn_prompts(learner, toy_examples(per_class, 1))
    finally:
        handle.remove()
    assert len(sizes) == steps
    assert set(sizes) <= ({6} if per_class == 1 else {7, 8})
    assert len(taken) == steps
    assert {rate for rate, _ in taken} == {0.001}
    assert [norm for _, norm in taken] == pytest.approx([1.0] * steps, rel=1e-4)
