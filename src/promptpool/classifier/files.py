"""A classifier on disk: a folder like any other.

    model.safetensors     what was learned, and everything else as JSON in its header: the classifier itself
    config.json           the same JSON, for people and programs that look
    README.md             a model card that writes itself
    versions/0007.safetensors    the last ten versions, for undo
    thumbnails/           small pictures of what was learned, if that was asked for
    .lesson/              how far a lesson is that was not finished

Only `model.safetensors` counts, and it is replaced at one moment: whoever looks sees the old version or the new one,
whatever is killed when. Reading one runs no code, what it says is checked before it is used (`headers.py`), and
checksums tell of bits that a disk has turned. The backbone is not in it, but its name and hash are.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as packed
from torch import Tensor

from promptpool import __version__
from promptpool.classifier import headers
from promptpool.classifier.answers import id_text
from promptpool.classifier.classifier import ContinualClassifier
from promptpool.classifier.lessons import SIDE, Knowledge, Pictures, has_nonsense
from promptpool.errors import BadFileError
from promptpool.files import locked, write_beside, write_whole
from promptpool.learners.base import Learner
from promptpool.learners.closed_form import ClosedForm
from promptpool.learners.state import state
from promptpool.training.checkpoint import pack, unpack

FORMAT = "promptpool-classifier-2"
FORMATS = ("promptpool-classifier-1", FORMAT)  # those that can be read
MODEL, CONFIG, CARD, VERSIONS = "model.safetensors", "config.json", "README.md", "versions"
THUMBNAILS, LESSON = "thumbnails", ".lesson"
KEPT = 10
BROKEN = (SafetensorError, OSError, AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a classifier's folder, so that no other process changes it meanwhile."""
    if folder.exists() and not folder.is_dir():
        raise BadFileError(f"{folder}: is a file, and a classifier is a folder")
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / ".lock"):
            yield
    except BlockingIOError as error:
        raise BadFileError(f"{folder}: another process is at work on this classifier, try again later") from error
    finally:
        for each in (folder / VERSIONS, folder / THUMBNAILS, *new):
            with suppress(OSError):  # which goes if nothing came of it
                each.rmdir()


def is_classifier(folder: Path) -> bool:
    return (folder / MODEL).is_file()


def save(classifier: ContinualClassifier, folder: Path) -> None:
    """Write a new version; the one before is kept for undo."""
    check_place(folder)
    present = read_header(folder)["version"] if is_classifier(folder) else 0
    _remove_after(folder, present)  # of a version that was never finished
    number = present + 1
    header = described(classifier) | {"version": number}
    tensors: dict[str, Tensor] = {}
    known = classifier.known
    held = {"rows": known.held_rows, "labels": known.held_labels, "lessons": known.held_lessons}
    learned = {"learned": _learned(classifier), "pictures": known.pictures._asdict(), "held": held}
    header["learner"] = pack(learned, tensors)
    text = json.dumps(header | {"crc": _checksum(tensors)})
    thumbnails = _new_thumbnails(classifier, folder)
    try:
        for path, content in thumbnails.items():
            write_whole(path, content)
        write_whole(_version(folder, number), packed(tensors, metadata={"promptpool": text, "crc": _crc(text)}))
        _install(folder, number)
    except BaseException:
        _remove_after(folder, present)
        for path in thumbnails:
            path.unlink(missing_ok=True)
        raise
    with suppress(OSError, KeyboardInterrupt):  # it is saved, the rest can wait
        classifier.new_thumbnails.clear()
        classifier.folder = folder.resolve()
        _remove_thumbnails(classifier.known.pictures, folder)
        shutil.rmtree(folder / LESSON, ignore_errors=True)


def _crc(text: str) -> str:
    return str(zlib.crc32(text.encode()))


def _checksum(tensors: dict[str, Tensor]) -> str:
    """By which bits that a disk has turned are noticed."""
    found = 0
    for name in sorted(tensors):
        found = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, found)
    return str(found)


def _new_thumbnails(classifier: ContinualClassifier, folder: Path) -> dict[Path, bytes]:
    """Those that are not there yet."""
    there = classifier.folder is not None and classifier.folder == folder.resolve()
    known = classifier.new_thumbnails if there else all_thumbnails(classifier)
    found = {thumbnail_path(folder, id_text(key)): content for key, content in known.items()}
    return {path: content for path, content in found.items() if not path.exists()}


def _remove_thumbnails(pictures: Pictures, folder: Path) -> None:
    """Remove those of pictures that are not learned any more."""
    learned = {id_text(identity) for identity in pictures.ids.tolist()}
    for path in (folder / THUMBNAILS).glob("*.jpg"):
        if path.stem not in learned:
            path.unlink(missing_ok=True)


