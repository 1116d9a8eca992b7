import tracemalloc
from pathlib import Path

import pytest
import torch
from torch import Tensor

from promptpool.backbones.base import FeatureExtractor, Readout
from promptpool.backbones.chunks import CHUNK
from promptpool.backbones.features import BOOKKEEPING, FrozenFeatures
from promptpool.backbones.vit import ViT
from promptpool.data.stream import Batch, Examples, concatenate, examples
from promptpool.data.views import ImageView
from published import random_vit
from toys import toy_backbone, toy_examples

VIEW = ImageView(8)


class Counting(FeatureExtractor):
    """Another backbone that also notes what it was asked for."""

    def __init__(self, inner: FeatureExtractor) -> None:
        super().__init__()
        self.inner, self.dim = inner, inner.dim
        self.asked: list[Tensor] = []

    def features(self, x: Tensor) -> Tensor:
        self.asked.append(x)
        return self.inner.features(x)

    def distinct(self) -> int:
        return len(torch.cat(self.asked).flatten(1).unique(dim=0))


class Flat(FeatureExtractor):
    """The first pixels themselves."""

    dim = 4

    def features(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, : self.dim]


class Placed(Flat):
    """The first pixels with a trace of the place in the batch and of its size, as threads leave one."""

    def features(self, x: Tensor) -> Tensor:
        return super().features(x) + 1e-3 * torch.arange(len(x))[:, None] + 1e-2 * len(x)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def counted() -> tuple[Counting, FrozenFeatures]:
    backbone = Counting(toy_backbone(dim=16))
    return backbone, FrozenFeatures(backbone, VIEW)


def noise(count: int, seed: int, side: int = 8) -> Examples:
    shape = (count, 3, side, side)
    return examples(torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator(seed)), [0] * count)


def whole(some: Examples) -> Batch:
    return some.batch(slice(None))


@pytest.mark.parametrize("view", [VIEW, ImageView(8, "symmetric"), ImageView(8, crop=(0.05, 1.0), flip=True)])
def test_features_are_the_backbones_on_the_plain_view(view: ImageView) -> None:
    backbone, batch = toy_backbone(dim=16), whole(toy_examples(7, 1))
    features = FrozenFeatures(backbone, view)(batch)
    assert features.shape == (42, 16)
    assert not features.requires_grad
    with torch.no_grad():
        for row, feature in zip(batch.x, features, strict=True):
            torch.testing.assert_close(feature, backbone.features(view.plain(row[None]))[0], atol=1e-5, rtol=1e-5)


def test_every_example_is_computed_once() -> None:
    backbone, frozen = counted()
    some = toy_examples(10, 1)
    for batch in some.batches(25):
        frozen(batch)
    assert len(frozen) == 60
    assert {len(x) for x in backbone.asked} == {CHUNK}
    assert backbone.distinct() == 60
    asked = len(backbone.asked)
    for size in (1, 7, 60):
        for batch in some.batches(size):
            frozen(batch)
    assert len(backbone.asked) == asked


def test_only_what_is_missing_is_computed() -> None:
    backbone, frozen = counted()
    some = toy_examples(5, 1)
    frozen(some.batch(torch.arange(0, 20)))
    backbone.asked.clear()
    frozen(some.batch(torch.arange(15, 30)))
    assert {len(x) for x in backbone.asked} == {CHUNK}
    assert backbone.distinct() == 10


@pytest.mark.parametrize("announced", [False, True])
@pytest.mark.parametrize("size", [1, 3, 8, 31, 77])
def test_a_feature_does_not_depend_on_its_place_in_the_batch(size: int, announced: bool) -> None:
    some = noise(77, 0, side=2)
    expected = FrozenFeatures(Placed(), ImageView(2))(whole(some))
    frozen = FrozenFeatures(Placed(), ImageView(2))
    if announced:
        frozen.expect(some)
    for part in torch.randperm(77, generator=generator(size)).split(size):
        assert torch.equal(frozen(some.batch(part)), expected[part])
    chosen = some.select(torch.randperm(77, generator=generator(size))[:30])  # another stream with some of them
    assert torch.equal(FrozenFeatures(Placed(), ImageView(2))(whole(chosen)), frozen(whole(chosen)))


@pytest.mark.parametrize("size", [1, 8, 16])
def test_what_is_announced_leaves_no_place_of_a_chunk_unused(size: int) -> None:
    some = noise(80, 0, side=2)
    backbone = Counting(Flat())
    frozen = FrozenFeatures(backbone, ImageView(2))
    frozen.expect(some)
    assert not backbone.asked, "nothing is computed before it is asked for"
    for part in torch.randperm(80, generator=generator(size)).split(size):
        frozen(some.batch(part))
    assert len(backbone.asked) == 80 // CHUNK


