"""Our step beside the textbook step of benchmarks/textbook.py: two whole passes, two copies, nothing kept.

Adam divides a gradient by its size, so where a gradient is zero but for rounding the step is rounding, blown up. In
single precision each step therefore begins with the same values on both sides; in double precision both go their own
way for all twenty steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from protocol import by_the_book
from textbook import Textbook
from torch import Tensor

from doubles import DoubleView, double_precision
from promptpool.backbones.features import FrozenFeatures
from promptpool.backbones.products import PRODUCTS
from promptpool.backbones.vit import ViT
from promptpool.backbones.weights import load_backbone
from promptpool.data.sets import DATASETS
from promptpool.data.stream import Batch, Examples
from promptpool.data.views import ImageView
from promptpool.experiments.build import Built
from promptpool.learners.base import Learner
from promptpool.learners.l2p import L2P
from promptpool.metrics import average_accuracy
from promptpool.optim import Descent
from promptpool.training import accuracy_matrix, learn
from toys import THREADS, VIEW, toy_backbone, toy_examples, toy_learner, toy_plan, toy_stream

STEPS, BATCH = 20, 16
TOLERANCE = 1e-4
# The paper's values, and those that the runs of benchmarks.toml have at the scale `small`.
VALUES: dict[str, tuple[float, dict[str, Any]]] = {
    "paper": (0.03, {}),
    "small": (0.003, {"start": (-1.0, 1.0), "start_from": "fitting", "order": "class-first", "position": "class"}),
}


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(THREADS)


def material(name: str) -> tuple[ViT, ImageView, Examples]:
    if name == "random":
        return toy_backbone(), VIEW, toy_examples(20, 1)
    backbone = load_backbone("vit-glyphs").eval()
    images = DATASETS["glyphs100"](train_per_class=10, test_per_class=1)[0]
    view = ImageView(backbone.image_size, values=backbone.values or "unit")
    return backbone, view, images.select((images.y < 10).nonzero().flatten())


def batches(images: Examples) -> Iterator[Batch]:
    """Epochs in the order of one shuffle."""
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    for step in range(STEPS):
        yield images.batch(order.roll(-BATCH * step)[:BATCH])


def error(ours: Tensor | None, theirs: Tensor | None) -> float:
    """How far the one is from the other, relative to its size."""
    assert ours is not None
    assert theirs is not None
    size = theirs.detach().norm().clamp(min=1e-12)  # the first gradient of prompts is zero
    return float((ours - theirs).detach().norm() / size)


def trained(learner: L2P) -> list[Tensor]:
    assert learner.pool.learned_keys is not None
    return [learner.pool.prompts, learner.pool.learned_keys, learner.head.weight, learner.head.bias]


class Pair:
    """A learner and a textbook that begin alike."""

    def __init__(
        self, backbone: ViT, view: ImageView, images: Examples, values: str, *, cached: bool, by_the_book: str = "torch"
    ) -> None:
        learning_rate, keywords = VALUES[values]
        self.classes, self.cached = images.classes, cached
        self.learner = L2P(backbone, view, **keywords)
        self.learner.add_classes(self.classes)
        self.learner.train()
        if self.learner.pool.waits:
            self.learner.loss(next(batches(images)))  # prompts start from a first batch
        self.textbook = Textbook(
            self.learner, class_count=len(self.classes), learning_rate=learning_rate, products=by_the_book
        )
        self.descend = Descent(trained(self.learner), learning_rate=learning_rate)  # type: ignore[arg-type]
        if cached:
            self.learner.frozen(images.batch(slice(None)))

    def step(self, batch: Batch) -> Iterator[tuple[Tensor | None, Tensor | None]]:
        """Take a step on both sides; yields losses and gradients of ours and of the textbook."""
        if not self.cached:
            self.learner.frozen = FrozenFeatures(self.learner.backbone, self.learner.view)
        yield self.learner.step(batch, self.descend), self.textbook.step(batch.x, batch.y, self.classes)
        for ours, theirs in zip(trained(self.learner), self.textbook.parameters, strict=True):
            yield ours.grad, theirs.grad

    @torch.no_grad()
    def carry_over(self) -> None:
        for ours, theirs in zip(trained(self.learner), self.textbook.parameters, strict=True):
            theirs.copy_(ours)

    @torch.no_grad()
    def check_predictions(self, batch: Batch) -> None:
        ours, (theirs, _) = self.learner.eval().logits(batch), self.textbook.forward(batch.x)
        assert error(ours, theirs) < TOLERANCE
        best = theirs.topk(2, dim=1).values
        clear = best[:, 0] - best[:, 1] > 1e-3
        assert clear.float().mean() > 0.9
        assert ours.argmax(dim=1)[clear].equal(theirs.argmax(dim=1)[clear])


def compare(name: str, *, cached: bool, values: str, products: str = "torch", by_the_book: str = "torch") -> None:
    backbone, view, images = material(name)
    backbone.compute(products=products)
    pair = Pair(backbone, view, images, values, cached=cached, by_the_book=by_the_book)
    for batch in batches(images):
        assert all(error(ours, theirs) < TOLERANCE for ours, theirs in pair.step(batch))
        pair.carry_over()
    pair.check_predictions(images.batch(slice(None)))


@pytest.mark.parametrize("cached", [True, False], ids=["cached", "first-epoch"])
@pytest.mark.parametrize("name", ["random", "vit-glyphs"])
@pytest.mark.parametrize("values", VALUES)
def test_losses_gradients_and_predictions_equal_those_of_the_textbook(name: str, cached: bool, values: str) -> None:
    compare(name, cached=cached, values=values)


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("name", ["random", "vit-glyphs"])
def test_they_do_with_several_threads(name: str, threads: int) -> None:
    with on_threads(threads):
        compare(name, cached=threads == 2, values="paper")


@pytest.mark.parametrize(("name", "threads"), [("random", 1), ("vit-glyphs", 2)])
def test_they_do_with_products_of_another_library(name: str, threads: int) -> None:
    with on_threads(threads):
        compare(name, cached=threads == 2, values="paper", products="onednn")


def test_they_do_where_the_textbook_has_those_of_another_library() -> None:
    compare("vit-glyphs", cached=True, values="paper", by_the_book="onednn")


def test_the_textbook_has_as_many_linear_layers_by_the_other_library(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        calls.append(weight.numel())
        return F.linear(x, weight, bias)

    monkeypatch.setitem(PRODUCTS, "onednn", counted)
    backbone, view, images = material("random")
    Pair(backbone, view, images, "paper", cached=True, by_the_book="onednn").textbook.forward(images.batch(slice(4)).x)
    assert len(calls) == 2 * backbone.depth * 4  # of two passes: queries, keys and values; projection; MLP


@pytest.mark.parametrize("name", ["random", "vit-glyphs"])
def test_twenty_steps_of_each_on_its_own_end_alike(name: str) -> None:
    backbone, view, images = material(name)
    with double_precision():
        backbone, view = backbone.double(), DoubleView(view.size, values=view.values)
        pair = Pair(backbone, view, images, "paper", cached=True)
        for batch in batches(images):
            assert all(error(ours, theirs) < TOLERANCE for ours, theirs in pair.step(batch))
        for ours, theirs in zip(trained(pair.learner), pair.textbook.parameters, strict=True):
            assert error(ours, theirs) < TOLERANCE
        pair.check_predictions(images.batch(slice(None)))


def test_a_whole_protocol_with_the_textbook_step_ends_with_the_same_accuracy() -> None:
    plan = replace(toy_plan("l2p"), epochs=5, task_given=False)
    with double_precision():
        stream = toy_stream()
        ours = average_accuracy(accuracy_matrix(list(learn(double_learner(), stream, plan))))
        watch, theirs = by_the_book(Built({}, double_learner(), stream, plan))
    assert ours == theirs
    assert set(watch.seconds) == {"steps", "evaluation", "data", "other"}


def double_learner() -> Learner:
    return toy_learner("l2p", view=DoubleView(VIEW.size))


def test_a_learner_that_is_not_algorithm_1_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^vote = 4: the textbook step has none"):
        Textbook(L2P(toy_backbone(), VIEW, vote=4), class_count=6)
    with pytest.raises(ValueError, match="whole images"):
        Textbook(L2P(toy_backbone(), replace(VIEW, flip=True)), class_count=6)
