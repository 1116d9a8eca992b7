"""A configuration: tables of values, checked against the signatures of what they are for.

    seed = 0
    profile = "paper"   optional: a profile of L2P, whose values hold where a table does not say otherwise
    benchmark = "..."   "cifar100" or "5-datasets": which of the profile's values
    [dataset]    name and the keywords of a function in DATASETS
    [scenario]   name and the keywords of a function in SCENARIOS; joint = true gives all data at once
    [backbone]   name: a file, a folder, a hub name, or one that comes with the package; image_size,
                 heads, gelu, precision, products, compile, checkpointing. Or a name in UNTRAINED and its keywords: a
                 network with fresh weights
    [view]       the keywords of ImageView; size and values are the backbone's unless given
    [learner]    name and the keywords of a method in LEARNERS
    [plan]       the keywords of Plan

There are no config classes: a keyword added to a constructor can be set here, and one that is not there is an error
that names the nearest. `seed` is the seed of learner, plan and fresh weights unless they have their own.
"""

from __future__ import annotations

import copy
import difflib
import inspect
import json
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from promptpool.backbones.resnet import resnet18
from promptpool.backbones.weights import load_backbone
from promptpool.data.scenarios import SCENARIOS
from promptpool.data.sets import DATASETS
from promptpool.data.views import ImageView
from promptpool.experiments import catalogue
from promptpool.experiments.catalogue import TABLES as TABLES
from promptpool.experiments.catalogue import Config as Config
from promptpool.learners import LEARNERS
from promptpool.learners.profiles import PROFILES, profile
from promptpool.training.loop import Plan

Signature = dict[str, Any]  # what each keyword may be, by its type

DEFAULT_BACKBONE = "vit-glyphs"
UNTRAINED: dict[str, Callable[..., Any]] = {"resnet18": resnet18}  # backbones with fresh weights, by name
NAMED: dict[str, dict[str, Callable[..., Any]]] = {"dataset": DATASETS, "scenario": SCENARIOS, "learner": LEARNERS}
EXTRA: dict[str, Signature] = {  # what a table has beside the keywords
    "dataset": {"name": str},
    "scenario": {"name": str, "joint": bool},
    "learner": {"name": str},
    "backbone": {"name": str},
}
FORMAT = 2  # of a written configuration; it grows whenever a default comes to mean something else
DECIDED = "view_by_backbone"  # the key of a written configuration that names what the backbone decided of the view


class ConfigError(ValueError):
    """A value that cannot be meant, in one line: the key, the value, and what is allowed."""


def load_config(name_or_path: str, overrides: Sequence[str] = (), *, scale: str | None = None) -> Config:
    """A benchmark with a method, or a TOML file of one's own, with values set by `key=value`."""
    return complete(overridden(read_config(name_or_path, scale=scale), overrides))


def read_config(name_or_path: str, *, scale: str | None = None) -> Config:
    """The values of a pair at a scale, or a file as it is written."""
    if found := catalogue.split(name_or_path):
        benchmark, method = found
        if scale is not None and scale not in benchmark.scales:
            raise ConfigError(f"scale = {scale!r}: {benchmark.name} comes in {', '.join(benchmark.scales)}")
        return catalogue.pair(benchmark, method, scale=scale)
    path = Path(name_or_path)
    if not path.is_file():
        close = _closest(name_or_path, [*catalogue.pairs(), *catalogue.benchmarks()])
        hint = f"did you mean {close!r}? " if close else ""
        raise ConfigError(f"{name_or_path!r}: no benchmark with a method and no file; {hint}promptpool list shows all")
    if scale is not None:
        raise ConfigError(f"scale = {scale!r}: a file of one's own says its sizes itself")
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    decided = raw.pop(DECIDED, [])  # in the config.toml of a run folder
    if isinstance(decided, list) and isinstance(raw.get("view"), dict):
        raw["view"] = {key: value for key, value in raw["view"].items() if key not in decided}
    return raw


def overridden(config: Config, overrides: Sequence[str]) -> Config:
    """The configuration with values set by `key=value`.

    Where another name is set, of a learner or whatever else has one, values that it does not know go with the old name.
    """
    changed = copy.deepcopy(config)
    for override in overrides:
        _override(changed, override)
    typed = {override.partition("=")[0] for override in overrides}
    for table, values in changed.items():
        known = _keys(table, values) if f"{table}.name" in typed else None
        if known and values["name"] != config.get(table, {}).get("name"):
            changed[table] = {key: value for key, value in values.items() if key in known or f"{table}.{key}" in typed}
    return changed


