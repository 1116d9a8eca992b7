"""The first rows alone are the same numbers as all rows."""

from __future__ import annotations

import pytest
import torch
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
