"""Which files of a Hugging Face folder hold which split; looks at names and JSON, not at the data.

Two layouts. `save_to_disk`: dataset_dict.json names the splits, and a folder for each has state.json, dataset_info.json
and Arrow streams; or one such folder alone. A hub checkout: Parquet files with the split in the name of the file or its
folder, as in data/train-00000-of-00002.parquet. What a README configures beyond that is not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from promptpool.data.own.splits import WORDS
from promptpool.errors import BadFileError

LARGEST_JSON = 2**26  # bytes
UNSAID = "all"


class Part(NamedTuple):
    """The files of one split, and its features where a file beside them tells."""

    split: str
    files: list[Path]
    features: dict[str, Any]


def is_hugging_face(path: Path) -> bool:
    """Whether a folder has one of the two layouts, by the names in it."""
    if not path.is_dir():
        return False
    if (path / "dataset_dict.json").is_file() or ((path / "state.json").is_file() and _info(path).is_file()):
        return True
    return next(_parquet_files(path), None) is not None


def find_parts(path: Path) -> list[Part]:
    if (path / "dataset_dict.json").is_file():
        splits = _json(path / "dataset_dict.json").get("splits")
        return [_saved(path / split, split) for split in dict.fromkeys(_plain(path / "dataset_dict.json", splits))]
    return [_saved(path, None)] if (path / "state.json").is_file() else _published(path)


def split_word(*names: str) -> str:
    """The first word of the names that says a split; empty where none does."""
    words = [word for name in names for word in re.split(r"[^a-z]+", name.lower())]
    return next((word for word in words if word in WORDS), "")


def parse(path: Path, text: bytes) -> dict[str, Any]:
    """A JSON object that is, or lies in, the file at `path`."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFileError(f"{path}: its JSON cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise BadFileError(f"{path}: its JSON is not an object")
    return found


def features_of(path: Path, info: object) -> dict[str, dict[str, Any]]:
    """The types of the columns; those that are not a plain type (lists, for one) are left out."""
    found = info.get("features") if isinstance(info, dict) else None
    if found is not None and not isinstance(found, dict):
        raise BadFileError(f"{path}: features are not an object")
    return {name: feature for name, feature in (found or {}).items() if isinstance(feature, dict)}


def _saved(folder: Path, split: str | None) -> Part:
    """What `save_to_disk` wrote into a folder."""
    state = _json(folder / "state.json")
    if state.get("_indices_data_files"):
        raise BadFileError(f"{folder / 'state.json'}: rows chosen by an index; save it again with datasets 2 or later")
    listed = state.get("_data_files")
    names = [file.get("filename") for file in listed if isinstance(file, dict)] if isinstance(listed, list) else None
    files = [folder / name for name in _plain(folder / "state.json", names)]
    info = _info(folder)
    features = features_of(info, _json(info)) if info.is_file() else {}
    return Part(split or split_word(str(state.get("_split"))) or UNSAID, files, features)


def _info(folder: Path) -> Path:
    return folder / "dataset_info.json"


def _published(path: Path) -> list[Part]:
    """The Parquet files of a hub checkout, by split."""
    found: dict[str, list[Path]] = {}
    sets = set()
    for file in sorted(_parquet_files(path)):
        inside = file.relative_to(path)
        split = split_word(inside.stem, *reversed(inside.parent.parts)) or UNSAID
        found.setdefault(split, []).append(file)
        sets.add(PurePath(*[part for part in inside.parent.parts if not split_word(part)]).as_posix())
    if not found:
        raise BadFileError(f"{path}: neither saved by datasets nor a folder of Parquet files")
    if len(sets) > 1:
        raise BadFileError(f"{path}: several sets ({', '.join(sorted(sets))}); give the folder of one")
    features = _published_features(path)
    return [Part(split, files, features) for split, files in found.items()]


def _published_features(path: Path) -> dict[str, Any]:
    """Those of dataset_infos.json, where datasets 1 and 2.0 noted them instead of in Parquet files; of one set only."""
    infos = path / "dataset_infos.json"
    described = list(_json(infos).values()) if infos.is_file() else []
    return features_of(infos, described[0]) if len(described) == 1 else {}


def _parquet_files(path: Path) -> Iterator[Path]:
    for pattern in ("*.parquet", "*/*.parquet", "*/*/*.parquet"):
        for file in path.glob(pattern):
            is_hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
            if not is_hidden and file.name != "metadata.parquet" and file.is_file():  # that is of a folder of images
                yield file


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise BadFileError(f"{path}: no such file")
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise BadFileError(f"{path}: {path.stat().st_size} bytes are more than a JSON file here may have")
        return parse(path, path.read_bytes())
    except OSError as error:
        raise BadFileError(f"{path}: cannot be read: {error.strerror}") from error


def _plain(path: Path, names: object) -> list[str]:
    """Names of files or folders beside a JSON file, none of which leads elsewhere."""
    if not isinstance(names, list) or not names:
        raise BadFileError(f"{path}: names no files")
    for name in names:
        if not isinstance(name, str) or name in ("", ".", "..") or PurePath(name).name != name or "\0" in name:
            raise BadFileError(f"{path}: {name!r}: not the name of a file beside it")
    return names
