"""What a run is: the values that differ from the defaults, and the version of the format they are written in.

A new keyword whose default means what was done before it came therefore changes no run. A folder is named by a hash of
these values; one that an earlier version named otherwise is found by what its `config.toml` says.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from promptpool.errors import BadFileError
from promptpool.experiments.build import backbone_view
from promptpool.experiments.config import (
    DECIDED,
    FORMAT,
    TABLES,
    Config,
    ConfigError,
    completed,
    defaults,
    target,
    to_toml,
    typed,
)
from promptpool.training.run_folder import CONFIG, is_run

SAME = (1, FORMAT)  # the formats in which the same values mean the same; the first had no number


def essential(config: Config) -> Config:
    """Of a complete configuration the seed and, by table, the name and every value that is not the default."""
    found: Config = {"seed": config["seed"]}
    for table in TABLES:
        values = config[table]
        usual = {"joint": False, **defaults(target(table, values))}
        if table == "view":
            del usual["values"]  # where they are not given the backbone decides
        if table == "dataset":
            usual.pop("size", None)  # its default was 224 once: not to say it would mean two things
        found[table] = {key: value for key, value in values.items() if key == "name" or value != usual.get(key, ...)}
    return found


def likeness(config: Config) -> str:
    """A hash of what the runs of a cell share: all values but seeds."""
    found = essential(config)
    tables = {table: {key: value for key, value in found[table].items() if key != "seed"} for table in TABLES}
    return _hash({"format": FORMAT, **tables})


def run_folder(root: Path, name: str, config: Config) -> Path:
    """Where a configuration's run lies, or will lie; a folder of an earlier version with the same values is taken."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(name).stem)
    path = root / f"{stem}-{_hash({'format': FORMAT, **essential(config)})}"
    if is_run(path):
        return path
    others = sorted(root.glob(f"{stem}-{'[0-9a-f]' * 8}"))
    return next((other for other in others if is_run(other) and not _differs(config, other)), path)


def _hash(values: Config) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]


def written(config: Config, view: dict[str, Any]) -> str:
    """The configuration as a run folder keeps it: with the whole view, and which of its values the backbone decided."""
    decided = [key for key in view if key not in config["view"]]
    return to_toml({"format": FORMAT, **config, DECIDED: decided, "view": view})


def differences(config: Config, path: Path) -> list[str]:
    """How the values that a run folder holds differ from a configuration, in words."""
    try:
        held = upgraded(tomllib.loads((path / CONFIG).read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadFileError(f"{path / CONFIG}: not TOML ({error})") from error
    decided, view = held.pop(DECIDED, None), dict(held.get("view", {}))
    for name in ("profile", "benchmark"):  # their values are all written out, and may have changed since
        held.pop(name, None)
    held["view"] = {key: value for key, value in view.items() if key not in ("size", "values")}
    plain = config | {"view": {key: value for key, value in config["view"].items() if key not in ("size", "values")}}
    theirs, ours = completed(held), plain
    found = [] if held.get("format", 1) in SAME else [f"format = {held['format']} there, {FORMAT} here"]
    if theirs["seed"] != ours["seed"]:
        found.append(f"seed = {theirs['seed']} there, {ours['seed']} here")
    there, here = essential(theirs), essential(ours)
    for table in TABLES:
        for key in sorted({*there[table], *here[table]}):
            values = [whole[table].get(key, "default") for whole in (theirs, ours)]
            if _readable(values[0]) != _readable(values[1]):
                found.append(f"{table}.{key} = {typed(values[0])} there, {typed(values[1])} here")
    return found or _view_differences(config, view, decided)


def upgraded(raw: Config) -> Config:
    """The values of a run folder in the words of this version.

    Where `dataset.size` and `scenario.classes_per_task` are none now, earlier versions wrote a 0, which no longer is a
    value of either.
    """
    found = dict(raw)
    for table, key in (("dataset", "size"), ("scenario", "classes_per_task")):
        values = raw.get(table)
        if isinstance(values, dict) and values.get(key) == 0:
            found[table] = {**values, key: None}
    return found


def _view_differences(config: Config, held: dict[str, Any], decided: list[str] | None) -> list[str]:
    """Size and values of a view, which are the backbone's unless given; an earlier version did not note which."""
    found = []
    for key in ("size", "values"):
        if key in config["view"]:
            here = config["view"][key]
        elif decided is not None:
            here = held.get(key) if key in decided else "the backbone's own"
        else:
            here = _own_view(json.dumps(config["backbone"])).get(key, held.get(key))
        if key in held and _readable(here) != _readable(held[key]):
            found.append(f"view.{key} = {typed(held[key])} there, {typed(here)} here")
    return found


@lru_cache(maxsize=8)
def _own_view(backbone: str) -> Config:
    """The size and values that a backbone, written as JSON, decides; nothing where its weights are not at hand."""
    try:
        return backbone_view({"backbone": json.loads(backbone)})
    except (BadFileError, ConfigError, ModuleNotFoundError, OSError):
        return {}


def _differs(config: Config, path: Path) -> bool:
    try:
        return bool(differences(config, path))
    except (BadFileError, ConfigError):  # damaged, or of values that are no more
        return True


def _readable(value: Any) -> Any:
    """A value as it reads back from JSON."""
    return json.loads(json.dumps(value))
