"""Versions change at one moment, on disk before that, and whatever fails leaves the last one."""

from __future__ import annotations

import errno
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from promptpool import ContinualClassifier
from promptpool.classifier import files
from promptpool.data.decoding import decode
from promptpool.errors import BadFileError
from promptpool.files import write_whole
from promptpool.serve import engine as engine_module
from promptpool.serve.answering import Wish
from promptpool.serve.batches import Answered
from promptpool.serve.engine import LocalEngine
from promptpool.serve.jobs import Job, Jobs
from promptpool.serve.limits import RefusedError
from served import LABELS, lesson, picture, until, write_classifier
from served import engine as engine_fixture
from served import shop as shop_fixture
from served import taught as taught_fixture

engine, shop, taught = engine_fixture, shop_fixture, taught_fixture


def ask(engine: LocalEngine, label: str = "red") -> Answered:
    pixels = decode(picture(label, 99), label, engine.present.classifier.backbone.image_size)
    return engine.ask([pixels], [Wish(label)]).result(60)


def add(engine: LocalEngine, labels: tuple[str, ...] = ("blue",), first: int = 0) -> None:
    engine.lessons.add(
        [(f"{label}{n}.png", label, content) for n, (label, content) in enumerate(lesson(labels, first))]
    )


def over(engine: LocalEngine, job: Job) -> Job:
    found: Job = until(lambda: (now := engine.jobs.find(job.id)) and now.over and now)
    until(lambda: not engine._changing.locked())
    return found


