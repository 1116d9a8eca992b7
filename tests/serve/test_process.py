"""A server as people start it: killed at any moment, ended by a signal, met by other commands.

`make kill-test` kills it fifty times.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner, Result

from image_files import write_images
from promptpool.cli import app
from promptpool.client import Client, ServerError
from promptpool.serve.address import NOTE, server_of
from promptpool.serve.engine import LocalEngine
from promptpool.serve.lessons import FOLDER
from served import LABELS, picture, until, write_classifier

KILLS = int(os.environ.get("PROMPTPOOL_KILLS", "3"))


@contextmanager
def serving(shop: Path, token: Path | None = None) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    """A process that serves, and a client of it."""
    words = [] if token is None else ["--token-file", str(token)]
    command = [sys.executable, "-m", "promptpool", "serve", str(shop), "--port", "0", "--no-browser", *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    try:

        def address() -> str | None:
            assert process.poll() is None, process.communicate()[0]
            try:
                note = json.loads((shop / NOTE).read_bytes())
            except (OSError, ValueError):
                return None
            return str(note["address"]) if note["pid"] == process.pid else None

        client = Client(until(address), token=None if token is None else token.read_text().strip())
        until(lambda: _is_there(client))
        yield process, client
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _is_there(client: Client) -> bool:
    try:
        return bool(client.about())
    except ServerError as error:
        if error.status:
            raise
        return False


def typed(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


class Teacher:
    """Teaches one picture after the other, and knows which the server said it has."""

    def __init__(self, first: int) -> None:
        self.next, self.accepted, self.begun = first, 0, first

    def is_under_way(self) -> bool:
        return self.accepted >= 3

    def go_on(self, client: Client) -> None:
        """Until the server is gone."""
        while True:
            number, self.begun = self.next, self.next + 1
            try:
                found = client.teach(LABELS[number % 6], picture(LABELS[number % 6], number))
            except ServerError as error:
                if error.status:
                    raise
                return
            assert len(found["added"]) == 1
            self.accepted += 1
            self.next += 1


def total(client_or_engine: Client | LocalEngine) -> int:
    """The pictures that are learned, and those that wait."""
    if isinstance(client_or_engine, LocalEngine):
        return sum(client_or_engine.present.facts.counts.values()) + len(client_or_engine.lessons.waiting)
    about = client_or_engine.about()
    return int(about["pictures"]) + len(client_or_engine._json("GET", "/lessons")["pictures"])


def test_killed_at_any_moment_nothing_is_lost_and_nothing_learned_twice(tmp_path: Path) -> None:
    shop = write_classifier(tmp_path / "shop", "nearest-mean")  # which would count a picture again
    lots = random.Random(int(os.environ.get("PROMPTPOOL_KILL_SEED", "0")))  # noqa: S311
    known, number, given_up = 12, 1000, 0
    for kill in range(KILLS):
        with serving(shop) as (process, client):
            found = total(client)
            assert found in (known, known + 1), "all that was accepted, and perhaps one that was on its way"
            known, teacher = found, Teacher(number)
            thread = threading.Thread(target=teacher.go_on, args=[client])
            thread.start()
            until(teacher.is_under_way)
            if kill == 0:
                client.learn()
            for _ in range(lots.randint(1, 4)):
                time.sleep(lots.uniform(0.0, 0.2))
                _learn(client)
            time.sleep(lots.uniform(0.0, 0.1))  # a lesson takes about as long
            process.send_signal(signal.SIGKILL)
            process.wait()
            thread.join()
            known, number = known + teacher.accepted, teacher.begun + 1
            given_up += len(list((shop / FOLDER).glob("job-*.csv")))
    engine = LocalEngine(shop)
    assert total(engine) in (known, known + 1)
    assert engine.present.number > 1, "there was a lesson"
    print(f"{KILLS} kills, {given_up} of them in a lesson; {known} pictures, version {engine.present.number}")  # noqa: T201
    engine.close()


def _learn(client: Client) -> None:
    try:
        client.learn(wait=False)
    except ServerError as error:
        if error.status != 409:  # one is running, or nothing waits
            raise


def test_a_server_among_other_commands(tmp_path: Path) -> None:
    shop, token = write_classifier(tmp_path / "shop"), tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    more = write_images(tmp_path / "more", [f"x/{n}.png" for n in range(6)] + ["y/notes.txt", "y/1.png"])
    with serving(shop, token) as (process, client):
        assert server_of(shop) is not None
        assert "0123456789abcdef" not in (shop / NOTE).read_text()
        second = typed("serve", shop, "--port", "0")
        assert (second.exit_code, "another process is at work" in second.stderr) == (2, True)
        for words in (("undo", shop), ("forget", shop, "x"), ("rename", shop, "x", "y")):
            assert f"is served at {client.address}, which alone changes it" in typed(*words).stderr
        refused = typed("learn", shop, more)
        assert refused.exit_code == 2
        assert "which alone changes it: --send sends it the lesson" in refused.stderr
        assert client.address in refused.stderr
        sent = typed("learn", shop, more, "--send")
        assert sent.exit_code == 0, sent.output
        assert "lesson 2, version 2" in sent.output
        assert "1 file skipped: notes.txt" in sent.stderr
        assert typed("predict", shop, more / "x" / "0.png").exit_code == 0
        assert typed("forget", shop, "x").exit_code == 2
        assert client.forget("x") == 3
        _end(process)
    assert not (shop / NOTE).exists()
    assert "version 2 again" in typed("undo", shop).output


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "Traceback" not in output
    assert "is served at http://127.0.0.1:" in output
    assert "0123456789abcdef" not in output