def thumbnail_path(folder: Path, identity: str) -> Path:
    """Where the thumbnail of a picture is, if there is one."""
    return folder / THUMBNAILS / f"{identity}.jpg"


def thumbnails(classifier: ContinualClassifier, folder: Path) -> dict[int, bytes]:
    """Those in a folder that are of pictures of a classifier, by the ids of these."""
    paths = {each: thumbnail_path(folder, id_text(each)) for each in classifier.known.pictures.ids.tolist()}
    return {identity: path.read_bytes() for identity, path in paths.items() if path.is_file()}


def all_thumbnails(classifier: ContinualClassifier) -> dict[int, bytes]:
    """Those that are saved where the classifier came from or went to, and those that are not yet."""
    saved = {} if classifier.folder is None else thumbnails(classifier, classifier.folder)
    return saved | classifier.new_thumbnails


def progress_folder(folder: Path) -> Path:
    """Where the next lesson notes how far it is; what another version had begun is removed."""
    model = folder / MODEL
    begun = hashlib.sha256(model.read_bytes()).hexdigest()[:16] if model.is_file() else "new"
    for other in (folder / LESSON).glob("*"):
        if other.name != begun:
            shutil.rmtree(other, ignore_errors=True)
    return folder / LESSON / begun


def check_place(folder: Path) -> None:
    """Refuse a folder that is no classifier and has other things in it."""
    others = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    others = [name for name in others if not (name.startswith(".") and name.endswith(".partial"))]  # of a killed one
    if not is_classifier(folder) and set(others) - {".lock", VERSIONS, LESSON, THUMBNAILS}:
        raise BadFileError(f"{folder}: is a folder with other things in it; a new classifier needs a name of its own")


def _remove_after(folder: Path, number: int) -> None:
    for later in versions(folder):
        if later > number:
            _version(folder, later).unlink(missing_ok=True)


def _version(folder: Path, number: int) -> Path:
    return folder / VERSIONS / f"{number:04}.safetensors"


def _install(folder: Path, number: int) -> None:
    """Make a version the present one, at the moment when it takes the place of the model; before, nothing changes."""
    try:
        _replace(folder, number)
    except (OSError, KeyboardInterrupt):
        if not is_classifier(folder) or read_header(folder)["version"] != number:
            raise  # and otherwise it is installed, what was left can wait
    finally:
        for name in (MODEL, CONFIG, CARD):
            with suppress(OSError):
                (folder / f".{name}.partial").unlink(missing_ok=True)


def _replace(folder: Path, number: int) -> None:
    header, _ = _content(_version(folder, number))
    shown = {name: value for name, value in header.items() if name not in ("learner", "calibration", "crc")}
    texts = {CONFIG: json.dumps(shown, indent=2, ensure_ascii=False), CARD: card(header)}
    written = {name: write_beside(folder / name, text.encode(errors="replace")) for name, text in texts.items()}
    temporary = folder / f".{MODEL}.partial"
    shutil.copyfile(_version(folder, number), temporary)
    with temporary.open("rb+") as file:  # Windows syncs only what can be written
        os.fsync(file.fileno())
    temporary.replace(folder / MODEL)
    for name, path in written.items():
        path.replace(folder / name)
    for old in versions(folder)[:-KEPT]:
        with suppress(OSError):
            _version(folder, old).unlink()


def versions(folder: Path) -> list[int]:
    """The versions that are kept, oldest first."""
    return sorted(int(path.stem) for path in (folder / VERSIONS).glob("[0-9]*.safetensors") if path.stem.isdecimal())


def undo(folder: Path) -> int:
    """Go back to the version before the present one, which is thrown away; returns its number."""
    present = int(read_header(folder)["version"])
    earlier = [number for number in versions(folder) if number < present]
    if not earlier:
        raise BadFileError(f"{folder}: there is no version before this one")
    _install(folder, earlier[-1])
    _remove_after(folder, earlier[-1])
    with suppress(OSError):  # it is undone, the rest can wait
        header, tensors = _content(folder / MODEL)
        _remove_thumbnails(_pictures(unpack(header["learner"], tensors)), folder)
    return earlier[-1]


def described(classifier: ContinualClassifier) -> dict[str, Any]:
    """All that is no tensor."""
    return {
        "format": FORMAT,
        "method": classifier.method,
        "values": classifier.values,
        "backbone": {
            "name": classifier.backbone_name,
            "origin": classifier.backbone.origin,
            "image_size": classifier.backbone.image_size,
        },
        "held_out": classifier.held_out,
        "keep_held_out": classifier.keep_held_out,
        "rehearse": classifier.rehearse,
        "thumbnails": classifier.thumbnails,
        "seed": classifier.seed,
        "labels": classifier.known.labels,
        "lessons": [asdict(lesson) for lesson in classifier.known.lessons],
        "calibration": asdict(classifier.known.calibration),
        "made_with": {"promptpool": __version__, "torch": torch.__version__},
    }


