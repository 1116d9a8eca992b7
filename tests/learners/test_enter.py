"""Prompts that enter at a later block, and tokens that are kept, against L2P and a ViT written out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import slow_vit
from promptpool.backbones.base import Backbone
from promptpool.backbones.vit import ViT
from promptpool.data.stream import Batch
from promptpool.data.views import ImageView
from promptpool.learners.l2p import L2P
from promptpool.optim import Descent
from toys import toy_examples

DEPTH, HEADS = 3, 2
ENTERS = pytest.mark.parametrize("enter", range(DEPTH))


def backbone() -> ViT:
    vit = ViT(image_size=8, patch_size=4, dim=16, depth=DEPTH, heads=HEADS).start(torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in vit.parameters():
            if parameter.ndim > 1:  # so that features differ by image
                parameter.mul_(8)
    return vit.eval()


def l2p(view: ImageView | None = None, **values: Any) -> L2P:
    """An L2P in which nothing is zero any more."""
    learner = L2P(backbone(), view or ImageView(8), pool_size=4, top_k=2, prompt_length=2, **values)
    learner.add_classes([0, 1, 2])
    noise = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in (learner.head.weight, learner.head.bias, *learner.pool.parameters()):
            parameter.add_(torch.randn(parameter.shape, generator=noise), alpha=0.5)
    learner.train()
    return learner


def batch() -> Batch:
    some = toy_examples(4, 1, 3)
    return some.batch(torch.randperm(len(some), generator=torch.Generator().manual_seed(0)))


def written_out(learner: L2P, images: Tensor, y: Tensor) -> Tensor:
    """Eq. 5 in double precision with prompts that join at a block, one image at a time; images are in [0, 1]."""
    weights = {name: weight.double() for name, weight in learner.backbone.state_dict().items()}
    keys, total = learner.pool.keys.double(), torch.zeros((), dtype=torch.float64)
    for image, label in zip(images.double(), y.tolist(), strict=True):
        tokens = slow_vit.embed(weights, image)
        q = slow_vit.encode(weights, tokens, heads=HEADS, gelu="exact")[0]
        gamma = [1 - (q * k).sum() / (q.norm() * k.norm()) for k in keys]
        chosen = sorted(sorted(range(len(keys)), key=lambda s: float(gamma[s].detach()))[:2])
        x = torch.stack(tokens)
        for block in range(learner.enter):
            x = slow_vit.through(weights, x, block, heads=HEADS, gelu="exact")
        prompts = [row for s in chosen for row in learner.pool.prompts[s].double()]
        if learner.position == "class":
            prompts = [row + weights["pos_embed"][0, 0] for row in prompts]
        ahead = 1 if learner.order == "class-first" else 0
        joined = [*x[:ahead], *prompts, *x[ahead:]]
        rows = slow_vit.encode(weights, joined, heads=HEADS, gelu="exact", first=learner.enter)
        z = sum(rows[ahead : ahead + len(prompts)]) / len(prompts)
        scores = learner.head.weight.double() @ z + learner.head.bias.double()
        total = total + scores.exp().sum().log() - scores[label] + learner.pull * sum(gamma[s] for s in chosen)
    return total / len(y)


@ENTERS
@pytest.mark.parametrize(("order", "position"), [("prompts-first", "none"), ("class-first", "class")])
def test_loss_and_gradients_are_those_written_out(enter: int, order: str, position: str) -> None:
    learner, some = l2p(enter=enter, order=order, position=position), batch()
    trained = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    expected = written_out(learner, some.x / 255, some.y)
    for _ in range(2):  # computed, then kept
        found = learner.loss(some)
        assert found.item() == pytest.approx(expected.item(), rel=1e-5)
        for ours, theirs in zip(
            torch.autograd.grad(found, trained),
            torch.autograd.grad(expected, trained, retain_graph=True),
            strict=True,
        ):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5 * float(theirs.abs().max()))
    others = [l2p(enter=k, order=order, position=position).loss(some).item() for k in range(DEPTH) if k != enter]
    assert all(abs(other - expected.item()) > 1e-3 for other in others)


@ENTERS
@pytest.mark.parametrize("view", [ImageView(8), ImageView(8, crop=(0.2, 1.0), flip=True)], ids=["fixed", "random"])
def test_kept_tokens_say_what_computed_ones_do(enter: int, view: ImageView) -> None:
    learner, some = l2p(view, enter=enter).eval(), batch()
    with torch.no_grad():
        expected = learner.head(learner.prompted(some, view.plain(some.x))[0])
        for _ in range(2):
            torch.testing.assert_close(learner.logits(some), expected, rtol=1e-5, atol=1e-5)


def test_neither_view_nor_embedding_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, some = l2p(enter=1), batch()
    expected = learner.loss(some).item()
    blocks: list[int] = []
    for number, block in enumerate(learner.backbone.blocks):  # type: ignore[arg-type]
        block.register_forward_hook(lambda *_, number=number: blocks.append(number))
    monkeypatch.setattr(ViT, "embed", None)
    monkeypatch.setattr(ImageView, "plain", None)
    assert learner.loss(some).item() == expected
    learner.eval()
    learner.logits(some)
    assert blocks == [1, 2, 1, 2]


def test_gradients_that_are_measured_reach_the_embedding() -> None:
    learner, some = l2p(enter=1), batch()
    learner.loss(some)
    descend = Descent(learner.pool.parameters(), measured=learner.backbone.parameters())
    assert learner.keeps_tokens
    with descend.measuring():
        assert not learner.keeps_tokens
        learner.loss(some).backward()
    for parameter in (learner.backbone.patch_embed.proj.weight, learner.backbone.blocks[0].mlp.fc1.weight):
        assert parameter.grad.abs().max() > 0


def test_a_random_view_is_embedded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, some = l2p(ImageView(8, crop=(0.2, 1.0), flip=True)), batch()
    embedded, embed = [], ViT.embed

    def noted(self: ViT, x: Tensor) -> Tensor:
        embedded.append(len(x))
        return embed(self, x)

    monkeypatch.setattr(ViT, "embed", noted)
    learner.loss(some)
    assert embedded == [len(some.y)]


@pytest.mark.parametrize("enter", [-1, DEPTH])
def test_prompts_enter_at_a_block_that_is_there(enter: int) -> None:
    with pytest.raises(ValueError, match=rf"^enter = {enter}: must be one of this ViT's blocks, 0 to {DEPTH - 1}"):
        l2p(enter=enter)


def test_a_backbone_of_another_kind_takes_prompts_at_its_beginning_only() -> None:
    class Whole(Backbone):
        dim = 16

        def embed(self, x: Tensor) -> Tensor:
            return x.flatten(2).transpose(1, 2)

        def encode(self, tokens: Tensor, rows: int | None = None, first: int = 0) -> Tensor:
            self.check_first(first)
            return tokens[:, :rows]

        @property
        def class_position(self) -> Tensor:
            return torch.zeros(16)

    with pytest.raises(ValueError, match=r"^enter = 1: blocks of Whole cannot be reached one by one, set 0"):
        L2P(Whole(), ImageView(8), enter=1)
    L2P(Whole(), ImageView(8))
