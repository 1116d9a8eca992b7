"""What people and machines hand to a classifier by mistake: each is refused in one line, and nothing changes.

`CASES` are calls in Python, `TYPED` are commands; both are tables of a name, what to do, and what is said. Damaged and
hostile classifiers are in `bad_classifiers`. Files that lie among good pictures (`AMONG_PICTURES`) are skipped and
counted. A case that hangs ends the process, with a traceback of where it was.
"""

from __future__ import annotations

import errno
import faulthandler
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sized
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

from bad_classifiers import HEADERS, STATE_TENSORS, STATES, TENSORS, setting, with_header, with_tensor
from bad_files import AMONG_PICTURES, ARCHIVES, TABLES
from bad_lessons import ASKED, DATA, LABEL, LABELS, PATHS, PICTURE, PICTURES, VALUES, note
from damage import damaged
from failing_disk import FailingDisk
from image_files import write_images
from promptpool import ContinualClassifier
from promptpool.classifier import files
from promptpool.cli import app
from promptpool.errors import BadFileError
from small_runs import SIZES, write_weights

HANGS = 60  # seconds, after which a case hangs
FLIPPED, CUT = 40, 16  # damaged files of each kind


class Taught(NamedTuple):
    """Two classifiers in memory and on disk, which no case may change."""

    exact: ContinualClassifier  # in closed form
    plain: ContinualClassifier  # by nearest mean, which cannot forget
    folder: Path  # both, vit.safetensors, and good/ with pictures of the classes a and b


class Scene(NamedTuple):
    """What a case may use."""

    exact: ContinualClassifier
    plain: ContinualClassifier
    shop: Path  # the first on disk, a copy
    shelf: Path  # the second
    good: Path  # pictures in class folders
    weights: Path
    here: Path  # an empty folder, the present one
    patch: pytest.MonkeyPatch


class Case(NamedTuple):
    """Something to do: `make` prepares it, and what it returns must fail with the message."""

    name: str
    make: Callable[[Scene], Callable[[], object]]
    message: str


class Typed(NamedTuple):
    """Something to type: `make` prepares it and returns the words."""

    name: str
    make: Callable[[Scene], tuple[object, ...]]
    message: str


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Taught:
    folder = tmp_path_factory.mktemp("taught")
    weights = write_weights(folder / "vit.safetensors")
    good = write_images(folder / "good", [f"{label}/{n}.png" for label in "ab" for n in range(6)])
    more = write_images(folder / "more", [f"c/{n}.png" for n in range(6)], first=50)
    exact = ContinualClassifier(weights, projections=40)
    plain = ContinualClassifier(weights, method="nearest-mean")
    for classifier, name in ((exact, "exact"), (plain, "plain")):
        for pictures in (good, more):
            classifier.learn(pictures)
            classifier.save(folder / name)
    return Taught(exact, plain, folder)


