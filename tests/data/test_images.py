"""Sets of image files: in memory or not, the same examples; what is no image is counted."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from pathlib import Path

import pytest
import torch

from image_files import image_bytes, pack_tar, pack_zip, write_images
from promptpool.data import images
from promptpool.data.decoding import Pixels, decode
from promptpool.data.images import DecodedImages, ImageFile, ImageFiles, read_images
from promptpool.data.stores import Store, open_store
from promptpool.data.stream import concatenate
from promptpool.errors import BadFileError, skipped_text
from promptpool.progress import heard_by

NAMES = [f"{label}/{number}{suffix}" for label in "ab" for number, suffix in enumerate((".png", ".jpg", ".gif"))]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROMPTPOOL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_images(tmp_path / "images", NAMES)


@pytest.fixture
def lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "LARGEST_IN_MEMORY", 0)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file was decoded."""
    count: Counter[str] = Counter()
    lock = threading.Lock()

    def counting(content: bytes, what: str, size: int, fit: str) -> Pixels:
        with lock:
            count[what.split(": ")[-1]] += 1
        return decode(content, what, size, fit)

    monkeypatch.setattr(images, "decode", counting)
    return count


def entries(store: Store) -> list[ImageFile]:
    return [ImageFile(name, name.split("/")[0]) for name in sorted(store.names())]


def read(path: Path, *, strict: bool = False, fit: str = "whole") -> DecodedImages:
    store = open_store(path)
    return read_images(store, entries(store), size=8, fit=fit, strict=strict)


def same(first: DecodedImages, second: DecodedImages) -> bool:
    one, two = first.examples("ab"), second.examples("ab")
    order = torch.tensor([3, 0, 5, 3, 1])
    return (
        torch.equal(one.ids, two.ids)
        and torch.equal(one.y, two.y)
        and torch.equal(one.batch(slice(None)).x, two.batch(slice(None)).x)
        and torch.equal(one.batch(order).x, two.batch(order).x)
    )


def test_a_small_set_is_held_in_memory(folder: Path) -> None:
    album = read(folder)
    assert isinstance(album.source, torch.Tensor)
    examples = album.examples("ab")
    assert examples.y.tolist() == [0, 0, 0, 1, 1, 1]
    batch = examples.batch(slice(None))
    assert batch.x.shape == (6, 3, 8, 8)
    expected = [decode((folder / name).read_bytes(), name, 8) for name in NAMES]
    assert all(torch.equal(x, torch.from_numpy(pixels)) for x, pixels in zip(batch.x, expected, strict=True))
    assert len(set(batch.ids.tolist())) == 6
    assert all(0 <= identity < 2**62 for identity in batch.ids.tolist())


@pytest.mark.parametrize("fit", ["whole", "centre"])
def test_a_large_set_is_decoded_when_asked_and_is_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fit: str
) -> None:
    held = read(folder, fit=fit)
    monkeypatch.setattr(images, "LARGEST_IN_MEMORY", 6 * 3 * 8 * 8 - 1)
    lazy = read(folder, fit=fit)
    assert isinstance(lazy.source, ImageFiles)
    assert len(lazy.source) == 6
    assert same(held, lazy)
    monkeypatch.setattr(images, "LARGEST_IN_MEMORY", 6 * 3 * 8 * 8)
    assert isinstance(read(folder, fit=fit).source, torch.Tensor)


@pytest.mark.usefixtures("lazy")
def test_batches_of_a_large_set(folder: Path) -> None:
    examples = read(folder).examples("ab")
    whole = examples.batch(slice(None))
    batches = list(examples.batches(4))
    assert [len(batch.y) for batch in batches] == [4, 2]
    assert torch.equal(torch.cat([batch.x for batch in batches]), whole.x)
    assert torch.equal(torch.cat([batch.ids for batch in batches]), whole.ids)
    joined = concatenate([examples, read(folder).examples("ab")])
    assert torch.equal(torch.cat([batch.x for batch in joined.batches(5)]), torch.cat([whole.x, whole.x]))
    assert examples.batch(slice(0, 0)).x.shape == (0, 3, 8, 8)
    with pytest.raises(IndexError):
        examples.source[torch.tensor([6])]


