"""The client of Python's own library, over a real connection."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from promptpool import client as client_module
from promptpool.client import Client, ServerError
from promptpool.serve.engine import LocalEngine
from promptpool.serve.safety import Access
from served import answering_thread, lesson, listening, picture
from served import engine as engine_fixture
from served import shop as shop_fixture
from served import taught as taught_fixture

engine, shop, taught = engine_fixture, shop_fixture, taught_fixture

TOKEN = "0123456789abcdef"  # noqa: S105


def test_it_needs_no_torch() -> None:
    code = "import sys, promptpool.client; print(*[each for each in ('torch', 'numpy', 'PIL') if each in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_a_lesson_by_program(engine: LocalEngine, tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_bytes(picture("red", 50))
    with listening(engine, Access(TOKEN)) as address:
        with pytest.raises(ServerError, match="needs its token") as refusal:
            Client(address).classes()
        assert refusal.value.status == 401
        shop = Client(f"{address}/", token=TOKEN)
        answers = shop.predict(tmp_path / "photo.png", str(tmp_path / "photo.png"), b"no picture", top=1)
        assert [answer["name"] for answer in answers] == ["photo.png", "photo.png", "picture"]
        assert answers[0]["guess"] in ("red", "green")
        assert answers[2]["error"]
        taught = shop.teach("blue", [content for _, content in lesson(("blue",))])
        assert (taught["waiting"], len(taught["added"]), taught["refused"]) == (6, 6, [])
        assert shop.teach("blue", b"no picture")["refused"][0]["error"]
        assert shop.learn()["new"] == ["blue"]
        assert {each["name"]: each["pictures"] for each in shop.classes()} == {"red": 6, "green": 6, "blue": 6}
        assert shop.rename("blue", "sea/sky ?") == 3
        assert shop.forget("sea/sky ?") == 4
        assert shop.undo() == 3
        assert shop.about()["classes"] == 3
        with pytest.raises(ServerError, match="no picture waits") as refusal:
            shop.learn()
        assert refusal.value.status == 409
        path = shop.export(tmp_path / "shop.zip")
        assert zipfile.is_zipfile(path)
        assert not list(tmp_path.glob("*.partial"))
    with pytest.raises(ServerError, match=f"{address}: no answer"):
        shop.about()


def test_many_pictures_go_in_parts(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "AT_ONCE", 4)
    with listening(engine) as address:
        shop = Client(address)
        found: list[Any] = []

        def ask() -> None:
            found.append(shop.predict(*[picture("red", number) for number in range(50, 60)]))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [len(each) for each in found] == [10] * 4
        assert all(each["version"] == 1 and each["error"] is None for answers in found for each in answers)
        assert shop.teach("red", [picture("red", number) for number in range(60, 70)])["waiting"] == 10
        job = shop.learn(wait=False)
        assert job["kind"] == "learn"


def test_a_server_that_ends_answers_what_was_asked(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: Any = answering_thread(engine)
    begun, go, work = threading.Event(), threading.Event(), batches.work
    found: list[Any] = []

    def held(questions: Any) -> Any:
        begun.set()
        assert go.wait(60)
        return work(questions)

    monkeypatch.setattr(batches, "work", held)
    with listening(engine) as address:
        thread = threading.Thread(target=lambda: found.append(Client(address).predict(picture("red", 50))))
        thread.start()
        assert begun.wait(60)
        threading.Timer(0.3, go.set).start()  # by then it has been told to end
    thread.join()
    assert found[0][0]["version"] == 1


def test_a_server_with_too_much_to_do_is_asked_again(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: Any = answering_thread(engine)
    batches.room.length = engine.limits.queue
    waited, sleep = list[float](), time.sleep

    def wait(seconds: float) -> None:
        if seconds == 1.0:  # which the server said
            waited.append(seconds)
            batches.room.length = 0
        else:
            sleep(seconds)

    monkeypatch.setattr(time, "sleep", wait)
    with listening(engine) as address:
        assert Client(address).predict(picture("red", 50))[0]["error"] is None
    assert waited == [1.0]


def test_addresses_are_addresses() -> None:
    for address in ("file:///etc/passwd", "127.0.0.1:8000", "http://", "ftp://host"):
        with pytest.raises(ValueError, match="must be like http://"):
            Client(address)
