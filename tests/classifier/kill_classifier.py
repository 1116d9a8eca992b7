"""Kills processes that are at work on a classifier, and looks at what they leave.

    python kill_classifier.py operations FOLDER              at every file operation of saving and of undo
    python kill_classifier.py lessons FOLDER METHOD          at every file operation of `promptpool learn`
    python kill_classifier.py moments FOLDER METHOD KILLS    at random moments of `promptpool learn`

Children are forked from a process that has imported everything, so that a life costs no start-up. After each death the
classifier must be whole, the old version or the new one, and whatever is done again must end as if nobody had died.
Prints what was counted, as JSON.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from image_files import write_images
from promptpool import ContinualClassifier
from promptpool.classifier import classifier as module
from promptpool.classifier import files, teaching
from promptpool.cli import app
from promptpool.training import Plan
from small_runs import write_weights

EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.copyfile", "shutil.rmtree"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
Answers = tuple[tuple[str, ...], tuple[tuple[str, float], ...]]


class Dying:
    """Ends its process before the n-th operation on files of a folder.

    If `torn`, at the n-th file that is written, of which half is there.
    """

    def __init__(self, folder: Path, left: int, torn: bool) -> None:
        self.folder, self.left, self.torn = str(folder), left, torn
        sys.addaudithook(self.hear)
        sync = os.fsync

        def dying_sync(number: int) -> None:
            if self.torn:
                self.count(number)
            sync(number)

        setattr(os, "fsync", dying_sync)  # noqa: B010  (of which no hook hears)

    def hear(self, event: str, given: tuple[Any, ...]) -> None:
        if event not in EVENTS or not str(given[0]).startswith(self.folder):
            return
        if not self.torn and (event != "open" or given[2] & WRITES):
            self.count()

    def count(self, number: int | None = None) -> None:
        self.left -= 1
        if self.left < 0:
            if number is not None:
                os.ftruncate(number, os.fstat(number).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)


def forked(work: Callable[[], object]) -> int:
    """The process of a child that works; its output goes nowhere."""
    child = os.fork()
    if child == 0:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number in (1, 2):
            os.dup2(nowhere, number)
        try:
            work()
        finally:
            os._exit(1 if sys.exc_info()[0] else 0)
    return child


def died(child: int) -> bool:
    """True if a child was killed; one that failed is an error."""
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError(f"a child ended with exit code {os.WEXITSTATUS(status)}")
    return os.WIFSIGNALED(status)


class Known(NamedTuple):
    """What a classifier on disk says."""

    version: int
    answers: Answers


def looked_at(folder: Path, asked: Path) -> Known:
    """What there is now: whole, with all earlier versions; version 0 if there is none yet."""
    if not files.is_classifier(folder):
        files.check_place(folder)  # the same command can be given again
        return Known(0, ((), ()))
    version = files.read_header(folder)["version"]
    earlier = [number for number in files.versions(folder) if number <= version]
    if earlier != list(range(1, version + 1)):
        raise AssertionError(f"versions {earlier} below {version}")
    for number in earlier:
        files._content(files._version(folder, number))
    classifier = ContinualClassifier.load(folder)
    found = classifier.predict(asked, top=1)
    return Known(version, (classifier.labels, tuple((each.guess, each.confidence) for each in found)))


def same(one: Answers, other: Answers, tolerance: float = 1e-4) -> bool:
    return one[0] == other[0] and all(
        label == as_label and abs(share - as_share) < tolerance
        for (label, share), (as_label, as_share) in zip(one[1], other[1], strict=True)
    )


def must_be(good: bool, what: str) -> None:
    if not good:
        raise AssertionError(what)


def tidy(folder: Path) -> None:
    """Nothing of the dead is left."""
    left = [path.name for path in folder.rglob("*") if path.suffix == ".partial" or path.name in (".lock", ".lesson")]
    must_be(not left, f"left over: {left}")
    must_be(files.versions(folder)[-1] == files.read_header(folder)["version"], "versions that are not finished")


class Place(NamedTuple):
    """A classifier of two classes on disk, and pictures of others."""

    base: Path
    more: Path
    asked: Path
    shop: Path  # where things happen


def prepared(folder: Path, method: str, pictures: int = 5) -> Place:
    weights = write_weights(folder / "vit.safetensors")
    first = write_images(folder / "first", [f"{label}/{n}.png" for label in "ab" for n in range(5)])
    more = write_images(folder / "more", [f"{label}/{n}.png" for label in "cd" for n in range(pictures)], first=40)
    asked = write_images(folder / "asked", [f"{n}.png" for n in range(4)], first=80)
    place = Place(folder / "base", more, asked, folder / "shop")
    given = {"projections": 30} if method == module.METHOD else {"prompt_length": 1}
    values: dict[str, Any] = {"method": method, "thumbnails": True, **given}

    def teach() -> None:
        classifier = ContinualClassifier(weights, **values)
        classifier.learn(first)
        classifier.save(place.base)
        classifier.rename("a", "z")
        classifier.save(place.base)

    must_be(not died(forked(teach)), "killed")
    return place


def again(place: Place, anew: bool = False) -> None:
    shutil.rmtree(place.shop, ignore_errors=True)
    if not anew:
        shutil.copytree(place.base, place.shop)


def swept(place: Place, work: Callable[[], object], looks: Callable[[], object], anew: bool = False) -> int:
    """Do work again and again, killed at every operation in turn; returns how often it was."""
    kills = 0
    for torn in (False, True):
        for left in range(1000):
            again(place, anew)
            if not died(forked(partial(dying, place.shop, left, torn, work))):
                break
            looks()
            kills += 1
    return kills


def dying(folder: Path, left: int, torn: bool, work: Callable[[], object]) -> None:
    Dying(folder, left, torn)
    work()


def operations(folder: Path) -> dict[str, int]:
    """Saving and undo, killed at every operation."""
    place = prepared(folder, module.METHOD, pictures=1)
    old = looked_at(place.base, place.asked)
    taught = ContinualClassifier.load(place.base)
    taught.learn(place.more)
    thumbnails = dict(taught.new_thumbnails)
    again(place)
    taught.save(place.shop)
    new = looked_at(place.shop, place.asked)

    def save() -> None:
        taught.new_thumbnails = dict(thumbnails)
        taught.save(place.shop)

    def looks(begun: Known) -> None:
        found = looked_at(place.shop, place.asked)
        must_be(found.version in (begun.version, begun.version + 1), f"version {found.version}")
        must_be(same(found.answers, (begun if found.version == begun.version else new).answers), "other answers")
        save()
        after = looked_at(place.shop, place.asked)
        must_be(after.version == found.version + 1 and same(after.answers, new.answers), "other answers after saving")
        tidy(place.shop)

    def looks_undone() -> None:
        found = looked_at(place.shop, place.asked)
        must_be(found.version in (1, 2), f"version {found.version}")
        if found.version == 2:
            must_be(same(found.answers, old.answers), "other answers")
            files.undo(place.shop)
        must_be(looked_at(place.shop, place.asked).answers[0] == ("a", "b"), "not undone")
        save()
        tidy(place.shop)

    none = Known(0, ((), ()))
    return {
        "save": swept(place, save, lambda: looks(old)),
        "save anew": swept(place, save, lambda: looks(none), anew=True),
        "undo": swept(place, lambda: files.undo(place.shop), looks_undone),
    }


def learn(place: Place) -> None:
    app(["learn", str(place.shop), str(place.more)], standalone_mode=False)


def finished(place: Place, old: Known, new: Known, method: str) -> int:
    """Look at what is there, and give the same command again; returns the version that was there."""
    found = looked_at(place.shop, place.asked)
    must_be(found.version in (old.version, new.version), f"version {found.version}")
    must_be(same(found.answers, (old if found.version == old.version else new).answers), "other answers")
    if found.version == old.version or method == module.METHOD:  # prompts would learn the lesson twice
        must_be(not died(forked(lambda: learn(place))), "killed")
        after = looked_at(place.shop, place.asked)
        must_be(after.version == found.version + 1, f"version {after.version}")
        must_be(same(after.answers, new.answers), f"other answers: {after.answers} and {new.answers}")
        tidy(place.shop)
    return found.version


def undisturbed(place: Place) -> tuple[Known, Known, float]:
    """What there is before and after a lesson that nobody kills, and the least time that one takes."""
    old, times = looked_at(place.base, place.asked), []
    for _ in range(3):
        again(place)
        begin = time.monotonic()
        must_be(not died(forked(lambda: learn(place))), "killed")
        times.append(time.monotonic() - begin)
    return old, looked_at(place.shop, place.asked), min(times)


def lessons(folder: Path, method: str) -> dict[str, int]:
    place = prepared(folder, method)
    old, new, _ = undisturbed(place)
    return {"learn": swept(place, lambda: learn(place), lambda: finished(place, old, new, method))}


def moments(folder: Path, method: str, kills: int) -> dict[str, int]:
    """Killed at random moments, up to three times before the command ends."""
    place = prepared(folder, method)
    old, new, seconds = undisturbed(place)
    lots = random.Random(1)  # noqa: S311
    counts = {"killed": 0, "too late": 0, "old": 0, "new": 0, "again in one lesson": 0}
    while counts["killed"] < kills:
        again(place)
        for life in range(lots.randint(1, 3)):
            if looked_at(place.shop, place.asked).version == new.version:
                break
            child = forked(lambda: learn(place))
            time.sleep(lots.uniform(0, seconds))
            os.kill(child, signal.SIGKILL)
            killed = died(child)
            counts["killed" if killed else "too late"] += 1
            counts["again in one lesson"] += life > 0
        counts["old" if finished(place, old, new, method) == old.version else "new"] += 1
    return counts


def short(**values: Any) -> Plan:
    """The plan of a method, with a few steps."""
    return replace(Plan(**values), epochs=4, least_steps=0)


def main() -> None:
    torch.set_num_threads(1)
    os.environ["PROMPTPOOL_FEATURES_GB"] = "1"
    teaching.SECONDS = 0.0  # every step is noted
    setattr(module, "Plan", short)  # noqa: B010
    what, folder, *rest = sys.argv[1:]
    if what == "operations":
        found = operations(Path(folder))
    elif what == "lessons":
        found = lessons(Path(folder), rest[0])
    else:
        found = moments(Path(folder), rest[0], int(rest[1]))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