@pytest.fixture(autouse=True)
def _watchdog() -> Iterator[None]:
    faulthandler.dump_traceback_later(HANGS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def scene(taught: Taught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    (tmp_path / "here").mkdir()
    for name in ("exact", "plain"):
        shutil.copytree(taught.folder / name, tmp_path / name)
    monkeypatch.chdir(tmp_path / "here")
    good, weights = taught.folder / "good", taught.folder / "vit.safetensors"
    shop, shelf = tmp_path / "exact", tmp_path / "plain"
    return Scene(taught.exact, taught.plain, shop, shelf, good, weights, tmp_path / "here", monkeypatch)


def looked_at(folder: Path) -> dict[str, str]:
    """Every file and folder below, with a hash of what is in it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        regular = path.is_file() and not path.is_symlink()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if regular else oct(path.lstat().st_mode)
        found[path.relative_to(folder).as_posix()] = content
    return found


def knows(classifier: ContinualClassifier) -> list[Any]:
    """All that a failed call must leave as it was."""
    weight = classifier.learner.head.weight.detach()
    return [
        *classifier.labels,
        len(classifier.lessons),
        classifier.counts(),
        weight.shape,
        round(float(weight.double().sum()), 6),
    ]


def learn(data: Callable[[], Any], labels: Any, scene: Scene) -> Callable[[], object]:
    return lambda: scene.exact.learn(data(), labels)


def learn_path(path: Callable[[Path], Path | str], scene: Scene) -> Callable[[], object]:
    found = path(scene.here)
    return lambda: scene.exact.learn([(found, "a")])


def only(picture: Callable[[], Any]) -> Callable[[], list[Any]]:
    return lambda: [picture()]


def new(values: dict[str, Any], scene: Scene) -> Callable[[], object]:
    return lambda: ContinualClassifier(scene.weights, **values)


def ask(data: Callable[[Path], Any], given: dict[str, Any], scene: Scene) -> Callable[[], object]:
    found = data(scene.here)
    return lambda: scene.exact.predict(found, **given)


def change(verb: str, *given: Any) -> Callable[[Scene], Callable[[], object]]:
    return lambda scene: lambda: getattr(scene.exact, verb)(*given)


def save_in(place: Callable[[Path], Path | str], scene: Scene) -> Callable[[], object]:
    return partial(scene.exact.save, place(scene.here))


def load_from(place: Callable[[Path], Path | str], scene: Scene) -> Callable[[], object]:
    return partial(ContinualClassifier.load, place(scene.here))


def file(here: Path) -> Path:
    (here / "x").write_text("a file")
    return here / "x"


def other(scene: Scene, **values: Any) -> ContinualClassifier:
    found = ContinualClassifier(scene.weights, **{"projections": 40, **values})
    found.learn([PICTURE, PICTURE + 9], ["x", "y"])
    return found


def from_tables() -> Iterator[Case]:
    for name, (data, labels, message) in DATA.items():
        yield Case(f"learn: {name}", partial(learn, data, labels), message)
    for name, (picture, message) in PICTURES.items():
        yield Case(f"learn: {name}", partial(learn, only(picture), ["a"]), message)
    for name, (path, message) in PATHS.items():
        yield Case(f"learn: {name}", partial(learn_path, path), message)
    for name, (label, message) in LABELS.items():
        yield Case(f"learn: label: {name}", partial(learn, only(lambda: PICTURE), [label]), message)
    for name, (values, message) in VALUES.items():
        yield Case(f"new: {name}", partial(new, values), message)
    for name, (asked, given, message) in ASKED.items():
        yield Case(f"predict: {name}", partial(ask, asked, given), message)


CASES = [
    *from_tables(),
    *(Case(f"forget: {label!r}", change("forget", label), "no such class") for label in ("z", None, "", 3, ["a"])),
    *(Case(f"rename: {label!r}", change("rename", label, "z"), "no such class") for label in ("z", None, "", 3, ["a"])),
    *(Case(f"rename: to {label!r}", change("rename", "a", label), LABEL) for label in ("", "\t", 5, None, "a\nb")),
    *(Case(f"take out: {lesson!r}", change("take_out", lesson), "is not there") for lesson in (0, -1, 99, "1", None)),
    Case("rename: to itself", change("rename", "a", "a"), "is its name already"),
    Case("rename: to unknown", change("rename", "a", "unknown"), "like none that were learned"),
    Case("rename: to 300 characters", change("rename", "a", "a" * 300), "300 characters"),
    Case("rename: onto another by nearest mean", lambda s: lambda: s.plain.rename("a", "b"), "cannot make one class"),
    Case("forget: by nearest mean", lambda s: lambda: s.plain.forget("a"), "cannot take a class out"),
    Case("take out: by nearest mean", lambda s: lambda: s.plain.take_out(1), "cannot take a lesson out"),
    Case("learn: labels beside a folder", lambda s: lambda: s.exact.learn(s.good, ["a"]), "names of its class folders"),
    Case("learn: a folder that is not there", lambda s: lambda: s.exact.learn("gone"), "no such file or folder"),
    Case("learn: a folder of no user", lambda s: lambda: s.exact.learn("~nobody-of-this-name/x"), "no such user"),
    Case("predict: before learning", lambda s: lambda: ContinualClassifier(s.weights).predict(PICTURE), "learn first"),
    Case("predict: shares of no file", lambda s: lambda: s.exact.predict_proba([s.here / "gone.png"]), "no such file"),
    Case("predict: the best of none", lambda s: lambda: s.exact.top(PICTURE, k=0), "top = 0"),
    Case(
        "predict: less than none similar",
        lambda s: lambda: list(s.exact.predictions([PICTURE], similar=-1)),
        "similar = -1: must be a whole number",
    ),
    Case("merge: with itself", lambda s: lambda: s.exact.merge(s.exact), "another than itself"),
    Case("merge: with nothing", lambda s: lambda: s.exact.merge(None), "takes a classifier"),  # type: ignore[arg-type]
    Case("merge: with a path", lambda s: lambda: s.exact.merge(s.shop), "takes a classifier"),  # type: ignore[arg-type]
    Case("merge: with another method", lambda s: lambda: s.exact.merge(s.plain), "cannot be merged"),
    Case("merge: into another method", lambda s: lambda: s.plain.merge(s.exact), "cannot be merged"),
    Case("merge: with other values", lambda s: partial(s.exact.merge, other(s, projections=30)), "the same values"),
    Case("merge: with another size", lambda s: partial(s.exact.merge, other(s, image_size=64)), "the same values"),
    Case("save: onto a file", partial(save_in, file), "is a file"),
    Case("save: below a file", partial(save_in, lambda here: file(here) / "shop"), "Not a directory|is a file"),
    Case("save: among other things", partial(save_in, note), "other things in it"),
    Case("save: in a name that is too long", partial(save_in, lambda here: here / ("a" * 300)), "too long"),
    Case("save: in a name with a NUL", partial(save_in, lambda here: "a\0b"), "null"),
    Case("save: while another is at work", lambda s: lambda: locked_save(s), "another process is at work"),
    Case("load: a file", partial(load_from, file), "no classifier is here"),
    Case("load: nothing", partial(load_from, lambda here: here / "x"), "no classifier is here"),
    Case("load: an empty folder", partial(load_from, lambda here: here), "no classifier is here"),
    Case("load: no name", partial(load_from, lambda here: ""), "no classifier is here"),
    Case("load: a folder as model", partial(load_from, lambda here: folder_as_model(here)), "no classifier is here"),
    Case("load: a FIFO as model", partial(load_from, lambda here: fifo_as_model(here)), "no classifier is here"),
    Case("load: text as model", partial(load_from, lambda here: text_as_model(here)), "damaged, or no classifier"),
    Case("load: weights as model", lambda s: lambda: ContinualClassifier.load(weights_as_model(s)), "no classifier of"),
    Case(
        "load: on another backbone", lambda s: lambda: files.load(s.shop, backbone="vit-glyphs"), "does not fit|anoth"
    ),
    Case("load: on no backbone", lambda s: lambda: files.load(s.shop, backbone="gone.npz"), "no such file"),
    Case("load: on a folder", lambda s: lambda: files.load(s.shop, backbone=s.here), "does not fit"),
    Case("load: on text", lambda s: lambda: files.load(s.shop, backbone=text_as_weights(s.here)), "does not fit"),
    Case("load: on a changed backbone", lambda s: lambda: files.load(s.shop, backbone=changed(s)), "another backbone"),
    Case("learn: on a backbone of nan", lambda s: lambda: learn_on_nan(s, "closed-form"), "is not a number"),
    Case("learn: on a backbone of nan by nearest mean", lambda s: lambda: learn_on_nan(s, "nearest-mean"), "are none"),
]


def locked_save(scene: Scene) -> None:
    with files.alone(scene.shop):
        scene.exact.save(scene.shop)


def folder_as_model(here: Path) -> Path:
    (here / files.MODEL).mkdir()
    return here


def fifo_as_model(here: Path) -> Path:
    os.mkfifo(here / files.MODEL)
    return here


def text_as_model(here: Path) -> Path:
    (here / files.MODEL).write_text("no model at all")
    return here


def weights_as_model(scene: Scene) -> Path:
    shutil.copyfile(scene.weights, scene.shop.parent / "here" / files.MODEL)
    return scene.here


def text_as_weights(here: Path) -> Path:
    (here / "vit.safetensors").write_text("no weights at all")
    return here / "vit.safetensors"


def changed(scene: Scene, value: float = 0.5) -> Path:
    path = scene.here / "other.safetensors"
    save_file({name: weight + value for name, weight in load_file(scene.weights).items()}, path, metadata=SIZES)
    return path


def learn_on_nan(scene: Scene, method: str) -> None:
    ContinualClassifier(changed(scene, torch.nan), method=method).learn([PICTURE, PICTURE + 9], ["a", "b"])


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_in_python_it_is_refused(case: Case, scene: Scene) -> None:
    act = case.make(scene)
    before, known = looked_at(scene.shop.parent), [knows(scene.exact), knows(scene.plain)]
    with pytest.raises((ValueError, OSError), match=case.message) as caught:
        act()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2000
    changes = {
        name for name in looked_at(scene.shop.parent).items() ^ before.items() if not name[0].startswith("here/")
    }
    assert not changes
    assert [knows(scene.exact), knows(scene.plain)] == known


def typed(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def class_folders(here: Path, *names: str) -> Path:
    """Pictures of these classes, two each."""
    return write_images(here / "data", [f"{name}/{number}.png" for name in names for number in range(2)])


def depths(here: Path) -> Path:
    return write_images(here / "data", ["a/1.png", "b/deep/in/1.png"])


def folders(here: Path, *names: str) -> Path:
    for name in names:
        (here / "data" / name).mkdir(parents=True)
    return here / "data"


def table(content: bytes, scene: Scene) -> tuple[object, ...]:
    write_images(scene.here, ["a/0.png", "b/0.png"])
    (scene.here / "table.csv").write_bytes(content)
    return "learn", scene.shop, scene.here / "table.csv"


def archive(make: Callable[[Path], Path], scene: Scene) -> tuple[object, ...]:
    return "learn", scene.shop, make(scene.here)


def one_bad(scene: Scene) -> Path:
    (class_folders(scene.here, "a", "b") / "a" / "bad.png").write_text("no picture")
    return scene.here / "data"


def all_bad(scene: Scene) -> Path:
    for label in "ab":
        (scene.here / "data" / label).mkdir(parents=True)
        (scene.here / "data" / label / "bad.png").write_text("no picture")
    return scene.here / "data"


def without_versions(scene: Scene) -> Path:
    shutil.rmtree(scene.shop / files.VERSIONS)
    return scene.shop


def with_bad_version(scene: Scene) -> Path:
    path = scene.shop / files.VERSIONS / "0001.safetensors"
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    return scene.shop


def without_backbone(scene: Scene, name: str = "gone.safetensors") -> Path:
    return with_header(scene.shop, setting("backbone/name", str(scene.here / name)))


def forgetful(scene: Scene) -> Path:
    """A classifier that has forgotten all."""
    classifier = ContinualClassifier.load(scene.shop)
    for label in classifier.labels:
        classifier.forget(label)
    classifier.save(scene.shop)
    return scene.shop


NEW = ("learn", "new-shop")
TYPED = [
    *(Typed(f"learn: {name}", partial(table, content), message) for name, (content, message) in TABLES.items()),
    *(Typed(f"learn: {name}", partial(archive, make), message) for name, (make, message) in ARCHIVES.items()),
    Typed("learn: nothing", lambda s: ("learn", s.shop), "Missing argument"),
    Typed("learn: a folder that is not there", lambda s: ("learn", s.shop, "gone"), "no such file or folder"),
    Typed("learn: an empty folder", lambda s: ("learn", s.shop, s.here), "holds no files"),
    Typed("learn: empty class folders", lambda s: ("learn", s.shop, folders(s.here, "a", "b")), "holds no files"),
    Typed("learn: a picture", lambda s: ("learn", s.shop, s.good / "a" / "0.png"), "neither a folder nor"),
    Typed("learn: a folder of pictures without classes", lambda s: ("learn", s.shop, s.good / "a"), "no class folder"),
    Typed("learn: itself", lambda s: ("learn", s.shop, s.shop), "different depths|no image|no class folder"),
    Typed("learn: pictures at different depths", lambda s: ("learn", s.shop, depths(s.here)), "different depths"),
    Typed("learn: a folder of text", lambda s: ("learn", s.shop, note(s.here)), "no class folder"),
    Typed("learn: no picture among the files", lambda s: ("learn", s.shop, all_bad(s)), "no image that can be read"),
    Typed("learn: strictly", lambda s: ("learn", s.shop, one_bad(s), "--strict"), "bad.png: not an image"),
    Typed("learn: the class unknown", lambda s: ("learn", s.shop, class_folders(s.here, "a", "unknown")), "like none"),
    Typed("learn: a class of spaces", lambda s: ("learn", s.shop, class_folders(s.here, "a", "  ")), "can be printed"),
    Typed("learn: a class with spaces", lambda s: ("learn", s.shop, class_folders(s.here, "a", "b ")), "be printed"),
    Typed("learn: into a file", lambda s: ("learn", file(s.here), s.good), "is a file"),
    Typed("learn: below a file", lambda s: ("learn", file(s.here) / "shop", s.good), "Not a directory|is a file"),
    Typed("learn: into the present folder", lambda s: ("learn", note(s.here) and ".", s.good), "other things in it"),
    Typed("learn: into no name", lambda s: ("learn", note(s.here) and "", s.good), "other things in it"),
    Typed("learn: into the pictures", lambda s: ("learn", f"{class_folders(s.here, 'a', 'b')}/", s.good), "things in"),
    Typed("learn: into a name that is too long", lambda s: ("learn", "a" * 300, s.good), "too long"),
    Typed("learn: an image size of zero", lambda s: (*NEW, s.good, "--image-size", 0), "image_size = 0"),
    Typed("learn: an image size below zero", lambda s: (*NEW, s.good, "--image-size", -8), "image_size = -8"),
    Typed("learn: an image size that does not fit", lambda s: (*NEW, s.good, "--image-size", 33), "image_size = 33"),
    Typed("learn: an image size beyond memory", lambda s: (*NEW, s.good, "--image-size", 10**8), "be at most 4096"),
    Typed("learn: an image size in words", lambda s: (*NEW, s.good, "--image-size", "large"), "Invalid value"),
    Typed("learn: another image size", lambda s: ("learn", s.shop, s.good, "--image-size", 64), "cannot be changed"),
    Typed("learn: a method that is not there", lambda s: (*NEW, s.good, "--method", "svm"), "must be one of"),
    Typed("learn: another method", lambda s: ("learn", s.shop, s.good, "--method", "l2p"), "was made with closed-form"),
    Typed("learn: rehearse nothing", lambda s: (*NEW, s.good, "--method", "er", "--rehearse", 0), "rehearse = 0"),
    Typed("learn: rehearse by closed form", lambda s: (*NEW, s.good, "--rehearse", 5), "keeps no images"),
    Typed("learn: rehearse later", lambda s: ("learn", s.shop, s.good, "--rehearse", 5), "cannot be changed"),
    Typed("learn: thumbnails later", lambda s: ("learn", s.shop, s.good, "--thumbnails"), "cannot be changed"),
    Typed("learn: keep held out later", lambda s: ("learn", s.shop, s.good, "--keep-held-out"), "cannot be changed"),
    Typed("learn: on no backbone", lambda s: (*NEW, s.good, "--backbone", "gone.safetensors"), "no such file"),
    Typed("learn: on a picture", lambda s: (*NEW, s.good, "--backbone", s.good / "a" / "0.png"), "must end in one of"),
    Typed("learn: on text", lambda s: (*NEW, s.good, "--backbone", text_as_weights(s.here)), "not a weights file"),
    Typed("learn: on an empty folder", lambda s: (*NEW, s.good, "--backbone", s.here), "config.json"),
    Typed(
        "learn: on another backbone", lambda s: ("learn", s.shop, s.good, "--backbone", changed(s)), "taught on another"
    ),
    Typed("learn: on a backbone that is gone", lambda s: ("learn", without_backbone(s), s.good), "--backbone FILE"),
    Typed("learn: an option that is not there", lambda s: (*NEW, s.good, "--epochs", 3), "No such option"),
    Typed("predict: nothing", lambda s: ("predict", s.shop), "Missing argument"),
    Typed("predict: no classifier", lambda s: ("predict", s.here, s.good), "no classifier is here"),
    Typed("predict: a file that is not there", lambda s: ("predict", s.shop, "gone.png"), "no such file or folder"),
    Typed("predict: an empty folder", lambda s: ("predict", s.shop, s.here), "holds no picture"),
    Typed("predict: text", lambda s: ("predict", s.shop, one_bad(s) / "a" / "bad.png"), "1 of 1 files could not"),
    Typed("predict: text in CSV", lambda s: ("predict", s.shop, all_bad(s), "--csv"), "2 of 2 files could not"),
    Typed("predict: text in JSON", lambda s: ("predict", s.shop, all_bad(s), "--json"), "2 of 2 files could not"),
    Typed("predict: both CSV and JSON", lambda s: ("predict", s.shop, s.good, "--csv", "--json"), "give one of them"),
    Typed("predict: the best none", lambda s: ("predict", s.shop, s.good, "--top", 0), "Invalid value"),
    Typed("predict: the best some", lambda s: ("predict", s.shop, s.good, "--top", "some"), "Invalid value"),
    Typed("predict: more than sure", lambda s: ("predict", s.shop, s.good, "--sure", 99), "sure = 99.0: must be"),
    Typed("predict: sure of nan", lambda s: ("predict", s.shop, s.good, "--sure", "nan"), "sure = nan"),
    Typed("predict: sure below zero", lambda s: ("predict", s.shop, s.good, "--sure", -1), "sure = -1.0"),
    Typed("predict: sure in words", lambda s: ("predict", s.shop, s.good, "--sure", "very"), "Invalid value"),
    Typed("predict: all is forgotten", lambda s: ("predict", forgetful(s), s.good), "learn first"),
    Typed("predict: a backbone that is gone", lambda s: ("predict", without_backbone(s), s.good), "--backbone FILE"),
    Typed("predict: another backbone", lambda s: ("predict", s.shop, s.good, "--backbone", changed(s)), "taught on"),
    Typed("evaluate: a folder that is not there", lambda s: ("evaluate", s.shop, "gone"), "no such file or folder"),
    Typed("evaluate: an empty folder", lambda s: ("evaluate", s.shop, s.here), "holds no files"),
    Typed("evaluate: a picture", lambda s: ("evaluate", s.shop, s.good / "a" / "0.png"), "neither a folder nor"),
    Typed("evaluate: no picture", lambda s: ("evaluate", s.shop, all_bad(s)), "no picture that can be read"),
    Typed("evaluate: no classifier", lambda s: ("evaluate", s.good, s.good), "no classifier is here"),
    Typed("evaluate: all is forgotten", lambda s: ("evaluate", forgetful(s), s.good), "learn first"),
    Typed("forget: another class", lambda s: ("forget", s.shop, "zebra"), "'zebra': no such class; it knows a, b, c"),
    Typed("forget: no class", lambda s: ("forget", s.shop, ""), "no such class"),
    Typed("forget: by nearest mean", lambda s: ("forget", s.shelf, "a"), "cannot take a class out"),
    Typed("forget: no classifier", lambda s: ("forget", s.here, "a"), "no classifier is here"),
    Typed("forget: a file", lambda s: ("forget", file(s.here), "a"), "no classifier is here"),
    Typed("rename: another class", lambda s: ("rename", s.shop, "zebra", "horse"), "no such class"),
    Typed("rename: to itself", lambda s: ("rename", s.shop, "a", "a"), "is its name already"),
    Typed("rename: to nothing", lambda s: ("rename", s.shop, "a", ""), "text that can be printed"),
    Typed("rename: to unknown", lambda s: ("rename", s.shop, "a", "unknown"), "like none that were learned"),
    Typed("rename: to two lines", lambda s: ("rename", s.shop, "a", "b\nc"), "text that can be printed"),
    Typed("rename: onto another by nearest mean", lambda s: ("rename", s.shelf, "a", "b"), "cannot make one class of"),
    Typed("rename: no classifier", lambda s: ("rename", s.here, "a", "b"), "no classifier is here"),
    Typed("merge: without a name", lambda s: ("merge", s.shop, s.shop), "Missing option"),
    Typed("merge: no first", lambda s: ("merge", s.here, s.shop, "--into", "both"), "no classifier is here"),
    Typed("merge: no second", lambda s: ("merge", s.shop, s.here, "--into", "both"), "no classifier is here"),
    Typed("merge: into the first", lambda s: ("merge", s.shop, s.shop, "--into", s.shop), "is here already"),
    Typed("merge: into a file", lambda s: ("merge", s.shop, s.shop, "--into", file(s.here)), "is a file"),
    Typed("merge: into other things", lambda s: ("merge", s.shop, s.shelf, "--into", note(s.here)), "other things in"),
    Typed("merge: with nearest mean", lambda s: ("merge", s.shop, s.shelf, "--into", "both"), "cannot be merged"),
    Typed("merge: a deep place", lambda s: ("merge", s.shop, s.shelf, "--into", "deep/in/both"), "cannot be merged"),
    Typed("undo: no classifier", lambda s: ("undo", s.here), "no classifier is here"),
    Typed("undo: nothing before", lambda s: ("undo", without_versions(s)), "no version before this one"),
    Typed("undo: a damaged version", lambda s: ("undo", with_bad_version(s)), "0001.safetensors: damaged"),
    Typed("undo: lesson 0", lambda s: ("undo", s.shop, "--lesson", 0), "lesson 0: is not there"),
    Typed("undo: lesson 99", lambda s: ("undo", s.shop, "--lesson", 99), "there are 1, 2"),
    Typed("undo: lesson -1", lambda s: ("undo", s.shop, "--lesson", -1), "lesson -1: is not there"),
    Typed("undo: lesson one", lambda s: ("undo", s.shop, "--lesson", "one"), "Invalid value"),
    Typed("undo: lesson by nearest mean", lambda s: ("undo", s.shelf, "--lesson", 1), "cannot take a lesson out"),
    Typed("undo: lesson of no classifier", lambda s: ("undo", s.here, "--lesson", 1), "no classifier is here"),
    Typed("show: no classifier", lambda s: ("show", s.here), "no classifier is here"),
    Typed("show: a file", lambda s: ("show", file(s.here)), "no classifier is here"),
    Typed("show: a backbone that is gone", lambda s: ("show", without_backbone(s)), "cannot be opened"),
    Typed("show: a model of text", lambda s: ("show", text_as_model(s.here)), "damaged, or no classifier"),
    Typed("history: no classifier", lambda s: ("history", s.here), "no classifier is here"),
    Typed("history: a model of text", lambda s: ("history", text_as_model(s.here)), "damaged, or no classifier"),
    Typed("history: weights", lambda s: ("history", weights_as_model(s)), "no classifier of ours"),
]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in TYPED])
def test_typed_it_is_refused(case: Typed, scene: Scene) -> None:
    words = case.make(scene)
    before = looked_at(scene.shop.parent)
    result = typed(*words)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2
    assert re.search(case.message, " ".join(result.stderr.replace("│", " ").split()))
    said = [line for line in result.stderr.splitlines() if not line.startswith(("note:", "reading images"))]
    assert len(said) == 1 or said[0].startswith("Usage:")
    assert "Traceback" not in result.output
    assert looked_at(scene.shop.parent) == before


@pytest.mark.parametrize("name", [*HEADERS, *STATES])
def test_a_header_that_lies_is_refused(name: str, scene: Scene) -> None:
    lies, folder = (HEADERS, scene.shop) if name in HEADERS else (STATES, scene.shelf)
    with_header(folder, lies[name])
    refused(folder)
    with suppress(BadFileError):
        files.read_header(folder)
        assert typed("history", folder).exit_code == 0


@pytest.mark.parametrize("name", [*TENSORS, *(f"{name}, by nearest mean" for name in STATE_TENSORS)])
def test_numbers_that_do_not_fit_are_refused(name: str, scene: Scene) -> None:
    changes, folder = (TENSORS, scene.shop) if name in TENSORS else (STATE_TENSORS, scene.shelf)
    with_tensor(folder, *changes[name.removesuffix(", by nearest mean")])
    refused(folder)


def refused(folder: Path) -> None:
    before = looked_at(folder)
    with pytest.raises(
        BadFileError, match=files.MODEL.replace(".", r"\.") + "|cannot be opened|another backbone"
    ) as caught:
        ContinualClassifier.load(folder)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2000
    assert looked_at(folder) == before


@pytest.mark.parametrize("number", range(FLIPPED))
def test_a_bit_that_a_disk_has_turned_is_noticed(number: int, scene: Scene) -> None:
    path = scene.shop / files.MODEL
    content = bytearray(path.read_bytes())
    place = number * (len(content) - 1) // (FLIPPED - 1)
    content[place] ^= 1 << number % 8
    path.write_bytes(content)
    refused(scene.shop)


@pytest.mark.parametrize("number", range(CUT))
def test_a_file_cut_off_is_refused(number: int, scene: Scene) -> None:
    path = scene.shop / files.MODEL
    path.write_bytes(path.read_bytes()[: number * path.stat().st_size // CUT])
    refused(scene.shop)


def test_files_damaged_in_many_ways_are_refused(scene: Scene) -> None:
    path = scene.shop / files.MODEL
    whole = path.read_bytes()
    for content in damaged(whole, 60, 1, fields=4000):
        path.write_bytes(content)
        if content != whole:
            refused(scene.shop)


def test_a_damaged_config_or_card_is_no_matter(scene: Scene) -> None:
    for name in (files.CONFIG, files.CARD):
        (scene.shop / name).write_bytes(b"\xff\0 no JSON")
    assert ContinualClassifier.load(scene.shop).labels == ("a", "b", "c")
    assert typed("rename", scene.shop, "a", "d").exit_code == 0
    assert '"d"' in (scene.shop / files.CONFIG).read_text()


class Among(NamedTuple):
    """What was said of files that lie among good pictures."""

    skipped: dict[str, str]
    errors: dict[str, str]
    learned: int
    told: str


@pytest.fixture(scope="module")
def among(taught: Taught, tmp_path_factory: pytest.TempPathFactory) -> Among:
    """A lesson and an answer of a folder with all of them, once; one more file must not be read by anyone."""
    folder = write_images(tmp_path_factory.mktemp("among"), ["x/1.png", "x/secret.png", "y/1.png"], first=80)
    (folder / "x" / "folder.png").mkdir()
    for name, put, _ in AMONG_PICTURES.values():
        put(folder / "x" / name)
    read = Path.read_bytes

    def read_bytes(path: Path) -> bytes:  # the tests may run as root, whom no mode keeps from reading
        if path.name == "secret.png":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read(path)

    classifier = ContinualClassifier(taught.folder / "vit.safetensors", projections=40)
    faulthandler.dump_traceback_later(HANGS, exit=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_bytes", read_bytes)
        lesson = classifier.learn(folder)
        answers = classifier.predict([path for path in sorted((folder / "x").iterdir()) if path.name != "folder.png"])
        told = typed("evaluate", taught.folder / "exact", folder, "--out", folder / "page.html").stderr
    faulthandler.cancel_dump_traceback_later()
    skipped = {Path(name).name: reason for name, reason in lesson.skipped}
    return Among(skipped, {Path(each.name).name: each.error for each in answers}, lesson.pictures, told)


@pytest.mark.parametrize("name", AMONG_PICTURES)
def test_a_file_among_pictures_is_skipped_and_counted(name: str, among: Among) -> None:
    file_name, _, message = AMONG_PICTURES[name]
    assert re.search(message, among.skipped[file_name])
    assert re.search(message, among.errors[file_name])


def test_the_others_are_learned(among: Among) -> None:
    assert among.learned == 2
    assert among.skipped["secret.png"] == "cannot be read: Permission denied"
    assert len(among.skipped) == len(AMONG_PICTURES) + 1
    assert [name for name, error in among.errors.items() if not error] == ["1.png"]
    assert f"{len(among.skipped)} files skipped" in among.told


def failing_disk(patch: pytest.MonkeyPatch, kind: int) -> FailingDisk:
    return FailingDisk(patch, lambda path: OSError(kind, os.strerror(kind), path))


@pytest.mark.parametrize("kind", [errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("verb", ["save", "save anew", "undo"])
def test_a_disk_that_is_full_at_any_moment(verb: str, kind: int, scene: Scene) -> None:
    """Either nothing changes and it is said, or the change is there."""
    folder = scene.here / "deep" / "shop" if verb == "save anew" else scene.shop
    disk = failing_disk(scene.patch, kind)
    before, refusals = looked_at(scene.shop.parent), 0
    scene.exact.new_thumbnails = {} if verb == "undo" else {1: b"one", 2: b"two"}
    for disk.left in range(100):
        error = failure(partial(files.undo, folder) if verb == "undo" else partial(scene.exact.save, folder))
        if error is None:
            break
        assert error.errno == kind
        assert looked_at(scene.shop.parent) == before
        refusals += 1
    disk.left = 10**9
    assert refusals > 5
    version, labels = {"save": (3, "abc"), "save anew": (1, "abc"), "undo": (1, "ab")}[verb]
    assert files.read_header(folder)["version"] == version == max(files.versions(folder))
    assert ContinualClassifier.load(folder).labels == tuple(labels)
    assert not list(folder.rglob("*.partial"))


def failure(act: Callable[[], object]) -> OSError | None:
    try:
        act()
    except OSError as error:
        return error
    return None


def test_a_full_disk_is_told_in_a_line(scene: Scene) -> None:
    twin = Path(shutil.copytree(scene.shop, scene.here / "twin"))
    new = write_images(scene.here / "new", [f"c/{n}.png" for n in range(6)], first=500)
    disk = failing_disk(scene.patch, errno.ENOSPC)
    before = looked_at(scene.shop.parent)
    for words in (
        ("forget", scene.shop, "a"),
        ("undo", scene.shop),
        ("learn", scene.shop, new),
        ("merge", scene.shop, twin, "--into", "both"),
    ):
        disk.left = 2
        result = typed(*words)
        assert result.exit_code == 2, words
        assert "No space left on device" in result.stderr
        assert looked_at(scene.shop.parent) == before


def test_some_files_that_are_no_pictures_are_told_and_the_others_answered(scene: Scene) -> None:
    result = typed("predict", scene.shop, one_bad(scene), "--csv")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 6
    assert result.stderr == "promptpool: 1 of 5 files could not be read\n"


def test_one_word_in_two_normal_forms_is_one_class(scene: Scene) -> None:
    """Folders of macOS have accents apart from their letters, and those of other systems have not."""
    composed, apart = "caf\u00e9", "cafe\u0301"
    classifier = ContinualClassifier(scene.weights, projections=40)
    classifier.learn(write_images(scene.here / "one", [f"{composed}/1.png", f"{apart}/2.png", "b/3.png"]))
    assert classifier.labels == ("b", composed)
    assert classifier.learn([(PICTURE, apart)]).new == ()
    assert classifier.counts() == {"b": 1, composed: 3}
    with pytest.raises(ValueError, match="is its name already"):
        classifier.rename(composed, apart)
    classifier.save(scene.here / "shop")
    assert "b" in typed("forget", scene.here / "shop", apart).stdout
    assert ContinualClassifier.load(scene.here / "shop").labels == ("b",)


def test_labels_are_words_and_not_paths(scene: Scene) -> None:
    """Small letters and capitals differ, and so do a word and a number; a slash or brackets do nothing."""
    labels = ["Cat", "cat", "animals/cat", "../../cat", "[/red]", "%s{0}", "1", "=1+1", "\N{CAT FACE}", "c" * 255]
    classifier = ContinualClassifier(scene.weights, projections=40, thumbnails=True)
    classifier.learn([PICTURE + number for number in range(len(labels))], labels)
    assert set(classifier.labels) == set(labels)
    classifier.save(scene.here / "[/shop]")
    assert not any("cat" in path.name.lower() for path in scene.here.parent.rglob("*"))
    for words in (
        ("show", "[/shop]"),
        ("history", "[/shop]"),
        ("predict", "[/shop]", scene.good, "--top", 10**9, "--csv"),
    ):
        assert typed(*words).exit_code == 0, words
    again = ContinualClassifier.load(scene.here / "[/shop]")
    assert set(again.labels) == set(labels)


def test_there_are_hundreds_of_bad_inputs() -> None:
    tables: tuple[Sized, ...] = (
        CASES,
        TYPED,
        HEADERS,
        STATES,
        TENSORS,
        STATE_TENSORS,
        AMONG_PICTURES,
        range(FLIPPED),
        range(CUT),
    )
    assert sum(len(table) for table in tables) >= 500
    for cases in (CASES, TYPED):
        names = [case.name for case in cases]
        assert len(set(names)) == len(names)
