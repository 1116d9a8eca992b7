"""What cannot be learned, asked or set, as people hand it over in Python: pictures, paths, labels, data sets."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from bad_files import circle, cut, fifo, png, written

PICTURE = np.zeros((8, 8, 3), np.uint8)


class Unknown:
    """Neither pictures nor a path."""


class Lying:
    """A data set that has less than it says."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, number: int) -> tuple[Any, str]:
        if number > 2:
            raise IndexError(f"{number} of 3")
        return PICTURE + number, "a"


class Negative(Lying):
    def __len__(self) -> int:
        return -3


class Unlabelled(list[Any]):
    """A data set that names its classes, with a picture whose label is not said, as Hugging Face marks those."""

    classes = ("a", "b")


def breaking(error: Exception) -> Iterator[tuple[Any, str]]:
    """Pictures of which the third cannot be had."""
    yield PICTURE, "a"
    yield PICTURE + 1, "b"
    raise error


def array(*shape: int, dtype: Any = np.uint8, value: Any = 0) -> Any:
    return np.full(shape, value, dtype)


def large() -> Any:
    """Nine hundred million pixels that take one byte."""
    return np.broadcast_to(np.uint8(7), (30_000, 30_000))


def lazily(content: bytes) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Image.open(io.BytesIO(content))


def shut() -> Image.Image:
    picture = Image.new("RGB", (8, 8))
    picture.close()
    return picture


def made(put: Callable[[Path], None], name: str) -> Callable[[Path], Path]:
    def make(here: Path) -> Path:
        put(here / name)
        return here / name

    return make


