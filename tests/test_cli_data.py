"""`promptpool data`: what a person types, and the one line that comes when it cannot be done."""

from __future__ import annotations

import hashlib
import io
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from typer.testing import CliRunner

import web as server
from promptpool.cli import app
from promptpool.cli import data as data_commands
from promptpool.cli.display import reading
from promptpool.data import downloads
from promptpool.data.sets import PUBLISHED
from promptpool.data.sets.published import Contents, Published, Remote
from promptpool.errors import BadFileError
from promptpool.progress import heard_by, report
from web import Web, serving

if TYPE_CHECKING:
    from typer.testing import Result

CONTENT = b"images" * 50_000
AS_PUBLISHED = "toy: reads as 1,234 + 0 images of 3 classes, as published\n"


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(downloads, "PAUSES", (0.0,))
    with serving(CONTENT) as running:
        publish(monkeypatch, running.url("toy.bin"))
        yield running


def as_published(_: Path) -> Contents:
    return Contents(1234, 0, 3)


def publish(
    monkeypatch: pytest.MonkeyPatch,
    *urls: str,
    holds: str = "toy",
    contents: Callable[[Path], Contents] = as_published,
) -> None:
    md5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
    file = Remote("toy.bin", urls, len(CONTENT), md5, holds=(holds,))
    monkeypatch.setitem(data_commands.GROUPS, "all", ("toy",))
    monkeypatch.setitem(PUBLISHED, "toy", Published("Toys", "http://toy", "CC0", 3, 1234, 0, (file,), contents))


def data(*arguments: str | Path, columns: int = 200) -> Result:
    return CliRunner().invoke(app, ["data", *map(str, arguments)], env={"COLUMNS": str(columns)})


def only_line(result: Result) -> str:
    """The one line that is said when something cannot be done."""
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result.stderr.strip()


def test_get_and_check(web: Web, tmp_path: Path) -> None:
    got = data("get", "toy", "--data", tmp_path)
    assert (got.exit_code, got.stdout) == (0, f"toy: {tmp_path / 'toy'} (licence: CC0)\n")
    assert (tmp_path / "toy/toy.bin").read_bytes() == CONTENT
    assert "toy.bin: 0 % of 300.0 kB" in got.stderr
    assert "toy.bin: 100 % of 300.0 kB" in got.stderr
    assert "checking toy.bin: 100 % of 300.0 kB" in got.stderr
    checked = data("check", "toy", "--data", tmp_path)
    assert checked.exit_code == 0
    assert checked.stdout == f"toy: {tmp_path / 'toy/toy.bin'}: right\n{AS_PUBLISHED}"
    assert data("get", "toy", "toy", "--data", tmp_path).exit_code == 0
    assert len(web.asked) == 1


def test_all_of_them(web: Web, tmp_path: Path) -> None:
    assert data("get", "all", "--data", tmp_path).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["toy"]
    assert len(web.asked) == 1


@pytest.mark.usefixtures("web")
def test_the_folder_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPOOL_DATA", str(tmp_path))
    assert data("get", "toy").exit_code == 0
    assert (tmp_path / "toy/toy.bin").exists()
    assert data("check").stdout == f"toy: {tmp_path / 'toy/toy.bin'}: right\n{AS_PUBLISHED}"


def test_a_server_that_cuts_off(web: Web, tmp_path: Path) -> None:
    web.plan = [server.cut_off]
    assert data("get", "toy", "--data", tmp_path).exit_code == 0
    assert web.ranges == [None, f"bytes={web.half}-"]


def test_without_a_network_one_line_says_what_to_put_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    publish(monkeypatch, "http://127.0.0.1:9/toy.bin")
    assert only_line(data("get", "toy", "--data", tmp_path)) == (
        "promptpool: toy.bin cannot be downloaded (127.0.0.1:9: Connection refused); "
        f"get it by hand from http://127.0.0.1:9/toy.bin and put it at {tmp_path / 'toy/toy.bin'}"
    )
    (tmp_path / "toy/toy.bin").write_bytes(CONTENT)  # as it says
    assert data("get", "toy", "--data", tmp_path).exit_code == 0


def test_a_name_that_is_not_known_to_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    line = only_line(data("get", "cifar100", "--data", tmp_path))
    assert "www.cs.toronto.edu: Name or service not known" in line
    assert "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz" in line
    assert line.endswith(f"put it at {tmp_path / 'cifar100/cifar-100-python.tar.gz'}")


def test_a_server_that_does_not_have_it(web: Web, tmp_path: Path) -> None:
    web.plan = [server.says(404)]
    assert "answers 404: Not Found" in only_line(data("get", "toy", "--data", tmp_path))


@pytest.mark.usefixtures("web")
def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "Not a directory" in only_line(data("get", "toy", "--data", tmp_path / "file"))


