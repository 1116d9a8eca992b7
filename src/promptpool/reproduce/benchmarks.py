"""The benchmarks that tables are measured on, by scale, and the configuration of each method on them."""

from __future__ import annotations

from collections.abc import Sequence

from promptpool.experiments import catalogue
from promptpool.experiments.catalogue import Benchmark
from promptpool.experiments.config import Config, complete, overridden

SCALES = {
    "mini": {"split": "glyphs100", "five": "glyph-five", "domains": "glyph-styles", "gaussian": "glyphs100-gaussian"},
    "paper": {"split": "cifar100", "five": "5-datasets", "domains": "core50", "gaussian": "cifar100-gaussian"},
}


def benchmark(scale: str, place: str) -> Benchmark:
    """The stream that has this place in the tables of a scale: split, five, domains or gaussian."""
    return catalogue.benchmarks()[SCALES[scale][place]]


def configured(on: Benchmark, method: str, overrides: Sequence[str] = (), profile: str | None = None) -> Config:
    """A method's configuration on a benchmark, every value written out and checked."""
    raw = catalogue.pair(on, catalogue.methods()[method]) | ({} if profile is None else {"profile": profile})
    return complete(overridden(raw, overrides))


def memory_overrides(on: Benchmark, method: str, per_class: int) -> tuple[str, ...]:
    """The overrides that give a method its memory; BiC holds out a tenth of it, but an image of each class at least."""
    held = (f"learner.held_places={on.classes}",) if method == "bic" and per_class < 10 else ()
    return (f"learner.capacity={per_class * (on.classes or 0)}", *held)
