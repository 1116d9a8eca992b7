"""The one training loop.

    for record in learn(learner, stream, plan): ...

A `Session` is the same loop, step by step: it yields after every step, when its state is complete, so that progress
bars and checkpoints are ordinary code in the caller's `for`. The order of examples depends on the seed, the experience
and the epoch alone, so a session that was killed and resumed sees the same batches as one that was not.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from promptpool import distributed
from promptpool.checks import above_zero, above_zero_or_none, at_least, below_one, one_of, whole_number, zero_or_more
from promptpool.data.stream import Batch, Examples, Experience, Stream, in_memory, read_ahead
from promptpool.learners.base import Learner
from promptpool.optim import OPTIMISERS, Descent
from promptpool.training.evaluation import TEST_AFTER, TEST_CLASSES, Count, announce, by_class, count_correct
from promptpool.training.record import COUNTED_CLASSES, Record


@dataclass(frozen=True)
class Plan:
    """How a learner is trained and tested; the defaults are the L2P paper's."""

    epochs: int = 5
    batch_size: int = 128  # the images of a step, over all ranks
    micro_batch: int | None = None  # at most so many of them go through the model at once; gradients add up
    optimiser: str = "adam"
    learning_rate: float = 0.03
    momentum: float = 0.0  # for sgd only
    weight_decay: float = 0.0
    clip: float | None = 1.0  # the largest norm of the gradient
    clip_frozen: bool = False  # frozen weights count in that norm, as in the released L2P code
    least_steps: int = 0  # an experience gets more epochs than `epochs` until it has had so many steps
    seed: int = 0  # decides the order of examples
    test_batch_size: int = 128
    task_given: bool = False  # test a second time, predicting among each test set's own classes
    test_classes: str = "seen"  # predict among the classes "seen" so far, or "all" of the stream
    test_after: str = "each"  # test after "each" experience, or after the "last" alone, to the same last record
    drop_last: bool = False  # leave out an epoch's last batch if not full; what the first drops, no memory is offered

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "test_batch_size"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}: must be a whole number, at least 1")
        if self.micro_batch is not None:
            whole_number(1, micro_batch=self.micro_batch)
        at_least(0, least_steps=self.least_steps)
        above_zero(learning_rate=self.learning_rate)
        zero_or_more(weight_decay=self.weight_decay)
        one_of(OPTIMISERS, optimiser=self.optimiser)
        one_of(TEST_CLASSES, test_classes=self.test_classes)
        one_of(TEST_AFTER, test_after=self.test_after)
        below_one(momentum=self.momentum)
        if self.momentum and self.optimiser == "adam":
            raise ValueError(f"momentum = {self.momentum}: is of sgd, adam has its own")
        above_zero_or_none(clip=self.clip)


class Step(NamedTuple):
    """One step of a session; the last one of an experience brings its record."""

    experience: int
    epoch: int
    step: int  # steps taken since the stream began
    steps: int  # steps that the whole stream takes
    loss: float | None
    record: Record | None = None