def test_what_is_announced_may_be_of_another_shape() -> None:
    frozen, some, others = FrozenFeatures(Flat(), ImageView(2)), noise(9, 0, side=2), noise(9, 1, side=4)
    frozen.expect(others)
    expected = FrozenFeatures(Flat(), ImageView(2))(whole(some))
    assert torch.equal(frozen(whole(some)), expected)
    assert torch.equal(frozen(whole(others)), FrozenFeatures(Flat(), ImageView(2))(whole(others)))


def test_features_of_another_number_of_threads_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROMPTPOOL_FEATURES_GB")
    some = noise(9, 0, side=2)
    first = FrozenFeatures(Flat(), ImageView(2))
    first.share(tmp_path)
    first(whole(some))
    first.keep()
    second = FrozenFeatures(Flat(), ImageView(2))
    second.share(tmp_path)
    assert len(second) == 9
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        third = FrozenFeatures(Flat(), ImageView(2))
        third.share(tmp_path)
    finally:
        torch.set_num_threads(threads)
    assert len(third) == 0


@pytest.mark.parametrize("rows", ["class", "patches", "both"])
@pytest.mark.parametrize("blocks", [1, 2])
def test_a_readout_is_what_the_last_blocks_say(blocks: int, rows: str) -> None:
    backbone, batch = toy_backbone(dim=16), whole(toy_examples(7, 1))
    found = FrozenFeatures(backbone, VIEW, Readout(blocks, rows))(batch)
    expected = []
    with torch.no_grad():
        tokens = backbone.embed(VIEW.plain(batch.x))
        for number, block in enumerate(backbone.blocks):
            tokens = block(tokens)
            if number >= 2 - blocks:
                read = backbone.norm(tokens)
                expected += [read[:, 0]] if rows != "patches" else []
                expected += [read[:, 1:].mean(dim=1)] if rows != "class" else []
    torch.testing.assert_close(found, torch.cat(expected, dim=1), atol=1e-5, rtol=1e-5)


def test_the_second_token_of_a_distilled_model_is_no_patch() -> None:
    vit = ViT(image_size=8, patch_size=4, dim=16, depth=1, heads=2, distilled=True).start(generator()).eval()
    with torch.no_grad():
        rows = vit.encode(vit.embed(VIEW.plain(whole(noise(3, 0)).x)))
        found = vit.read(VIEW.plain(whole(noise(3, 0)).x), Readout(1, "patches"))
    torch.testing.assert_close(found, rows[:, 2:].mean(dim=1))


@pytest.mark.parametrize("rows", ["patches", "both"])
@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("distilled", [False, True])
def test_registers_are_no_patches(distilled: bool, blocks: int, rows: str) -> None:
    vit, view, batch = random_vit(distilled=distilled, registers=4).eval(), ImageView(32), whole(noise(3, 0, side=32))
    found = FrozenFeatures(vit, view, Readout(blocks, rows))(batch)
    patches, expected = 16, []
    with torch.no_grad():
        tokens = vit.embed(view.plain(batch.x))
        assert tokens.shape[1] == 1 + distilled + 4 + patches
        for number, block in enumerate(vit.blocks):
            tokens = block(tokens)
            if number >= vit.depth - blocks:
                read = vit.norm(tokens)
                expected += [read[:, 0]] if rows == "both" else []
                expected += [read[:, -patches:].mean(dim=1)]
    torch.testing.assert_close(found, torch.cat(expected, dim=1), atol=1e-5, rtol=1e-5)


def test_a_model_without_tokens_has_one_readout() -> None:
    with pytest.raises(ValueError, match="Flat has one vector for an image, set 1 and 'class'"):
        FrozenFeatures(Flat(), ImageView(2), Readout(2, "class"))


@pytest.mark.parametrize("size", [1, 3, 31, 32, 33, 77])
def test_features_are_the_same_to_the_bit_whoever_asks_first(size: int) -> None:
    some = noise(77, 0)
    expected = FrozenFeatures(toy_backbone(dim=16), VIEW)(whole(some))
    frozen = FrozenFeatures(toy_backbone(dim=16), VIEW)
    order = torch.randperm(77, generator=generator(size))
    for part in order.split(size):
        assert torch.equal(frozen(some.batch(part)), expected[part])
    assert torch.equal(frozen(whole(some)), expected)


def test_the_store_grows_and_forgets_nothing() -> None:
    frozen, some = FrozenFeatures(Flat(), ImageView(2)), noise(2600, 0, side=2)
    expected = some.source[some.rows].flatten(1)[:, :4] / 255
    for begin, end in ((0, 10), (10, 1024), (1024, 1025), (1025, 2600)):
        frozen(some.batch(slice(begin, end)))
        assert len(frozen) == end
        torch.testing.assert_close(frozen(some.batch(slice(0, end))), expected[:end])


