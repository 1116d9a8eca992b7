"""Tokens that are kept: the backbone's own to the bit, in whatever order and with whatever room."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from promptpool.backbones.chunks import CHUNK
from promptpool.backbones.features import FrozenFeatures
from promptpool.backbones.token_store import TokenStore
from promptpool.backbones.vit import ViT
from promptpool.data.stream import Batch, Examples, examples
from promptpool.data.views import ImageView
from promptpool.learners.l2p import L2P
from promptpool.training import learn
from toys import SHORT, toy_backbone, toy_stream

VIEW = ImageView(8)
ROW = 5 * 16 * 4  # bytes of an image of the toy: four patches and [class], 16 numbers each
ROOMS = pytest.mark.parametrize("room", [0, 1, 20, 1000])


class Counting(ViT):
    """Notes how many images it embeds, and leaves a trace of the place in the batch and of its size, as threads do."""

    embedded = 0

    def embed(self, x: Tensor) -> Tensor:
        self.embedded += len(x)
        return super().embed(x) + 1e-3 * torch.arange(len(x))[:, None, None] + 1e-2 * len(x)


def counting() -> Counting:
    vit = Counting(image_size=8, patch_size=4, dim=16, depth=2, heads=2)
    vit.load_state_dict(toy_backbone(dim=16).state_dict())
    return vit.eval()


def noise(count: int, seed: int = 0) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    return examples(torch.randint(0, 256, (count, 3, 8, 8), dtype=torch.uint8, generator=generator), [0] * count)


def whole(some: Examples) -> Batch:
    return some.batch(slice(None))


def with_room(monkeypatch: pytest.MonkeyPatch, images: int) -> None:
    monkeypatch.setenv("PROMPTPOOL_TOKENS_GB", repr((images + 0.5) * ROW / 1e9))


@pytest.mark.parametrize("blocks", [0, 1])
def test_tokens_are_the_backbones_on_the_plain_view(blocks: int) -> None:
    backbone, batch = toy_backbone(dim=16), whole(noise(21))
    tokens = TokenStore(backbone, VIEW, blocks=blocks)(batch)
    with torch.no_grad():
        expected = backbone.embed(VIEW.plain(batch.x))
        for block in backbone.blocks[:blocks]:
            expected = block(expected)
    torch.testing.assert_close(tokens, expected, atol=1e-5, rtol=1e-5)
    assert not tokens.requires_grad


@ROOMS
@pytest.mark.parametrize("size", [1, 8, 31])
def test_tokens_are_the_same_to_the_bit_whoever_asks_first(
    room: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = noise(77)
    expected = TokenStore(counting(), VIEW)(whole(some))
    with_room(monkeypatch, room)
    store = TokenStore(counting(), VIEW)
    for turn in range(3):
        store.expect(some)
        for part in torch.randperm(77, generator=torch.Generator().manual_seed(turn)).split(size):
            assert torch.equal(store(some.batch(part)), expected[part])
            assert len(store) <= room


def test_what_is_kept_is_computed_once() -> None:
    some, backbone = noise(80), counting()
    store = TokenStore(backbone, VIEW)
    store.expect(some)
    for part in torch.randperm(80, generator=torch.Generator().manual_seed(0)).split(16):
        store(some.batch(part))
    assert backbone.embedded == 80, "announced examples leave no place unused"
    store(whole(some))
    assert backbone.embedded == 80


def test_a_full_store_keeps_what_it_has_within_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    with_room(monkeypatch, 40)
    some, backbone = noise(80), counting()
    store = TokenStore(backbone, VIEW)
    store.expect(some)
    for _ in range(3):
        for part in torch.arange(80).split(8):
            store(some.batch(part))
    backbone.embedded = 0
    store(some.batch(torch.arange(40)))
    assert backbone.embedded == 0, "the first half"
    store(some.batch(torch.arange(40, 80)))
    assert backbone.embedded == 40


def test_another_round_takes_the_place_of_what_was_not_asked_for_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    with_room(monkeypatch, 24)
    backbone = counting()
    store, (first, second, third) = TokenStore(backbone, VIEW), (noise(8 * CHUNK, seed) for seed in range(3))
    parts = [each.select(torch.arange(8)) for each in (first, second, third)]
    for part in (*parts, parts[0], noise(8, 3)):
        store.expect(part)
        store(whole(part))
    assert len(store) == 24
    backbone.embedded = 0
    for part in (parts[0], parts[2], noise(8, 3)):
        store(whole(part))
    assert backbone.embedded == 0
    store(whole(parts[1]))
    assert backbone.embedded == 8


def test_test_sets_beyond_the_budget_stay_in_part_from_one_evaluation_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_room(monkeypatch, 40)
    backbone, tests = counting(), [noise(24, seed) for seed in range(3)]
    store = TokenStore(backbone, VIEW)
    for task in range(3, 7):
        for sets in ([noise(16, task)], tests):
            backbone.embedded = 0
            store.expect(*sets)
            for each in sets:
                for batch in each.batches(8):
                    store(batch)
        assert backbone.embedded == (72 if task == 3 else 72 - 40 + 16), "a task takes 16 places"


def test_an_evaluation_is_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    with_room(monkeypatch, 50)  # of 32 images to learn and, in the end, 42 to test
    learner, embed, images = L2P(toy_backbone(dim=16), VIEW), ViT.embed, 0

    def counted(vit: ViT, x: Tensor) -> Tensor:
        nonlocal images
        images += 0 if learner.training else len(x.unique(dim=0))
        return embed(vit, x)

    monkeypatch.setattr(ViT, "embed", counted)
    asked, before = [], 0
    for _ in learn(learner, toy_stream(), SHORT):
        asked.append(images - before)
        before = images
    assert asked[:2] == [14, 14], "what is new"
    assert 24 <= asked[2] < 36, "what is new, and what the last task took the place of; not all 42"


def test_what_is_announced_may_lie_in_several_places() -> None:
    first, second = noise(20, 0), noise(20, 1)
    parts = [first.select(slice(0, 4)), first.select(slice(0)), second.select(slice(4, 20))]
    store = TokenStore(counting(), VIEW)
    store.expect(*parts)
    store(parts[0].batch(slice(0, 3)))
    assert len(store) == CHUNK, "the free places of the chunk have images of all parts"
    for each in parts:
        for batch in each.batches(3):
            assert torch.equal(store(batch), TokenStore(counting(), VIEW)(batch))
    assert len(store) == 20


@ROOMS
@pytest.mark.parametrize("blocks", [0, 1])
def test_features_and_tokens_come_from_one_embedding(blocks: int, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with_room(monkeypatch, room)
    some, backbone = noise(80), counting()
    alone = FrozenFeatures(counting(), VIEW)(whole(some))
    frozen = FrozenFeatures(backbone, VIEW)
    features, tokens = frozen.with_tokens(whole(some), blocks)
    assert backbone.embedded == 80
    assert torch.equal(features, alone), "the feature that is computed without tokens, to the bit"
    assert torch.equal(tokens, TokenStore(counting(), VIEW, blocks=blocks)(whole(some)))
    assert torch.equal(frozen(whole(some)), alone)


def test_what_a_caller_does_to_tokens_stays_with_the_caller() -> None:
    store, batch = TokenStore(toy_backbone(dim=16), VIEW), whole(noise(4))
    first = store(batch).clone()
    store(batch).zero_()
    assert torch.equal(store(batch), first)


def test_an_example_may_be_twice_in_a_batch_and_a_batch_may_be_empty() -> None:
    store, some = TokenStore(toy_backbone(dim=16), VIEW), noise(4)
    assert store(some.batch(torch.tensor([], dtype=torch.long))).shape == (0, 5, 16)
    tokens = store(some.batch(torch.tensor([2, 0, 2])))
    assert len(store) == 2
    assert torch.equal(tokens[0], tokens[2])


def test_the_budget_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPOOL_TOKENS_GB", "much")
    with pytest.raises(ValueError, match="PROMPTPOOL_TOKENS_GB = 'much': must be a number"):
        TokenStore(toy_backbone(dim=16), VIEW)
