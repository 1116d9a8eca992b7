"""What people hand over as pictures, with and without labels, as raw inputs of one size.

A path is a folder of class folders, a table or whatever else `run own` reads; or, where no labels are asked for, one
picture or a folder of them. Anything else is pictures: an array [n, H, W], [n, H, W, C] or [n, C, H, W] of uint8, or an
iterable of PIL images, arrays, paths; with labels beside it, or of (picture, label) pairs, as torch data sets are.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from promptpool.data.decoding import Pixels, decode, image_suffixes
from promptpool.data.images import LARGEST_FILE, printable, read_images
from promptpool.data.own.class_folders import natural
from promptpool.data.own.own import entries_of
from promptpool.data.stream import Examples, content_id
from promptpool.data.workers import in_advance, threads_here
from promptpool.errors import BadFileError

UNKNOWN = "unknown"


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


def labelled(data: Any, labels: Iterable[object] | None, *, size: int, strict: bool = False) -> Labelled:
    """Pictures with labels, from whatever has them."""
    if isinstance(data, str | Path):
        if labels is not None:
            raise ValueError("labels of a folder are the names of its class folders: give labels with arrays only")
        return _from_folder(Path(data).expanduser(), size, strict)
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
        files = _files(Path(data).expanduser())
        yield from in_advance(lambda path: _decoded(path, size), files, threads=threads_here())
    elif is_one(data):
        yield Picture("picture 0", torch.from_numpy(_pixels(data, "picture 0", size)))
    else:
        for number, picture in enumerate(data):
            if isinstance(picture, str | Path):
                yield _decoded(Path(picture).expanduser(), size)
            else:
                name = f"picture {number}"
                yield Picture(name, torch.from_numpy(_pixels(picture, name, size)))


def _from_folder(path: Path, size: int, strict: bool) -> Labelled:
    if not path.exists():
        raise BadFileError(f"{path}: no such file or folder")
    store, entries = entries_of(path)
    trained = [entry for entry in entries if entry.split != "test"] or entries
    decoded = read_images(store, trained, size=size, strict=strict)
    labels = tuple(sorted({checked_label(entry.label) for entry in decoded.entries}, key=natural))
    names = tuple(printable(entry.name) for entry in decoded.entries)
    return Labelled(decoded.examples(labels), labels, names, decoded.skipped, len(entries) - len(trained))


def _pairs(data: Any, labels: Iterable[object] | None) -> Iterator[tuple[Any, object]]:
    if labels is not None:
        texts = list(labels)
        pictures = list(data)
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
        yield picture, names[label] if isinstance(label, int) and 0 <= label < len(names) else label


def _items(data: Any) -> Iterator[Any]:
    """The items of an iterable, or of a data set of torch's, which has a length and gives an item at a time."""
    if isinstance(data, Iterable):
        yield from data
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        yield from (data[number] for number in range(len(data)))
    else:
        raise ValueError(f"{type(data).__name__}: is neither a path nor pictures with labels")


def _class_names(data: Any) -> Sequence[str]:
    """What a data set calls its numbered classes, as those of Hugging Face and torchvision do."""
    features = getattr(data, "features", None)
    label = features.get("label") if isinstance(features, Mapping) else None
    names = getattr(label, "names", None) or getattr(data, "classes", None)
    return names if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names) else ()


def _label(label: object) -> str:
    return checked_label(str(label.item() if isinstance(label, np.generic | Tensor) else label))


def checked_label(text: str) -> str:
    """A label, if it can be one."""
    if not text or text != text.strip() or not text.isprintable():
        raise ValueError(f"label {text!r}: must be text that can be printed, without spaces around it")
    if text == UNKNOWN:
        raise ValueError(f"label {text!r}: is what the answer is for pictures like none that were learned")
    return text


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
        return decode(_content(Path(picture).expanduser()), str(picture), size)
    if not isinstance(picture, Image.Image):
        picture = Image.fromarray(_channels_last(picture, name))
    file = io.BytesIO()
    picture.convert("RGB").save(file, format="PNG", compress_level=0)
    return decode(file.getvalue(), name, size)


def _channels_last(picture: Any, name: str) -> Pixels:
    values = np.asarray(picture.cpu() if isinstance(picture, Tensor) else picture)
    if values.ndim == 3 and values.shape[0] in (1, 3) and values.shape[2] not in (1, 3, 4):
        values = values.transpose(1, 2, 0)
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[:, :, 0]
    if values.dtype != np.uint8:
        raise ValueError(f"{name}: pixels are uint8 in 0..255, not {values.dtype}")
    if values.ndim not in (2, 3) or 0 in values.shape or (values.ndim == 3 and values.shape[2] not in (3, 4)):
        raise ValueError(f"{name}: expected [H, W], [H, W, C] or [C, H, W] with C 1 or 3, not {[*values.shape]}")
    return np.ascontiguousarray(values)


def _files(path: Path) -> list[Path]:
    """A file itself, or the pictures of a folder and its folders, in natural order."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise BadFileError(f"{path}: no such file or folder")
    suffixes = image_suffixes()
    found = [each for each in path.rglob("*") if each.suffix.lower() in suffixes and each.is_file()]
    if not found:
        raise BadFileError(f"{path}: holds no picture")
    return sorted(found, key=lambda each: natural(str(each.relative_to(path))))


def _decoded(path: Path, size: int) -> Picture:
    try:
        return Picture(printable(str(path)), torch.from_numpy(decode(_content(path), str(path), size)))
    except BadFileError as error:
        return Picture(printable(str(path)), None, str(error).removeprefix(f"{path}: "))


def _content(path: Path) -> bytes:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise BadFileError(f"{path}: more than {LARGEST_FILE:,} bytes")
        return path.read_bytes()
    except OSError as error:
        raise BadFileError(f"{path}: {error.strerror or error}") from error