def test_memory_stays_below_its_budget_and_no_bit_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPOOL_MEMORY_GB", repr(2 * 200 * (4 * 4 + BOOKKEEPING) / 1e9))  # two tables of 200 rows
    frozen, some = FrozenFeatures(Placed(), ImageView(2)), noise(2600, 0, side=2)
    monkeypatch.delenv("PROMPTPOOL_MEMORY_GB")
    expected = FrozenFeatures(Placed(), ImageView(2))(whole(some))
    order = torch.randperm(len(some), generator=generator(1))
    frozen.put([-1], torch.ones(1, 4))
    for part in (*order.split(20), *order.flip(0).split(13)):
        assert torch.equal(frozen(some.batch(part)), expected[part])
        assert len(frozen) <= 401
        assert sum(len(table) for table in frozen._tables[:2]) <= 400
    assert -1 in frozen._slots  # what was put there stays
    assert torch.equal(frozen(whole(some)), expected)  # more at once than there is room for


def test_the_budget_of_memory_counts_what_python_keeps_of_an_id() -> None:
    frozen, count = FrozenFeatures(Flat(), ImageView(2)), 20_000
    tracemalloc.start()
    try:
        for begin in range(0, count, 100):
            frozen._add([10**17 + begin + place for place in range(100)], torch.zeros(100, 4))
        held, _ = tracemalloc.get_traced_memory()  # of Python alone: torch asks for its memory elsewhere
    finally:
        tracemalloc.stop()
    assert held / count == pytest.approx(BOOKKEEPING, rel=0.3)


def test_a_budget_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPOOL_MEMORY_GB", "much")
    with pytest.raises(ValueError, match="PROMPTPOOL_MEMORY_GB = 'much': must be a number"):
        FrozenFeatures(Flat(), ImageView(2))


def test_streams_are_not_confused() -> None:
    backbone, frozen = counted()
    first, second = noise(9, 0), noise(9, 1)  # the same rows of different arrays
    together = concatenate([second, first])
    one, other = frozen(whole(first)), frozen(whole(second))
    assert len(frozen) == 18
    assert not torch.equal(one, other)
    with torch.no_grad():
        torch.testing.assert_close(other, toy_backbone(dim=16).features(VIEW.plain(whole(second).x)))
    assert torch.equal(frozen(whole(together)), torch.cat([other, one]))
    asked = len(backbone.asked)
    assert torch.equal(frozen(whole(noise(9, 0))), one)  # the same contents, read anew
    assert len(backbone.asked) == asked


def test_an_example_may_be_twice_in_a_batch() -> None:
    backbone, frozen = counted()
    batch = noise(4, 0).batch(torch.tensor([2, 0, 2, 2, 3, 0]))
    features = frozen(batch)
    assert len(frozen) == 3
    assert backbone.distinct() == 3
    assert torch.equal(features[0], features[2])
    assert torch.equal(features, FrozenFeatures(toy_backbone(dim=16), VIEW)(batch))


def test_an_empty_batch_has_no_features() -> None:
    backbone, frozen = counted()
    assert frozen(noise(4, 0).batch(torch.tensor([], dtype=torch.long))).shape == (0, 16)
    assert backbone.asked == []


def test_what_a_caller_does_to_features_stays_with_the_caller() -> None:
    frozen, batch = FrozenFeatures(toy_backbone(dim=16), VIEW), whole(noise(4, 0))
    first = frozen(batch).clone()
    frozen(batch).zero_()
    assert torch.equal(frozen(batch), first)


def test_a_pass_for_a_wider_readout_makes_the_query_to_the_bit() -> None:
    backbone, some = random_vit(dim=64, heads=2), noise(20, 3, side=32)
    view = ImageView(backbone.image_size)
    alone, wide = FrozenFeatures(backbone, view), FrozenFeatures(backbone, view, Readout(2, "both"))
    wide.beside = FrozenFeatures(backbone, view)
    expected = [store(some.batch(slice(None))) for store in (FrozenFeatures(backbone, view, wide.readout), alone)]
    assert torch.equal(wide(some.batch(slice(None))), expected[0])
    assert len(wide.beside) == 20
    assert torch.equal(wide.beside(some.batch(slice(None))), expected[1])


def test_what_a_pass_makes_beside_is_kept_for_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROMPTPOOL_FEATURES_GB")
    backbone, some = random_vit(dim=64, heads=2), noise(20, 3, side=32)
    view = ImageView(backbone.image_size)
    wide, beside = FrozenFeatures(backbone, view, Readout(2, "both")), FrozenFeatures(backbone, view)
    for store in (wide, beside):
        store.share(tmp_path)
    wide.beside = beside
    wide(some.batch(slice(None)))
    wide.keep()
    later = FrozenFeatures(backbone, view)
    later.share(tmp_path)
    assert len(later) == 20
