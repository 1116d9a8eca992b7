"""Classifiers on disk as a bad disk or a bad neighbour leaves them: headers that lie, tensors that do not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from promptpool.classifier import files

Header = dict[str, Any]
LABELS = 200_000  # more than anyone has


def opened(folder: Path) -> tuple[Header, dict[str, Tensor]]:
    with safe_open(folder / files.MODEL, framework="pt") as file:
        header = json.loads(file.metadata()["promptpool"])
    return header, load_file(folder / files.MODEL)


def closed(folder: Path, header: Any, tensors: dict[str, Tensor]) -> None:
    """Write a classifier that is well made but for what was changed: without checksums, as earlier versions wrote."""
    if isinstance(header, dict):
        header.pop("crc", None)
    text = header if isinstance(header, str) else json.dumps(header)
    save_file(tensors, folder / files.MODEL, metadata={"promptpool": text})


def with_header(folder: Path, change: Callable[[Header], Any]) -> Path:
    """Change the header; what `change` returns, if anything, takes its place."""
    header, tensors = opened(folder)
    found = change(header)
    closed(folder, header if found is None else found, tensors)
    return folder


def with_tensor(folder: Path, path: str, change: Callable[[Tensor], Tensor]) -> Path:
    """Change a tensor, which is found by the names on the way to it: "learned/rows"."""
    header, tensors = opened(folder)
    place = header["learner"]
    for name in path.split("/"):
        place = dict(place["dict"])[name]
    tensors[place["tensor"]] = change(tensors[place["tensor"]]).contiguous()
    closed(folder, header, tensors)
    return folder


def setting(path: str, value: Any) -> Callable[[Header], None]:
    """Put a value at a place of the header: "backbone/name", "lessons/0/when"."""

    def change(header: Header) -> None:
        place: Any = header
        *way, last = (int(part) if part.isdecimal() else part for part in path.split("/"))
        for part in way:
            place = place[part]
        place[last] = value

    return change


def without(path: str) -> Callable[[Header], None]:
    def change(header: Header) -> None:
        place: Any = header
        *way, last = (int(part) if part.isdecimal() else part for part in path.split("/"))
        for part in way:
            place = place[part]
        del place[last]

    return change


def deep(depth: int) -> str:
    return "[" * depth + "]" * depth


def nest(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = {"list": [value]}
    return value


def beside(path: str, value: Any) -> Callable[[Header], None]:
    """Put a value into what is packed of the learner: "learned/seen"."""

    def change(header: Header) -> None:
        pairs = header["learner"]["dict"]
        *way, last = path.split("/")
        for part in way:
            pairs = dict(pairs)[part]["dict"]
        next(pair for pair in pairs if pair[0] == last)[1] = value

    return change


HEADERS: dict[str, Callable[[Header], Any]] = {
    "no JSON": lambda header: "{",
    "a list": lambda header: "[]",
    "a word": lambda header: '"promptpool"',
    "nothing": lambda header: "null",
    "deep lists": lambda header: deep(100_000),
    "a number of many digits": lambda header: '{"format": ' + "9" * 10_000 + "}",
    "another program": setting("format", "sklearn"),
    "a format that is a number": setting("format", 2),
    "a later format": setting("format", "promptpool-classifier-9"),
    "no version": without("version"),
    "version in words": setting("version", "one"),
    "version below zero": setting("version", -1),
    "version beyond all": setting("version", 10**30),
    "version true": setting("version", True),
    "version as a fraction": setting("version", 1.5),
    "no labels": without("labels"),
    "labels as a word": setting("labels", "abc"),
    "labels as a dict": setting("labels", {"a": 1, "b": 2, "c": 3}),
    "labels as a number": setting("labels", 3),
    "a label twice": setting("labels", ["a", "a", "b"]),
    "a label twice in two normal forms": setting("labels", ["caf\u00e9", "cafe\u0301", "b"]),
    "a label that clears the screen": setting("labels", ["a", "\x1b[2J", "b"]),
    "a label that is a number": setting("labels", ["a", 1, "b"]),
    "a label that is a list": setting("labels", ["a", ["b"], "c"]),
    "a label that is nothing": setting("labels", ["a", None, "c"]),
    "a label of 300 characters": setting("labels", ["a", "b" * 300, "c"]),
    "fewer labels than classes": setting("labels", ["a"]),
    "very many labels": setting("labels", [""] * LABELS),
    "no lessons": without("lessons"),
    "lessons as a word": setting("lessons", "three"),
    "lessons as a dict": setting("lessons", {"1": {}}),
    "lessons as nothing": setting("lessons", None),
    "a lesson without values": setting("lessons", [{}]),
    "a lesson that is a list": setting("lessons/0", []),
    "a lesson with a value too many": setting("lessons/0/teacher", "me"),
    "a lesson without a number": without("lessons/0/number"),
    "a lesson numbered in words": setting("lessons/0/number", "one"),
    "a lesson numbered below zero": setting("lessons/0/number", -1),
    "a lesson twice": setting("lessons/1/number", 1),
    "a lesson at no time": setting("lessons/0/when", 0),
    "a lesson at a marked-up time": setting("lessons/0/when", "[/red]"),
    "a lesson at a time that clears the screen": setting("lessons/0/when", "\x1b[2J"),
    "a lesson with a list of counts": setting("lessons/0/counts", [6, 6]),
    "a lesson with counts in words": setting("lessons/0/counts", {"a": "six"}),
    "a lesson with counts below zero": setting("lessons/0/counts", {"a": -6}),
    "a lesson with an accuracy in words": setting("lessons/0/accuracy", "good"),
    "a lesson with an accuracy of nan": setting("lessons/0/accuracy", float("nan")),
    "a lesson with new classes as a number": setting("lessons/0/new", 2),
    "a lesson with new classes that clear the screen": setting("lessons/0/new", ["\x1b[2J"]),
    "a lesson that changed nobody": setting("lessons/0/suffered", [["a"]]),
    "a lesson that changed in words": setting("lessons/0/suffered", [["a", "much", "more"]]),
    "a lesson with doubts in numbers": setting("lessons/0/doubtful", [[1, 2, 3]]),
    "a lesson that took ages": setting("lessons/0/seconds", "ages"),
    "no calibration": without("calibration"),
    "calibration as a list": setting("calibration", []),
    "a temperature of zero": setting("calibration/temperature", 0),
    "a temperature below zero": setting("calibration/temperature", -1.0),
    "a temperature of nan": setting("calibration/temperature", float("nan")),
    "a temperature without end": setting("calibration/temperature", float("inf")),
    "a temperature in words": setting("calibration/temperature", "warm"),
    "farthest in words": setting("calibration/farthest", "far"),
    "farthest of nan": setting("calibration/farthest", float("nan")),
    "least in a list": setting("calibration/least", [0.5]),
    "confidences in words": setting("calibration/confidences", ["high"]),
    "confidences of nan": setting("calibration/confidences/0", float("nan")),
    "confidences beyond one": setting("calibration/confidences/0", 7.0),
    "more confidences than answers": setting("calibration/right", []),
    "right in words": setting("calibration/right/0", "yes"),
    "calibration with a value too many": setting("calibration/hotter", 1),
    "no backbone": without("backbone"),
    "a backbone without a hash": setting("backbone/origin", None),
    "a backbone without a name": setting("backbone/name", 5),
    "a backbone that is nowhere": setting("backbone/name", "/nowhere/vit.safetensors"),
    "a backbone that is no weights file": setting("backbone/name", "/dev/zero"),
    "a backbone with a NUL": setting("backbone/name", "vit\0.safetensors"),
    "another backbone": setting("backbone/origin", "sha256:00"),
    "an image size of zero": setting("backbone/image_size", 0),
    "an image size below zero": setting("backbone/image_size", -32),
    "an image size beyond all": setting("backbone/image_size", 10**7),
    "an image size that does not fit": setting("backbone/image_size", 33),
    "an image size in words": setting("backbone/image_size", "large"),
    "a method that is not there": setting("method", "svm"),
    "a method as a list": setting("method", ["closed-form"]),
    "another method": setting("method", "nearest-mean"),
    "no method": without("method"),
    "held_out in words": setting("held_out", "some"),
    "held_out beyond one": setting("held_out", 2),
    "keep_held_out in words": setting("keep_held_out", "yes"),
    "no keep_held_out": without("keep_held_out"),
    "rehearse of a method that cannot": setting("rehearse", 5),
    "rehearse without end": setting("rehearse", 10**15),
    "thumbnails in words": setting("thumbnails", "no"),
    "a seed in words": setting("seed", "zero"),
    "a seed beyond all": setting("seed", 2**80),
    "values as a list": setting("values", []),
    "a value that is not there": setting("values", {"projections": 40, "brightness": 1}),
    "a value that is another's": setting("values", {"projections": 40, "method": "l2p"}),
    "projections without end": setting("values/projections", 10**12),
    "projections below zero": setting("values/projections", -1),
    "projections that fill the memory": setting("values/projections", 90_000),
    "projections in a list": setting("values/projections", [40]),
    "other projections": setting("values", {"classifier": "gaussian", "projections": 40, "readout_blocks": 1}),
    "no learner": without("learner"),
    "a learner as a list": setting("learner", []),
    "a learner of a kind that is not there": setting("learner", {"code": "print(1)"}),
    "a learner of two kinds": setting("learner", {"dict": [], "list": []}),
    "a learner that is very deep": setting("learner", nest(400)),
    "a learner of a tensor that is not there": beside("learned/rows", {"tensor": "99"}),
    "rows that are a number": beside("learned/rows", 5),
    "rows that are text": beside("learned/rows", "rows"),
    "no ids": beside("learned/ids", None),
    "pictures that are none": setting("learner/dict/1/1", {"dict": []}),
    "held-out pictures that are a list": setting("learner/dict/2/1", {"list": [1]}),
}


def long(count: int, value: int = 0) -> Callable[[Tensor], Tensor]:
    return lambda tensor: torch.full((count,), value)


# Of a classifier in closed form that learned 18 pictures of three classes in two lessons.
TENSORS: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "rows of nan": ("learned/rows", lambda rows: torch.full_like(rows, torch.nan)),
    "rows without end": ("learned/rows", lambda rows: torch.full_like(rows, torch.inf)),
    "rows of floats": ("learned/rows", lambda rows: rows.float()),
    "rows of whole numbers": ("learned/rows", lambda rows: rows.long()),
    "rows of eight bits": ("learned/rows", lambda rows: rows.to(torch.uint8)),
    "narrow rows": ("learned/rows", lambda rows: rows[:, :3]),
    "no rows": ("learned/rows", lambda rows: rows[:0]),
    "flat rows": ("learned/rows", lambda rows: rows.flatten()),
    "one number for rows": ("learned/rows", lambda rows: rows[0, 0]),
    "labels below zero": ("learned/labels", long(18, -1)),
    "labels beyond the classes": ("learned/labels", long(18, 9)),
    "labels beyond memory": ("learned/labels", long(18, 2**40)),
    "labels in floats": ("learned/labels", lambda labels: labels.float()),
    "labels in a square": ("learned/labels", lambda labels: labels[:, None]),
    "too few labels": ("learned/labels", lambda labels: labels[:3]),
    "ids in floats": ("learned/ids", lambda ids: ids.double()),
    "too few ids": ("learned/ids", lambda ids: ids[:3]),
    "ids in a square": ("learned/ids", lambda ids: ids[:, None]),
    "picture ids in floats": ("pictures/ids", lambda ids: ids.double()),
    "too few picture ids": ("pictures/ids", lambda ids: ids[:3]),
    "owners beyond the classes": ("pictures/owners", long(18, 9)),
    "owners below zero": ("pictures/owners", long(18, -9)),
    "owners in floats": ("pictures/owners", lambda owners: owners.float()),
    "lessons that are not there": ("pictures/lessons", long(18, 99)),
    "lessons in floats": ("pictures/lessons", lambda lessons: lessons.double()),
    "lessons in a square": ("pictures/lessons", lambda lessons: lessons[:, None]),
    "small versions in floats": ("pictures/small", lambda small: small.float()),
    "small versions that are smaller": ("pictures/small", lambda small: small[:, :5]),
    "one small version": ("pictures/small", lambda small: small[:1]),
    "held rows of another width": ("held/rows", lambda rows: torch.zeros(1, 7, dtype=torch.half)),
    "held rows in floats": ("held/rows", lambda rows: torch.zeros(0, 128)),
    "held labels without rows": ("held/labels", long(4)),
    "held lessons without rows": ("held/lessons", long(4)),
}


# Of a classifier by nearest mean, which keeps the state of its learner.
STATES: dict[str, Callable[[Header], Any]] = {
    "seen as a word": beside("learned/kept/seen", "abc"),
    "seen as a number": beside("learned/kept/seen", 3),
    "seen as words": beside("learned/kept/seen", {"tuple": ["a", "b"]}),
    "seen beyond the classes": beside("learned/kept/seen", {"tuple": [0, 1, 2, 10**9]}),
    "seen below zero": beside("learned/kept/seen", {"tuple": [-1]}),
    "seen as nothing": beside("learned/kept/seen", None),
    "current as a number": beside("learned/kept/current", 5),
    "current beyond the classes": beside("learned/kept/current", {"tuple": [10**9]}),
    "a generator in words": beside("learned/kept/generator", "dice"),
    "sums in words": beside("learned/kept/sums", "many"),
    "counts as nothing": beside("learned/kept/counts", None),
    "no weights": beside("learned/weights", {"dict": []}),
    "weights as a list": beside("learned/weights", {"list": []}),
    "nothing kept": beside("learned/kept", {"dict": []}),
    "a head in words": beside("learned/weights/head.weight", "wide"),
}
STATE_TENSORS: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "a head of nan": ("learned/weights/head.weight", lambda weight: torch.full_like(weight, torch.nan)),
    "a head without end": ("learned/weights/head.weight", lambda weight: torch.full_like(weight, torch.inf)),
    "a head of another width": ("learned/weights/head.weight", lambda weight: weight[:, :5]),
    "a flat head": ("learned/weights/head.weight", lambda weight: weight.flatten()),
    "a short bias": ("learned/weights/head.bias", lambda bias: bias[:1]),
    "a head of one class": ("learned/weights/head.weight", lambda weight: weight[:1]),
    "sums of another width": ("learned/kept/sums", lambda sums: sums[:, :5]),
    "sums of nan": ("learned/kept/sums", lambda sums: torch.full_like(sums, torch.nan)),
    "counts of one class": ("learned/kept/counts", lambda counts: counts[:1]),
    "a short generator": ("learned/kept/generator", lambda generator: generator[:9]),
    "a generator in floats": ("learned/kept/generator", lambda generator: generator.float()),
    "held rows of nan": ("held/rows", lambda rows: torch.full_like(rows, torch.nan)),
    "held rows of another width": ("held/rows", lambda rows: rows[:, :5]),
    "held labels beyond the classes": ("held/labels", lambda labels: labels + 9),
    "too few held lessons": ("held/lessons", lambda lessons: lessons[:1]),
    "held lessons that are not there": ("held/lessons", lambda lessons: lessons + 50),
    "held lessons in floats": ("held/lessons", lambda lessons: lessons.float()),
}