class Session:
    """One pass of a learner through a stream; iterate to take its steps."""

    def __init__(self, learner: Learner, stream: Stream, plan: Plan) -> None:
        distributed.start()
        check_session(learner, stream, plan)
        check_names(learner, stream)
        self.learner, self.stream, self.plan = learner, stream, plan
        self.backbone = learner.backbone.fingerprint()  # as it is before any training
        self.experience_index = self.epoch_index = self.batch_index = self.step_count = 0
        self.loss_sum, self.loss_count = 0.0, 0
        self.descend: Descent | None = None
        self.records: list[Record] = []
        if learner.sees_all or not stream.boundaries or plan.test_classes == "all":
            learner.grow(len(stream.class_names))

    def epochs(self, experience: Experience) -> int:
        """How many epochs an experience gets."""
        if self.learner.single_pass:
            return 1
        return max(self.plan.epochs, -(-self.plan.least_steps // self._batches(experience)))

    @property
    def steps(self) -> int:
        """How many steps the whole stream takes."""
        return sum(self._batches(experience) * self.epochs(experience) for experience in self.stream.experiences)

    def _batches(self, experience: Experience) -> int:
        """How many batches an epoch over an experience has."""
        size, full = len(self.learner.training_examples(experience)), self.plan.batch_size
        return size // full if self.plan.drop_last else -(-size // full)

    def __iter__(self) -> Iterator[Step]:
        steps = self.steps  # once, as it looks at every experience
        while self.experience_index < len(self.stream.experiences):
            experience = self.stream.experiences[self.experience_index]
            if self.descend is None:
                self.begin(experience)
            loss, epochs = None, self.epochs(experience)
            self._announce(self.learner.training_examples(experience), epochs)
            while self.epoch_index < epochs:
                batches = self.order(experience).split(self.plan.batch_size)[: self._batches(experience)]
                with closing(self._shown(experience, batches[self.batch_index :])) as shown:
                    for index, batch in shown:
                        loss = self.learn(experience, index, batch)
                        self.batch_index += 1
                        self.step_count += 1
                        if self.batch_index < len(batches) or self.epoch_index + 1 < epochs:
                            yield Step(experience.index, self.epoch_index, self.step_count, steps, loss)
                self.epoch_index, self.batch_index = self.epoch_index + 1, 0
            record = self._end(experience)
            yield Step(experience.index, epochs - 1, self.step_count, steps, loss, record)

    def _announce(self, examples: Examples, epochs: int) -> None:
        """Tell the learner what comes; ranks share the features of what every one of them will see sooner or later."""
        if distributed.world() > 1 and epochs > 1 and self.learner.trains_on_features:
            self.learner.frozen.exchange(examples)
        self.learner.expect(examples)

    def make_descent(self) -> Descent:
        """An optimiser, new and without momentum, for what the learner now trains."""
        plan, learner = self.plan, self.learner
        trained = [parameter for parameter in learner.parameters() if parameter.requires_grad]
        return Descent(
            trained,
            optimiser=plan.optimiser,
            learning_rate=plan.learning_rate,
            momentum=plan.momentum,
            weight_decay=plan.weight_decay,
            clip=plan.clip,
            micro_batch=plan.micro_batch,
            measured=[p for p in learner.backbone.parameters() if plan.clip_frozen and not p.requires_grad],
        )

    def begin(self, experience: Experience) -> None:
        """Prepare the learner and a new optimiser for an experience."""
        if self.stream.boundaries:
            self.learner.add_classes(experience.classes)
            self.learner.before(experience)
        self.descend = self.make_descent()

    def learn(self, experience: Experience, index: Tensor, batch: Batch | None = None) -> float | None:
        """Take one step on this rank's part of a batch: `batch`, or else what is read at these indices."""
        if not self.stream.boundaries:
            self._meet(self.learner.training_examples(experience).y[index].tolist())
        own = self._read(experience, index) if batch is None else batch
        if self.descend is None:
            raise RuntimeError("an experience must begin before it is learned")
        self.descend.weight = len(own.y) * distributed.world() / len(index)
        self.learner.train()
        with self.descend.measuring():
            loss = self.learner.step(own.to(self.learner.device), self.descend)
        distributed.sync_batch_norm(self.learner)
        if loss is None:
            return None
        if self.batch_index == 0:
            self.loss_sum, self.loss_count = 0.0, 0
        summed = float(distributed.total(torch.tensor(float(loss) * len(own.y), dtype=torch.float64)))
        self.loss_sum, self.loss_count = self.loss_sum + summed, self.loss_count + len(index)
        return summed / len(index)

    def _meet(self, labels: Sequence[int]) -> None:
        """Without boundaries a class counts as seen, and as current, when its first label arrives."""
        seen = self.learner.seen
        if self.learner.current != seen or not {*labels}.issubset(seen):
            self.learner.add_classes({*seen, *labels})

    def _shown(self, experience: Experience, batches: Sequence[Tensor]) -> Generator[tuple[Tensor, Batch], None, None]:
        """The indices of each batch with this rank's part of it, read in advance if reading takes time."""
        own = (self._read(experience, index) for index in batches)
        if in_memory(self.learner.training_examples(experience).source):
            yield from zip(batches, own, strict=True)
            return
        self.learner.train()  # what it looks at may depend on that
        with closing(read_ahead(own, self.learner.looks_at)) as ahead:
            yield from zip(batches, ahead, strict=True)

    def _read(self, experience: Experience, index: Tensor) -> Batch:
        """This rank's part of a batch."""
        own = index[distributed.rank_slice(len(index))]
        return self.learner.training_examples(experience).batch(own, fresh=self.epoch_index == 0)

    def _end(self, experience: Experience) -> Record:
        if self.stream.boundaries:
            self.learner.after(experience)
            self.descend = None
        last = self.experience_index + 1 == len(self.stream.experiences)
        tested = last or self.plan.test_after == "each"
        if tested:
            self.learner.before_evaluation()
        counted = last or len(self.stream.class_names) <= COUNTED_CLASSES
        record = self._record(experience, tested=tested, counted=counted)
        self.records.append(record)
        self.experience_index, self.epoch_index, self.batch_index = self.experience_index + 1, 0, 0
        return record

    def _record(self, experience: Experience, *, tested: bool, counted: bool) -> Record:
        learner, plan = self.learner.eval(), self.plan
        learner.after_test_set()  # drops notes on whatever was predicted before the first test set
        counts, notes = self._tested() if tested else ([None] * len(self.stream.tests), [])
        given = tuple(None if count is None else count.correct_given_task for count in counts)
        return Record(
            experience=experience.index,
            step=self.step_count,
            classes_seen=len(learner.seen),
            loss=self.loss_sum / self.loss_count if self.loss_count else None,
            correct=tuple(None if count is None else count.correct for count in counts),
            total=tuple(len(test) for test in self.stream.tests),
            correct_given_task=given if plan.task_given else None,
            facts={
                "backbone": learner.backbone.origin,
                "loss_classes": None if self.loss_count == 0 else learner.loss_classes,
                **({} if learner.forgets else {"forgets": False}),
                **({} if plan.test_classes == "seen" else {"test_classes": plan.test_classes}),
                **(learner.diagnostics(notes) if tested else {}),
            },
            by_class=by_class(count.predictions for count in counts if count is not None) if counted else None,
        )

    def _tested(self) -> tuple[list[Count | None], list[Any]]:
        """The counts of each test set that has a class seen yet, and what the learner notes after each of them."""
        learner, plan, tests = self.learner, self.plan, self.stream.tests
        seen = frozenset(learner.seen)
        known = [not seen.isdisjoint(test.classes) for test in tests]
        announce(learner, list(compress(tests, known)))
        counts: list[Count | None] = []
        notes = []
        for test, is_known in zip(tests, known, strict=True):
            if not is_known:
                counts.append(None)
                continue
            counts.append(
                count_correct(
                    learner, test, plan.test_batch_size, task_given=plan.task_given, test_classes=plan.test_classes
                )
            )
            notes.append(learner.after_test_set())
        return counts, notes

    def order(self, experience: Experience) -> Tensor:
        """The examples of the present epoch in their order; without boundaries the stream's own."""
        if not self.stream.boundaries:
            return torch.arange(len(self.learner.training_examples(experience)))
        seed = np.random.SeedSequence([self.plan.seed, experience.index, self.epoch_index]).generate_state(1)
        generator = torch.Generator().manual_seed(int(seed[0]))
        return torch.randperm(len(self.learner.training_examples(experience)), generator=generator)


def check_names(learner: Learner, stream: Stream) -> None:
    """Raise a ValueError if a learner that has learned would take a stream's classes for others; note their names."""
    known = learner.class_names
    if learner.seen and stream.class_names[: len(known)] != known:
        raise ValueError(
            f"this learner has learned the classes {', '.join(known)}, and the stream's are "
            f"{', '.join(stream.class_names)}: they must begin with the same names in the same order, or a new learner "
            "is needed"
        )
    learner.class_names = stream.class_names


def check_parts(learner: Learner, plan: Plan) -> None:
    """Raise a ValueError if a learner cannot take a plan's batches in parts."""
    if plan.micro_batch is None:
        return
    if reason := learner.whole_batches:
        raise ValueError(f"micro_batch = {plan.micro_batch}: must be none for {type(learner).__name__}, which {reason}")
    if plan.micro_batch == 1 and distributed.world() > 1:
        raise ValueError("micro_batch = 1: must be at least 2 for several ranks, of which some have an image less")


def check_session(learner: Learner, stream: Stream, plan: Plan) -> None:
    """Raise a ValueError if learner, stream and plan do not fit each other, before anything runs."""
    learner.check(stream)
    check_parts(learner, plan)
    if not stream.boundaries and plan.epochs > 1 and not learner.single_pass:
        raise ValueError(f"epochs = {plan.epochs}: a stream without boundaries shows each batch once, set epochs = 1")
    if not stream.boundaries and plan.least_steps and not learner.single_pass:
        raise ValueError(f"least_steps = {plan.least_steps}: a stream without boundaries shows each batch once, set 0")
    for experience in stream.experiences:
        size = len(learner.training_examples(experience))
        if plan.drop_last and size < plan.batch_size:
            raise ValueError(
                f"batch_size = {plan.batch_size}: experience {experience.index} has {size} examples, of which "
                "drop_last leaves none, choose a smaller size"
            )
        last = plan.batch_size if plan.drop_last else (size - 1) % plan.batch_size + 1
        if last < distributed.world():
            raise ValueError(
                f"batch_size = {plan.batch_size}: experience {experience.index} would end with a batch of {last} "
                f"examples for {distributed.world()} ranks, choose another size"
            )
