"""Slots and what they inherit: three tasks against a transcription in loops, in double precision.

Written from what the public codes do: in training task t takes prompts tN to (t + 1)N - 1, which start from those of
task t - 1; where the pool does not reach, and at test, prompts are chosen by their keys, with a vote.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import slow_vit
from promptpool.backbones.vit import ViT
from promptpool.data.stream import Batch, Stream
from promptpool.data.views import ImageView
from promptpool.learners.l2p import L2P
from promptpool.learners.profiles import profile
from promptpool.training.checkpoint import load_checkpoint, save_checkpoint
from promptpool.training.loop import Plan, Session
from toys import VIEW, refusal, toy_backbone, toy_schedule, toy_stream

SMALL: dict[str, Any] = {"top_k": 2, "prompt_length": 2}
EPOCHS, RATE = 3, 0.02


@dataclass(frozen=True)
class Doubles(ImageView):
    """8 x 8 pixels as they are, in double precision."""

    def plain(self, x: Tensor) -> Tensor:
        return x.double() / 255


@pytest.fixture(autouse=True)
def doubles() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


class Slow:
    """L2P with slots, an image and a prompt at a time; Adam and clipping are written out too."""

    def __init__(self, learner: L2P, gelu: str, values: dict[str, Any], clip_frozen: bool) -> None:
        assert isinstance(learner.backbone, ViT)
        assert learner.pool.learned_keys is not None
        self.gelu, self.values, self.clip_frozen = gelu, values, clip_frozen
        self.heads = learner.backbone.heads
        self.frozen = {name: tensor.detach().clone() for name, tensor in learner.backbone.state_dict().items()}
        self.learned = {
            "prompts": learner.pool.prompts.detach().clone(),
            "keys": learner.pool.learned_keys.detach().clone(),
            "weight": learner.head.weight.detach().clone(),
            "bias": learner.head.bias.detach().clone(),
        }

    def task(self, number: int, batch: Batch, classes: tuple[int, ...]) -> list[float]:
        """All steps of a task on one batch; the loss of each."""
        count, prompts = self.values["top_k"], self.learned["prompts"]
        within = (number + 1) * count <= len(prompts)
        if number > 0 and within:
            for place in range(count):
                prompts[number * count + place] = prompts[(number - 1) * count + place]
        slot = [number * count + place for place in range(count)] if within else None
        moments = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in self.learned.items()}
        losses = []
        for step in range(1, EPOCHS + 1):
            loss, gradients = self.gradients(batch, classes, slot)
            losses.append(loss)
            for name, (first, second) in moments.items():
                first = 0.9 * first + 0.1 * gradients[name]
                second = 0.999 * second + 0.001 * gradients[name] ** 2
                moments[name] = first, second
                root = (second / (1 - 0.999**step)).sqrt() + 1e-8
                self.learned[name] = self.learned[name] - RATE * (first / (1 - 0.9**step)) / root
        return losses

    def gradients(
        self, batch: Batch, classes: tuple[int, ...], slot: list[int] | None
    ) -> tuple[float, dict[str, Tensor]]:
        leaves = {name: tensor.clone().requires_grad_(True) for name, tensor in self.learned.items()}
        weights = {name: tensor.clone().requires_grad_(True) for name, tensor in self.frozen.items()}
        queries = [self.query(image) for image in batch.x]
        chosen = [slot] * len(queries) if slot is not None else self.voted(queries)
        total = torch.zeros(())
        for image, label, query, own in zip(batch.x, batch.y.tolist(), queries, chosen, strict=True):
            scores = self.scores(image, own, leaves, weights)
            total = total + torch.stack([scores[c] for c in classes]).exp().sum().log() - scores[label]
            for s in own:
                total = total + self.values["pull"] * (1 - cosine(query, leaves["keys"][s]))
        total = total / len(queries)
        found = torch.autograd.grad(total, [*leaves.values(), *weights.values()])
        measured = found if self.clip_frozen else found[: len(leaves)]
        norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in measured))
        scale = min(1.0, 1.0 / (norm + 1e-6))
        return float(total.detach()), {name: scale * gradient for name, gradient in zip(leaves, found, strict=False)}

    def query(self, image: Tensor) -> Tensor:
        tokens = slow_vit.embed(self.frozen, image.double() / 255)
        return slow_vit.encode(self.frozen, tokens, heads=self.heads, gelu=self.gelu)[0]

    def voted(self, queries: list[Tensor]) -> list[list[int]]:
        """The prompts with the most votes; a vote is a place among an image's nearest."""
        votes = [0] * len(self.learned["keys"])
        for query in queries:
            nearest = sorted(range(len(votes)), key=lambda s: -float(cosine(query, self.learned["keys"][s])))
            for s in nearest[: self.values["top_k"]]:
                votes[s] += 1
        winners = sorted(range(len(votes)), key=lambda s: (-votes[s], s))[: self.values["top_k"]]
        return [winners] * len(queries)

    def scores(self, image: Tensor, own: list[int], leaves: dict[str, Tensor], weights: dict[str, Tensor]) -> Tensor:
        tokens = slow_vit.embed(weights, image.double() / 255)
        prompts = [token for s in own for token in leaves["prompts"][s]]
        first = 0
        if self.values.get("position") == "class":
            prompts = [token + weights["pos_embed"][0, 0] for token in prompts]
        if self.values.get("order") == "class-first":
            first = 1
        tokens = [*tokens[:first], *prompts, *tokens[first:]]
        rows = slow_vit.encode(weights, tokens, heads=self.heads, gelu=self.gelu)
        z = torch.stack([rows[first + place] for place in range(len(prompts))]).mean(dim=0)
        return leaves["weight"] @ z + leaves["bias"]


