"""What people hand over as pictures, with and without labels, as raw inputs of one size.

A path is a folder of class folders, a table or whatever else `run own` reads; or, where no labels are asked for, one
picture or a folder of them. Anything else is pictures: an array [n, H, W], [n, H, W, C] or [n, C, H, W] of uint8, or an
iterable of PIL images, arrays, paths; with labels beside it, or of (picture, label) pairs, as torch data sets are.
"""

from __future__ import annotations

import math
import reprlib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from promptpool.data.decoding import Pixels, check_sides, decode, image_suffixes, pixels_of
from promptpool.data.images import LARGEST_FILE, printable, read_images
from promptpool.data.own.class_folders import natural
from promptpool.data.own.own import entries_of
from promptpool.data.stores import read_file
from promptpool.data.stream import Examples, content_id
from promptpool.data.workers import in_advance, threads_here
from promptpool.errors import BadFileError

UNKNOWN = "unknown"
LONGEST = 255  # characters of a label, as of a folder's name


class Labelled(NamedTuple):
    """Pictures to learn from."""

    examples: Examples  # labelled by the place of their label in `labels`
    labels: tuple[str, ...]  # the different ones, in natural order
    names: tuple[str, ...]  # what to call each picture
    skipped: tuple[tuple[str, str], ...] = ()
    left_out: int = 0  # pictures of a test folder, which are not to learn from


class Picture(NamedTuple):
    """A picture to be asked about: pixels, or why there are none."""

    name: str
    pixels: Tensor | None  # uint8 [3, size, size]
    reason: str = ""


def labelled(
    data: Any, labels: Iterable[object] | None, *, size: int, strict: bool = False, tested: bool = False
) -> Labelled:
    """Pictures with labels, from whatever has them; of a folder with a test folder the others, or those if `tested`."""
    if isinstance(data, str | Path):
        if labels is not None:
            raise ValueError("labels of a folder are the names of its class folders: give labels with arrays only")
        return _from_folder(_path(data), size, strict, tested)
    pairs = list(_pairs(data, labels))
    if not pairs:
        raise ValueError("there is no picture to learn from")
    names = tuple(f"picture {number}" for number in range(len(pairs)))
    pixels = [_pixels(picture, name, size) for (picture, _), name in zip(pairs, names, strict=True)]
    texts = [_label(label) for _, label in pairs]
    known = tuple(sorted(set(texts), key=natural))
    return Labelled(_held(pixels, [known.index(text) for text in texts]), known, names)


def unlabelled(data: Any, *, size: int) -> Iterator[Picture]:
    """Pictures without labels, one by one; a file that is none has a reason instead."""
    if isinstance(data, str | Path):
        files = _files(_path(data))
        yield from in_advance(lambda path: _decoded(path, size), files, threads=threads_here())
    elif is_one(data):
        yield Picture("picture 0", torch.from_numpy(_pixels(data, "picture 0", size)))
    else:
        for number, picture in enumerate(_items(data)):
            if isinstance(picture, str | Path):
                yield _decoded(Path(picture), size)
            else:
                name = f"picture {number}"
                yield Picture(name, torch.from_numpy(_pixels(picture, name, size)))


def _path(data: str | Path) -> Path:
    try:
        return Path(data).expanduser()
    except RuntimeError as error:
        raise BadFileError(f"{data}: no such file or folder, there is no such user") from error


def _from_folder(path: Path, size: int, strict: bool, tested: bool) -> Labelled:
    if not path.exists():
        raise BadFileError(f"{path}: no such file or folder")
    store, entries = entries_of(path)
    taken = [entry for entry in entries if (entry.split == "test") is tested] or entries
    taken = [entry._replace(label=checked_label(entry.label)) if entry.label else entry for entry in taken]
    decoded = read_images(store, taken, size=size, strict=strict)
    labels = tuple(sorted({entry.label for entry in decoded.entries}, key=natural))
    names = tuple(printable(entry.name) for entry in decoded.entries)
    return Labelled(decoded.examples(labels), labels, names, decoded.skipped, len(entries) - len(taken))


def _pairs(data: Any, labels: Iterable[object] | None) -> Iterator[tuple[Any, object]]:
    if labels is not None:
        if isinstance(labels, str | bytes) or not _has_items(labels):
            raise ValueError(f"labels = {reprlib.repr(labels)}: must be a list, with a label for each picture")
        texts, pictures = list(labels), list(_items(data))
        if len(pictures) != len(texts):
            raise ValueError(f"{len(pictures)} pictures and {len(texts)} labels do not match")
        yield from zip(pictures, texts, strict=True)
        return
    names = _class_names(data)
    for item in _items(data):
        if isinstance(item, dict):  # of a Hugging Face data set
            picture = next((item[key] for key in ("image", "img", "picture") if key in item), None)
            if picture is None or "label" not in item:
                raise ValueError("items need the keys image and label, or labels must be given beside the pictures")
            label = item["label"]
        elif isinstance(item, tuple | list) and len(item) == 2:
            picture, label = item
        else:
            raise ValueError("give labels beside the pictures, or pairs of a picture and its label")
        yield picture, _named(label, names)


