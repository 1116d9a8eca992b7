"""Downloads, against a server on this machine that stalls, cuts off, lies and sends what it should not."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

import web as server
from promptpool.data import downloads, stores
from promptpool.data.downloads import check, fetch, get
from promptpool.data.sets import PUBLISHED
from promptpool.data.sets.published import Contents, Published, Remote
from promptpool.errors import BadFileError
from promptpool.progress import heard_by
from web import Behaviour, Web, serving

CONTENT = np.random.default_rng(0).bytes(700_001)
NAME = "set.bin"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(downloads, "TIMEOUT", 20.0)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(CONTENT) as running:
        yield running


def described(
    content: bytes, *urls: str, name: str = NAME, sized: bool = True, unpack: bool = False, holds: str = ""
) -> Remote:
    size, md5 = len(content) if sized else None, hashlib.md5(content, usedforsecurity=False).hexdigest()
    return Remote(name, urls, size, md5, unpack, (holds,) if holds else ())


def remote(web: Web, *, sized: bool = True) -> Remote:
    return described(CONTENT, web.url(NAME), sized=sized)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def is_whole(folder: Path) -> bool:
    return names(folder) == [NAME] and (folder / NAME).read_bytes() == CONTENT


def begun(folder: Path, content: bytes) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{NAME}.part").write_bytes(content)


# what goes well


@pytest.mark.parametrize("sized", [True, False])
def test_a_file_gets_its_name_when_it_is_whole(web: Web, tmp_path: Path, sized: bool) -> None:
    assert fetch(remote(web, sized=sized), tmp_path) == tmp_path / NAME
    assert is_whole(tmp_path)
    assert web.ranges == [None]


def test_what_is_there_and_right_is_not_fetched(web: Web, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(CONTENT)
    fetch(remote(web), tmp_path)
    assert web.asked == []


@pytest.mark.parametrize("behaviour", [server.without_length, server.in_chunks])
def test_the_length_may_be_left_unsaid(web: Web, tmp_path: Path, behaviour: Behaviour) -> None:
    web.plan = [behaviour]
    fetch(remote(web), tmp_path)
    assert is_whole(tmp_path)


def test_how_far_it_is_in_bytes(web: Web, tmp_path: Path) -> None:
    heard: list[tuple[str, int, int | None]] = []
    with heard_by(lambda *report: heard.append(report)):
        fetch(remote(web), tmp_path)
    assert heard[0] == (NAME, 0, len(CONTENT))
    assert (NAME, len(CONTENT), len(CONTENT)) in heard
    assert heard[-1] == (f"checking {NAME}", len(CONTENT), len(CONTENT))


def test_follows_to_another_address_with_the_same_range(web: Web, tmp_path: Path) -> None:
    begun(tmp_path, CONTENT[:1000])
    web.plan = [server.says(302, Location=web.url("elsewhere"))]
    fetch(remote(web), tmp_path)
    assert is_whole(tmp_path)
    assert web.asked == [(f"/{NAME}", "bytes=1000-"), ("/elsewhere", "bytes=1000-")]


# going on with a part


@pytest.mark.parametrize("sized", [True, False])
def test_goes_on_with_a_part(web: Web, tmp_path: Path, sized: bool) -> None:
    begun(tmp_path, CONTENT[:1000])
    fetch(remote(web, sized=sized), tmp_path)
    assert is_whole(tmp_path)
    assert web.ranges == ["bytes=1000-"]


def test_begins_anew_where_ranges_are_ignored(web: Web, tmp_path: Path) -> None:
    begun(tmp_path, b"x" * 1000)
    web.plan = [server.without_ranges]
    fetch(remote(web), tmp_path)
    assert is_whole(tmp_path)
    assert web.ranges == ["bytes=1000-"]


@pytest.mark.parametrize("behaviour", [server.wrong_place, server.wrong_total, server.says(416)])
def test_begins_anew_when_the_rest_cannot_be_had(web: Web, tmp_path: Path, behaviour: Behaviour) -> None:
    begun(tmp_path, CONTENT[:1000])
    web.plan = [behaviour]
    fetch(remote(web), tmp_path)
    assert is_whole(tmp_path)
    assert web.ranges == ["bytes=1000-", None]


def test_a_part_that_is_whole_only_needs_its_name(web: Web, tmp_path: Path) -> None:
    begun(tmp_path, CONTENT)
    fetch(remote(web), tmp_path)
    assert is_whole(tmp_path)
    assert web.asked == []


def test_a_part_that_is_whole_where_nobody_knows_the_size(web: Web, tmp_path: Path) -> None:
    begun(tmp_path, CONTENT)
    fetch(remote(web, sized=False), tmp_path)  # 416, with as many bytes as there are
    assert is_whole(tmp_path)
    assert web.ranges == [f"bytes={len(CONTENT)}-"]


@pytest.mark.parametrize("sized", [True, False])
def test_a_part_that_is_too_long_begins_anew(web: Web, tmp_path: Path, sized: bool) -> None:
    begun(tmp_path, CONTENT + b"x")
    fetch(remote(web, sized=sized), tmp_path)
    assert is_whole(tmp_path)


def test_a_part_of_another_file_begins_anew(web: Web, tmp_path: Path) -> None:
    begun(tmp_path, b"x" * 1000)
    fetch(remote(web), tmp_path)
    assert is_whole(tmp_path)
    assert web.ranges == ["bytes=1000-", None]


# servers that break off


@pytest.mark.parametrize("behaviour", [server.cut_off, server.cut_off_in_chunks])
def test_goes_on_after_a_cut(web: Web, tmp_path: Path, behaviour: Behaviour) -> None:
    web.plan = [behaviour]
    fetch(remote(web), tmp_path)
    assert is_whole(tmp_path)
    assert web.ranges == [None, f"bytes={web.half}-"]


def test_goes_on_after_a_stall(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    web.plan = [server.stall]
    monkeypatch.setattr(downloads, "PAUSES", (0.0,) * 5)
    monkeypatch.setattr(downloads, "TIMEOUT", 0.5)
    fetch(remote(web), tmp_path)
    assert is_whole(tmp_path)
    assert web.ranges[:2] == [None, f"bytes={web.half}-"]


@pytest.mark.parametrize("behaviour", [server.says(503), server.says(429), server.hang_up])
def test_asks_a_busy_server_again(web: Web, tmp_path: Path, behaviour: Behaviour) -> None:
    web.plan = [behaviour, behaviour]
    fetch(remote(web), tmp_path)
    assert is_whole(tmp_path)


def test_pauses_grow_and_end(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(downloads, "PAUSES", (1.0, 2.0, 4.0, 8.0))
    web.plan = [server.cut_off] * 10
    with pytest.raises(
        BadFileError, match=r"ends after [\d,]+ of 700,001 bytes.*; 678,125 bytes are kept, and the same"
    ):
        fetch(remote(web), tmp_path)
    assert slept == [1.0, 2.0, 4.0, 8.0]
    assert names(tmp_path) == [f"{NAME}.part"]


def test_headway_earns_new_patience(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "HEADWAY", 1000)
    monkeypatch.setattr(downloads, "PAUSES", (0.0,))
    web.plan = [server.cut_off] * 6
    fetch(remote(web), tmp_path)
    assert is_whole(tmp_path)


def test_ctrl_c_leaves_a_part_to_go_on_with(web: Web, tmp_path: Path) -> None:
    def press(_: str, done: int, __: int | None) -> None:
        if done >= web.half:
            raise KeyboardInterrupt

    web.plan = [server.stall]
    with pytest.raises(KeyboardInterrupt), heard_by(press):
        fetch(remote(web), tmp_path)
    assert names(tmp_path) == [f"{NAME}.part"]
    fetch(remote(web), tmp_path)
    assert is_whole(tmp_path)
    assert web.ranges == [None, f"bytes={web.half}-"]


# servers that lie


def test_wrong_bytes_are_fetched_once_more(web: Web, tmp_path: Path) -> None:
    web.plan = [server.wrong_bytes]
    fetch(remote(web), tmp_path)
    assert is_whole(tmp_path)
    assert web.ranges == [None, None]


def test_wrong_bytes_twice_say_what_was_expected_and_what_came(web: Web, tmp_path: Path) -> None:
    web.plan = [server.wrong_bytes] * 9
    wrong = hashlib.md5(bytes(byte ^ 1 for byte in CONTENT), usedforsecurity=False).hexdigest()
    with pytest.raises(BadFileError, match=f"has the md5 {wrong} instead of {remote(web).md5}"):
        fetch(remote(web), tmp_path)
    assert names(tmp_path) == []
    assert web.ranges == [None, None]


def test_wrong_bytes_at_one_address_and_right_ones_at_another(web: Web, tmp_path: Path) -> None:
    web.plan = [server.wrong_bytes]
    fetch(described(CONTENT, web.url("bad"), web.url("good")), tmp_path)
    assert is_whole(tmp_path)
    assert [path for path, _ in web.asked] == ["/bad", "/good"]


def test_a_page_instead_of_the_file_touches_nothing(web: Web, tmp_path: Path) -> None:
    begun(tmp_path, CONTENT[:1000])
    web.plan = [server.another_length]
    with pytest.raises(BadFileError, match=r"has 7 bytes instead of 700,001.*; 1,000 bytes are kept"):
        fetch(remote(web), tmp_path)
    assert (tmp_path / f"{NAME}.part").read_bytes() == CONTENT[:1000]


def test_no_more_bytes_than_declared_are_written(web: Web, tmp_path: Path) -> None:
    longest = 0

    def watch(*_: object) -> None:
        nonlocal longest
        longest = max(longest, (tmp_path / f"{NAME}.part").stat().st_size)

    web.plan = [server.endless, server.endless]
    with pytest.raises(BadFileError, match="has the md5"), heard_by(watch):
        fetch(remote(web), tmp_path)
    assert longest == len(CONTENT)
    assert names(tmp_path) == []


def test_a_length_that_nobody_knows_is_refused(web: Web, tmp_path: Path) -> None:
    web.plan = [server.endless]
    with pytest.raises(BadFileError, match="does not say how long the file is"):
        fetch(remote(web, sized=False), tmp_path)
    assert names(tmp_path) == []


def test_a_part_nobody_asked_for_is_refused(web: Web, tmp_path: Path) -> None:
    web.plan = [server.says(206, Content_Range="bytes 0-9/10")]
    with pytest.raises(BadFileError, match="answers with another part"):
        fetch(remote(web), tmp_path)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x", "gopher://127.0.0.1/"])
def test_is_not_sent_on_to_other_schemes(web: Web, tmp_path: Path, target: str) -> None:
    web.plan = [server.says(302, Location=target)]
    refused = f"Redirection to url '{re.escape(target)}' is not allowed|unknown url type: ftp"
    with pytest.raises(BadFileError, match=refused):
        fetch(remote(web), tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize("target", ["http://", "http://127.0.0.1:x/", f"http://{'a' * 70}.b/"])
def test_is_not_sent_on_to_no_address(web: Web, tmp_path: Path, target: str) -> None:
    web.plan = [server.says(302, Location=target)] * 9
    with pytest.raises(BadFileError, match="cannot be downloaded"):
        fetch(remote(web), tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x", "/etc/passwd"])
def test_opens_no_other_schemes(tmp_path: Path, url: str) -> None:
    with pytest.raises(BadFileError, match="unknown url type"):
        fetch(described(CONTENT, url), tmp_path)


def test_a_circle_of_redirects(web: Web, tmp_path: Path) -> None:
    web.plan = [server.says(302, Location=web.url(NAME))] * 50
    with pytest.raises(BadFileError, match=r"answers 302: .* infinite loop"):
        fetch(remote(web), tmp_path)
    assert len(web.asked) < 20


# servers that are not there


def test_the_next_address_when_one_does_not_have_it(web: Web, tmp_path: Path) -> None:
    web.plan = [server.says(404)]
    fetch(described(CONTENT, web.url("gone"), web.url("here")), tmp_path)
    assert is_whole(tmp_path)
    assert [path for path, _ in web.asked] == ["/gone", "/here"]


def test_nobody_has_it(web: Web, tmp_path: Path) -> None:
    web.plan = [server.says(404), server.says(403)]
    host = f"127.0.0.1:{web.server_port}"
    with pytest.raises(BadFileError) as caught:
        fetch(described(CONTENT, web.url("a"), web.url("b")), tmp_path)
    assert str(caught.value) == (
        f"{NAME} cannot be downloaded ({host}: answers 404: Not Found; {host}: answers 403: Forbidden); "
        f"get it by hand from {web.url('a')} or {web.url('b')} and put it at {tmp_path / NAME}"
    )
    assert names(tmp_path) == []


def test_a_connection_that_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("there is no server to wait for"))
    with pytest.raises(
        BadFileError, match=r"127.0.0.1:9: Connection refused\); get it by hand from http.* and put it at"
    ):
        fetch(described(CONTENT, "http://127.0.0.1:9/set.bin"), tmp_path)
    assert names(tmp_path) == []


def test_a_name_that_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(BadFileError, match=r"nowhere.invalid: Name or service not known\); get it by hand"):
        fetch(described(CONTENT, "https://nowhere.invalid/set.bin"), tmp_path)


# this machine


def test_what_was_put_there_by_hand_is_not_replaced(web: Web, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"mine")
    with pytest.raises(BadFileError, match=r"not the published file: has 4 bytes instead of 700,001; move it away"):
        fetch(remote(web), tmp_path)
    assert (tmp_path / NAME).read_bytes() == b"mine"


def test_a_full_disk_is_seen_beforehand(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(BadFileError, match="needs 700,001 bytes more, and 1,000 are free there"):
        fetch(remote(web), tmp_path)
    assert web.asked == []
    assert names(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_fills_up(web: Web, tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.part").symlink_to("/dev/full")
    with pytest.raises(BadFileError, match=rf"{NAME}.part: cannot be written: No space left on device"):
        fetch(remote(web), tmp_path)


FETCH = """
import sys
from pathlib import Path
from promptpool.data.downloads import fetch
from promptpool.data.sets.published import Remote
from promptpool.progress import heard_by
url, size, md5, folder = sys.argv[1:]
with heard_by(lambda what, done, total: print(what, done, flush=True)):
    fetch(Remote("set.bin", (url,), int(size), md5), Path(folder))