def _learned(classifier: ContinualClassifier) -> dict[str, Any]:
    """What the learner has learned; of the closed form rows and prompts alone, the sums are made of the rows again."""
    learner = classifier.learner
    if not isinstance(learner, ClosedForm) or learner.keep != "features":
        return state(learner)
    found = {"rows": learner.rows, "labels": learner.labels, "ids": learner.ids}
    return found if learner.adapt == "none" else found | {"weights": _weights_of_prompts(learner)}


def _weights_of_prompts(learner: ClosedForm) -> dict[str, Tensor]:
    """The pool and what was decided: all weights but those of the head, which the sums give."""
    return {name: value for name, value in state(learner)["weights"].items() if not name.startswith("head.")}


def read_header(folder: Path) -> dict[str, Any]:
    """The JSON of a classifier."""
    return _header(_model(folder))


def _model(folder: Path) -> Path:
    if not is_classifier(folder):
        raise BadFileError(f"{folder}: no classifier is here (no {MODEL}); promptpool learn makes one")
    return folder / MODEL


def _header(path: Path) -> dict[str, Any]:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        text = metadata.get("promptpool", "null")
        header = json.loads(text)
    except (SafetensorError, OSError, RecursionError, ValueError) as error:
        raise BadFileError(f"{path}: damaged, or no classifier of ours ({' '.join(str(error).split())})") from error
    if metadata.get("crc", _crc(text)) != _crc(text):
        raise BadFileError(f"{path}: damaged (its checksum is another)")
    if not isinstance(header, dict) or not str(header.get("format", "")).startswith("promptpool-classifier-"):
        raise BadFileError(f"{path}: no classifier of ours")
    if header["format"] not in FORMATS:
        raise BadFileError(f"{path}: written by a later version of promptpool ({header['format']}); install that one")
    try:
        headers.check(header)
    except headers.FAULTS as error:
        raise BadFileError(f"{path}: damaged ({' '.join(str(error).split())})") from error
    return header


