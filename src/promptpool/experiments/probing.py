"""What pieces of a run take: a step, a test and a feature of few images, multiplied, and the bytes they hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from promptpool.backbones.base import Backbone
from promptpool.backbones.chunks import CHUNK
from promptpool.backbones.features import FrozenFeatures
from promptpool.backbones.token_store import token_budget
from promptpool.backbones.vit import ViT
from promptpool.data.stream import Batch, Experience
from promptpool.experiments.build import Built
from promptpool.experiments.held import most_held
from promptpool.experiments.runner import device
from promptpool.training.loop import Session

QUICK = 0.5  # seconds within which a piece of a run is measured with more images
SLOW = 5.0  # from which on its first call, which is slower than others, has to do


class Probe(NamedTuple):
    """What was measured of a learner: seconds, and the bytes of tensors."""

    step: float  # a step of a whole batch, with the frozen features at hand
    test: float  # a test image, likewise
    feature: float  # the frozen feature of an image
    step_bytes: float  # that the step of a whole batch holds at a time, gradients among them
    test_bytes: float  # that testing a whole batch holds at a time
    token_bytes: float = 0.0  # of the tokens of an image, where they are kept
    compiling: float = 0.0  # seconds, once in a run


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
            return self(batch), self.tokens.repeat(len(batch.ids), 1, 1)
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
    pieces, compiling = _Pieces(built), 0.0

    def timed(take: Callable[[int], object], most: int) -> float:
        nonlocal compiling
        if pieces.compiled:
            compiling += warmed(take, most)
        return grown(take, most)

    batch, tests = min(built.plan.batch_size, len(pieces.order)), min(built.plan.test_batch_size, len(pieces.test))
    chunk = min(CHUNK, len(pieces.test))
    trained, tested = kept_images(built)
    pieces.keep(trained)
    step_seconds, step_asks = timed(pieces.step, batch), pieces.asked()
    pieces.keep(tested)
    test_seconds, test_asks = timed(pieces.judge, tests), pieces.asked()
    feature = timed(pieces.look, chunk) / chunk if step_asks or test_asks else 0.0
    with uncompiled(pieces.transformers):
        pieces.keep(trained)
        step_bytes = held_in_step(pieces.session, pieces.experience, batch)
        pieces.keep(tested)
        test_bytes = max(most_held(pieces.judge, tests), most_held(pieces.look, chunk) if feature else 0.0)
    found = Probe(step_seconds, test_seconds / tests, feature, step_bytes, test_bytes, pieces.token_bytes, compiling)
    return found, (step_asks, test_asks)


class _Pieces:
    """A learner in its first experience, and the pieces of its run, each of as many images as it is told."""

    def __init__(self, built: Built) -> None:
        learner = built.learner.to(device())
        self.learner, self.test = learner, built.stream.tests[0]
        frozen = (learner.original if learner.train_backbone else learner.backbone) if learner.reads_frozen else None
        self.store = None if frozen is None else _Store(frozen, learner.view, learner.readout)
        if self.store is not None:
            learner.frozen = self.store
        self.transformers = [part for part in {learner.backbone, frozen} if isinstance(part, ViT)]
        self.session = Session(learner, built.stream, built.plan)
        self.experience = built.stream.experiences[0]
        self.session.begin(self.experience)
        self.order = self.session.order(self.experience)
        if learner.memory is not None:  # so that there is something to replay
            self.step(2)

    def step(self, count: int) -> None:
        self.session.learn(self.experience, self.order[:count])

    @torch.no_grad()
    def judge(self, count: int) -> None:
        self.learner.eval()
        self.learner.logits(self.test.batch(slice(0, count)).to(self.learner.device)).sum().item()

    @torch.no_grad()
    def look(self, count: int) -> None:
        x = self.test.batch(slice(0, count)).x.to(self.learner.device)
        self.learner.backbone.eval().read(self.learner.view.plain(x), self.learner.readout).sum().item()

    def keep(self, images: int) -> None:
        """Let so many images come again and again."""
        if self.store is not None:
            self.store.images = images

    def asked(self) -> bool:
        """True if frozen features were asked for since the last call."""
        before = self.store is not None and self.store.asked
        if self.store is not None:
            self.store.asked = False
        return before

    @property
    def token_bytes(self) -> int:
        return 0 if self.store is None else self.store.token_bytes

    @property
    def compiled(self) -> bool:
        return any(vit.compiled for vit in self.transformers)


def held_in_step(session: Session, experience: Experience, batch: int) -> float:
    """The bytes that a step of so many images holds at a time; if it is taken in parts, two of them are looked at."""
    order, descend = session.order(experience), session.descend
    size = None if descend is None else descend.micro_batch
    if descend is None or size is None or size >= batch:
        return most_held(lambda count: session.learn(experience, order[:count]), batch)

    def two_parts(count: int) -> None:
        descend.micro_batch = count
        session.learn(experience, order[: 2 * count])

    found = most_held(two_parts, size)
    descend.micro_batch = size
    return found


@contextmanager
def uncompiled(transformers: Iterable[ViT]) -> Iterator[None]:
    """Within this context blocks are run by torch's operators, which can be watched."""
    chosen = [vit for vit in transformers if vit.compiled]
    for vit in chosen:
        vit.compute(compiled=False)
    try:
        yield
    finally:
        for vit in chosen:
            vit.compute(compiled=True)


def warmed(take: Callable[[int], object], most: int) -> float:
    """The seconds by which the first two calls exceed a later one: those in which blocks are compiled."""
    first, second, usual = (seconds_of(take, min(2, most)) for _ in range(3))
    return max(first + second - 2 * usual, 0.0)


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
