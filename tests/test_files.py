"""A lock between processes: refused at once or waited for, and gone afterwards."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from promptpool.files import locked

HOLD = """
import sys
from pathlib import Path
from promptpool.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock until its input ends."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def test_a_lock_that_another_process_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with another_process(path) as process:
        with pytest.raises(BlockingIOError, match=r"\.lock: another process has it"), locked(path):
            pass
        process.communicate("")
    with locked(path):
        assert path.exists()
    assert list(tmp_path.iterdir()) == []


def test_it_is_free_once_its_holder_is_killed(tmp_path: Path) -> None:
    with another_process(tmp_path / ".lock") as process:
        process.kill()
        process.wait()
    with locked(tmp_path / ".lock"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_whoever_waits_says_so_once_and_gets_it(tmp_path: Path) -> None:
    path, said, waits, got = tmp_path / ".lock", list[tuple[str, int]](), Event(), Event()

    def hear(what: str, done: int) -> None:
        said.append((what, done))
        waits.set()

    def wait() -> None:
        with locked(path, waiting=hear):
            got.set()

    with locked(path):
        thread = Thread(target=wait)
        thread.start()
        assert waits.wait(10)
        assert not got.wait(0.2)
    thread.join(10)
    assert got.is_set()
    assert said == [("waiting for another process: .lock", 0)]
    assert list(tmp_path.iterdir()) == []


def test_a_free_lock_is_taken_without_a_word(tmp_path: Path) -> None:
    with locked(tmp_path / ".lock", waiting=lambda what, done: pytest.fail(what)):
        pass


def test_a_file_with_content_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    with locked(tmp_path / "file"):
        pass
    assert (tmp_path / "file").read_text() == "content"


def test_what_fails_inside_lets_it_go(tmp_path: Path) -> None:
    with pytest.raises(KeyError), locked(tmp_path / ".lock"):
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits goes on, since no harm is done that a checksum does not tell; who would refuse does."""

    def none(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", none)
    with locked(tmp_path / ".lock", waiting=lambda what, done: pytest.fail(what)):
        pass
    with pytest.raises(BlockingIOError, match="cannot be locked"), locked(tmp_path / ".lock"):
        pass
