"""Files by name in folders, zips and tars: the same content, and nothing but refusals for what is malicious."""

from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import tarfile
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from damage import damaged, outcome
from promptpool.data import stores
from promptpool.data.stores import Folder, Tar, Zip, is_archive, open_store, unpack
from promptpool.errors import BadFileError

FILES = {
    "set/one.txt": b"first",
    "set/two/deep.bin": bytes(range(256)) * 9,
    "set/empty": b"",
    "set/" + "long name " * 12 + "/ß ü.png": b"x",
}
KINDS = ["folder", "zip", "tar", "tar.gz", "tgz", "tar.bz2", "tar.xz"]


def member(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE) -> tuple[tarfile.TarInfo, bytes]:
    about = tarfile.TarInfo(name)
    about.type, about.size, about.mtime, about.linkname = kind, len(content), 7, "target"
    return about, content


def write_tar(path: Path, *members: tuple[tarfile.TarInfo, bytes], how: int = tarfile.PAX_FORMAT) -> Path:
    mode = {".gz": "w:gz", ".tgz": "w:gz", ".bz2": "w:bz2", ".xz": "w:xz"}.get(path.suffix, "w")
    with tarfile.open(path, mode, format=how) as archive:  # type: ignore[call-overload]
        for about, content in members:
            archive.addfile(about, io.BytesIO(content))
    return path


def write_zip(path: Path, files: dict[str, bytes], packing: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, packing)
    return path


def make(kind: str, folder: Path, files: dict[str, bytes] = FILES) -> Path:
    path = folder / f"data.{kind}"
    if kind == "zip":
        return write_zip(path, files)
    if kind != "folder":
        return write_tar(path, *(member(name, content) for name, content in files.items()))
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_holds_the_same(kind: str, tmp_path: Path) -> None:
    path = make(kind, tmp_path)
    store = open_store(path)
    assert store.where == path
    assert sorted(store.names()) == sorted(FILES)
    for name in sorted(FILES, reverse=True):
        assert store.read(name) == FILES[name]
    assert is_archive(path) == (kind != "folder")


