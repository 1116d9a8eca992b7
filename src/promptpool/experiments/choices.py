"""Values that change how fast a run is and hardly what it finds: which to try, and which of those tried are worth it.

Nothing is measured here (see `trials`). A choice differs from what the run has by one value. It is worth it if the
whole run would be a twentieth faster, in three rounds of four it was faster at all, and the loss stays where it was.
Where a step does not fit into memory, those that make it fit are worth it whatever they take.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from statistics import median

GAIN = 1.05  # times as fast, from which a value is worth it
SURE = 0.75  # the share of rounds that must be faster at all
LOSS = 0.02  # by how much a loss may differ, as a share of it
ROOM = 0.8  # of the memory that is there, which a step may take
TEST_BATCHES = (32, 128, 512)
KEYS = {  # of a configuration
    "precision": "backbone.precision",
    "products": "backbone.products",
    "compile": "backbone.compile",
    "checkpointing": "backbone.checkpointing",
    "micro_batch": "plan.micro_batch",
    "test_batch_size": "plan.test_batch_size",
}


@dataclass(frozen=True)
class Choice:
    """How a run computes."""

    threads: int
    test_batch_size: int
    precision: str = "single"
    products: str = "torch"
    compile: bool = False
    checkpointing: bool = False
    micro_batch: int | None = None

    def words(self, usual: Choice) -> list[str]:
        """What differs from the usual, as it is typed after `promptpool run`; threads are no value of a run."""
        changed = {key: getattr(self, n) for n, key in KEYS.items() if getattr(self, n) != getattr(usual, n)}
        return [f"{key}={str(value).lower()}" for key, value in changed.items()]

    def named(self, usual: Choice) -> str:
        """What differs from the usual, for a table."""
        threads = [f"{self.threads} thread{'s' if self.threads > 1 else ''}"] if self.threads != usual.threads else []
        return " ".join([*threads, *self.words(usual)]) or "as it is"


@dataclass(frozen=True)
class Timing:
    """Seconds for an image, in one round."""

    training: float
    evaluation: float


@dataclass
class Trial:
    """What was found of a choice."""

    choice: Choice
    timings: list[Timing] = field(default_factory=list)
    losses: tuple[float, ...] = ()  # of the first steps
    memory: int | None = None  # the most bytes that the process held in a step; None where the system does not tell
    needed: int | None = None  # bytes for a step of a whole batch, where that is known
    compiling: float = 0.0  # seconds, once in a run
    begin: int = 0  # rounds that the usual had before the first of its timings

    def difference(self, usual: Trial) -> float | None:
        """The largest difference of a loss from the usual one, as a share of it; None for a method without a loss."""
        pairs = zip(self.losses, usual.losses, strict=True)
        return max((abs(own - other) / max(abs(other), 1e-12) for own, other in pairs), default=None)

    def agrees(self, usual: Trial) -> bool:
        """True if the loss stays where it was."""
        difference = self.difference(usual)
        return difference is None or difference <= LOSS

    def fits(self, room: int | None) -> bool:
        """True if a step takes no more than it may of the memory that is there; also where that is not known."""
        return self.needed is None or room is None or self.needed <= ROOM * room

    def saves_memory(self, usual: Trial) -> bool:
        """True if it is tried because a step does not fit."""
        own, theirs = self.choice, usual.choice
        return (own.micro_batch, own.checkpointing) != (theirs.micro_batch, theirs.checkpointing)


@dataclass(frozen=True)
class Images:
    """How many images a whole run trains on, every epoch counted, and tests."""

    trained: int
    tested: int

    def seconds(self, timing: Timing) -> float:
        return self.trained * timing.training + self.tested * timing.evaluation


def alternatives(
    usual: Choice, *, threads: Iterable[int], tests: int, transformer: bool, cpu: bool, compiler: bool
) -> Iterator[Choice]:
    """Each value that may be faster, by itself; batches of at most `tests` images."""
    if transformer and usual.precision == "single":
        yield replace(usual, precision="bfloat16", products="torch")
        if cpu and usual.products == "torch" and not usual.compile:
            yield replace(usual, products="onednn")
    for count in threads:
        if count != usual.threads:
            yield replace(usual, threads=count)
    for size in TEST_BATCHES:
        if size <= tests and size != usual.test_batch_size:
            yield replace(usual, test_batch_size=size)
    if transformer and compiler and not usual.compile and usual.products == "torch":
        yield replace(usual, compile=True)


def smaller(usual: Choice, batch_size: int, room: float, *, splits: bool, transformer: bool) -> Iterator[Choice]:
    """Choices for a step that does not fit: `room` is the share of it that would."""
    if splits and batch_size > 1:
        part = 1
        while 2 * part <= max(room * batch_size, 1) and 2 * part < batch_size:
            part *= 2
        yield replace(usual, micro_batch=part)
    if transformer and not usual.checkpointing:
        yield replace(usual, checkpointing=True)


def gain(trial: Trial, usual: Trial, images: Images) -> float:
    """How many times as fast a whole run would be: the median over rounds, each beside the usual of that round."""
    return median(gains(trial, usual, images))


def is_worth_it(trial: Trial, usual: Trial, images: Images) -> bool:
    ratios = gains(trial, usual, images)
    faster = sum(ratio > 1 for ratio in ratios) / len(ratios)
    return median(ratios) >= GAIN and faster >= SURE and trial.agrees(usual)


def together(trials: Sequence[Trial], usual: Trial, images: Images) -> Choice:
    """The usual with every value that is worth it by itself; of two for one value the faster."""
    worth = [trial for trial in trials if is_worth_it(trial, usual, images)]
    chosen = usual.choice
    for trial in sorted(worth, key=lambda each: gain(each, usual, images)):
        names = [each.name for each in fields(Choice)]
        changed = {n: getattr(trial.choice, n) for n in names if getattr(trial.choice, n) != getattr(usual.choice, n)}
        chosen = replace(chosen, **changed)
        if changed.get("products") == "onednn":  # they are those of single precision and of code that is not compiled
            chosen = replace(chosen, precision="single", compile=False)
        elif chosen.compile or chosen.precision != "single":
            chosen = replace(chosen, products="torch")
    return chosen


def made_to_fit(choice: Choice, trials: Sequence[Trial], usual: Trial, room: int | None) -> Choice:
    """A choice with the values of the first trial that makes a step fit, where the usual one does not."""
    found = [trial.choice for trial in trials if trial.saves_memory(usual) and trial.fits(room)]
    if usual.fits(room) or not found:
        return choice
    return replace(choice, micro_batch=found[0].micro_batch, checkpointing=found[0].checkpointing)


def best(trials: Sequence[Trial], usual: Trial, images: Images, room: int | None = None) -> Trial:
    """The fastest trial that is worth it, or the usual; where the usual does not fit, the fastest of those that do."""
    found = [trial for trial in trials if is_worth_it(trial, usual, images)]
    if not usual.fits(room):
        saving = [trial for trial in trials if trial.saves_memory(usual) and trial.agrees(usual)]
        found = [trial for trial in (*found, *saving) if trial.fits(room)] or found
    return max(found, key=lambda trial: gain(trial, usual, images), default=usual)


def gains(trial: Trial, usual: Trial, images: Images) -> list[float]:
    """How many times as fast a whole run would be, by each round; blocks are compiled once in it."""
    pairs = zip(usual.timings[trial.begin :], trial.timings, strict=False)  # in rounds that both had
    return [
        (images.seconds(theirs) + usual.compiling) / (images.seconds(own) + trial.compiling) for theirs, own in pairs
    ]
