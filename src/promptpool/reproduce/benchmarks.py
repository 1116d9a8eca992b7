"""The streams that tables are measured on, at both scales, and the configuration of each method on them.

A method's values (learner and plan) are those of a preset; a benchmark says which presets, and at scale "mini" puts
its own stream in the place of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from promptpool.experiments.config import Config, complete, overridden, read_config

# What is a preset's name here is its values there.
VARIANTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "one-prompt": ("l2p", ("learner.pool_size=1", "learner.top_k=1", "learner.diversify=false")),  # and as long
    "no-key": ("l2p", ("learner.key=mean",)),
    "no-diversity": ("l2p", ("learner.diversify=false",)),
    "l2p-r-trained": ("l2p-r", ("learner.train_backbone=true",)),
    "ft-seq-sgd": ("ft-seq", ()),
    "resnet18-ft-seq": ("resnet18-upper-bound", ("scenario.joint=false",)),
}
STEPS_OF_ER = ("l2p-r-trained", "ft-seq-sgd")


@dataclass(frozen=True)
class Benchmark:
    """A stream with the presets of its methods."""

    title: str
    presets: str  # the beginning of their names
    classes: int
    tables: dict[str, Any] = field(default_factory=dict)  # in the place of the presets' own
    of_method: dict[str, tuple[str, ...]] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)  # methods that go by another here

    def preset(self, method: str) -> str:
        name = VARIANTS.get(method, (method, ()))[0]
        return f"{self.presets}-{self.renamed.get(name, name)}"

    def config(self, method: str, overrides: Sequence[str] = (), profile: str | None = None) -> Config:
        """The method's configuration on this stream, every value written out and checked."""
        base, values = VARIANTS.get(method, (method, ()))
        raw = read_config(self.preset(method)) | ({} if profile is None else {"profile": profile})
        if method in STEPS_OF_ER:
            raw["plan"] = read_config(self.preset("er"))["plan"]
        joint = {"joint": True} if raw["scenario"].get("joint") else {}
        for table, own in self.tables.items():
            raw[table] = own | (joint if table == "scenario" else {})
        whole = complete(overridden(raw, (*self.of_method.get(base, ()), *overrides)))
        if method == "one-prompt":
            values = (*values, f"learner.prompt_length={whole['learner']['top_k'] * whole['learner']['prompt_length']}")
        return complete(overridden(whole, values)) if values else whole


def kept(benchmark: Benchmark, method: str, per_class: int) -> tuple[str, ...]:
    """The overrides that give a method its memory; BiC holds out a tenth of it, but an image of each class at least."""
    held = (f"learner.held_places={benchmark.classes}",) if method == "bic" and per_class < 10 else ()
    return (f"learner.capacity={per_class * benchmark.classes}", *held)


def mini(name: str, train: int, test: int, scenario: dict[str, Any]) -> dict[str, Any]:
    return {"dataset": {"name": name, "train_per_class": train, "test_per_class": test}, "scenario": scenario}


UNLIKE = ("learner.pool_size=20", "learner.top_k=4", "learner.diversify=true")
TEN, FIVE = ({"name": "class-incremental", "tasks": tasks} for tasks in (10, 5))

# A stream without boundaries: each image once, and a loss over the classes seen, the most a learner can know there.
SMOOTH = {"name": "gaussian-schedule", "seed": 0, "windows": 5}
ONCE = {
    **dict.fromkeys(("l2p", "l2p-r", "masked-linear"), ("plan.epochs=1", "learner.loss_classes=seen")),
    **dict.fromkeys(("ewc", "er", "gdumb", "der++", "nearest-mean", "ranpac"), ("plan.epochs=1",)),
}

MINI: dict[str, Benchmark] = {
    "split": Benchmark("Split glyphs100", "glyphs100", 100, mini("glyphs100", 20, 20, TEN)),
    "five": Benchmark(
        "glyph-five",
        "glyphs100",
        50,
        mini("glyph-five", 20, 20, FIVE),
        of_method={"l2p": UNLIKE, "l2p-r": UNLIKE},
    ),
    "domains": Benchmark("glyph-styles", "glyphs100", 50, mini("glyph-styles", 5, 8, {"name": "domain-incremental"})),
    "gaussian": Benchmark(
        "Gaussian glyphs100",
        "glyphs100",
        100,
        mini("glyphs100", 40, 20, SMOOTH),
        of_method=ONCE,
        renamed={"ewc": "ewc-online"},
    ),
}
PAPER: dict[str, Benchmark] = {
    "split": Benchmark("Split CIFAR-100", "cifar100", 100),
    "five": Benchmark("5-datasets", "5-datasets", 50),
    "domains": Benchmark("CORe50", "core50", 50),
    "gaussian": Benchmark(
        "Gaussian CIFAR-100",
        "cifar100",
        100,
        {"scenario": SMOOTH | {"windows": 10}},
        of_method=ONCE,
        renamed={"ewc": "ewc-online"},
    ),
}
SCALES = {"mini": MINI, "paper": PAPER}