def cosine(q: Tensor, k: Tensor) -> Tensor:
    return (q * k).sum() / ((q * q).sum().sqrt() * (k * k).sum().sqrt())


def prepared(name: str, pool_size: int) -> tuple[L2P, Slow, Stream, Session]:
    """A learner of a profile on 5-datasets and its transcription, at the beginning of a stream of three tasks."""
    values = profile(name, benchmark="5-datasets")
    small = {**values.learner, **SMALL, "pool_size": pool_size}
    backbone = ViT(image_size=8, patch_size=4, dim=16, depth=2, heads=2, **values.backbone).double()
    backbone.load_state_dict(toy_backbone(dim=16).state_dict())
    stream = toy_stream(per_class=6)
    learner = L2P(backbone.eval(), Doubles(8), **small)
    learner.grow(len(stream.class_names))
    with torch.no_grad():  # keys that differ, or the vote falls to rounding
        learner.pool.learned_keys.copy_(torch.randn(pool_size, 16, generator=torch.Generator().manual_seed(3)))  # type: ignore[union-attr]
    clip_frozen = values.plan.get("clip_frozen", False)
    plan = Plan(epochs=EPOCHS, batch_size=16, learning_rate=RATE, clip_frozen=clip_frozen)
    return learner, Slow(learner, values.backbone["gelu"], small, clip_frozen), stream, Session(learner, stream, plan)


@pytest.mark.parametrize("pool_size", [6, 5, 3], ids=["three slots", "two slots", "one slot"])
@pytest.mark.parametrize("name", ["google-v2", "pytorch-port"])
def test_three_tasks_are_those_of_the_transcription(name: str, pool_size: int) -> None:
    learner, slow, stream, session = prepared(name, pool_size)
    assert (learner.pull, learner.vote, learner.slots, learner.inherit) == (0.5, 16, True, True)
    steps = iter(session)
    for number, experience in enumerate(stream.experiences):
        batch = experience.train.batch(slice(None))
        keys = slow.learned["keys"].clone()
        expected = slow.task(number, batch, tuple(experience.classes))
        losses = [next(steps).loss for _ in range(EPOCHS)]
        assert losses == pytest.approx(expected, abs=1e-10)
        actual = {"weight": learner.head.weight, "bias": learner.head.bias, **dict(learner.pool.named_parameters())}
        actual["keys"] = actual.pop("learned_keys")
        for key, tensor in slow.learned.items():
            torch.testing.assert_close(actual[key].detach(), tensor, atol=1e-10, rtol=0, msg=f"{key}, task {number}")
        moved = [s for s in range(pool_size) if not torch.equal(keys[s], slow.learned["keys"][s])]
        slot = [2 * number, 2 * number + 1]
        assert moved == slot if slot[-1] < pool_size else len(moved) == 2
    with torch.no_grad():  # at test the usual choice
        batch = stream.tests[0].batch(slice(None))
        chosen = slow.voted([slow.query(image) for image in batch.x])
        logits = [slow.scores(x, own, slow.learned, slow.frozen) for x, own in zip(batch.x, chosen, strict=True)]
        torch.testing.assert_close(learner.eval().logits(batch), torch.stack(logits), atol=1e-9, rtol=0)