class Held:
    """A lesson that begins when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go, learn = threading.Event(), threading.Event(), ContinualClassifier.learn

        def held(classifier: ContinualClassifier, data: Any, **values: Any) -> Any:
            self.begun.set()
            assert self.go.wait(60)
            return learn(classifier, data, **values)

        monkeypatch.setattr(ContinualClassifier, "learn", held)


def test_answers_go_on_while_it_learns(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    add(engine)
    job = engine.learn()
    assert held.begun.wait(60)
    for change in (engine.learn, engine.undo, lambda: engine.forget("red"), lambda: engine.rename("red", "rot")):
        with pytest.raises(RefusedError, match="a lesson is being learned") as refusal:
            change()
        assert refusal.value.status == 409
    assert ask(engine).version == 1
    add(engine, ("yellow",))
    held.go.set()
    found = over(engine, job)
    assert found.state == "done"
    assert found.report is not None
    assert found.report["new"] == ["blue"]
    assert found.report["version"] == ask(engine).version == 2
    assert files.read_header(engine.folder)["version"] == 2
    assert {each.label for each in engine.lessons.waiting} == {"yellow"}, "those that came later wait"
    assert engine.present.classifier.lessons[-1].source == job.id


def test_each_answer_is_of_the_old_version_or_the_new(engine: LocalEngine) -> None:
    add(engine, ("blue", "yellow"))
    found, stop = list[Answered](), threading.Event()

    def go_on() -> None:
        while not stop.is_set():
            found.append(ask(engine))

    threads = [threading.Thread(target=go_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    over(engine, engine.learn())
    until(lambda: found and found[-1].version == 2)
    stop.set()
    for thread in threads:
        thread.join()
    classes = {1: 2, 2: 4}
    for answered in found:
        assert len(answered.answers[0].top) == classes[answered.version]


def test_a_lesson_that_fails_waits_again(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    add(engine)
    for error, sentence in (
        (ValueError(f"{engine.folder}/lessons/x.png: no picture"), "lessons/x.png: no picture"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (KeyError("odd"), "something went wrong; the server's log says what"),
    ):

        def fail(*_: Any, error: BaseException = error, **values: Any) -> None:
            del values
            raise error

        monkeypatch.setattr(ContinualClassifier, "learn", fail)
        found = over(engine, engine.learn())
        monkeypatch.undo()
        assert (found.state, found.error) == ("failed", sentence)
        assert len(engine.lessons.waiting) == 6
    assert ask(engine).version == 1
    assert over(engine, engine.learn()).state == "done"


def test_a_damaged_picture_is_skipped_by_the_name_that_it_came_with(engine: LocalEngine) -> None:
    add(engine)
    broken = engine.lessons.waiting[2]
    (engine.lessons.folder / broken.file).write_bytes(b"rotten")
    report = over(engine, engine.learn()).report
    assert report is not None
    assert [each["name"] for each in report["skipped"]] == [broken.name] == ["blue2.png"]
    assert report["pictures"] == 5


@pytest.mark.parametrize("method", ["closed-form", "nearest-mean"])
def test_killed_between_the_version_and_its_end_nothing_is_learned_twice(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_classifier(tmp_path / "shop", method)
    engine = LocalEngine(folder)
    add(engine)
    monkeypatch.setattr(engine.lessons, "learned", lambda job: None)  # what a kill just before it would leave
    over(engine, engine.learn())
    engine.close()
    again = LocalEngine(folder)
    assert again.present.number == 2
    assert again.lessons.waiting == []
    assert again.present.facts.counts["blue"] == 6
    again.close()


def test_a_lesson_that_is_saved_is_learned_whatever_fails_then(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("whoever answers is gone")

    engine = LocalEngine(shop)
    add(engine)
    monkeypatch.setattr(engine._answerer, "install", broken)
    assert over(engine, engine.learn()).state == "failed"
    assert engine.lessons.waiting == []
    assert ask(engine).version == 1
    engine.close()
    again = LocalEngine(shop)
    assert (again.present.number, again.lessons.waiting) == (2, [])
    again.close()


def test_a_full_disk_leaves_the_version_and_the_lesson(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        path.with_name(f".{path.name}.partial").write_bytes(content[:10])
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    add(engine)
    monkeypatch.setattr(files, "write_whole", full)
    assert over(engine, engine.learn()).error == "No space left on device"
    with pytest.raises(OSError, match="No space left"):
        engine.forget("red")
    monkeypatch.undo()
    assert not list(engine.folder.rglob("*.partial"))
    assert len(engine.lessons.waiting) == 6
    assert ask(engine).version == 1
    assert engine.present.classifier.labels == ContinualClassifier.load(engine.folder).labels
    assert over(engine, engine.learn()).state == "done"


def test_a_disk_that_is_full_for_the_card_only_has_the_version(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = write_whole

    def full(path: Path, content: bytes) -> None:
        if path.name in (files.CARD, files.CONFIG):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, content)

    add(engine)
    monkeypatch.setattr(files, "write_whole", full)
    assert over(engine, engine.learn()).state == "done"
    assert ask(engine).version == 2
    assert engine.undo() == 1
    assert ask(engine).version == 1
    assert engine.lessons.waiting == []


def test_a_lesson_of_copies_makes_no_version(engine: LocalEngine) -> None:
    add(engine, ("red",))
    report = over(engine, engine.learn()).report
    assert report is not None
    assert (report["lesson"], report["version"], report["pictures"], report["duplicates"]) == (0, 1, 0, 6)
    assert engine.lessons.waiting == []
    assert files.versions(engine.folder) == [1]
    assert engine.rename("red", "rot") == 2
    add(engine, ("red",))
    report = over(engine, engine.learn()).report
    assert report is not None
    assert report["known_as"] == [{"label": "red", "learned_as": "rot"}]


def test_classes_go_and_come_back(engine: LocalEngine) -> None:
    assert engine.forget("red") == 2
    assert engine.rename("green", "grün") == 3
    assert engine.present.classifier.labels == ("grün",)
    assert engine.undo() == 2
    assert engine.undo() == 1
    assert set(engine.present.classifier.labels) == set(LABELS[:2])
    with pytest.raises(RefusedError, match="there is no version before this one"):
        engine.undo()
    with pytest.raises(RefusedError, match="'zebra': no such class") as refusal:
        engine.forget("zebra")
    assert refusal.value.status == 404


def test_a_method_that_cannot_forget_says_so(tmp_path: Path) -> None:
    engine = LocalEngine(write_classifier(tmp_path / "shop", "nearest-mean"))
    with pytest.raises(RefusedError, match="cannot take a class out") as refusal:
        engine.forget("red")
    assert refusal.value.status == 409
    assert not engine.present.facts.exact
    found = engine.present.facts.confusion
    assert found is not None
    assert [sum(row) for row in found.counts] == [1, 1], "of those that were held out"
    assert ask(engine).version == 1
    engine.close()


def test_prompts_are_counted(tmp_path: Path) -> None:
    engine = LocalEngine(write_classifier(tmp_path / "shop", "l2p"))
    counts = engine.present.classifier.prompt_counts()
    assert counts is not None
    assert (len(counts), sum(counts) > 0) == (10, True)
    assert engine.present.facts.confusion is None, "it cannot know"
    prompts = ask(engine).answers[0].prompts
    assert prompts is not None
    assert len(set(prompts)) == 5
    engine.close()


def test_a_new_classifier_learns_from_nothing(tmp_path: Path) -> None:
    engine = LocalEngine(write_classifier(tmp_path / "shop", labels=()))
    assert engine.present.facts.accuracies == {}
    assert engine.present.facts.confusion is None
    with pytest.raises(RefusedError, match="nothing was learned yet: teach it first"):
        ask(engine)
    add(engine, ("red", "green"))
    assert over(engine, engine.learn()).state == "done"
    assert ask(engine).version == 2
    engine.close()


def test_the_folder_is_held_by_one(engine: LocalEngine) -> None:
    with pytest.raises(BadFileError, match="another process is at work on this classifier"):
        LocalEngine(engine.folder)
    assert ContinualClassifier.load(engine.folder).labels, "others may look"


def test_one_that_cannot_be_opened_lets_go(shop: Path) -> None:
    (shop / files.MODEL).write_bytes(b"damaged")
    for _ in range(2):
        with pytest.raises(BadFileError, match="damaged"):
            LocalEngine(shop)


def test_a_lesson_under_way_is_given_up_at_the_end(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, held = LocalEngine(shop), Held(monkeypatch)
    add(engine)
    job = engine.learn()
    assert held.begun.wait(60)
    closing = threading.Thread(target=engine.close)
    closing.start()
    until(lambda: not engine.ready)
    held.go.set()
    closing.join()
    found = engine.jobs.find(job.id)
    assert found is not None
    assert found.error == "the server was stopped; the pictures wait for its next start"
    again = LocalEngine(shop)
    assert (again.present.number, len(again.lessons.waiting)) == (1, 6)
    again.close()


def test_questions_under_way_are_answered_at_the_end(shop: Path) -> None:
    engine = LocalEngine(shop)
    size = engine.present.classifier.backbone.image_size
    asked = [engine.ask([np.zeros((3, size, size), dtype=np.uint8)], [Wish("a")]) for _ in range(40)]
    engine.close()
    assert all(each.result(1).version == 1 for each in asked)


def test_the_confusion_counts_what_was_learned(engine: LocalEngine) -> None:
    found = engine.present.facts.confusion
    assert found is not None
    assert set(found.labels) == {"red", "green"}
    assert [sum(row) for row in found.counts] == [6, 6]
    shares = engine.present.facts.accuracies
    for place, label in enumerate(found.labels):
        assert found.counts[place][place] / 6 == pytest.approx(shares[label])


def test_old_jobs_are_forgotten_and_running_ones_are_not() -> None:
    jobs = Jobs(most=3)
    running = jobs.begin()
    for _ in range(6):
        jobs.change(jobs.begin().id, state="done")
    assert jobs.active == running
    assert len(jobs.all()) <= 4


def test_what_lies_in_the_folder_disturbs_nobody(engine: LocalEngine, tmp_path: Path) -> None:
    add(engine)
    files.check_place(engine.folder)
    copied = Path(shutil.copytree(engine.folder, tmp_path / "copy"))
    ContinualClassifier.load(copied).save(copied)
    assert files.read_header(copied)["version"] == 2
    assert engine_module.plain(OSError("odd"), engine.folder) == "OSError"