@pytest.mark.parametrize("held", [True, False])
def test_folder_zip_and_tar_are_one_set(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    monkeypatch.setattr(images, "LARGEST_IN_MEMORY", 2**30 if held else 0)
    archives = [pack_zip(folder, tmp_path / "images.zip"), pack_tar(folder, tmp_path / "images.tar")]
    if held:
        archives.append(pack_tar(folder, tmp_path / "images.tar.gz"))
    for archive in archives:
        assert same(read(folder), read(archive))


@pytest.mark.usefixtures("lazy")
def test_a_compressed_tar_that_does_not_fit_must_be_unpacked(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BadFileError, match=r"images\.tar\.gz: unpack it first"):
        read(pack_tar(folder, tmp_path / "images.tar.gz"))


def test_files_are_read_in_the_order_of_the_store(folder: Path, tmp_path: Path) -> None:
    store, asked = open_store(pack_tar(folder, tmp_path / "images.tar.gz")), []
    reading = store.read

    def noted(name: str) -> bytes:
        asked.append(name)
        return reading(name)

    store.read = noted  # type: ignore[method-assign]
    read_images(store, entries(store), size=8)
    assert asked == store.names() != sorted(asked)


@pytest.mark.usefixtures("lazy")
def test_the_second_start_decodes_nothing(folder: Path, decoded: Counter[str]) -> None:
    first = read(folder)
    assert sum(decoded.values()) == 6
    decoded.clear()
    second = read(folder)
    assert not decoded
    assert same(first, second)


@pytest.mark.usefixtures("lazy")
def test_a_changed_file_is_decoded_again(folder: Path, decoded: Counter[str]) -> None:
    before = read(folder)
    decoded.clear()
    (folder / NAMES[2]).write_bytes(image_bytes(77))
    after = read(folder)
    assert decoded == {NAMES[2]: 1}
    changed = (before.ids != after.ids).tolist()
    assert changed == [False, False, True, False, False, False]
    decoded.clear()
    (folder / "a/new.png").write_bytes(image_bytes(78))
    assert len(read(folder).entries) == 7
    assert decoded == {"a/new.png": 1}


@pytest.mark.usefixtures("lazy")
def test_another_size_is_another_index(folder: Path, decoded: Counter[str]) -> None:
    read(folder)
    store = open_store(folder)
    other = read_images(store, entries(store), size=9)
    assert sum(decoded.values()) == 12
    assert other.examples("ab").batch(slice(None)).x.shape == (6, 3, 9, 9)


@pytest.mark.usefixtures("lazy")
@pytest.mark.parametrize("content", [b"", b"[]", b'{"a/0.png": 3}', b"\xff\xfe", b'{"a/0.png": ["x", [1]]}'])
def test_a_damaged_index_is_made_again(folder: Path, cache: Path, decoded: Counter[str], content: bytes) -> None:
    first = read(folder)
    (index,) = (cache / "pictures").iterdir()
    index.write_bytes(content)
    decoded.clear()
    second = read(folder)
    assert sum(decoded.values()) == 6
    assert same(first, second)
    assert len(json.loads(index.read_text())) == 6


@pytest.mark.usefixtures("lazy")
def test_an_index_that_cannot_be_kept_is_no_error(folder: Path, cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    assert len(read(folder).entries) == 6


@pytest.mark.usefixtures("lazy")
def test_a_file_that_changes_during_a_run_is_found_out(folder: Path) -> None:
    examples = read(folder).examples("ab")
    (folder / NAMES[1]).write_bytes(image_bytes(99, ".jpg"))
    with pytest.raises(BadFileError, match=r"a/1\.jpg: changed after it was first read"):
        list(examples.batches(2))
    (folder / NAMES[1]).unlink()
    with pytest.raises(BadFileError, match=r"a/1\.jpg: "):
        list(examples.batches(2))


@pytest.mark.parametrize("held", [True, False])
def test_what_is_no_image_is_skipped_and_named(folder: Path, monkeypatch: pytest.MonkeyPatch, held: bool) -> None:
    whole = read(folder)
    monkeypatch.setattr(images, "LARGEST_IN_MEMORY", 2**30 if held else 0)
    write_images(folder, ["a/notes.txt"])
    (folder / "b/cut.png").write_bytes(image_bytes(3)[:60])
    (folder / "b/gone.png").symlink_to(folder / "nowhere.png")
    for _ in range(2):  # the second time from the index
        album = read(folder)
        assert [name for name, _ in album.skipped] == ["a/notes.txt", "b/cut.png", "b/gone.png"]
        assert skipped_text(album.skipped).startswith("3 files skipped: a/notes.txt (not an image")
        assert all(reason and "\n" not in reason and str(folder) not in reason for _, reason in album.skipped)
        assert [entry.name for entry in album.entries] == NAMES
        assert same(album, whole)


@pytest.mark.parametrize("held", [True, False])
def test_strictness_stops_at_a_file_that_is_no_image(folder: Path, monkeypatch: pytest.MonkeyPatch, held: bool) -> None:
    monkeypatch.setattr(images, "LARGEST_IN_MEMORY", 2**30 if held else 0)
    read(folder, strict=True)
    write_images(folder, ["a/notes.txt"])
    read(folder)
    with pytest.raises(BadFileError, match=r"a/notes\.txt: not an image"):
        read(folder, strict=True)


def test_many_skipped_files_are_counted_and_ten_are_named() -> None:
    text = skipped_text([(f"{number}.txt", "no image") for number in range(1234)])
    assert text.startswith("1,234 files skipped: 0.txt (no image); 1.txt")
    assert text.endswith("9.txt (no image); and 1,224 more")


def test_a_link_that_leads_outside_is_not_read(folder: Path, tmp_path: Path, decoded: Counter[str]) -> None:
    (tmp_path / "secret.png").write_bytes(image_bytes(50))
    (folder / "a/link.png").symlink_to(tmp_path / "secret.png")
    album = read(folder)
    assert "a/link.png (lies outside" in skipped_text(album.skipped)
    assert len(album.entries) == 6
    assert sum(decoded.values()) == 6


def test_a_name_that_is_no_text_is_skipped_or_read_like_others(folder: Path) -> None:
    strange = os.fsencode(folder) + b"/a/\xff.png"
    with open(strange, "wb") as file:
        file.write(image_bytes(60))
    assert len(read(folder).entries) == 7
    with open(strange, "wb") as file:
        file.write(b"nothing")
    text = skipped_text(read(folder).skipped)
    assert text.startswith("1 file skipped: a/?.png")
    text.encode()


def test_a_film_is_not_read_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "LARGEST_FILE", 20_000)
    with (folder / "a/film.mp4").open("wb") as file:
        file.truncate(20_001)
    album = read(folder)
    assert album.skipped == (("a/film.mp4", "more than 20,000 bytes"),)
    assert len(album.entries) == 6


def test_copies_of_an_image_share_an_id(folder: Path) -> None:
    (folder / "b/copy.png").write_bytes((folder / NAMES[0]).read_bytes())
    album = read(folder)
    by_name = {entry.name: identity for entry, identity in zip(album.entries, album.ids.tolist(), strict=True)}
    assert by_name["b/copy.png"] == by_name[NAMES[0]]
    assert len(set(by_name.values())) == 6


def test_progress_is_told(folder: Path) -> None:
    heard: list[tuple[str, int, int | None]] = []
    with heard_by(lambda *told: heard.append(told)):
        read(folder)
    assert heard == [("reading images", done, 6) for done in range(7)]


@pytest.mark.parametrize(("size", "fit"), [(0, "whole"), (8, "middle")])
def test_values_are_checked_before_anything_is_read(folder: Path, size: int, fit: str) -> None:
    with pytest.raises(ValueError, match=r"size = 0|fit = 'middle'"):
        read_images(open_store(folder), [], size=size, fit=fit)