def test_a_slot_starts_from_the_prompts_of_the_slot_before_and_keeps_its_keys() -> None:
    for inherit in (False, True):
        learner = L2P(toy_backbone(dim=16), Doubles(8), pool_size=5, **SMALL, slots=True, inherit=inherit)
        pool = learner.pool
        before = {name: tensor.clone() for name, tensor in pool.state_dict().items()}
        pool.begin_task()
        assert all(torch.equal(before[name], pool.state_dict()[name]) for name in ("prompts", "learned_keys"))
        pool.begin_task()
        expected = before["prompts"].clone()
        if inherit:
            expected[2:4] = expected[0:2]
        assert torch.equal(pool.prompts, expected)
        assert torch.equal(pool.state_dict()["learned_keys"], before["learned_keys"])
        pool.begin_task()  # of which the pool has one prompt only
        assert torch.equal(pool.prompts, expected)


def test_counts_are_of_the_slots_and_no_vote_is_held() -> None:
    learner = L2P(toy_backbone(dim=16).double(), Doubles(8), pool_size=6, **SMALL, slots=True, vote=4)
    for _ in Session(learner, toy_stream(per_class=6), Plan(epochs=1, batch_size=5)):
        pass
    assert learner.pool.counts.tolist() == [12] * 6
    assert learner.pool.eval().choose(torch.tensor([[0.0, 1, 2, 3, 4, 5]])).tolist() == [[0, 1]], "not slot 4, 5"


def test_checkpoints_of_earlier_versions_have_all_that_there_is_without_slots() -> None:
    pool = L2P(toy_backbone(dim=16), Doubles(8)).pool
    assert set(pool.state_dict()) == {"prompts", "learned_keys", "counts", "frequency"}


@pytest.mark.parametrize("stop", [1, 5, 6, 8])
def test_stopped_anywhere_and_gone_on_with_equals_never_stopped(stop: int, tmp_path: Any) -> None:
    def begun() -> Session:
        learner = L2P(toy_backbone(dim=16).double(), Doubles(8), pool_size=6, **SMALL, slots=True, inherit=True)
        return Session(learner, toy_stream(per_class=6), Plan(epochs=2, batch_size=5))

    whole, first, second = begun(), begun(), begun()
    for _ in whole:
        pass
    for number, _ in enumerate(first, start=1):
        if number == stop:
            save_checkpoint(tmp_path / "checkpoint", first)
            break
    load_checkpoint(tmp_path / "checkpoint", second)
    for _ in second:
        pass
    assert second.records == whole.records
    for name, tensor in whole.learner.state_dict().items():
        assert torch.equal(second.learner.state_dict()[name], tensor), name


def test_slots_need_boundaries_and_no_other_rule() -> None:
    learner = L2P(toy_backbone(), VIEW, loss_classes="seen", slots=True)
    assert refusal(learner, toy_schedule()) == "slots = True needs task boundaries, which this stream does not have"
    learner.check(toy_stream())
    with pytest.raises(ValueError, match=r"^slots = True: .*diversify = True"):
        L2P(toy_backbone(), VIEW, slots=True, diversify=True)
    with pytest.raises(ValueError, match=r"^inherit = True: .*slots = True"):
        L2P(toy_backbone(), VIEW, inherit=True)


def test_without_slots_a_task_changes_nothing() -> None:
    learner = L2P(toy_backbone(), VIEW)
    before = copy.deepcopy(learner.pool.state_dict())
    learner.before(toy_stream().experiences[1])
    assert all(torch.equal(before[name], tensor) for name, tensor in learner.pool.state_dict().items())
