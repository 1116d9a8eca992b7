"""The same application with its pictures looked at on Ray Serve, by two replicas on this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from torch import Tensor

from promptpool import ContinualClassifier
from promptpool.classifier.answers import Prediction
from promptpool.client import Client
from promptpool.data.decoding import decode
from promptpool.learners import adaptation
from promptpool.serve.address import NOTE
from promptpool.serve.answerer import MakeAnswerer
from promptpool.serve.answering import Wish
from promptpool.serve.batches import Answered
from promptpool.serve.engine import LocalEngine
from promptpool.serve.limits import Limits, RefusedError
from promptpool.serve.on_ray import _names, on_ray
from served import lesson, picture, until, write_classifier
from served import shop as shop_fixture
from served import taught as taught_fixture

shop, taught = shop_fixture, taught_fixture
pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
]
METHODS = ["closed-form", "closed-form-prompts", "l2p", "nearest-mean"]


@pytest.fixture(scope="module")
def name(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the applications on Ray are named by, so that no others are killed."""
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def make(name: Path) -> Iterator[MakeAnswerer]:
    pytest.importorskip("ray", reason="no Ray; make ray-test installs it")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("RAY_worker_niceness", "0")  # another test may have imported Ray before
        with on_ray([name], replicas=2, threads=1) as made:
            yield made


@contextmanager
def served(folder: Path, make: MakeAnswerer | None, limits: Limits | None = None) -> Iterator[LocalEngine]:
    engine = (
        LocalEngine(folder, limits=limits) if make is None else LocalEngine(folder, limits=limits, make_answerer=make)
    )
    try:
        yield engine
    finally:
        engine.close()


def ask(engine: LocalEngine, *numbers: int, label: str = "red") -> Answered:
    """What it says of pictures, all in one question."""
    size = engine.present.classifier.backbone.image_size
    pixels = [decode(picture(label, number), label, size) for number in numbers]
    return engine.ask(pixels, [Wish(f"{number}.png") for number in numbers]).result(120)


def learn(engine: LocalEngine, label: str) -> None:
    engine.lessons.add([(f"{label}{n}.png", label, content) for n, (_, content) in enumerate(lesson((label,)))])
    job = engine.learn()
    until(lambda: (now := engine.jobs.find(job.id)) and now.over)
    found = engine.jobs.find(job.id)
    assert found is not None
    assert found.state == "done", found.error
    until(lambda: not engine._changing.locked())


@pytest.mark.parametrize("method", METHODS)
def test_answers_are_those_of_one_process(
    method: str, make: MakeAnswerer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adaptation, "LEAST_STEPS", 4)
    folder = write_classifier(tmp_path / "shop", method)
    numbers = range(50, 50 + Limits.batch + 3)  # more than one batch
    with served(Path(shutil.copytree(folder, tmp_path / "copy")), None) as here, served(folder, make) as there:
        for label in ("red", "green", "blue"):
            one, other = ask(here, *numbers, label=label), ask(there, *numbers, label=label)
            assert one.version == other.version == 1
            for first, second in zip(one.answers, other.answers, strict=True):
                assert (first.name, first.label, first.guess) == (second.name, second.label, second.guess)
                assert first.confidence == pytest.approx(second.confidence, abs=1e-3)
                assert (first.prompts is None) == (second.prompts is None)
        sizes = there.metrics.batch_sizes._sums[""]
        assert sizes == 3 * len(numbers), "every picture was looked at once"


def test_similar_pictures_are_found_there_too(make: MakeAnswerer, tmp_path: Path) -> None:
    with served(write_classifier(tmp_path / "shop", thumbnails=True), make) as engine:
        assert [label for _, label in ask(engine, 60).answers[0].similar] == ["red"] * 3


@pytest.mark.parametrize("method", ["closed-form", "nearest-mean"])
def test_a_lesson_under_load_switches_versions_and_loses_none(method: str, make: MakeAnswerer, tmp_path: Path) -> None:
    with served(write_classifier(tmp_path / "shop", method), make) as engine:
        found: list[list[Answered]] = [[], [], []]
        errors, stop = list[BaseException](), threading.Event()

        def go_on(own: list[Answered], first: int) -> None:
            number = first
            while not stop.is_set():
                try:
                    own.append(ask(engine, number, number + 1))
                except BaseException as error:
                    errors.append(error)
                    raise
                number += 2

        threads = [threading.Thread(target=go_on, args=(own, 1000 * n)) for n, own in enumerate(found, start=1)]
        for thread in threads:
            thread.start()
        until(lambda: all(found))
        learn(engine, "blue")
        assert ask(engine, 10).version == 2, "whoever asks later hears the new version"
        until(lambda: all(own[-1].version == 2 for own in found))
        stop.set()
        for thread in threads:
            thread.join()
        assert errors == []
        for own in found:
            versions = [answered.version for answered in own]
            assert set(versions) == {1, 2}
            assert versions == sorted(versions)
            assert all(len(answer.top) == 1 + each.version for each in own for answer in each.answers)
        engine.undo()
        assert ask(engine, 10).version == 1
        learn(engine, "yellow")
        guesses = {label for label, _ in ask(engine, 10).answers[0].top}
        assert guesses == {"red", "green", "yellow"}, "a number that comes again is another version"