UINT8, SHAPE, LABEL = "pixels are uint8", r"expected \[H, W\]", "must be text or a number|text that can be printed"
PICTURES: dict[str, tuple[Callable[[], Any], str]] = {
    "floats": (lambda: array(8, 8, 3, dtype=np.float64), UINT8),
    "nan": (lambda: array(8, 8, 3, dtype=np.float32, value=np.nan), UINT8),
    "inf": (lambda: array(8, 8, dtype=np.float32, value=np.inf), UINT8),
    "truth values": (lambda: array(8, 8, dtype=np.bool_), UINT8),
    "whole numbers": (lambda: array(8, 8, 3, dtype=np.int64), UINT8),
    "16 bits": (lambda: array(8, 8, 3, dtype=np.uint16), UINT8),
    "complex numbers": (lambda: array(8, 8, dtype=np.complex64), UINT8),
    "words in an array": (lambda: np.array([["a", "b"], ["c", "d"]]), UINT8),
    "objects": (lambda: array(8, 8, dtype=object, value=None), UINT8),
    "dates": (lambda: np.zeros((8, 8), "datetime64[s]"), UINT8),
    "records": (lambda: np.zeros((8, 8), [("red", np.uint8), ("green", np.uint8)]), UINT8),
    "a float tensor": (lambda: torch.zeros(3, 8, 8), UINT8),
    "a bfloat16 tensor": (lambda: torch.zeros(3, 8, 8, dtype=torch.bfloat16), UINT8),
    "a sparse tensor": (lambda: torch.zeros(8, 8, dtype=torch.uint8).to_sparse(), "sparse|array"),
    "a tensor without numbers": (lambda: torch.zeros(3, 8, 8, dtype=torch.uint8, device="meta"), "meta"),
    "two channels": (lambda: array(8, 8, 2), SHAPE),
    "five channels": (lambda: array(8, 8, 5), SHAPE),
    "no channels": (lambda: array(8, 8, 0), SHAPE),
    "no rows": (lambda: array(0, 8, 3), SHAPE),
    "no columns": (lambda: array(8, 0, 3), SHAPE),
    "one dimension": (lambda: array(8), SHAPE),
    "no dimension": (lambda: np.uint8(3), SHAPE),
    "four dimensions": (lambda: array(2, 8, 8, 3), SHAPE),
    "five dimensions": (lambda: array(1, 2, 8, 8, 3), SHAPE),
    "30,000 pixels a side": (large, "more than"),
    "30,000 pixels a side in a tensor": (
        lambda: torch.zeros((), dtype=torch.uint8).expand(30_000, 30_000),
        "more than",
    ),
    "ragged lists": (lambda: [[1, 2], [3]], "picture 0"),
    "lists of numbers": (lambda: [[1, 2], [3, 4]], UINT8),
    "nothing as a picture": (lambda: None, UINT8),
    "a dict as a picture": (lambda: {"pixels": 3}, UINT8),
    "a function as a picture": (lambda: print, UINT8),
    "a PIL image without pixels": (lambda: Image.new("RGB", (0, 8)), "without pixels"),
    "a PIL image that is closed": (shut, "closed|picture 0"),
    "a PIL image cut off": (lambda: lazily(cut("PNG")), "cannot be decoded"),
    "a PIL image that is too large": (lambda: lazily(png(13_000, 13_000)), "more than"),
}
PATHS: dict[str, tuple[Callable[[Path], Path | str], str]] = {
    "a file that is not there": (lambda here: here / "gone.png", "[Nn]o such file"),
    "a folder as a picture": (lambda here: here, "not a regular file|directory"),
    "a NUL in a path": (lambda here: "a\0b.png", "null|NUL|[Nn]o such file"),
    "a path of an unknown user": (lambda here: "~nobody-of-this-name/a.png", "home directory|[Nn]o such file"),
    "a name that is too long": (lambda here: "a" * 300 + ".png", "too long"),
    "a FIFO as a picture": (made(fifo, "fifo.png"), "not a regular file"),
    "a device as a picture": (lambda here: "/dev/zero", "not a regular file"),
    "a link to itself as a picture": (made(circle, "circle.png"), "[Nn]o such file|symbolic|[Ll]oop"),
    "text as a picture": (made(written(b"text"), "text.jpg"), "not an image"),
    "no bytes as a picture": (made(written(b""), "empty.jpg"), "not an image"),
    "half a JPEG as a picture": (
        made(written(cut("JPEG")), "h.jpg"),
        "cannot be decoded",
    ),
    "a bomb as a picture": (made(written(png(60_000, 60_000)), "b.png"), "pixels|bomb"),
}
LABELS: dict[str, tuple[Any, str]] = {
    "nothing": (None, LABEL),
    "bytes": (b"cat", LABEL),
    "no text": ("", LABEL),
    "spaces": ("   ", LABEL),
    "a space before": (" cat", LABEL),
    "a line end": ("cat\n", LABEL),
    "a NUL": ("c\0t", LABEL),
    "an escape sequence": ("\x1b[31mcat", LABEL),
    "writing to the left": ("cat\u202egod", LABEL),
    "a space of no width": ("\u200b", LABEL),
    "half a character": ("\ud83d", LABEL),
    "unknown": ("unknown", "like none that were learned"),
    "300 characters": ("c" * 300, "300 characters"),
    "a million characters": ("c" * 10**6, "1000000 characters"),
    "nan": (float("nan"), LABEL),
    "numpy's nan": (np.float64("nan"), LABEL),
    "infinity": (float("inf"), LABEL),
    "a list": (["cat"], LABEL),
    "a tuple": (("cat", "dog"), LABEL),
    "a dict": ({"cat": 1}, LABEL),
    "an array": (np.array(["cat", "dog"]), LABEL),
    "a tensor of two numbers": (torch.tensor([1, 2]), LABEL),
    "a type": (str, LABEL),
}
DATA: dict[str, tuple[Callable[[], Any], Any, str]] = {
    "an empty list": (list, None, "no picture to learn from"),
    "a generator of nothing": (lambda: iter(()), None, "no picture to learn from"),
    "an empty array": (lambda: array(0, 8, 8, 3), [], "no picture to learn from"),
    "no data": (lambda: None, None, "neither a path nor pictures"),
    "a number as data": (lambda: 7, None, "neither a path nor pictures"),
    "a number as data with labels": (lambda: 7, ["a"], "neither a path nor pictures"),
    "bytes as data": (lambda: b"january", None, "give labels"),
    "an object as data": (Unknown, None, "neither a path nor pictures"),
    "an object as data with labels": (Unknown, ["a"], "neither a path nor pictures"),
    "an array of no dimension": (lambda: np.array(3), ["a"], "neither a path nor pictures"),
    "a dict as data": (lambda: {"a": PICTURE}, None, "give labels"),
    "pictures without labels": (lambda: [PICTURE, PICTURE], None, "give labels"),
    "items of three": (lambda: [(PICTURE, "a", 1)], None, "give labels"),
    "items without a picture": (lambda: [{"label": "a"}], None, "need the keys image and label"),
    "items without a label": (lambda: [{"image": PICTURE}], None, "need the keys image and label"),
    "fewer labels": (lambda: [PICTURE, PICTURE], ["a"], "2 pictures and 1 labels"),
    "more labels": (lambda: [PICTURE], ["a", "b"], "1 pictures and 2 labels"),
    "one word for all labels": (lambda: [PICTURE, PICTURE, PICTURE], "cat", "labels .*list"),
    "one number for all labels": (lambda: [PICTURE], 3, "labels .*list"),
    "labels that break": (lambda: [PICTURE], (int(x) for x in ("1", "one")), "invalid literal"),
    "a data set that has less than it says": (Lying, None, "says that it has 5"),
    "a data set of less than nothing": (Negative, None, "should return >= 0"),
    "a data set that does not say a label": (lambda: Unlabelled([(PICTURE, 0), (PICTURE, -1)]), None, "label -1"),
    "a data set of more classes than names": (lambda: Unlabelled([(PICTURE, 2)]), None, "label 2"),
    "a loader of batches": (
        lambda: DataLoader(TensorDataset(torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.arange(4)), batch_size=2),
        None,
        "picture 0|label",
    ),
    "a generator that breaks": (lambda: breaking(ValueError("no more")), None, "no more"),
    "a generator whose disk breaks": (lambda: breaking(OSError("disk gone")), None, "disk gone"),
}
VALUES: dict[str, tuple[dict[str, Any], str]] = {
    "a method that is not there": ({"method": "svm"}, "method = 'svm': must be one of"),
    "no method": ({"method": None}, "method = None"),
    "all held out": ({"held_out": 1.0}, "held_out = 1.0"),
    "less than nothing held out": ({"held_out": -0.1}, "held_out = -0.1"),
    "nan held out": ({"held_out": float("nan")}, "held_out = nan"),
    "words held out": ({"held_out": "some"}, "held_out = 'some'"),
    "rehearse nothing": ({"method": "er", "rehearse": 0}, "rehearse = 0"),
    "rehearse by a method that keeps none": ({"rehearse": 5}, "keeps no images"),
    "rehearse a fraction": ({"method": "er", "rehearse": 1.5}, "rehearse = 1.5"),
    "no image size": ({"image_size": 0}, "image_size = 0"),
    "an image size below zero": ({"image_size": -32}, "image_size = -32"),
    "an image size that does not fit": ({"image_size": 33}, "image_size = 33"),
    "an image size beyond memory": ({"image_size": 10**6}, "image_size = 1000000"),
    "an image size with a fraction": ({"image_size": 32.5}, "image_size = 32.5"),
    "an image size in words": ({"image_size": "32"}, "image_size = '32'"),
    "a seed with a fraction": ({"seed": 1.5}, "seed = 1.5"),
    "a seed beyond 64 bits": ({"seed": 2**70}, "seed = "),
    "a seed in words": ({"seed": "zero"}, "seed = 'zero'"),
    "projections below zero": ({"projections": -1}, "projections = -1"),
    "projections beyond memory": ({"projections": 10**7}, "projections = 10000000"),
    "projections in words": ({"projections": "many"}, "projections = 'many'"),
    "a value that is not there": ({"brightness": 3}, "brightness"),
    "a shrinkage of two": ({"shrinkage": 2.0}, "shrinkage = 2.0"),
    "keep all": ({"keep": "all"}, "keep = 'all'"),
}
ASKED: dict[str, tuple[Callable[[Path], Any], dict[str, Any], str]] = {
    "nothing": (lambda here: None, {}, "neither a path nor pictures"),
    "a number": (lambda here: 3, {}, "neither a path nor pictures"),
    "an object": (lambda here: Unknown(), {}, "neither a path nor pictures"),
    "an array of no dimension": (lambda here: np.array(3), {}, "neither a path nor pictures"),
    "floats": (lambda here: array(2, 8, 8, 3, dtype=np.float32), {}, UINT8),
    "a picture of floats": (lambda here: array(8, 8, 3, dtype=np.float32), {}, UINT8),
    "five dimensions": (lambda here: array(1, 2, 8, 8, 3), {}, SHAPE),
    "a dict": (lambda here: [{"image": PICTURE}], {}, UINT8),
    "a generator that breaks": (lambda here: breaking(ValueError("no more")), {}, "no more|uint8|picture"),
    "a path that is not there": (lambda here: here / "gone", {}, "no such file or folder"),
    "a path with a NUL": (lambda here: "a\0b", {}, "no such file or folder|null"),
    "a path of an unknown user": (lambda here: "~nobody-of-this-name", {}, "home directory|no such file"),
    "an empty folder": (lambda here: here, {}, "holds no picture"),
    "a folder of text": (lambda here: note(here), {}, "holds no picture"),
    "a FIFO": (made(fifo, "fifo.png"), {}, "not a regular file|no such file"),
    "a device": (lambda here: "/dev/zero", {}, "not a regular file|no such file"),
    "the best none": (lambda here: PICTURE, {"top": 0}, "top = 0: must be a whole number, at least 1"),
    "the best less than none": (lambda here: PICTURE, {"top": -1}, "top = -1"),
    "the best one and a half": (lambda here: PICTURE, {"top": 1.5}, "top = 1.5"),
    "the best all": (lambda here: PICTURE, {"top": "all"}, "top = 'all'"),
    "the best nothing": (lambda here: PICTURE, {"top": None}, "top = None"),
    "sure of nothing": (lambda here: PICTURE, {"sure": 0}, "sure = 0: must be above 0"),
    "sure below nothing": (lambda here: PICTURE, {"sure": -0.5}, "sure = -0.5"),
    "more than sure": (lambda here: PICTURE, {"sure": 1.01}, "sure = 1.01"),
    "sure of nan": (lambda here: PICTURE, {"sure": float("nan")}, "sure = nan"),
    "sure in words": (lambda here: PICTURE, {"sure": "very"}, "sure = 'very'"),
}


def note(here: Path) -> Path:
    (here / "note.txt").write_text("no picture")
    return here