def target(table: str, values: Config) -> Callable[..., Any]:
    """What the values of a table are for, by its name if it has one."""
    if table == "backbone":
        return UNTRAINED.get(str(values["name"]), load_backbone)
    if table not in NAMED:
        return {"view": ImageView, "plan": Plan}[table]
    if "name" not in values:
        raise ConfigError(f"{table}.name is missing: must be one of {', '.join(NAMED[table])}")
    name = _typed(f"{table}.name", values["name"], str)
    if name not in NAMED[table]:
        raise ConfigError(f"{table}.name = {name!r}: {nearest(name, NAMED[table])}")
    return NAMED[table][name]


def _keys(table: str, values: Any) -> Signature:
    """The keys of a table by its name, with their types; none where there is no such name."""
    try:
        return EXTRA.get(table, {}) | keywords(target(table, values))
    except (ConfigError, KeyError):
        return {}


def complete(config: Config) -> Config:
    """The configuration with every default written out, checked."""
    whole = completed(config)
    vote, voters = whole["learner"].get("vote", 0), [name for name, p in PROFILES.items() if "vote" in p.learner]
    if vote and whole.get("profile") not in voters:
        raise ConfigError(f"learner.vote = {vote}: tells the model the task; only for profile = {', '.join(voters)}")
    return whole


def completed(config: Config) -> Config:
    """The configuration with every default written out, each value checked by itself."""
    _known(config, ("format", "seed", "profile", "benchmark", *TABLES), "")
    if _typed("format", config.get("format", FORMAT), int) > FORMAT:
        raise ConfigError(f"format = {config['format']}: is of a newer version of promptpool; this one knows {FORMAT}")
    for table in TABLES:
        _typed(table, config.get(table, {}), dict)
    whole: Config = {"seed": _typed("seed", config.get("seed", 0), int)}
    config = _profiled(config, whole)
    for table in (*NAMED, "backbone", "view", "plan"):
        whole[table] = _table(table, config.get(table, {}))
    if "values" not in config.get("view", {}):
        del whole["view"]["values"]  # the backbone knows
    _check_fit(whole["dataset"], whole["view"])
    for table in ("learner", "plan", *(["backbone"] if "seed" in whole["backbone"] else [])):
        if "seed" not in config.get(table, {}):
            whole[table]["seed"] = whole["seed"]
    for table, seed in (("", whole["seed"]), *((f"{name}.", whole[name].get("seed")) for name in TABLES)):
        if seed is not None and not 0 <= seed < 2**63:
            raise ConfigError(f"{table}seed = {seed}: must lie between 0 and 2**63")
    return whole


def _check_fit(dataset: Config, view: Config) -> None:
    """Refuse to look for the central square of a picture in one that was squeezed."""
    if view["test_crop"] is not None and dataset.get("fit") == "whole":
        raise ConfigError(
            f"dataset.fit = 'whole': squeezes pictures, of which view.test_crop = {view['test_crop']} looks at the "
            "centre as it was; set dataset.fit=centre or view.test_crop=none"
        )


def _profiled(config: Config, whole: Config) -> Config:
    """The tables with the values of the profile beneath them."""
    for name in ("profile", "benchmark"):
        if name in config:
            whole[name] = _typed(name, config[name], str)
    if "profile" not in config:
        if "benchmark" in config:
            raise ConfigError(f"benchmark = {config['benchmark']!r}: only says which values of a profile are meant")
        return config
    try:
        values = profile(whole["profile"], benchmark=whole.get("benchmark", "cifar100"))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    beneath = values._asdict()
    if config.get("backbone", {}).get("name", DEFAULT_BACKBONE) in UNTRAINED:
        del beneath["backbone"]  # whose values are of weights that are loaded
    return config | {table: own | config.get(table, {}) for table, own in beneath.items()}


def _table(table: str, values: Config) -> Config:
    """A table with every value that its target takes, those given checked and the others at their defaults."""
    if table == "backbone":
        values = {"name": DEFAULT_BACKBONE, **values}
    made = target(table, values)
    allowed = keywords(made) | EXTRA.get(table, {})
    _known(values, allowed, table)
    name = {"name": values["name"]} if table in NAMED else {}  # comes first in a file
    return name | defaults(made) | {key: _typed(f"{table}.{key}", value, allowed[key]) for key, value in values.items()}