def test_ctrl_c(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def press(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("promptpool.cli.display.heard_by", lambda _: heard_by(press))
    result = data("get", "toy", "--data", tmp_path)
    assert (result.exit_code, result.stderr) == (130, "promptpool: stopped; the same command goes on from here\n")
    assert len(web.asked) == 1


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("cifar", "did you mean 'cifar10'?"),
        ("fashionmnist", "did you mean 'fashion-mnist'?"),
        ("zzz", "must be one of "),
    ],
)
@pytest.mark.parametrize("verb", ["get", "check"])
def test_an_unknown_name(tmp_path: Path, verb: str, typed: str, hint: str) -> None:
    line = only_line(data(verb, typed, "--data", tmp_path))
    assert line.startswith(f"promptpool: '{typed}': no such data set; {hint}")


def test_check_finds_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(monkeypatch, "http://127.0.0.1:9/toy.bin", holds="toys")
    file = tmp_path / "toy/toy.bin"

    def checked() -> tuple[int, str]:
        result = data("check", "toy", "--data", tmp_path)
        return result.exit_code, result.stdout.removesuffix(AS_PUBLISHED).strip().removeprefix(f"toy: {file}: ")

    assert checked() == (1, "missing (it is at http://127.0.0.1:9/toy.bin)")
    file.parent.mkdir()
    file.write_bytes(CONTENT[1:])
    assert checked() == (1, "wrong size (has 299,999 bytes instead of 300,000)")
    file.write_bytes(bytes(len(CONTENT)))
    code, said = checked()
    assert code == 1
    assert said.startswith("wrong checksum (has the md5 ")
    file.unlink()
    (file.parent / "toys").mkdir()
    assert checked() == (0, "unpacked only (toys is there; without the file no checksum tells more)")


def test_check_reads_what_is_there(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data("get", "toy", "--data", tmp_path)
    assert len(web.asked) == 1
    publish(monkeypatch, web.url("toy.bin"), contents=lambda folder: Contents(1000, 10, 3))
    other = data("check", "toy", "--data", tmp_path)
    assert other.stdout.endswith("toy: reads as 1,000 + 10 images of 3 classes; published are 1,234 + 0 of 3\n")
    assert other.exit_code == 1

    def unreadable(folder: Path) -> Contents:
        raise BadFileError(f"{folder}: is not what it seems")

    publish(monkeypatch, web.url("toy.bin"), contents=unreadable)
    wrong = data("check", "toy", "--data", tmp_path)
    assert (wrong.exit_code, wrong.stdout.count("\n")) == (1, 2)
    assert "toy: cannot be read: " in wrong.stdout


def test_five_datasets_are_the_five(tmp_path: Path) -> None:
    result = data("check", "5-datasets", "--data", tmp_path)
    assert result.exit_code == 1
    names = list(dict.fromkeys(line.split(":")[0] for line in result.stdout.splitlines()))
    assert names == ["cifar10", "mnist", "svhn", "notmnist", "fashion-mnist"]


def test_check_where_nothing_is(tmp_path: Path) -> None:
    result = data("check", "--data", tmp_path)
    assert (result.exit_code, result.stdout) == (0, f"no data set is in {tmp_path}\n")


def test_list_shows_what_there_is_and_what_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(monkeypatch, "http://127.0.0.1:9/toy.bin", holds="toys")

    def row(name: str) -> str:
        result = data("list", "--data", tmp_path)
        assert result.exit_code == 0
        return next(" ".join(line.split()) for line in result.stdout.splitlines() if line.startswith(f"{name} "))

    assert row("cifar100") == "cifar100 CIFAR-100 MIT (L2P paper) no 100 50,000 10,000 169.0 MB"
    assert row("core50-32") == "core50-32 CORe50 32x32 CC BY 4.0 no 50 119,894 44,972 ?"
    assert row("toy") == "toy Toys CC0 no 3 1,234 - 300.0 kB"
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "toy.bin.part").write_bytes(b"images")
    assert "CC0 in part 3" in row("toy")
    (folder / "toy.bin").write_bytes(b"images")
    assert "CC0 wrong size 3" in row("toy")
    (folder / "toy.bin").write_bytes(CONTENT)
    assert "CC0 yes 3" in row("toy")
    (folder / "toy.bin").unlink()
    (folder / "toys").touch()
    assert "CC0 unpacked only 3" in row("toy")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_list_loses_no_name(columns: int) -> None:
    result = data("list", columns=columns)
    assert result.exit_code == 0
    for name in PUBLISHED:
        assert f"\n{name} " in result.stdout
    assert columns < 80 or "non-commercial" in result.stdout


def test_a_terminal_gets_a_bar() -> None:
    written = io.StringIO()
    with reading(Console(file=written, force_terminal=True, width=100), in_bytes=True):
        report("toy.bin", 100_000, 300_000)
        report("toy.bin", 300_000, 300_000)
        report("waiting for another process: toy.bin.lock", 0)
    assert "300.0/300.0 kB" in written.getvalue()
    assert "waiting for another process: toy.bin.lock" in written.getvalue()
