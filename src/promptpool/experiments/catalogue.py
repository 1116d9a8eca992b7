"""Benchmarks and methods: `benchmarks.toml` and `methods.toml`, and the configuration of any pair of them.

`cifar100-l2p` is the benchmark cifar100 with the method l2p. Values come from the benchmark, at one of its scales, then
from the method: what it is like, its own, and its own on the benchmark's families and on the benchmark itself.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

Config = dict[str, Any]
TABLES = ("dataset", "scenario", "backbone", "view", "learner", "plan")


@dataclass(frozen=True)
class Benchmark:
    """A stream at one or more scales; benchmarks.toml says what each value means."""

    name: str
    title: str
    about: str
    families: tuple[str, ...]
    dataset: Config
    scenario: Config
    backbone: Config
    plan: Config
    scales: dict[str, Config]
    view: Config = field(default_factory=dict)
    classes: int | None = None
    kept_per_class: int | None = None
    instead: dict[str, str] = field(default_factory=dict)
    profile: str | None = None
    method: str = "l2p"

    @property
    def scale(self) -> str:
        """The usual one."""
        return next(iter(self.scales))


@dataclass(frozen=True)
class Method:
    """A learner with its plan; methods.toml says what each value means."""

    name: str
    about: str
    guide: dict[str, str] = field(default_factory=dict)
    like: str | None = None
    memory: int | str | None = None
    profile: str | None = None
    dataset: Config = field(default_factory=dict)
    scenario: Config = field(default_factory=dict)
    backbone: Config = field(default_factory=dict)
    view: Config = field(default_factory=dict)
    learner: Config = field(default_factory=dict)
    plan: Config = field(default_factory=dict)
    on: dict[str, Config] = field(default_factory=dict)
    at: dict[str, Config] = field(default_factory=dict)


@cache
def benchmarks() -> dict[str, Benchmark]:
    """All benchmarks by name."""
    read = tomllib.loads(files(__package__).joinpath("benchmarks.toml").read_text(encoding="utf-8"))
    return {name: Benchmark(name, **{**values, "families": tuple(values["families"])}) for name, values in read.items()}


@cache
def methods() -> dict[str, Method]:
    """All methods by name."""
    read = tomllib.loads(files(__package__).joinpath("methods.toml").read_text(encoding="utf-8"))
    return {name: Method(name, **values) for name, values in read.items()}


def guide(method: Method) -> dict[str, str]:
    """What a person choosing among methods wants to know: old data, what is trained, and when to choose it."""
    old = "a memory of images, as many as learner.capacity says" if _inherited(method, "memory") else "none is kept"
    if method.scenario.get("joint"):
        old = "all data at once"
    known = {
        "old data": old,
        "trained": method.guide.get("trains", ""),
        "choose it when": method.guide.get("choose", ""),
    }
    return {name: text for name, text in known.items() if text}


def pairs() -> Iterator[str]:
    """The names of all pairs."""
    return (f"{benchmark}-{method}" for benchmark in benchmarks() for method in methods())


def split(name: str) -> tuple[Benchmark, Method] | None:
    """The benchmark and the method that a name means; a benchmark alone means its usual method."""
    for benchmark in sorted(benchmarks().values(), key=lambda each: -len(each.name)):
        method = benchmark.method if name == benchmark.name else name.removeprefix(f"{benchmark.name}-")
        if method != name and method in methods():
            return benchmark, methods()[method]
    return None


def pair(benchmark: Benchmark, method: Method, *, scale: str | None = None) -> Config:
    """The configuration of a method on a benchmark, as it would be written in a file; raises `KeyError` for a scale."""
    method = methods()[benchmark.instead.get(method.name, method.name)]
    config: Config = {table: copy.deepcopy(getattr(benchmark, table, {})) for table in TABLES}
    scale = scale or benchmark.scale
    sizes = copy.deepcopy(benchmark.scales[scale])
    config |= {table: sizes.pop(table) for table in TABLES if table in sizes}
    usual = sizes.pop("kept_per_class", benchmark.kept_per_class)
    config["dataset"] |= sizes
    layers = list(_layers(method, benchmark, scale))
    if any("backbone" in layer for layer in layers):
        config["backbone"], config["view"] = {}, {}
    for layer in layers:
        for table in TABLES:
            config[table] |= copy.deepcopy(layer.get(table, {}))
    memory = _inherited(method, "memory")
    kept = usual if memory == "benchmark" else memory
    if kept and benchmark.classes:
        config["learner"] |= memory_values(method, kept, benchmark.classes)
    if profile := next((layer["profile"] for layer in reversed(layers) if "profile" in layer), None):
        config = {"profile": profile, **({"benchmark": benchmark.profile} if benchmark.profile else {}), **config}
    return {name: value for name, value in config.items() if value}


def memory_values(method: Method, per_class: int, class_count: int) -> Config:
    """The learner's values that give a method its memory; BiC holds out a tenth of it, but an image of each class."""
    if _inherited(method, "memory") is None:
        keeping = ", ".join(name for name, each in methods().items() if _inherited(each, "memory") is not None)
        raise ValueError(f"method = {method.name!r}: keeps no images; methods that do are {keeping}")
    held = {"held_places": class_count} if method.name == "bic" and per_class < 10 else {}
    return {"capacity": per_class * class_count, **held}


def _layers(method: Method, benchmark: Benchmark, scale: str) -> Iterator[Config]:
    """What holds of a method on a benchmark at a scale, the last word last."""
    if method.like:
        yield from _layers(methods()[method.like], benchmark, scale)
    yield {name: value for name in (*TABLES, "profile") if (value := getattr(method, name))}
    for place in (*benchmark.families, benchmark.name):
        if place in method.on:
            yield method.on[place]
    wider = scale.partition("-")[0]  # small-dinov2 has what small has, unless it has its own
    for each in dict.fromkeys((wider, scale)):
        for place in (each, f"{benchmark.name}-{each}"):
            if place in method.at:
                yield method.at[place]


def _inherited(method: Method, name: str) -> Any:
    own = getattr(method, name)
    return _inherited(methods()[method.like], name) if own is None and method.like else own
