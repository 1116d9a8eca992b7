"""Products by oneDNN: the same numbers but for rounding, wherever a product stands."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from promptpool import cores, load_backbone
from promptpool.backbones.base import Readout
from promptpool.backbones.features import FrozenFeatures
from promptpool.backbones.products import PRODUCTS, Linear, by_convolution, suited
from promptpool.backbones.vit import ViT
from promptpool.data.views import ImageView
from promptpool.training import learn
from published import random_vit
from toys import METHODS, SHORT, THREADS, VIEW, toy_stream

assert_near = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-5)


LARGE = (3, 130, 64)  # of more numbers than torch computes otherwise


def asked(work: Callable[[], object]) -> int:
    """How many products oneDNN computed meanwhile."""
    with profile(activities=[ProfilerActivity.CPU]) as watched:
        work()
    return sum(event.name == "aten::mkldnn_convolution" for event in watched.events() or ())


@pytest.mark.parametrize("shape", [LARGE, (390, 64), (7,), (1, 7), (2, 3, 7), (0, 3, 7)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_it_is_the_linear_layer_and_so_are_its_gradients(
    shape: tuple[int, ...], bias: bool, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator, dtype=dtype, requires_grad=True)
    weight = torch.randn(4, shape[-1], generator=generator, dtype=dtype, requires_grad=True)
    offset = torch.randn(4, generator=generator, dtype=dtype, requires_grad=True) if bias else None
    trained = [each for each in (x, weight, offset) if each is not None]
    found = []
    for product in (F.linear, by_convolution):
        y = product(x, weight, offset)
        found.append([y, *torch.autograd.grad(y.square().sum(), trained)])
    for expected, other in zip(*found, strict=True):
        assert other.shape == expected.shape
        assert (other - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
def test_onednn_is_asked_for_large_products_of_single_precision_alone() -> None:
    x, weight = torch.randn(LARGE), torch.randn(8, LARGE[-1])
    assert asked(lambda: by_convolution(x, weight)) == 1
    assert asked(lambda: by_convolution(x[:1], weight)) == 0
    assert asked(lambda: by_convolution(x.double(), weight.double())) == 0
    with torch.autocast("cpu", torch.bfloat16):
        assert asked(lambda: by_convolution(x, weight)) == 0


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_rows_may_be_cut_out_of_others(threads: int) -> None:
    x, weight = torch.randn(LARGE), torch.randn(60, LARGE[-1])
    torch.set_num_threads(threads)
    try:
        assert_near(by_convolution(x[:, 2:128], weight[1:40]), F.linear(x[:, 2:128], weight[1:40]))
    finally:
        torch.set_num_threads(THREADS)


def large_vit() -> ViT:
    """One whose blocks have large products for a few images."""
    vit = ViT(image_size=32, patch_size=4, dim=64, depth=2, heads=2, layer_scale=True)
    return vit.start(torch.Generator().manual_seed(0)).eval()


def pictures(count: int = 6) -> Tensor:
    return torch.rand(count, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_every_linear_layer_of_a_block_is_asked_and_none_else() -> None:
    vit = random_vit(layer_scale=True)
    layers = [module for module in vit.modules() if isinstance(module, nn.Linear)]
    assert len(layers) == 4 * vit.depth
    assert all(isinstance(layer, Linear) and layer.product is F.linear for layer in layers)
    vit.compute(products="onednn")
    assert all(isinstance(layer, Linear) and layer.product is by_convolution for layer in layers)
    with vit.plainly():
        assert all(isinstance(layer, Linear) and layer.product is F.linear for layer in layers)
    assert vit.products == "onednn"
    assert all(isinstance(layer, Linear) and layer.product is by_convolution for layer in layers)


def test_what_a_transformer_makes_is_the_same() -> None:
    vit = large_vit()
    found: list[list[Tensor]] = []
    for name in PRODUCTS:
        vit.compute(products=name)
        tokens = vit.embed(pictures()).detach().requires_grad_()
        rows = vit.encode(tokens, rows=60)  # the last block's rows are cut
        gradients = torch.autograd.grad(rows.cos().sum(), [tokens, *vit.blocks.parameters()])
        read = vit.read(pictures(), Readout(2, "both"))
        found.append([vit.features(pictures()), read, rows.detach(), *gradients])
    for expected, other in zip(*found, strict=True):
        assert other.dtype == torch.float32
        assert (other - expected).norm() <= 1e-5 * expected.norm()


def test_a_backbone_is_loaded_with_its_products_and_known_by_them() -> None:
    usual, other = load_backbone("vit-glyphs"), load_backbone("vit-glyphs", products="onednn")
    assert (usual.products, other.products) == ("torch", "onednn")
    assert FrozenFeatures(usual, VIEW).fingerprint != FrozenFeatures(other, VIEW).fingerprint  # they round otherwise
    twin = copy.deepcopy(other)
    assert twin.fingerprint() == other.fingerprint()
    twin.compute(products="torch")
    assert twin.fingerprint() == usual.fingerprint()
    x = pictures(12)
    assert torch.equal(twin.features(x), usual.features(x))
    assert_near(other.features(x), usual.features(x))


@pytest.mark.parametrize("name", ["l2p", "ft-seq", "ewc", "supsup"])
def test_methods_learn_the_same(name: str) -> None:
    found = []
    for way in PRODUCTS:
        vit = large_vit()
        vit.compute(products=way)
        learner = METHODS[name](vit, ImageView(32))
        found.append([record.loss for record in learn(learner, toy_stream(tasks=2), SHORT)])
    assert found[1] == pytest.approx(found[0], rel=1e-2)


def test_an_export_holds_the_same_numbers() -> None:
    class Features(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vit = large_vit()
            self.vit.compute(products="onednn")

        def forward(self, x: Tensor) -> Tensor:
            return self.vit.features(x)

    model = Features().eval()
    with torch.no_grad():
        program = torch.export.export(model, (pictures(),))
    assert_near(program.module()(pictures()), model(pictures()))
    assert sum("conv" in str(node.target) for node in program.graph.nodes) == 1  # that of the patches


@pytest.mark.parametrize(
    ("instructions", "maker", "expected"),
    [
        ("AVX512", "vendor_id\t: AuthenticAMD", "onednn"),
        ("AVX2", "vendor_id\t: AuthenticAMD", "torch"),
        ("AVX512", "vendor_id\t: GenuineIntel", "torch"),
        ("DEFAULT", "CPU implementer\t: 0x41", "torch"),
    ],
)
def test_another_library_is_advised_where_mkl_leaves_instructions_unused(
    instructions: str, maker: str, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instructions)
    for library in (torch.backends.mkl, torch.backends.mkldnn):
        monkeypatch.setattr(library, "is_available", lambda: True)
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{maker}\nmodel\t: 2\n")
    monkeypatch.setattr(cores, "CPUINFO", tmp_path / "cpuinfo")
    assert suited() == expected
    monkeypatch.setattr(cores, "CPUINFO", tmp_path / "none")
    monkeypatch.setattr("platform.processor", lambda: maker)
    assert suited() == expected


def test_products_that_are_not_there_are_named() -> None:
    with pytest.raises(ValueError, match="products = 'blas': must be one of torch, onednn"):
        load_backbone("vit-glyphs", products="blas")
    with pytest.raises(ValueError, match="products = 'onednn': must be 'torch' with compile = True"):
        load_backbone("vit-glyphs", products="onednn", compile=True)
    vit = large_vit()
    vit.compute(products="onednn")
    with pytest.raises(ValueError, match="must be 'torch' with compile = True"):
        vit.compute(compiled=True)
    with pytest.raises(ValueError, match="must be 'torch' with precision = 'bfloat16'"):
        vit.compute(precision="bfloat16")
    assert vit.precision == "single"
    with pytest.raises(ValueError, match="must be 'torch' with precision = 'bfloat16'"):
        load_backbone("vit-glyphs", products="onednn", precision="bfloat16")
