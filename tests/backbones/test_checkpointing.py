"""Blocks computed a second time: the same numbers, with fewer of them kept."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from promptpool import load_backbone
from promptpool.backbones.vit import ViT
from promptpool.training.checkpoint import learn
from published import images, random_vit
from toys import METHODS, SHORT, VIEW, toy_backbone, toy_learner, toy_stream


def gradients(vit: ViT) -> list[Tensor]:
    """Of the rows, the tokens and every parameter of the blocks."""
    tokens = vit.embed(images()).detach().requires_grad_()
    rows = vit.encode(tokens, rows=3)
    trained = [tokens, *vit.blocks.parameters()]
    return [rows.detach(), *torch.autograd.grad(rows.square().sum(), trained)]


@pytest.mark.parametrize("precision", ["single", "bfloat16"])
def test_gradients_are_the_same(precision: str) -> None:
    vit = random_vit(layer_scale=True)
    vit.compute(precision=precision)
    expected = gradients(vit)
    vit.compute(checkpointing=True)
    for one, other in zip(expected, gradients(vit), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)


def test_only_the_inputs_of_blocks_are_kept() -> None:
    vit = random_vit()
    kept: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        kept[-1] += tensor.numel()
        return tensor

    for on in (False, True):
        vit.compute(checkpointing=on)
        kept.append(0)
        tokens = vit.embed(images()).detach().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            vit.encode(tokens)
    assert kept[1] < kept[0] / 10


def test_a_backbone_that_recomputes_is_the_same_backbone() -> None:
    plain, ours = load_backbone("vit-glyphs"), load_backbone("vit-glyphs", checkpointing=True)
    assert ours.checkpointing
    assert plain.fingerprint() == ours.fingerprint()  # its features and checkpoints serve both


@pytest.mark.parametrize("name", ["l2p", "ft-seq", "ewc"])
def test_runs_are_the_same(name: str) -> None:
    backbone = toy_backbone()
    backbone.compute(checkpointing=True)
    expected = list(learn(toy_learner(name), toy_stream(tasks=2), SHORT))
    found = list(learn(METHODS[name](backbone, VIEW), toy_stream(tasks=2), SHORT))
    for one, other in zip(expected, found, strict=True):
        assert other.loss == pytest.approx(one.loss, rel=1e-3)


def test_supsup_is_refused() -> None:
    backbone = toy_backbone()
    backbone.compute(checkpointing=True)
    with pytest.raises(ValueError, match=r"backbone\.checkpointing = True: must be False for SupSup"):
        METHODS["supsup"](backbone, VIEW)
