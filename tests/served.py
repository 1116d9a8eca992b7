"""A small classifier to serve, pictures to send it, and a server that listens in this process."""

from __future__ import annotations

import base64
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi.testclient import TestClient

from image_files import TINTS, image_bytes
from promptpool import ContinualClassifier
from promptpool.serve.answerer import LocalAnswerer
from promptpool.serve.app import guarded
from promptpool.serve.batches import Batches
from promptpool.serve.engine import LocalEngine
from promptpool.serve.running import Place, _config, _listening
from promptpool.serve.safety import Access
from small_runs import write_weights

HERE = "http://127.0.0.1:8000"
LABELS = ("red", "green", "blue", "yellow", "pink", "cyan")
VALUES: dict[str, dict[str, Any]] = {
    "closed-form": {"projections": 50},
    "closed-form-prompts": {"projections": 50, "adapt": "prompts"},
    "l2p": {"prompt_length": 1},
}


def picture(label: str, number: int) -> bytes:
    """A picture of a class, like no other."""
    place = LABELS.index(label)
    return image_bytes(1000 * place + number, tint=TINTS[place])


def lesson(labels: tuple[str, ...], first: int = 0, count: int = 6) -> list[tuple[str, bytes]]:
    return [(label, picture(label, number)) for label in labels for number in range(first, first + count)]


def write_classifier(
    folder: Path, method: str = "closed-form", labels: tuple[str, ...] = LABELS[:2], **values: Any
) -> Path:
    """A classifier that knows two colours, after few steps where a method takes steps."""
    weights = folder.parent / "vit.safetensors"
    if not weights.exists():
        write_weights(weights)
    classifier = ContinualClassifier(weights, method=method, **VALUES.get(method, {}), **values)
    classifier.plan = replace(classifier.plan, least_steps=4, epochs=1)
    known = lesson(labels)
    if known:
        paths = []
        for number, (_, content) in enumerate(known):
            paths.append(folder.parent / f"{number}.png")
            paths[-1].write_bytes(content)
        classifier.learn(paths, [label for label, _ in known])
    classifier.save(folder)
    return folder


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_classifier(tmp_path_factory.mktemp("classifiers") / "shop")


@pytest.fixture
def shop(taught: Path, tmp_path: Path) -> Path:
    """A classifier of one's own: copied, since copying is quick."""
    return Path(shutil.copytree(taught, tmp_path / "shop"))


@pytest.fixture
def engine(shop: Path) -> Iterator[LocalEngine]:
    engine = LocalEngine(shop)
    yield engine
    engine.close()


@contextmanager
def asking(engine: LocalEngine, access: Access | None = None, **headers: str) -> Iterator[TestClient]:
    """A client of the application, without a network."""
    given = {"X-Promptpool": "1", **headers}
    with TestClient(guarded(engine, access), base_url=HERE, headers=given, raise_server_exceptions=False) as client:
        yield client


@contextmanager
def listening(engine: LocalEngine, access: Access | None = None) -> Iterator[str]:
    """The address of a server on a thread of this process; it ends as it does after a signal."""
    with _listening(Place(port=0)) as listener:
        server = uvicorn.Server(_config(guarded(engine, access), engine.limits))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            until(lambda: server.started)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def answering_thread(engine: LocalEngine) -> Batches:
    """Where questions of this engine wait."""
    assert isinstance(engine._answerer, LocalAnswerer)
    return engine._answerer.batches


def until(true: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait for something; returns it."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)
    return found


def finished(client: TestClient, job: str) -> dict[str, Any]:
    """A job when it is over."""

    def over() -> dict[str, Any] | None:
        found: dict[str, Any] = client.get(f"/jobs/{job}").json()
        return found if found["state"] in ("done", "failed") else None

    found: dict[str, Any] = until(over)
    return found


def teach(client: TestClient, pictures: list[tuple[str, bytes]]) -> list[str]:
    """Send pictures; returns their ids."""
    body = [
        {"name": f"{number}.png", "label": label, "data": text(content)}
        for number, (label, content) in enumerate(pictures)
    ]
    answer = client.post("/lessons", json={"pictures": body})
    assert answer.status_code == 201, answer.text
    return [each["id"] for each in answer.json()["added"]]


def text(content: bytes) -> str:
    return base64.b64encode(content).decode()
