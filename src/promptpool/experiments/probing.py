"""What pieces of a run take: a step, a test and a feature of few images, multiplied, and the bytes they hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from promptpool.backbones.base import Backbone
from promptpool.backbones.chunks import CHUNK
from promptpool.backbones.features import FrozenFeatures
from promptpool.backbones.token_store import token_budget
from promptpool.data.stream import Batch
from promptpool.experiments.build import Built
from promptpool.experiments.runner import device
from promptpool.training.loop import Session

QUICK = 0.5  # seconds within which a piece of a run is measured with more images
SLOW = 5.0  # from which on its first call, which is slower than others, has to do
AT_A_TIME = 3  # activations as large as the largest that a block without gradients holds


class Probe(NamedTuple):
    """What was measured of a learner: seconds, and bytes of activations."""

    step: float  # a step of a whole batch, with the frozen features at hand
    test: float  # a test image, likewise
    feature: float  # the frozen feature of an image
    step_bytes: float  # that the step of a whole batch keeps for its gradients
    test_bytes: float  # that testing a whole batch holds at a time
    token_bytes: float = 0.0  # of the tokens of an image, where they are kept


class _Store(FrozenFeatures):
    """Features out of thin air, and tokens if there is room for all: the time of steps and tests without theirs."""

    asked = False
    images = 0  # that come again and again
    tokens: Tensor | None = None  # of one image: [1, L, D]

    def __call__(self, batch: Batch) -> Tensor:
        self.asked = True
        return torch.randn(len(batch.ids), self.width, device=batch.y.device)

    @torch.no_grad()
    def with_tokens(self, batch: Batch, blocks: int = 0) -> tuple[Tensor, Tensor]:
        if self.tokens is None:
            self.tokens = self._tokens_of(batch.x[:1], blocks)
        if have_room(self.images, self.token_bytes):
            return self(batch), self.tokens.expand(len(batch.ids), -1, -1)
        return self(batch), self._tokens_of(batch.x, blocks)

    def _tokens_of(self, x: Tensor, blocks: int) -> Tensor:
        if not isinstance(self.backbone, Backbone):
            raise ValueError(f"{type(self.backbone).__name__} has no tokens")
        return self.backbone.begin(self.backbone.embed(self.view.plain(x)), blocks)

    @property
    def token_bytes(self) -> int:
        return 0 if self.tokens is None else self.tokens.numel() * self.tokens.element_size()


def have_room(images: int, token_bytes: float) -> bool:
    """True if a store holds the tokens of so many images."""
    return images * token_bytes <= token_budget()


def kept_images(built: Built) -> tuple[int, int]:
    """How many images steps look at again and again, and how many tests do, while those of steps are kept as well."""
    largest = max(len(experience.train) for experience in built.stream.experiences)
    return largest, largest + sum(len(test) for test in built.stream.tests)


def probe(built: Built) -> tuple[Probe, tuple[bool, bool]]:
    """What pieces of a run take, and whether steps and tests ask for frozen features."""
    learner, plan, test = built.learner.to(device()), built.plan, built.stream.tests[0]
    frozen = (learner.original if learner.train_backbone else learner.backbone) if learner.reads_frozen else None
    store = None if frozen is None else _Store(frozen, learner.view, learner.readout)
    if store is not None:
        learner.frozen = store
    session = Session(learner, built.stream, plan)
    experience = built.stream.experiences[0]
    session.begin(experience)
    order = session.order(experience)
    held = _Held()
    if learner.memory is not None:  # so that there is something to replay
        session.learn(experience, order[:2])

    def step(count: int) -> None:
        with held.counting(count):
            session.learn(experience, order[:count])

    @torch.no_grad()
    def judge(count: int) -> None:
        with held.counting(count):
            learner.eval()
            learner.logits(test.batch(slice(0, count)).to(learner.device)).sum().item()

    @torch.no_grad()
    def look(count: int) -> None:
        with held.counting(count):
            x = test.batch(slice(0, count)).x.to(learner.device)
            learner.backbone.eval().read(learner.view.plain(x), learner.readout).sum().item()

    def asked() -> bool:
        """True if frozen features were asked for since the last call."""
        before = store is not None and store.asked
        if store is not None:
            store.asked = False
        return before

    def kept(images: int) -> None:
        """Let so many images come again and again."""
        if store is not None:
            store.images = images

    batch, tests = min(plan.batch_size, len(order)), min(plan.test_batch_size, len(test))
    chunk = min(CHUNK, len(test))
    trained, tested = kept_images(built)
    kept(trained)
    step_seconds, step_bytes, step_asks = grown(step, batch), batch * held.graph, asked()
    kept(tested)
    test_seconds, test_bytes, test_asks = grown(judge, tests), tests * held.largest, asked()
    feature = grown(look, chunk) / chunk if step_asks or test_asks else 0.0
    at_a_time = AT_A_TIME * max(test_bytes, chunk * held.largest)
    tokens = 0 if store is None else store.token_bytes
    return Probe(step_seconds, test_seconds / tests, feature, step_bytes, at_a_time, tokens), (step_asks, test_asks)


def grown(take: Callable[[int], object], most: int) -> float:
    """The seconds of `take(most)`: measured for 2, 4, 8, ... while that is quick, and multiplied."""
    count = min(2, most)
    taken = seconds_of(take, count)
    if taken < SLOW:
        taken = seconds_of(take, count)
    pace = taken / count
    while count < most and taken < QUICK:
        count = min(2 * count, most)
        taken = seconds_of(take, count)
        pace = min(pace, taken / count)  # of another size, or a moment when the machine was less busy
    if taken < QUICK:
        return min(taken, seconds_of(take, count))
    return pace * most


def seconds_of(take: Callable[[int], object], count: int) -> float:
    begin = time.perf_counter()
    take(count)
    return time.perf_counter() - begin


class _Held:
    """Bytes of activations for an image: those that a step keeps for its gradients, and the largest of all."""

    def __init__(self) -> None:
        self.graph = self.largest = 0.0

    @contextmanager
    def counting(self, images: int) -> Iterator[None]:
        kept, largest = 0, 0

        def note(module: nn.Module, inputs: object, output: object) -> None:
            nonlocal kept, largest
            del inputs
            if isinstance(output, Tensor) and not isinstance(module, nn.Identity) and not [*module.children()]:
                size = output.numel() * output.element_size()
                kept, largest = kept + size * output.requires_grad, max(largest, size)

        hook = register_module_forward_hook(note)
        try:
            yield
        finally:
            hook.remove()
        self.graph, self.largest = kept / images, largest / images
