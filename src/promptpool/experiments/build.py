"""From a configuration to a learner, a stream and a plan."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple

from promptpool.backbones.features import FrozenFeatures
from promptpool.backbones.resnet import ResNet18
from promptpool.backbones.vit import ViT
from promptpool.backbones.weights import load_backbone
from promptpool.data.datasets import DATASETS
from promptpool.data.scenarios import SCENARIOS, joint
from promptpool.data.stream import Stream
from promptpool.data.views import View
from promptpool.errors import SkippedFilesWarning
from promptpool.experiments.config import UNTRAINED, Config, ConfigError
from promptpool.learners import LEARNERS
from promptpool.learners.base import Learner
from promptpool.training.loop import Plan, check

Skipped = tuple[tuple[str, str], ...]  # files that were passed over, with the reason


class Built(NamedTuple):
    """What a configuration means; `config` has the values that the backbone decided written out too."""

    config: Config
    learner: Learner
    stream: Stream
    plan: Plan
    skipped: Skipped = ()


class Stock:
    """Backbones, streams and frozen features that several runs of one process share."""

    def __init__(self) -> None:
        self.backbones: dict[str, ViT | ResNet18] = {}
        self.streams: dict[str, tuple[Stream, Skipped]] = {}
        self.features: dict[str, FrozenFeatures] = {}


def build(config: Config, stock: Stock | None = None) -> Built:
    """All that a run needs; raises `ConfigError` in one line where a value cannot be meant."""
    stock = Stock() if stock is None else stock
    backbone = _backbone(config["backbone"], stock)
    own = {"size": backbone.image_size, "values": backbone.values or "unit"}
    view = _made("view", View, own | config["view"])
    plan = _made("plan", Plan, config["plan"])
    dataset = config["dataset"]
    if dataset.get("size") == 0:
        dataset = dataset | {"size": view.size}  # images as large as they are looked at
    stream, skipped = _stream(dataset, config["scenario"], stock)
    name, values = config["learner"]["name"], {k: v for k, v in config["learner"].items() if k != "name"}
    frozen = stock.features.setdefault(repr((config["backbone"], view)), FrozenFeatures(backbone, view))
    shared = {} if values.get("train_backbone") else {"frozen": frozen}
    learner = _made("learner", LEARNERS[name], values, backbone, view, **shared)
    try:
        check(learner, stream, plan)
    except ValueError as error:
        raise ConfigError(_prefixed(str(error), config)) from error
    return Built(config | {"view": asdict(view)}, learner, stream, plan, skipped)


def _backbone(values: Config, stock: Stock) -> ViT | ResNet18:
    key = repr(values)
    if key not in stock.backbones:
        name, keywords = values["name"], {k: v for k, v in values.items() if k != "name"}
        fresh = UNTRAINED.get(name)
        made = _made("backbone", fresh, keywords) if fresh else _made("backbone", load_backbone, keywords, name)
        stock.backbones[key] = made.eval()
    return stock.backbones[key]


def _stream(dataset: Config, scenario: Config, stock: Stock) -> tuple[Stream, Skipped]:
    key = repr((dataset, scenario))
    if key not in stock.streams:
        with _noting_skipped() as skipped:
            data = _made("dataset", DATASETS[dataset["name"]], {k: v for k, v in dataset.items() if k != "name"})
        values = {name: value for name, value in scenario.items() if name not in ("name", "joint")}
        try:
            stream = _made("scenario", SCENARIOS[scenario["name"]], values, *data)
        except (TypeError, AttributeError) as error:
            raise ConfigError(
                f"scenario.name = {scenario['name']!r}: does not fit the data set {dataset['name']}"
            ) from error
        stock.streams[key] = joint(stream) if scenario.get("joint") else stream, tuple(skipped)
    return stock.streams[key]


@contextmanager
def _noting_skipped() -> Iterator[list[tuple[str, str]]]:
    """The files that data sets say they skipped; warnings go on to whoever else listens."""
    skipped: list[tuple[str, str]] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SkippedFilesWarning)
        yield skipped
    for warning in caught:
        if isinstance(warning.message, SkippedFilesWarning):
            skipped += warning.message.skipped
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def _made(table: str, target: Any, values: Config, *positional: Any, **shared: Any) -> Any:
    """What `target` makes of the values; its complaints name the table."""
    try:
        return target(*positional, **values, **shared)
    except ValueError as error:
        raise ConfigError(f"{table}.{error}" if str(error).split(" ")[0] in values else str(error)) from error


def _prefixed(message: str, config: Config) -> str:
    """A complaint that begins with a key, with the key's table before it."""
    key = message.split(" ")[0]
    tables = [table for table in ("learner", "plan", "scenario") if key in config[table]]
    return f"{tables[0]}.{message}" if tables else message
