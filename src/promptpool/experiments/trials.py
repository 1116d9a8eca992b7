"""Steps and tests of a run under several choices, in turn, until some time has passed.

Every round takes one step and one test under each choice, so that what else the machine does falls on all of them.
Steps are of as many images as take about half a second; what one of a whole batch holds is counted beside that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch

from promptpool.backbones.compilation import check_compiler
from promptpool.backbones.features import FrozenFeatures
from promptpool.backbones.vit import ViT
from promptpool.cores import core_count
from promptpool.experiments.build import Built
from promptpool.experiments.choices import (
    ROOM,
    Choice,
    Images,
    Timing,
    Trial,
    alternatives,
    best,
    made_to_fit,
    smaller,
    together,
)
from promptpool.experiments.cost import tested_images
from promptpool.experiments.machine import memory_there, peak, resident
from promptpool.experiments.probing import QUICK, held_in_step, uncompiled, warmed
from promptpool.experiments.runner import device
from promptpool.learners.state import restore, state
from promptpool.optim import copied
from promptpool.progress import report
from promptpool.training.loop import Session

LOSSES = 3  # steps whose losses are compared
LEAST_ROUNDS = 4


class Outcome(NamedTuple):
    """All that was tried, the usual first, and what is best of it."""

    trials: list[Trial]
    best: Trial
    images: Images
    step_images: int  # in a measured step
    needed: int | None  # bytes for a step of a whole batch
    room: int | None  # bytes that there are
    not_tried: list[str]  # and why


def tune(built: Built, seconds: float) -> Outcome:
    """Try what may be faster for about so many seconds; the learner is no use for a run afterwards."""
    bench = Bench(built)
    usual, room = Trial(bench.usual), memory_there()
    bench.first(usual)
    usual.needed = bench.needed(usual.choice)
    short = not usual.fits(room)
    others, not_tried = bench.alternatives()
    if short and room and usual.needed:
        splits, held = not built.learner.whole_batches, bench.held or 0
        share = (ROOM * room - held) / max(usual.needed - held, 1)
        size, transformer = built.plan.batch_size, bool(bench.transformers)
        others += smaller(bench.usual, size, share, splits=splits, transformer=transformer)
    trials = [usual, *map(Trial, others)]

    def begin(trial: Trial) -> None:
        bench.first(trial)
        trial.needed = bench.needed(trial.choice) if short else None

    for trial in trials[1:]:
        report(f"first steps: {trial.choice.named(bench.usual)}", 0)
        begin(trial)
    bench.rounds(trials, 0.75 * seconds, "seconds, each value by itself")
    everything = made_to_fit(together(trials[1:], usual, bench.images), trials[1:], usual, room)
    if everything not in [trial.choice for trial in trials]:
        joint = Trial(everything, begin=len(usual.timings))
        begin(joint)
        bench.rounds([usual, joint], 0.25 * seconds, "seconds, values together")
        trials.append(joint)
    bench.use(bench.usual)
    found = best(trials[1:], usual, bench.images, room)
    return Outcome(trials, found, bench.images, bench.count, usual.needed if short else None, room, not_tried)


class Bench:
    """A learner in its first experience, which steps and is tested under any choice."""

    def __init__(self, built: Built) -> None:
        self.built, self.learner = built, built.learner.to(device())
        self.session = Session(self.learner, built.stream, built.plan)
        self.experience, self.test = built.stream.experiences[0], built.stream.tests[0]
        self.session.begin(self.experience)
        self.order = self.session.order(self.experience)
        given = [self.learner.backbone, *([self.learner.original] if hasattr(self.learner, "original") else [])]
        self.transformers = [backbone for backbone in given if isinstance(backbone, ViT)]
        self.usual = self._usual()
        self.images = Images(self.session.steps * built.plan.batch_size, tested_images(built.stream, built.plan))
        self.saved = copied(state(self.learner))
        takes = (self.step, self.judge)
        self.compiling = sum(warmed(take, 2) for take in takes) if self.usual.compile else 0.0  # the most seconds yet
        self.count = self._grown(self.step, min(built.plan.batch_size, len(self.order)))
        self.tests = self._grown(self.judge, min(512, len(self.test)))
        self.held = resident()

    def _usual(self) -> Choice:
        vit, plan = self.transformers[0] if self.transformers else None, self.built.plan
        usual = Choice(torch.get_num_threads(), plan.test_batch_size, micro_batch=plan.micro_batch)
        if vit is None:
            return usual
        return replace(
            usual,
            precision=vit.precision,
            products=vit.products,
            compile=vit.compiled,
            checkpointing=vit.checkpointing,
        )

    def alternatives(self) -> tuple[list[Choice], list[str]]:
        """What to try on this device, and what cannot be tried."""
        on_cpu, not_tried = self.learner.device.type == "cpu", []
        cores = core_count()
        threads = sorted({1, max(cores // 2, 1), cores}) if on_cpu else []
        try:
            check_compiler()
        except ValueError as error:
            not_tried.append(str(error))
        found = alternatives(
            self.usual,
            threads=threads,
            tests=self.tests,
            transformer=bool(self.transformers),
            cpu=on_cpu,
            compiler=not not_tried,
        )
        return list(found), not_tried if self.transformers else []

    def use(self, choice: Choice) -> None:
        """Compute by this choice from now on."""
        if choice.threads != torch.get_num_threads():
            torch.set_num_threads(choice.threads)
        for vit in self.transformers:
            vit.compute(
                precision=choice.precision,
                products=choice.products,
                compiled=choice.compile,
                checkpointing=choice.checkpointing,
            )
        if self.session.descend is not None:
            self.session.descend.micro_batch = choice.micro_batch

    def first(self, trial: Trial) -> None:
        """Take the first steps from where the run starts, for their losses and the memory; all that is made once is."""
        restore(self.learner, self.saved)
        self.session.descend = self.session.make_descent()
        self.use(trial.choice)
        losses, seconds = [], []
        for _ in range(LOSSES - 1):
            self._forget()
            begin = time.perf_counter()
            losses.append(self.step(self.count))
            self.judge(self.tests, trial.choice.test_batch_size)
            seconds.append(time.perf_counter() - begin)
        with_peak, trial.memory = peak(lambda: self.step(self.count))
        trial.losses = tuple(loss for loss in (*losses, with_peak) if loss is not None)
        if trial.choice.compile:  # another trial may have compiled the same code
            trial.compiling = self.compiling = max(seconds[0] - seconds[-1], self.compiling)

    def rounds(self, trials: Sequence[Trial], seconds: float, what: str) -> None:
        """Time every trial in turn until so many seconds have passed."""
        begin, done = time.perf_counter(), 0
        while done < LEAST_ROUNDS or time.perf_counter() - begin < seconds:
            for trial in trials:
                self.use(trial.choice)
                trial.timings.append(self._timed(trial.choice))
            done += 1
            report(what, round(min(time.perf_counter() - begin, seconds)), round(seconds))

    def _timed(self, choice: Choice) -> Timing:
        training = self._taken(lambda: self.step(self.count)) / self.count
        return Timing(training, self._taken(lambda: self.judge(self.tests, choice.test_batch_size)) / self.tests)

    def _taken(self, take: Callable[[], object]) -> float:
        if self.learner.answers_from_features:  # or they would be computed in the first round alone
            self._forget()
        begin = time.perf_counter()
        take()
        return time.perf_counter() - begin

    def _forget(self) -> None:
        """Start a new store of features, which are those of the present choice."""
        if self.learner.reads_frozen:
            store = self.learner.frozen
            self.learner.frozen = FrozenFeatures(store.backbone, store.view, store.readout)

    def step(self, count: int) -> float | None:
        return self.session.learn(self.experience, self.order[:count])

    @torch.no_grad()
    def judge(self, count: int, batch_size: int | None = None) -> None:
        self.learner.eval()
        for batch in self.test.select(slice(0, count)).batches(min(batch_size or count, count)):
            self.learner.logits(batch.to(self.learner.device)).sum().item()

    def needed(self, choice: Choice) -> int | None:
        """The bytes that the process holds in a step of a whole batch; None where the system does not tell."""
        self.use(choice)
        with uncompiled(self.transformers):
            taken = held_in_step(self.session, self.experience, self.built.plan.batch_size)
        return None if self.held is None else self.held + round(taken)

    def _grown(self, take: Callable[[int], object], most: int) -> int:
        """As many images, 2, 4, 8, ..., as are taken within about half a second."""
        count = min(2, most)
        take(count)
        while count < most and self._taken(partial(take, count)) < QUICK / 2:
            count = min(2 * count, most)
        return count