@pytest.mark.parametrize("how", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_way_to_write_a_tar(how: int, tmp_path: Path) -> None:
    names = ["short", "n" * 100, "folder/" * 20 + "name", "ü/ß"]
    if how != tarfile.USTAR_FORMAT:
        names += ["m" * 101, "folder/" * 60 + "name", "x" * 200 + "/y"]
    path = write_tar(tmp_path / "data.tar", *(member(name, name.encode()) for name in names), how=how)
    store = open_store(path)
    assert store.names() == names
    assert [store.read(name).decode() for name in names] == names


def test_folders_within_archives_are_no_files(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "data.tar", member("a", kind=tarfile.DIRTYPE), member("./a/b", b"1"))
    assert open_store(path).names() == ["a/b"]
    assert open_store(write_zip(tmp_path / "data.zip", {"a/": b"", "a/b": b"1"})).names() == ["a/b"]


def test_old_tars_tell_folders_by_their_names(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "data.tar", member("a/", kind=tarfile.AREGTYPE), member("a/b", b"1", tarfile.AREGTYPE))
    assert open_store(path).names() == ["a/b"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stamp_changes_with_the_file(kind: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = open_store(make(kind, tmp_path / "a", {"x": b"one", "y": b"same"}))
    second = open_store(make(kind, tmp_path / "b", {"x": b"three", "y": b"same"}))
    assert first.stamp("x") != second.stamp("x")
    assert first.stamp("x") == first.stamp("x")
    if kind != "folder":
        assert first.stamp("y") == second.stamp("y")


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_that_is_not_there(kind: str, tmp_path: Path) -> None:
    store = open_store(make(kind, tmp_path))
    assert str(store.where) in outcome(store.read, "set/three.txt")
    assert outcome(store.stamp, "set/three.txt")


def test_nothing_there(tmp_path: Path) -> None:
    assert outcome(open_store, tmp_path / "nothing") == f"{tmp_path / 'nothing'}: no such file or folder"


def test_a_folder_shows_no_hidden_files_and_nothing_outside(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    (inside / ".git").mkdir(parents=True)
    (inside / ".git/config").write_bytes(b"1")
    (inside / ".hidden").write_bytes(b"1")
    (inside / "seen").write_bytes(b"1")
    (tmp_path / "secret").write_bytes(b"1")
    (inside / "out").symlink_to(tmp_path / "secret")
    (inside / "in").symlink_to("seen")
    (inside / "circle").symlink_to("circle")
    (inside / "dangling").symlink_to("nowhere")
    os.mkfifo(inside / "pipe")
    store = Folder(inside)
    assert {"seen", "in", "out"} <= {*store.names()}
    assert not [name for name in store.names() if name.startswith(".")]
    assert store.read("in") == b"1"
    assert "lies outside" in outcome(store.read, "out")
    assert "lies outside" in outcome(store.read, "../secret")
    assert "not a regular file" in outcome(store.read, "pipe")
    for name in ("circle", "dangling", "seen/x", "nul\0", "x" * 300):
        assert "cannot be read" in outcome(store.read, name)
        assert "cannot be read" in outcome(store.stamp, name)


OUTSIDE = [
    "../x",
    "a/../../x",
    "/x",
    "//x",
    "..",
    "a/..",
    "\\x",
    "..\\x",
    "C:\\x",
    "c:x",
    ".//x/../../y",
    ".//x",
    "./../x",
]


@pytest.mark.parametrize("name", [*OUTSIDE, "a\nb"])
def test_names_that_lead_outside_are_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for path in (
        write_tar(tmp_path / "in/data.tar", member("fine", b"1"), member(name, b"1")),
        write_zip(tmp_path / "in/data.zip", {"fine": b"1", name: b"1"}),
    ):
        assert "leads outside" in outcome(open_store, path)
        assert "leads outside" in outcome(unpack, path, tmp_path / "in/to")
        path.unlink()
    assert [*tmp_path.rglob("*")] == [tmp_path / "in"]


@pytest.mark.parametrize("kind", [b"1", b"2", b"3", b"4", b"6", b"S", b"Z"])
def test_links_and_devices_in_a_tar_are_refused(kind: bytes, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "data.tar.gz", member("fine", b"1"), member("bad", b"", kind))
    assert "'bad': a link or device" in outcome(unpack, path, tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_links_in_a_zip_are_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("bad")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    assert "'bad': a link" in outcome(unpack, tmp_path / "data.zip", tmp_path / "to")


def test_a_sparse_file_is_refused(tmp_path: Path) -> None:
    about, content = member("sparse", b"1")
    about.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.realsize": str(2**50)}
    assert "link or device" in outcome(open_store, write_tar(tmp_path / "data.tar", (about, content)))


@pytest.mark.parametrize("kind", KINDS)
def test_unpacking(kind: str, tmp_path: Path) -> None:
    unpack(make(kind, tmp_path), tmp_path / "deep/to")
    assert tree(tmp_path / "deep/to") == FILES
    assert [path.name for path in (tmp_path / "deep/to").iterdir()] == ["set"]


@pytest.mark.parametrize("there", ["folder", "file", "link"])
def test_unpacking_replaces_what_is_there_as_a_whole(there: str, tmp_path: Path) -> None:
    (tmp_path / "to/other").mkdir(parents=True)
    (tmp_path / "to/other/kept").write_bytes(b"1")
    if there == "folder":
        (tmp_path / "to/set/old").mkdir(parents=True)
    elif there == "file":
        (tmp_path / "to/set").write_bytes(b"old")
    else:
        (tmp_path / "to/set").symlink_to("other")
    unpack(make("zip", tmp_path), tmp_path / "to")
    assert tree(tmp_path / "to") == {**FILES, "other/kept": b"1"}
    assert not (tmp_path / "to/set").is_symlink()


@pytest.mark.parametrize("kind", KINDS[1:])
def test_what_cannot_be_read_whole_leaves_nothing(kind: str, tmp_path: Path) -> None:
    path = make(kind, tmp_path, {"set/a": b"a" * 5000, "set/b": os.urandom(5000)})
    (tmp_path / "to/set").mkdir(parents=True)
    (tmp_path / "to/set/old").write_bytes(b"old")
    content = path.read_bytes()
    for end in (len(content) // 8, len(content) // 4, len(content) // 2):
        path.write_bytes(content[:end])
        assert outcome(unpack, path, tmp_path / "to").startswith(f"{path}: ")
        assert tree(tmp_path / "to") == {"set/old": b"old"}


@pytest.mark.parametrize("files", [{"a": b"1", "a/b": b"2"}, {"a/b": b"2", "a": b"1"}, {"x" * 300: b"1"}])
def test_names_that_no_disk_takes_leave_nothing(files: dict[str, bytes], tmp_path: Path) -> None:
    for path in (write_zip(tmp_path / "data.zip", files), make("tar", tmp_path, files)):
        assert "cannot be unpacked into" in outcome(unpack, path, tmp_path / "to")
        assert tree(tmp_path / "to") == {}


def test_a_zip_with_an_empty_name_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "data.zip", {"": b"1"})
    assert "'': leads outside" in outcome(open_store, path)


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "data.zip", {"secret": b"1234"})
    content = bytearray(path.read_bytes())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    assert "password" in outcome(open_store(path).read, "secret")


@pytest.mark.parametrize("packing", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_zip_packed_with_unbounded_memory_is_refused(packing: int, tmp_path: Path) -> None:
    path = write_zip(tmp_path / "data.zip", {"x": b"1234"}, packing)
    assert "packed in a way that is not read here" in outcome(open_store, path)


def test_a_zip_whose_content_is_not_what_its_sum_says(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "data.zip", {"x": b"1234567"}, zipfile.ZIP_STORED)
    path.write_bytes(path.read_bytes().replace(b"1234567", b"1234568"))
    assert "cannot be read" in outcome(open_store(path).read, "x")


def test_a_gzipped_tar_whose_content_is_not_what_its_sum_says(tmp_path: Path) -> None:
    content = bytearray(make("tar.gz", tmp_path).read_bytes())
    content[-8] ^= 1
    (tmp_path / "data.tar.gz").write_bytes(content)
    assert "CRC" in outcome(open_store, tmp_path / "data.tar.gz")


def small(refuse: Path) -> str:
    """The refusal, which must come in little memory."""
    tracemalloc.start()
    try:
        message = outcome(open_store, refuse)
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()
    return message


def header(name: str, size: int, kind: bytes = b"0") -> bytes:
    about, _ = member(name, kind=kind)
    about.size = size
    return about.tobuf(tarfile.GNU_FORMAT)


def zeros(count: int) -> bytes:
    return gzip.compress(bytes(2**24), mtime=0) * count


@pytest.mark.parametrize("kind", [b"0", b"x", b"g", b"L", b"K"])
@pytest.mark.parametrize("size", [2**30, 2**40, 2**80])
def test_a_tar_that_would_fill_memory_is_refused(kind: bytes, size: int, tmp_path: Path) -> None:
    path = tmp_path / "data.tar.gz"
    path.write_bytes(gzip.compress(header("bomb", size, kind)) + zeros(64))
    assert small(path)


def test_endless_headers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data.tar.gz"
    path.write_bytes(gzip.compress(header("name", 512, b"L") + b"a" * 512) * 2000)
    assert "extended header" in small(path)
    path.write_bytes(gzip.compress(header("x", 0, b"x") * 2000))
    assert small(path)
    monkeypatch.setattr(stores, "LARGEST_RATIO", 10)
    path.write_bytes(gzip.compress(header("same", 0) * 2**15) * 8)
    assert "refused" in small(path)


def test_an_endless_map_of_a_sparse_file_is_refused(tmp_path: Path) -> None:
    about = bytearray(header("sparse", 0, b"S"))
    about[482] = 1  # more of the map follows
    about[148:156] = b"%06o\0 " % (sum(about[:148]) + 8 * 32 + sum(about[156:]))
    block = (b"00000000000\0" * 42)[:504] + b"\1" + bytes(7)
    path = tmp_path / "data.tar.gz"
    path.write_bytes(gzip.compress(bytes(about) + block * 2**15))
    assert "extended header" in small(path)


@pytest.mark.parametrize("size", [-1, -512, -(2**40)])
def test_a_size_below_zero_is_refused(size: int, tmp_path: Path) -> None:
    about, _ = member("back")
    about.pax_headers = {"size": str(size)}
    path = write_tar(tmp_path / "data.tar", (about, b""))
    assert outcome(open_store, path).startswith(f"{path}: ")
    for kind in (b"0", b"x", b"L"):
        path.write_bytes(header("fine", 0) + header("back", size, kind) + bytes(1024))
        assert outcome(open_store, path).startswith(f"{path}: ")


@pytest.mark.parametrize(
    "records", [b"5 a=\n5", b"0 a=\n", b"99 a=b\n", b"6 a=b\nx", b"6 ab \n", b"x a=b\n", b"-6 a=b\n"]
)
def test_extended_headers_that_are_damaged(records: bytes, tmp_path: Path) -> None:
    path = tmp_path / "data.tar"
    path.write_bytes(header("x", len(records), b"x") + records.ljust(512, b"\0") + header("name", 0) + bytes(1024))
    assert outcome(open_store, path) or open_store(path).names() == ["name"]


def test_a_damaged_header_is_not_the_end(tmp_path: Path) -> None:
    path = make("tar", tmp_path, {"a": b"1", "b": b"2"})
    content = bytearray(path.read_bytes())
    content[1024] ^= 1
    path.write_bytes(content)
    assert "at byte 1024 there is neither a file nor the end" in outcome(open_store, path)
    path.write_bytes(content[:1024])
    assert "cut off" in outcome(open_store, path)


def test_a_zip_that_would_fill_memory_is_refused(tmp_path: Path) -> None:
    assert "refused" in small(write_zip(tmp_path / "data.zip", {"x": bytes(2**26)}))
    path = write_zip(tmp_path / "data.zip", {f"{index}": bytes(2**20) for index in range(40)})
    assert "refused" in small(path)


def test_a_zip_that_declares_less_than_it_holds(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "data.zip", {"x": bytes(2**24)})
    content = path.read_bytes().replace(struct.pack("<I", 2**24), struct.pack("<I", 5))
    path.write_bytes(content)
    assert "cannot be read" in outcome(open_store(path).read, "x")


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_too_large_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(make(kind, tmp_path))
    monkeypatch.setattr(stores, "LARGEST_FILE", 1000)
    assert "2304 bytes are more" in outcome(store.read, "set/two/deep.bin")


@pytest.mark.parametrize("limit", ["LARGEST_ARCHIVE", "MOST_FILES"])
@pytest.mark.parametrize("kind", KINDS[1:])
def test_archives_that_are_too_large_are_refused(
    kind: str, limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(kind, tmp_path)
    monkeypatch.setattr(stores, limit, 2)
    assert "refused" in outcome(open_store, path)


@pytest.mark.parametrize(
    "content", [b"", b"x", b"text\n" * 500, b"PK\x03\x04", b"\x1f\x8b\x08", b"BZh9", b"\xfd7zXZ\0", b"PK\x05\x06"]
)
@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_a_file_that_is_no_archive(content: bytes, kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"data.{kind}"
    path.write_bytes(content)
    assert outcome(open_store, path).startswith(f"{path}: ")


def read_all(path: Path) -> None:
    store = open_store(path)
    for name in store.names():
        store.stamp(name)
        store.read(name)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_damaged_archives_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    path = make(kind, tmp_path)
    for content in damaged(path.read_bytes(), 300, seed=11, fields=1024):
        path.write_bytes(content)
        outcome(read_all, path)


def test_damaged_tars_are_never_taken_for_shorter_ones(tmp_path: Path) -> None:
    path = make("tar", tmp_path)
    whole = path.read_bytes()
    for end in range(0, len(whole), 512):
        path.write_bytes(whole[:end])
        assert outcome(read_all, path) or open_store(path).names() == list(FILES)


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_several_threads_read_one_archive(kind: str, tmp_path: Path) -> None:
    files = {f"{index}": bytes([index]) * 3000 for index in range(40)}
    store = open_store(make(kind, tmp_path, files))
    assert isinstance(store, Zip | Tar)
    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(store.read, files)] == [*files.values()]


def test_a_zip_that_lies_about_its_size_is_read_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "liar.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a", bytes(2**27))
    content = path.read_bytes()
    path.write_bytes(content.replace(struct.pack("<I", 2**27), struct.pack("<I", 10)))  # here and in the directory
    store = open_store(path)
    tracemalloc.start()
    try:
        with pytest.raises(BadFileError, match="cannot be read"):
            store.read("a")
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_a_folder_that_cannot_be_listed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "dog").mkdir()
    listing = os.scandir

    def refusing(path: str) -> object:
        if str(path).endswith("cat"):
            raise PermissionError(13, "Permission denied", str(path))
        return listing(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(BadFileError, match=r"cat: cannot be read: Permission denied"):
        Folder(tmp_path).names()
