"""Products in bfloat16: what they change, and what stays as it is."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from promptpool import load_backbone
from promptpool.backbones.base import Readout
from promptpool.backbones.vit import attend
from published import images, random_vit

COARSE = 2**-6  # bfloat16 keeps 8 bits; roundings of a few products add up


def test_features_are_those_of_single_precision_but_for_the_digits() -> None:
    vit = random_vit(layer_scale=True)
    features, read = vit.features(images()), vit.read(images(), Readout(2, "both"))
    vit.compute(precision="bfloat16")
    for exact, rounded in ((features, vit.features(images())), (read, vit.read(images(), Readout(2, "both")))):
        assert rounded.dtype == torch.float32
        assert 0 < (rounded - exact).norm() / exact.norm() < COARSE


def test_gradients_reach_tokens_and_weights_in_single_precision() -> None:
    vit = random_vit()
    tokens = vit.embed(images()).detach().requires_grad_()
    gradients = []
    for precision in ("single", "bfloat16"):
        vit.compute(precision=precision)
        weight = vit.blocks[0].get_parameter("mlp.fc1.weight")
        gradients.append(torch.autograd.grad(vit.encode(tokens, rows=3).square().sum(), [tokens, weight]))
    for exact, rounded in zip(*gradients, strict=True):
        assert rounded.dtype == torch.float32
        assert 0 < (rounded - exact).norm() / exact.norm() < 4 * COARSE


def test_attention_is_the_fused_one() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, keys, values = torch.randn(3, 2, 3, 7, 16, generator=generator)
    exact = F.scaled_dot_product_attention(queries, keys, values)
    rounded = attend(queries.bfloat16(), keys.bfloat16(), values.bfloat16())
    assert rounded.dtype == torch.bfloat16
    assert (rounded.float() - exact).norm() / exact.norm() < COARSE


def test_a_backbone_is_loaded_with_its_precision_and_known_by_it() -> None:
    single, rounded = load_backbone("vit-glyphs"), load_backbone("vit-glyphs", precision="bfloat16")
    assert (single.precision, rounded.precision) == ("single", "bfloat16")
    assert single.fingerprint() != rounded.fingerprint()  # so that stored features are not mixed up
    assert all(parameter.dtype == torch.float32 for parameter in rounded.parameters())
    rounded.compute(precision="single")
    assert torch.equal(single.features(torch.zeros(1, 3, 32, 32)), rounded.features(torch.zeros(1, 3, 32, 32)))


def test_a_precision_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="precision = 'half': must be one of single, bfloat16"):
        load_backbone("vit-glyphs", precision="half")
