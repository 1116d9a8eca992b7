"""The verb `serve` before anything listens, and lessons that are sent to a server."""

from __future__ import annotations

import socket
import sys
import webbrowser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from image_files import write_images
from promptpool.classifier import files
from promptpool.cli import app
from promptpool.cli import serve as command
from promptpool.serve import running
from promptpool.serve.address import NOTE, leave_note, server_of
from promptpool.serve.engine import LocalEngine
from served import engine as engine_fixture
from served import listening
from served import shop as shop_fixture
from served import taught as taught_fixture

engine, shop, taught = engine_fixture, shop_fixture, taught_fixture


def typed(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_one_line_says_what_to_install(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "uvicorn" else "here")
    found = typed("serve", shop)
    assert found.exit_code == 2
    assert found.stderr == "promptpool: serve needs uvicorn: pip install 'promptpool[serve]'\n"


def test_one_line_says_what_ray_needs(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    found = typed("serve", shop, "--engine", "ray")
    assert found.exit_code == 2
    assert found.stderr == "promptpool: --engine ray needs Ray Serve: pip install 'promptpool[ray,serve]'\n"


def test_values_of_ray_are_for_ray(shop: Path) -> None:
    assert "--engine fast: must be one of process, ray" in typed("serve", shop, "--engine", "fast").stderr
    for name in ("--replicas", "--threads"):
        assert f"{name} 2: is for --engine ray" in typed("serve", shop, name, "2").stderr


def test_an_open_address_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    found = typed("serve", tmp_path / "new", "--host", "0.0.0.0")  # noqa: S104
    assert found.exit_code == 2
    assert "so a token is needed: openssl rand -hex 32 > token" in found.stderr
    assert not (tmp_path / "new").exists()


def test_names_that_cannot_be_served_together_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["serve", str(tmp_path / "new shop"), str(tmp_path / "garden")])
    assert found.exit_code == 2
    assert "is found by its name" in found.stderr
    assert not list(tmp_path.iterdir())


def test_a_new_name_begins_with_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(running, "serve", lambda folders, place, **rest: given.update(rest, place=place))
    found = typed("serve", tmp_path / "new", "--host-name", "a.example", "--port", "9", "--workers", "2")
    assert found.exit_code == 0, found.output
    assert "is new and knows nothing yet" in found.stdout
    assert files.read_header(tmp_path / "new")["labels"] == []
    assert given["place"] == running.Place("127.0.0.1", 9, ("a.example",), None)
    assert given["threads"] == 2
    assert "is new" not in typed("serve", tmp_path / "new").stdout
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert "a folder with other things in it" in typed("serve", tmp_path / "mine").stderr


def test_a_port_that_is_taken_is_named(shop: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        found = typed("serve", shop, "--port", other.getsockname()[1])
    assert found.exit_code == 2
    assert "cannot listen there (Address already in use); --port 0 takes a free one" in found.stderr
    assert typed("undo", shop).stderr.endswith("there is no version before this one\n"), "the folder is free again"


def test_the_token_is_shown_to_people_only(
    engine: LocalEngine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setenv("DISPLAY", ":0")
    shop = engine.folder
    command._tell(shop, "http://here", engine, "a+b", browser=True)
    assert "served at http://here; Ctrl-C" in capsys.readouterr().out
    monkeypatch.setattr(sys, "stdout", Terminal())
    command._tell(shop, "http://here", engine, "a+b", browser=True)
    command._tell(shop, "http://here", engine, None, browser=False)
    assert opened == []
    command._tell(shop, "http://here", engine, None, browser=True)
    monkeypatch.setattr(command, "_has_windows", lambda: False)
    command._tell(shop, "http://here", engine, None, browser=True)
    assert opened == ["http://here"]
    assert "served at http://here/?token=a%2Bb; Ctrl-C" in Terminal.written


class Terminal:
    """What one sits before."""

    written = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        Terminal.written += text
        return len(text)

    def flush(self) -> None:
        pass


def test_a_note_of_a_server_that_is_gone_is_none(shop: Path, tmp_path: Path) -> None:
    assert server_of(shop) is None
    leave_note(shop, "http://127.0.0.1:9", None)
    assert server_of(shop) is None
    engine = LocalEngine(shop)
    assert server_of(shop) is not None
    (shop / NOTE).write_text('{"address": "x"}')
    assert server_of(shop) is None
    engine.close()
    assert server_of(tmp_path / "nowhere") is None
    assert not (tmp_path / "nowhere").exists()


class Person:
    """Answers a question."""

    def __init__(self, answer: bool, asked: list[str]) -> None:
        self.answer, self.asked = answer, asked

    def __call__(self, text: str, *, default: bool) -> bool:
        assert default
        self.asked.append(text)
        return self.answer


def test_a_lesson_is_sent_if_one_says_so(engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = write_images(tmp_path / "more", [f"train/x/{n}.png" for n in range(6)] + ["test/x/7.png"])
    with listening(engine) as address:
        leave_note(engine.folder, address, None)
        monkeypatch.setattr(command, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
        asked: list[str] = []
        for answer in (False, True):
            monkeypatch.setattr(typer, "confirm", Person(answer, asked))
            found = typed("learn", engine.folder, more)
            assert found.exit_code == (0 if answer else 2)
        assert f"is served at {address}" in asked[0]
        assert asked[0].endswith("Send it the lesson?")
        assert "new classes" in found.output
        assert engine.present.facts.counts["x"] == 6, "without those to test on"
        again = typed("learn", engine.folder, more)
        assert "6 of pictures that it had already" in again.output
        nothing = typed("learn", engine.folder, tmp_path / "nowhere")
        assert (nothing.exit_code, "no such file or folder" in nothing.stderr) == (2, True)
    lost = typed("learn", engine.folder, more)
    assert (lost.exit_code, "no answer" in lost.stderr) == (2, True)
