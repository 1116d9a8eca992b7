"""From a configuration to a learner, a stream and a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from promptpool.backbones.base import Readout
from promptpool.backbones.feature_files import limit
from promptpool.backbones.features import FrozenFeatures
from promptpool.backbones.resnet import ResNet18
from promptpool.backbones.token_store import token_budget
from promptpool.backbones.vit import ViT
from promptpool.backbones.weights import load_backbone
from promptpool.data.scenarios import SCENARIOS, DomainSet, LabelledSet, OwnSet, joint
from promptpool.data.sets import DATASETS
from promptpool.data.stream import Stream
from promptpool.data.views import ImageView
from promptpool.experiments.config import UNTRAINED, Config, ConfigError
from promptpool.learners import LEARNERS
from promptpool.learners.base import Learner
from promptpool.training.loop import Plan, check_session

# What each scenario takes.
FITS: dict[str, type] = {
    "class-incremental": LabelledSet,
    "domain-incremental": DomainSet,
    "from-folders": OwnSet,
    "gaussian-schedule": LabelledSet,
}


class Built(NamedTuple):
    """What a configuration means."""

    config: Config
    learner: Learner
    stream: Stream
    plan: Plan


class SharedCache:
    """Backbones, streams and frozen features that runs share; with a folder, features of other processes too."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.backbones: dict[str, ViT | ResNet18] = {}
        self.streams: dict[str, Stream] = {}
        self.features: dict[str, FrozenFeatures] = {}

    def frozen(self, key: str, backbone: ViT | ResNet18, view: ImageView, readout: Readout) -> FrozenFeatures:
        """What a readout has of a backbone in a view, with the features that other processes wrote.

        A pass for a wider readout fills the store of f(x)[0] too, from which most methods read.
        Tokens of other backbones and views are let go, so that those in memory never take more than one budget.
        """
        beside = None if readout == Readout() else self.frozen(key, backbone, view, Readout())
        key = f"{key} {readout}"
        for other in self.features.keys() - {key}:
            self.features[other].drop_tokens()
        if key not in self.features:
            try:  # before anything is computed: PROMPTPOOL_MEMORY_GB, PROMPTPOOL_FEATURES_GB, PROMPTPOOL_TOKENS_GB
                self.features[key] = FrozenFeatures(backbone, view, readout)
                limit()
                token_budget()
            except ValueError as error:
                raise ConfigError(str(error)) from error
            self.features[key].beside = beside
        if self.folder is not None:
            self.features[key].share(self.folder)  # every time: another process may have written since
        return self.features[key]


def build(config: Config, cache: SharedCache | None = None) -> Built:
    """All that a run needs; raises `ConfigError` in one line where a value cannot be meant."""
    cache = SharedCache() if cache is None else cache
    backbone = _backbone(config["backbone"], cache)
    view = _made("view", ImageView, _own_view(backbone) | config["view"])
    plan = _made("plan", Plan, config["plan"])
    name, values = config["learner"]["name"], {k: v for k, v in config["learner"].items() if k != "name"}
    learner: Learner = _made("learner", LEARNERS[name], values, backbone, view)
    if learner.reads_frozen:
        learner.frozen = cache.frozen(repr((config["backbone"], view)), backbone, view, learner.readout)
    stream = _stream(_sized(config["dataset"], view), config["scenario"], cache)
    try:
        check_session(learner, stream, plan)
    except ValueError as error:
        raise ConfigError(prefixed(str(error), config)) from error
    return Built(config, learner, stream, plan)


def backbone_view(config: Config) -> Config:
    """The size and values of the view that are the backbone's own."""
    return _own_view(_backbone(config["backbone"], SharedCache()))


def _own_view(backbone: ViT | ResNet18) -> Config:
    return {"size": backbone.image_size, "values": backbone.values or "unit"}


def _backbone(values: Config, cache: SharedCache) -> ViT | ResNet18:
    key = repr(values)
    if key not in cache.backbones:
        name, keywords = values["name"], {k: v for k, v in values.items() if k != "name"}
        fresh = UNTRAINED.get(name)
        made = _made("backbone", fresh, keywords) if fresh else _made("backbone", load_backbone, keywords, name)
        cache.backbones[key] = made.eval()
    return cache.backbones[key]


def _sized(dataset: Config, view: ImageView) -> Config:
    """The values of a data set; images of no given size are read as large as the view looks at them."""
    if dataset.get("size", ...) is not None:
        return dataset
    return dataset | {"size": round(view.size / (view.test_crop or 1))}


def _stream(dataset: Config, scenario: Config, cache: SharedCache) -> Stream:
    key = repr((dataset, scenario))
    if key not in cache.streams:
        keywords = {name: value for name, value in dataset.items() if name != "name"}
        data: tuple[Any, ...] = _made("dataset", DATASETS[dataset["name"]], keywords)
        if not isinstance(data, FITS[scenario["name"]]):
            raise ConfigError(f"scenario.name = {scenario['name']!r}: does not fit the data set {dataset['name']}")
        values = {name: value for name, value in scenario.items() if name not in ("name", "joint")}
        stream: Stream = _made("scenario", SCENARIOS[scenario["name"]], values, *data)
        cache.streams[key] = joint(stream) if scenario.get("joint") else stream
    return cache.streams[key]


def _made(table: str, target: Any, values: Config, *positional: Any) -> Any:
    """What `target` makes of the values; an error that begins with a key gets the table before it."""
    try:
        return target(*positional, **values)
    except ValueError as error:
        raise ConfigError(f"{table}.{error}" if str(error).split(" ")[0] in values else str(error)) from error


def prefixed(message: str, config: Config) -> str:
    """An error that begins with a key, with the key's table before it."""
    key = message.split(" ")[0]
    tables = [table for table in ("learner", "plan", "scenario") if key in config[table]]
    return f"{tables[0]}.{message}" if tables else message