def _items(data: Any) -> Iterator[Any]:
    """The items of an iterable, or of a data set of torch's, which has a length and gives an item at a time."""
    if _has_items(data):
        yield from data
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__") and not hasattr(data, "ndim"):
        for number in range(len(data)):
            try:
                item = data[number]
            except IndexError as error:
                raise ValueError(
                    f"the data set says that it has {len(data)} items, and has no item {number}"
                ) from error
            yield item
    else:
        raise ValueError(f"{type(data).__name__}: is neither a path nor pictures")


def _has_items(data: Any) -> bool:
    return isinstance(data, Iterable) and getattr(data, "ndim", 1) > 0


def _class_names(data: Any) -> Sequence[str]:
    """What a data set calls its numbered classes, as those of Hugging Face and torchvision do."""
    features = getattr(data, "features", None)
    label = features.get("label") if isinstance(features, Mapping) else None
    names = getattr(label, "names", None) or getattr(data, "classes", None)
    return names if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names) else ()


def _named(label: object, names: Sequence[str]) -> object:
    """What a data set with named classes calls one of them."""
    number = _plain(label)
    if not names or not isinstance(number, int):
        return label
    if not 0 <= number < len(names):
        raise ValueError(f"label {number}: the data set names {len(names)} classes, numbered from 0")
    return names[number]


def _plain(label: object) -> object:
    """A label that an array or a tensor holds, as it is without."""
    alone = isinstance(label, np.generic | np.ndarray | Tensor) and math.prod(label.shape) == 1
    return label.item() if alone else label  # type: ignore[attr-defined]


def _label(label: object) -> str:
    value = _plain(label)
    is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return checked_label(str(value) if is_number else value)


def checked_label(label: object) -> str:
    """A label, if it can be one; of the ways to write one word, such as an accent as a part of its letter, one."""
    if not isinstance(label, str):
        raise ValueError(f"label {reprlib.repr(label)}: must be text or a number")
    text = normal(label)
    if len(text) > LONGEST:
        raise ValueError(f"label {reprlib.repr(text)}: has {len(text)} characters, more than {LONGEST}")
    if not text or text != text.strip() or not text.isprintable():
        raise ValueError(f"label {text!r}: must be text that can be printed, without spaces around it")
    if text == UNKNOWN:
        raise ValueError(f"label {text!r}: is what the answer is for pictures like none that were learned")
    return text


def normal(text: str) -> str:
    """Text as it is compared: folders of macOS have an accent apart from its letter, others have both in one."""
    return unicodedata.normalize("NFC", text)


def _held(pixels: Sequence[Pixels], labels: Sequence[int]) -> Examples:
    ids = torch.tensor([content_id(each) for each in pixels], dtype=torch.long)
    images = torch.from_numpy(np.stack(pixels))
    return Examples(images, torch.arange(len(images)), torch.tensor(labels, dtype=torch.long), ids)


def is_one(data: Any) -> bool:
    """True for a picture alone; an array of three dimensions is one if its first or last is channels."""
    if isinstance(data, np.ndarray | Tensor):
        return data.ndim == 2 or (data.ndim == 3 and (data.shape[0] in (1, 3) or data.shape[2] in (1, 3, 4)))
    return isinstance(data, Image.Image)


def _pixels(picture: Any, name: str, size: int) -> Pixels:
    """uint8 [3, size, size] of one picture."""
    if isinstance(picture, str | Path):
        return decode(read_file(_path(picture), LARGEST_FILE), str(picture), size)
    if not isinstance(picture, Image.Image):
        picture = Image.fromarray(_channels_last(picture, name))
    return pixels_of(picture, name, size)


def _channels_last(picture: Any, name: str) -> Pixels:
    if isinstance(picture, Tensor) and picture.dtype != torch.uint8:
        raise ValueError(f"{name}: pixels are uint8 in 0..255, not {picture.dtype}")
    try:
        values = np.asarray(picture.cpu() if isinstance(picture, Tensor) else picture)
    except (RuntimeError, TypeError, ValueError) as error:  # lists of different lengths, or a tensor without values
        raise ValueError(f"{name}: is no array of pixels: {' '.join(str(error).split())}") from error
    if values.ndim == 3 and values.shape[0] in (1, 3) and values.shape[2] not in (1, 3, 4):
        values = values.transpose(1, 2, 0)
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[:, :, 0]
    if values.dtype != np.uint8:
        raise ValueError(f"{name}: pixels are uint8 in 0..255, not {values.dtype}")
    if values.ndim not in (2, 3) or 0 in values.shape or (values.ndim == 3 and values.shape[2] not in (3, 4)):
        raise ValueError(f"{name}: expected [H, W], [H, W, C] or [C, H, W] with C 1 or 3, not {[*values.shape]}")
    check_sides(values.shape[1], values.shape[0], name)
    return np.ascontiguousarray(values)


def _files(path: Path) -> list[Path]:
    """A file itself, or the pictures of a folder and its folders, in natural order."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise BadFileError(f"{path}: {'not a regular file' if path.exists() else 'no such file or folder'}")
    suffixes = image_suffixes()
    found = [each for each in path.rglob("*") if each.suffix.lower() in suffixes and each.is_file()]
    if not found:
        raise BadFileError(f"{path}: holds no picture")
    return sorted(found, key=lambda each: natural(str(each.relative_to(path))))


def _decoded(path: Path, size: int) -> Picture:
    name = printable(str(path))
    try:
        return Picture(name, torch.from_numpy(_pixels(path, name, size)))
    except BadFileError as error:
        return Picture(name, None, str(error).removeprefix(f"{path}: "))