"""


def another_process(wanted: Remote, folder: Path) -> subprocess.Popen[str]:
    arguments = [*wanted.urls, str(wanted.size), wanted.md5, str(folder)]
    return subprocess.Popen([sys.executable, "-c", FETCH, *arguments], stdout=subprocess.PIPE, text=True)


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_process_that_is_killed_is_gone_on_with(web: Web, tmp_path: Path) -> None:
    web.plan = [server.stall]
    with another_process(remote(web), tmp_path) as process:
        while next_line(process) != f"{NAME} {web.half}":
            assert process.poll() is None
        process.kill()
    assert names(tmp_path) == [f"{NAME}.lock", f"{NAME}.part"]
    fetch(remote(web), tmp_path)
    assert is_whole(tmp_path)
    assert web.ranges == [None, f"bytes={web.half}-"]


def test_two_processes_fetch_it_once(web: Web, tmp_path: Path) -> None:
    web.plan = [server.stall]
    with another_process(remote(web), tmp_path) as first, another_process(remote(web), tmp_path) as second:
        said = [next_line(first), next_line(second)]
        assert sorted(said) == [f"{NAME} 0", f"waiting for another process: {NAME}.lock 0"]
        web.gate.set()
        first.communicate(timeout=60)
        second.communicate(timeout=60)
    assert (first.returncode, second.returncode) == (0, 0)
    assert is_whole(tmp_path)
    assert web.ranges == [None]


# sets of files


def tar_of(files: dict[str, bytes], change: Callable[[tarfile.TarInfo], None] = lambda _: None) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            change(member)
            archive.addfile(member, io.BytesIO(content) if member.isfile() else None)
    return written.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return written.getvalue()


def to_link(member: tarfile.TarInfo) -> None:
    member.type, member.linkname, member.size = tarfile.SYMTYPE, "/etc", 0


def published(web: Web, monkeypatch: pytest.MonkeyPatch, content: bytes, name: str = "toy.tar.gz") -> None:
    """A set named toy, served by `web`."""
    web.content = content
    file = described(content, web.url(name), name=name, unpack=True, holds="toy-images")
    monkeypatch.setitem(
        PUBLISHED, "toy", Published("Toy", "http://toy", "none", 2, 2, 0, (file,), lambda folder: Contents(2, 0, 2))
    )


TOY = {"toy-images/a/1.png": b"one", "toy-images/b/2.png": b"two"}


def test_a_set_is_fetched_and_unpacked_once(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published(web, monkeypatch, tar_of(TOY))
    assert get("toy", tmp_path) == tmp_path / "toy"
    assert (tmp_path / "toy/toy-images/a/1.png").read_bytes() == b"one"
    assert names(tmp_path / "toy") == ["toy-images", "toy.tar.gz"]
    before = (tmp_path / "toy/toy-images").stat().st_ino
    get("toy", tmp_path)
    assert len(web.asked) == 1
    assert (tmp_path / "toy/toy-images").stat().st_ino == before


def test_a_folder_that_is_missing_is_unpacked_again(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published(web, monkeypatch, tar_of(TOY))
    get("toy", tmp_path)
    shutil.rmtree(tmp_path / "toy/toy-images")
    assert [finding.text for finding in check("toy", tmp_path)] == ["not unpacked"]
    get("toy", tmp_path)
    assert (tmp_path / "toy/toy-images/b/2.png").read_bytes() == b"two"
    assert len(web.asked) == 1


def test_unpacked_files_are_enough(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published(web, monkeypatch, tar_of(TOY))
    (tmp_path / "toy/toy-images").mkdir(parents=True)
    get("toy", tmp_path)
    assert web.asked == []
    (finding,) = check("toy", tmp_path)
    assert (finding.state, finding.good) == ("unpacked only", True)


@pytest.mark.parametrize("signal", [KeyboardInterrupt, OSError("No space left on device")])
def test_unpacking_that_is_stopped_leaves_nothing_half(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signal: BaseException
) -> None:
    published(web, monkeypatch, tar_of(TOY))
    read = stores.Tar.read

    def stopped(self: stores.Tar, name: str) -> bytes:
        if name.endswith("2.png"):
            raise signal
        return read(self, name)

    monkeypatch.setattr(stores.Tar, "read", stopped)
    with pytest.raises((KeyboardInterrupt, BadFileError)):
        get("toy", tmp_path)
    assert names(tmp_path / "toy") == ["toy.tar.gz"]
    monkeypatch.setattr(stores.Tar, "read", read)
    get("toy", tmp_path)
    assert names(tmp_path / "toy") == ["toy-images", "toy.tar.gz"]


def test_what_a_killed_process_left_of_unpacking_goes_away(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(web, monkeypatch, tar_of(TOY))
    (tmp_path / "toy/.unpacking-x/toy-images").mkdir(parents=True)
    (tmp_path / "toy/toy.tar.gz.part").touch()
    get("toy", tmp_path)
    assert names(tmp_path / "toy") == ["toy-images", "toy.tar.gz"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("toy.tar.gz", tar_of({"toy-images/1.png": b"one", "../evil": b"evil"})),
        ("toy.tar.gz", tar_of({"/evil": b"evil"})),
        ("toy.tar.gz", tar_of({"toy-images": b""}, to_link)),
        ("toy.zip", zip_of({"toy-images/1.png": b"one", "../evil": b"evil"})),
        ("toy.zip", zip_of({"toy-images/1.png": bytes(2**25)})),
        ("toy.zip", b"no zip at all"),
    ],
    ids=["outside", "absolute", "link", "zip-outside", "bomb", "no-archive"],
)
def test_a_malicious_archive_is_refused(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes
) -> None:
    published(web, monkeypatch, content, name)
    with pytest.raises(BadFileError, match=re.escape(name)):
        get("toy", tmp_path / "data")
    assert names(tmp_path) == ["data"]
    assert names(tmp_path / "data/toy") == [name]


def test_an_archive_of_something_else(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published(web, monkeypatch, tar_of({"other/1.png": b"one"}))
    with pytest.raises(BadFileError, match=r"toy\.tar\.gz: has no toy-images"):
        get("toy", tmp_path)


def test_the_findings(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = tar_of(TOY)
    published(web, monkeypatch, content)
    archive = tmp_path / "toy/toy.tar.gz"

    def state(*, sums: bool = True) -> tuple[str, bool, str]:
        (finding,) = check("toy", tmp_path, sums=sums)
        assert finding.path == archive
        return finding.state, finding.good, finding.text

    assert state() == ("missing", False, f"it is at {web.url('toy.tar.gz')}")
    archive.parent.mkdir()
    archive.with_name("toy.tar.gz.part").write_bytes(content[:100])
    assert state() == ("in part", False, f"100 bytes of it are here; the rest is at {web.url('toy.tar.gz')}")
    archive.write_bytes(content[:100])
    assert state() == ("wrong size", False, f"has 100 bytes instead of {len(content)}")
    archive.write_bytes(bytes(len(content)))
    zeros = hashlib.md5(bytes(len(content)), usedforsecurity=False).hexdigest()
    assert state() == ("wrong checksum", False, f"has the md5 {zeros} instead of {described(content).md5}")
    assert state(sums=False) == ("there", True, "")
    archive.write_bytes(content)
    assert state() == ("right", True, "not unpacked")
    get("toy", tmp_path)
    assert state() == ("right", True, "")


# the catalogue

WITHOUT_HTTPS = {
    "bias.csr.unibo.it",
    "fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    "ufldl.stanford.edu",
    "vps.continualai.org",
    "yann.lecun.com",
    "yaroslavvb.com",
}


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_what_is_published_is_well_described(name: str) -> None:
    described = PUBLISHED[name]
    assert re.fullmatch(r"[a-z0-9-]+", name)
    assert described.title
    assert described.licence
    assert urlsplit(described.home).scheme in ("http", "https")
    assert min(described.classes, described.train, described.test + 1) > 0
    for file in described.files:
        assert re.fullmatch(r"[0-9a-f]{32}", file.md5)
        assert file.size is None or file.size > 0
        assert "/" not in file.name
        assert file.holds or not file.unpack
        for url in map(urlsplit, file.urls):
            assert url.path.endswith(f"/{file.name}")
            assert url.scheme == "https" or (url.scheme == "http" and url.hostname in WITHOUT_HTTPS)


def test_no_two_published_files_are_the_same() -> None:
    files = [file for described in PUBLISHED.values() for file in described.files]
    assert len({file.md5 for file in files}) == len(files)
    urls = [url for file in files for url in file.urls]
    assert len(set(urls)) == len(urls)
    for described in PUBLISHED.values():
        assert len({file.name for file in described.files}) == len(described.files)