@pytest.mark.parametrize("kind", ["encoder", "heads"])
def test_a_replica_that_is_killed_is_replaced_and_answers_go_on(
    kind: str, make: MakeAnswerer, shop: Path, name: Path
) -> None:
    application = _names([name])[kind == "heads"]
    with served(shop, make) as engine:
        assert ask(engine, 500).version == 1
        before = until(lambda: _replicas(application))
        asked = [threading.Thread(target=ask, args=(engine, number)) for number in range(501, 521)]
        for number, thread in enumerate(asked):
            thread.start()
            if number == 10:
                os.kill(min(before), signal.SIGKILL)
        for thread in asked:
            thread.join()
        for number in range(521, 541):
            assert ask(engine, number).version == 1
        until(lambda: len(_replicas(application) - {min(before)}) == len(before), 120)
        assert ask(engine, 541).version == 1


def _replicas(application: str) -> set[int]:
    """The processes of an application on Ray, as they name themselves."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"ServeReplica" in (words := path.read_bytes()) and application.encode() in words:
                found.add(int(path.parent.name))
        except OSError:
            continue  # it ended meanwhile
    return found


def test_two_classifiers_on_one_model_look_at_a_picture_once(make: MakeAnswerer, shop: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(shop, tmp_path / "other"))
    with served(shop, make) as first, served(other, make) as second:
        learn(second, "blue")
        assert ask(first, 700, 701).version == 1
        assert ask(second, 701, 700, 702).version == 2, "each has versions of its own"
        assert [engine.metrics.batch_sizes._sums.get("", 0) for engine in (first, second)] == [2, 1]
        assert ask(first, 702).answers[0].guess == "red"
        assert first.metrics.batch_sizes._sums[""] == 2


def test_a_queue_that_is_full_is_said(make: MakeAnswerer, shop: Path) -> None:
    with served(shop, make, Limits(queue=3)) as engine:
        assert len(ask(engine, 1, 2, 3, 4).answers) == 4, "alone it may be larger"
        size = engine.present.classifier.backbone.image_size
        pixels = [decode(picture("red", number), "red", size) for number in range(800, 803)]
        waiting = engine.ask(pixels, [Wish("a")] * 3)
        with pytest.raises(RefusedError, match="3 pictures wait for an answer already, at most 3 can"):
            engine.ask(pixels[:1], [Wish("a")])
        assert waiting.result(60).version == 1
        until(lambda: engine.queue == 0)


def test_one_question_that_fails_fails_alone(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployments = pytest.importorskip("promptpool.serve.deployments", reason="no Ray; make ray-test installs it")
    whole = deployments.answers

    def broken(classifier: ContinualClassifier, rows: Tensor, wishes: list[Wish]) -> list[Prediction]:
        if any(wish.name == "bad" for wish in wishes):
            raise ValueError("a feature is not a number")
        return list(whole(classifier, rows, wishes))

    monkeypatch.setattr(deployments, "answers", broken)
    classifier = ContinualClassifier.load(shop)
    pixels = [decode(picture("red", 900), "red", classifier.backbone.image_size)]
    good, bad, last = deployments._answered(classifier, [(pixels, [Wish(name)]) for name in ("good", "bad", "last")])
    assert (good[0].guess, str(bad), last[0].guess) == ("red", "a feature is not a number", "red")


def test_as_people_start_it(shop: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="no Ray; make ray-test installs it")
    garden = Path(shutil.copytree(shop, tmp_path / "garden"))
    command = [sys.executable, "-m", "promptpool", "serve", str(shop), str(garden), "--engine", "ray", "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        note = until(lambda: process.poll() is not None or ((garden / NOTE).exists() and (garden / NOTE)), 180)
        assert isinstance(note, Path), process.communicate()[0]
        client = Client(json.loads(note.read_bytes())["address"], timeout=120)
        assert client.address.endswith("/garden")
        assert client.predict(picture("red", 9))[0]["guess"] == "red"
        client.teach("blue", [content for _, content in lesson(("blue",))])
        assert client.learn()["version"] == 2
        assert client.predict(picture("blue", 9))[0]["version"] == 2
        assert Client(client.address.replace("garden", "shop")).predict(picture("red", 9))[0]["version"] == 1
        assert {each.split(":")[0] for each in _listening_at(process.pid)} == {"127.0.0.1"}
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
        assert "Traceback" not in output
        assert not (garden / NOTE).exists()
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _listening_at(pid: int) -> set[str]:
    """The addresses at which a process and all that it started listen."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    family, found = {pid}, set[str]()
    for _ in range(5):
        family |= {child for child, parent in parents.items() if parent in family}
    sockets = set()
    for member in family:
        with suppress(OSError):
            sockets |= {os.readlink(each) for each in Path(f"/proc/{member}/fd").iterdir()}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                host, port = fields[1].split(":")
                last = bytes.fromhex(host[-8:])[::-1]  # of IPv6 the part that an IPv4 address is in
                found.add(f"{'.'.join(map(str, last))}:{int(port, 16)}")
    return found
