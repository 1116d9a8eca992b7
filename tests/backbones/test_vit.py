"""The ViT against one written out, and the first rows alone against all rows."""

from __future__ import annotations

import pytest
import torch

import slow_vit
from promptpool.backbones.vit import ViT
from published import images, random_vit

TOKENS = 17


@pytest.mark.parametrize("rows", range(1, TOKENS + 1))
def test_the_first_rows_equal_the_full_pass(rows: int) -> None:
    vit = random_vit(layer_scale=True)
    tokens = vit.embed(images())
    torch.testing.assert_close(vit.encode(tokens, rows=rows), vit.encode(tokens)[:, :rows], atol=1e-5, rtol=0)


@pytest.mark.parametrize("rows", [1, 5, TOKENS])
def test_the_first_rows_have_the_gradients_of_the_full_pass(rows: int) -> None:
    vit = random_vit(layer_scale=True)
    tokens = vit.embed(images()).detach().requires_grad_()
    (few,) = torch.autograd.grad(vit.encode(tokens, rows=rows).square().sum(), tokens)
    (full,) = torch.autograd.grad(vit.encode(tokens)[:, :rows].square().sum(), tokens)
    torch.testing.assert_close(few, full, atol=1e-5, rtol=1e-4)


def test_features_are_the_class_row() -> None:
    vit = random_vit()
    torch.testing.assert_close(vit.features(images()), vit.encode(vit.embed(images()))[:, 0])


def test_a_distilled_vit_has_one_more_token() -> None:
    vit = random_vit(distilled=True)
    assert vit.dist_token is not None
    tokens = vit.embed(images())
    assert tokens.shape == (2, TOKENS + 1, 48)
    torch.testing.assert_close(tokens[0, 1], vit.dist_token[0, 0] + vit.pos_embed[0, 1])


def test_an_image_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"reads \[B, 3, 32, 32\], not \[2, 3, 40, 40\]"):
        random_vit().embed(images(40))


@pytest.mark.parametrize("registers", [1, 4])
def test_registers_follow_class_and_have_no_position(registers: int) -> None:
    vit = random_vit(registers=registers)
    assert vit.reg_token is not None
    tokens, plain = vit.embed(images()), random_vit()
    plain.load_state_dict({name: value for name, value in vit.state_dict().items() if name != "reg_token"})
    assert tokens.shape == (2, TOKENS + registers, 48)
    assert torch.equal(tokens[0, 1 : 1 + registers], vit.reg_token[0])
    assert torch.equal(tokens[:, vit.patches :], plain.embed(images())[:, 1:])
    assert torch.equal(tokens[:, 0], plain.embed(images())[:, 0])


@pytest.mark.parametrize(("distilled", "registers"), [(False, 0), (True, 0), (False, 4), (True, 4)])
def test_rows_of_patches_are_as_many_as_patches(distilled: bool, registers: int) -> None:
    vit = random_vit(distilled=distilled, registers=registers)
    rows = vit.encode(vit.embed(images()))
    assert rows.shape[1] == TOKENS + distilled + registers
    assert rows[:, vit.patches :].shape[1] == TOKENS - 1


def test_registers_go_through_every_block() -> None:
    vit = random_vit(registers=4)
    assert vit.reg_token is not None
    before = vit.features(images())
    with torch.no_grad():
        vit.reg_token[0, 3, :24] += 1  # not all of it, which the norm would take away
    assert (vit.features(images()) - before).abs().max() > 1e-3


def test_registers_cannot_be_fewer_than_none() -> None:
    with pytest.raises(ValueError, match=r"^registers = -1: must be 0 or more"):
        small_vit(registers=-1)


def small_vit(**values: str | int) -> ViT:
    return ViT(image_size=8, patch_size=4, dim=8, depth=1, heads=2, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(("gelu", "registers"), [("exact", 0), ("tanh", 0), ("exact", 4)])
def test_the_vit_is_the_one_written_out(gelu: str, registers: int) -> None:
    vit = random_vit(gelu=gelu, registers=registers).double()
    weights, x = dict(vit.state_dict()), images().double()
    assert vit.gelu == gelu
    for image, rows in zip(x, vit.encode(vit.embed(x)), strict=True):
        tokens = slow_vit.embed(weights, image)
        torch.testing.assert_close(rows, slow_vit.encode(weights, tokens, heads=3, gelu=gelu), atol=1e-12, rtol=0)
        other = {"exact": "tanh", "tanh": "exact"}[gelu]
        assert (rows - slow_vit.encode(weights, tokens, heads=3, gelu=other)).abs().max() > 1e-5


def test_a_gelu_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"^gelu = 'quick': must be one of exact, tanh"):
        small_vit(gelu="quick")


def test_exact_gelu_keeps_the_fingerprint_of_earlier_versions() -> None:
    found = {}
    for gelu in ("exact", "tanh"):
        vit = small_vit(gelu=gelu)
        with torch.no_grad():
            for parameter in vit.parameters():
                parameter.fill_(0.5)
        found[gelu] = vit.fingerprint()
    assert found["exact"] == "9167c0ad3d1e17eb2bf65fb9ee3fa85d5e3478fd8cdf6ef56fd5a3162a30fb3f"
    assert found["tanh"] != found["exact"]


@pytest.mark.parametrize("precision", ["single", "bfloat16"])
@pytest.mark.parametrize("blocks", [0, 1, 2])
def test_a_pass_can_be_interrupted_before_any_block(blocks: int, precision: str) -> None:
    vit = random_vit()
    vit.compute(precision=precision)
    tokens = vit.embed(images())
    there = vit.begin(tokens, blocks)
    assert there.dtype == torch.float32
    assert torch.equal(vit.encode(there, rows=2, first=blocks), vit.encode(tokens, rows=2))


@pytest.mark.parametrize("first", [-1, 1])
def test_a_pass_begins_at_a_block_that_is_there(first: int) -> None:
    vit = small_vit()
    with pytest.raises(ValueError, match=rf"^enter = {first}: must be one of this ViT's blocks, 0 to 0"):
        vit.encode(torch.zeros(1, 5, 8), first=first)