def _content(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and the tensors of a file, if it is whole."""
    header = _header(path)
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except BROKEN as error:
        raise BadFileError(f"{path}: damaged ({' '.join(str(error).split())})") from error
    if header.get("crc", _checksum(tensors)) != _checksum(tensors):
        raise BadFileError(f"{path}: damaged (the checksum of its numbers is another)")
    if has_nonsense(tensors):
        raise BadFileError(f"{path}: damaged (it has numbers that are none)")
    return header, tensors


def load(folder: Path, *, backbone: str | Path | None = None) -> ContinualClassifier:
    """The classifier in a folder; `backbone` says where its backbone lies now, if that changed."""
    path = _model(folder)
    header, tensors = _content(path)
    try:
        stored = unpack(header["learner"], tensors)
        values = _values(header, stored)
    except BROKEN as error:
        raise BadFileError(f"{path}: damaged ({' '.join(str(error).split())})") from error
    try:
        known = header["backbone"]
        classifier = ContinualClassifier(
            backbone or known["name"],
            method=header["method"],
            image_size=int(known["image_size"]),
            held_out=header["held_out"],
            keep_held_out=header["keep_held_out"],
            rehearse=header.get("rehearse"),
            thumbnails=header.get("thumbnails", False),
            seed=header["seed"],
            **values,
        )
    except BROKEN as error:
        reason = " ".join(str(error).split())
        if backbone is not None:
            raise BadFileError(
                f"{folder}: was taught on {known['name']}, and {backbone} does not fit: {reason}"
            ) from error
        hint = "" if isinstance(error, RuntimeError) else "; --backbone FILE says where the backbone lies now"
        raise BadFileError(f"{folder}: cannot be opened: {reason}{hint}") from error
    if classifier.backbone.origin != known["origin"]:
        raise BadFileError(
            f"{folder}: was taught on another backbone: {known['origin']}, and {classifier.backbone_name} is "
            f"{classifier.backbone.origin}"
        )
    classifier.folder = folder.resolve()
    try:
        _restore(classifier, header, stored)
    except BROKEN as error:
        raise BadFileError(f"{path}: damaged ({' '.join(str(error).split())})") from error
    return classifier


def _values(header: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    """The values that were given; closed-form-prompts always took prompts before it could decide."""
    values: dict[str, Any] = header["values"]
    decides = "decision" in stored["learned"].get("weights", {})
    if header["method"] == "closed-form-prompts" and "adapt" not in values and not decides:
        return {**values, "adapt": "prompts"}
    return values


def _restore(classifier: ContinualClassifier, header: dict[str, Any], stored: dict[str, Any]) -> None:
    labels, lessons = headers.labels_of(header), headers.lessons_of(header)
    learner, learned, numbers = classifier.learner, stored["learned"], [lesson.number for lesson in lessons]
    known = Knowledge(labels, lessons, headers.calibration_of(header), _pictures(stored))
    headers.check_pictures(known.pictures, len(labels), numbers)
    if held := stored.get("held", {}):
        known.held_rows, known.held_labels, known.held_lessons = held["rows"], held["labels"], held["lessons"]
        width = _width(learner) if len(known.held_rows) else known.held_rows.shape[1]
        headers.check_rows(known.held_rows, known.held_labels, width, len(labels))
        headers.check_numbers(known.held_lessons, "lessons of rows", {0, *numbers})
        if len(known.held_lessons) != len(known.held_labels):
            raise ValueError("lessons and labels of rows do not match")
    if {"rows", "labels"} <= set(learned) and isinstance(learner, ClosedForm):
        if learner.adapt != "none":
            _restore_prompts(learner, learned["weights"])
        rows, owners = learned["rows"], learned["labels"]
        headers.check_rows(rows, owners, len(learner.directions), len(labels))
        ids = learned.get("ids", torch.zeros(len(rows), dtype=torch.long))
        headers.check_numbers(ids, "ids of rows")
        if len(ids) != len(rows):
            raise ValueError("ids and rows do not match")
        learner.grow(len(labels))
        learner.add_rows(rows, owners, ids)
    else:
        classifier.restore(learned, len(labels))
        _check_classes(classifier.learner, len(labels))
    classifier.learner.eval()
    classifier.known = known


def _restore_prompts(learner: ClosedForm, weights: dict[str, Tensor]) -> None:
    """Read with the prompts that were saved, or without any, as was decided."""
    if set(weights) != set(_weights_of_prompts(learner)):
        raise ValueError("the prompts are of another learner")
    learner.load_state_dict(weights, strict=False)  # the head is made of the rows
    learner.check_state()


def _width(learner: Learner) -> int:
    """How many numbers a kept row of features has."""
    return len(learner.directions) if isinstance(learner, ClosedForm) else learner.frozen.width


def _check_classes(learner: Learner, class_count: int) -> None:
    """Raise unless the classes that a restored learner speaks of are there."""
    for classes in (learner.seen, learner.current):
        if not isinstance(classes, tuple) or not set(classes) <= set(range(class_count)):
            raise ValueError("the classes of the learner are not those of the labels")
    if len(learner.head.bias) < class_count:
        raise ValueError(f"a head of {len(learner.head.bias)} classes for {class_count} labels")


def _pictures(stored: dict[str, Any]) -> Pictures:
    """What is remembered of pictures; files of the first format have neither lessons nor small versions."""
    if "pictures" in stored:
        pictures = Pictures(**stored["pictures"])
    else:
        ids, nothing = stored["ids"], torch.zeros(len(stored["ids"]), dtype=torch.long)
        pictures = Pictures(ids, stored["owners"], nothing, torch.zeros(len(ids), SIDE**2, dtype=torch.uint8))
    if pictures.small.shape[1:] != (SIDE**2,):
        raise ValueError("pictures do not match")
    return pictures


def card(header: dict[str, Any]) -> str:
    """The model card: what it is, what it learned when, how to use it."""
    labels = [label for label in header["labels"] if label]
    lines = [
        "---",
        "library_name: promptpool",
        "pipeline_tag: image-classification",
        "---",
        "",
        "# A classifier that goes on learning",
        "",
        f"It knows {len(labels)} classes: {', '.join(labels) or 'none yet'}.",
        "",
        f"Backbone: {header['backbone']['name']} at {header['backbone']['image_size']} pixels, frozen "
        f"({header['backbone']['origin']}). Method: {header['method']}.",
        "",
        "| lesson | when | pictures | new classes | accuracy on pictures held out |",
        "|---:|---|---:|---|---:|",
    ]
    for lesson in header["lessons"]:
        share = "-" if lesson["accuracy"] is None else f"{100 * lesson['accuracy']:.1f} %"
        new = ", ".join(lesson["new"]) or "-"
        lines.append(f"| {lesson['number']} | {lesson['when']} | {sum(lesson['counts'].values())} | {new} | {share} |")
    lines += [
        "",
        "```python",
        "from promptpool import ContinualClassifier",
        "",
        'classifier = ContinualClassifier.load("THIS-FOLDER")',
        'classifier.predict("photo.jpg")',
        'classifier.learn("more-pictures/")',
        "```",
        "",
    ]
    return "\n".join(lines)