def keywords(target: Callable[..., Any]) -> Signature:
    """The keywords that a configuration may set, with their types: numbers, text, truth values and pairs."""
    source = target.func if isinstance(target, partial) else target
    parameters = _signature(target).parameters.values()
    every = is_dataclass(source)  # ImageView and Plan take their values by position too
    return {p.name: p.annotation for p in parameters if every or p.kind is p.KEYWORD_ONLY}


def defaults(target: Callable[..., Any]) -> Config:
    parameters = _signature(target).parameters
    found = {name: parameters[name].default for name in keywords(target)}
    return {name: value for name, value in found.items() if value is not inspect.Parameter.empty}


@cache
def _signature(target: Callable[..., Any]) -> inspect.Signature:
    """Kept, because a table of the paper asks for it thousands of times."""
    return inspect.signature(target, eval_str=True)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a name that is not known."""
    known = list(known)
    close = _closest(name, known)
    return f"did you mean {close!r}?" if close else f"must be one of {', '.join(known)}"


def _closest(name: str, known: Iterable[str]) -> str | None:
    """The name that may have been meant: one that begins like it, or the most similar; "++" may be typed as "pp"."""
    plain = {other.replace("++", "pp"): other for other in known}
    name = name.replace("++", "pp")
    longer = [other for other in plain if name and other.startswith(name)]
    close = longer or difflib.get_close_matches(name, plain, n=1, cutoff=0.5)
    return plain[close[0]] if close else None


def _known(values: Config, allowed: Iterable[str], table: str) -> None:
    prefix = f"{table}." if table else ""
    for name in values:
        if name not in allowed:
            raise ConfigError(f"{prefix}{name}: no such key; {nearest(name, allowed)}")


def _typed(key: str, value: Any, hint: Any) -> Any:
    """The value as the hint has it (a list becomes a tuple, a whole number may stand for a float)."""
    fits, converted = _fit(value, hint)
    if not fits:
        raise ConfigError(f"{key} = {value!r}: must be {_described(hint)}")
    return converted


def _fit(value: Any, hint: Any) -> tuple[bool, Any]:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        choices = sorted(parts, key=lambda part: part is not types.NoneType)  # "none" is text too
        return next((found for part in choices if (found := _fit(value, part))[0]), (False, value))
    if origin in (tuple, Sequence):
        if not isinstance(value, list | tuple):
            return False, value
        hints = [parts[0]] * len(value) if origin is Sequence or parts[-1] is Ellipsis else parts
        fits = [_fit(item, part) for item, part in zip(value, hints, strict=False)]
        return len(value) == len(hints) and all(fit for fit, _ in fits), tuple(item for _, item in fits)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool), value
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool), value
    if hint in (None, types.NoneType):
        return value in (None, "none"), None
    return isinstance(value, hint), value


def _described(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false", dict: "a table"}
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_described(part) for part in parts)
    if origin in (tuple, Sequence):
        kinds = [_described(part) for part in parts if part is not Ellipsis]
        return f"a list of {kinds[0]}s" if len(kinds) < len(parts) or origin is Sequence else f"[{', '.join(kinds)}]"
    return '"none"' if hint is types.NoneType else names.get(hint, str(hint))


def _override(config: Config, text: str) -> None:
    """Set one value by table.key=value; the value is written as in TOML, and text needs no quotes."""
    key, equals, written = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"{text!r}: must be key=value, such as learner.top_k=4")
    try:
        value = tomllib.loads(f"value = {written}")["value"]
    except tomllib.TOMLDecodeError:
        value = written
    *tables, name = key.split(".")
    place = config
    for table in tables:
        place = place.setdefault(table, {})
        if not isinstance(place, dict):
            raise ConfigError(f"{key}: {table} is a value, not a table")
    place[name] = value


def to_toml(config: Config) -> str:
    """The configuration as a file that `load_config` reads."""
    lines = [f"{name} = {typed(value)}" for name, value in config.items() if not isinstance(value, dict)]
    for table, values in config.items():
        if isinstance(values, dict):
            lines += ["", f"[{table}]", *(f"{name} = {typed(value)}" for name, value in values.items())]
    return "\n".join(lines) + "\n"


def typed(value: Any) -> str:
    """A value as it is written in TOML."""
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML escapes as JSON does
    if isinstance(value, list | tuple):
        return f"[{', '.join(typed(item) for item in value)}]"
    return repr(value)
