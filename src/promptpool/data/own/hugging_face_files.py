"""The files of a Hugging Face folder: which hold which split, checked, then opened by the package `datasets`.

Two layouts. `save_to_disk`: dataset_dict.json names the splits, and a folder for each has state.json, dataset_info.json
and Arrow streams, which are read where they lie; or one such folder alone. A hub checkout: Parquet files with the split
in the name of the file or its folder, as in data/train-00000-of-00002.parquet, of which `datasets` makes Arrow streams
in our cache folder. What a README configures beyond that is not read.

`datasets` gets files of these two kinds by name, after a look at them, and nothing else: no code of a set is run,
nothing is unpickled, and no network is asked.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from promptpool.data.own.splits import WORDS
from promptpool.data.stores import read_file
from promptpool.errors import BadFileError
from promptpool.files import cache_folder

if TYPE_CHECKING:
    from datasets import Dataset

LARGEST_JSON = 2**26  # bytes
DICT, STATE, INFO = "dataset_dict.json", "state.json", "dataset_info.json"
UNSAID = "all"


class Opened(NamedTuple):
    """The splits of a folder."""

    splits: dict[str, Dataset]
    stamp: str  # changes whenever a file does, as far as can be told without reading it
    features: dict[str, Any]  # of the columns, where a file beside the others tells


def is_hugging_face(path: Path) -> bool:
    """True if a folder has one of the two layouts, by the names in it."""
    if not path.is_dir():
        return False
    return _is_saved(path) or next(_parquet_files(path), None) is not None


def open_splits(path: Path) -> Opened:
    return _open_saved(path) if _is_saved(path) else _open_published(path)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What `datasets` raises when bytes make no sense becomes one line; its bars and logs stay inside."""
    try:
        import datasets
        import pyarrow as pa
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{path}: needs one more package: pip install 'promptpool[datasets]'") from error
    broken = (
        datasets.exceptions.DatasetsError,
        pa.ArrowException,
        *(ArithmeticError, AttributeError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError),
    )
    log, shown = logging.getLogger("datasets"), not datasets.are_progress_bars_disabled()
    level = log.level
    datasets.disable_progress_bars()
    log.setLevel(logging.CRITICAL)
    try:
        yield
    except BadFileError:
        raise
    except broken as error:
        cause = error.__cause__ or error
        reason = (str(cause).strip() or type(cause).__name__).splitlines()[0]
        raise BadFileError(f"{path}: cannot be read: {reason}") from error
    finally:
        log.setLevel(level)
        if shown:
            datasets.enable_progress_bars()


def split_word(*names: str) -> str:
    """The first word of the names that says a split; empty where none does."""
    words = [word for name in names for word in re.split(r"[^a-z]+", name.lower())]
    return next((word for word in words if word in WORDS), "")


def _is_saved(path: Path) -> bool:
    return (path / DICT).is_file() or ((path / STATE).is_file() and (path / INFO).is_file())


def _open_saved(path: Path) -> Opened:
    """What `save_to_disk` wrote into a folder, for one split or for several."""
    from datasets import Dataset

    from promptpool.data.own.arrow_files import check_arrow

    several = (path / DICT).is_file()
    names = dict.fromkeys(_plain(path / DICT, _json(path / DICT).get("splits"))) if several else ("",)
    files = [file for name in names for file in _streams(path / name)]
    for file in files:
        check_arrow(file)
    splits = {name: Dataset.load_from_disk(_address(path / name)).with_format(None) for name in names}
    if not several:
        splits = {split_word(str(dataset.split)) or UNSAID: dataset for dataset in splits.values()}
    return Opened(splits, _stamp(files), {})


def _streams(folder: Path) -> list[Path]:
    """The Arrow files of one split."""
    state = _json(folder / STATE)
    if state.get("_indices_data_files"):
        raise BadFileError(f"{folder / STATE}: rows chosen by an index; save it again with datasets 2 or later")
    _json(folder / INFO)
    listed = state.get("_data_files")
    names = [file.get("filename") for file in listed if isinstance(file, dict)] if isinstance(listed, list) else None
    return [folder / name for name in _plain(folder / STATE, names)]


def _open_published(path: Path) -> Opened:
    """The Parquet files of a hub checkout, by split."""
    from datasets import Dataset, Features
    from datasets.data_files import DataFilesDict, DataFilesList

    from promptpool.data.own.arrow_files import BATCH, check_parquet

    found: dict[str, list[Path]] = {}
    sets = set()
    for file in sorted(_parquet_files(path)):
        inside = file.relative_to(path)
        found.setdefault(split_word(inside.stem, *reversed(inside.parent.parts)) or UNSAID, []).append(file)
        sets.add(PurePath(*[part for part in inside.parent.parts if not split_word(part)]).as_posix())
    if not found:
        raise BadFileError(f"{path}: neither saved by datasets nor a folder of Parquet files")
    if len(sets) > 1:
        raise BadFileError(f"{path}: several sets ({', '.join(sorted(sets))}); give the folder of one")
    files = [file for part in found.values() for file in part]
    stamp = _stamp(files)
    cache = cache_folder() / "hugging-face" / stamp
    if not (cache / "checked").is_file():
        for file in files:
            check_parquet(file)
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "checked").touch()
    splits = {
        split: Dataset.from_parquet(
            DataFilesDict(train=DataFilesList([_address(file) for file in part], [(stamp,)] * len(part))),
            split="train",
            cache_dir=str(cache),
            batch_size=BATCH,
        )
        for split, part in found.items()
    }
    infos = path / "dataset_infos.json"  # where datasets 1 and 2.0 noted the features of a set
    described = list(_json(infos).values()) if infos.is_file() else []
    features = described[0].get("features") if len(described) == 1 and isinstance(described[0], dict) else None
    return Opened(splits, stamp, Features.from_dict(features or {}))


def _address(path: Path) -> str:
    """The path, as long as `datasets` does not take it for an address."""
    if "::" in str(path.absolute()):
        raise BadFileError(f"{path}: datasets takes a name with :: for an address; give it another name")
    return str(path.absolute())


def _parquet_files(path: Path) -> Iterator[Path]:
    for pattern in ("*.parquet", "*/*.parquet", "*/*/*.parquet"):
        for file in path.glob(pattern):
            is_hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
            if not is_hidden and file.name != "metadata.parquet" and file.is_file():  # that is of a folder of images
                yield file


def _stamp(files: Iterable[Path]) -> str:
    about = [(str(file.absolute()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]


def _json(path: Path) -> dict[str, Any]:
    """A JSON object."""
    content = read_file(path, LARGEST_JSON)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadFileError(f"{path}: its JSON cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise BadFileError(f"{path}: its JSON is not an object")
    return found


def _plain(path: Path, names: object) -> list[str]:
    """Names of files or folders beside a JSON file, none of which leads elsewhere."""
    if not isinstance(names, list) or not names:
        raise BadFileError(f"{path}: names no files")
    for name in names:
        if not isinstance(name, str) or name in ("", ".", "..") or PurePath(name).name != name or "\0" in name:
            raise BadFileError(f"{path}: {name!r}: not the name of a file beside it")
    return names
