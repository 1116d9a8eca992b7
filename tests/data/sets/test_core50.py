"""CORe50 in its publisher's layout, packed and unpacked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from image_files import image_bytes, pack_zip
from promptpool.data.images import read_images
from promptpool.data.scenarios import domain_incremental
from promptpool.data.sets.core50 import OBJECTS, core50, core50_files
from promptpool.errors import BadFileError

FRAMES = 3


@pytest.fixture(scope="module", name="folder")
def make_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every session and object, with three frames of 16 pixels each, in the 32 x 32 variant."""
    folder = tmp_path_factory.mktemp("data")
    for session in range(1, 12):
        for thing in range(1, 51):
            place = folder / f"core50/core50_32x32/s{session}/o{thing}"
            place.mkdir(parents=True)
            for frame in range(FRAMES):
                content = image_bytes(1000 * session + 10 * thing + frame)
                (place / f"C_{session:02d}_{thing:02d}_{frame:03d}.png").write_bytes(content)
    return folder


@pytest.fixture(autouse=True)
def places(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPOOL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PROMPTPOOL_DATA", str(folder))


def test_names_of_the_things() -> None:
    assert len(OBJECTS) == 50
    assert (OBJECTS[0], OBJECTS[4], OBJECTS[5], OBJECTS[49]) == (
        "plug adapter 1",
        "plug adapter 5",
        "mobile phone 1",
        "remote control 5",
    )


def test_frames_come_by_session_thing_and_time(folder: Path) -> None:
    (folder / "core50/core50_32x32/s1/o1/notes.txt").write_text("not a frame")
    _, entries = core50_files(folder / "core50", 32)
    assert len(entries) == 11 * 50 * FRAMES
    assert entries[0] == ("s1/o1/C_01_01_000.png", "plug adapter 1", "s1", "train")
    assert [entry.group for entry in entries[:: 50 * FRAMES]] == [f"s{session}" for session in range(1, 12)]
    assert {entry.group for entry in entries if entry.split == "test"} == {"s3", "s7", "s10"}


def test_eight_sessions_to_train_on_and_three_to_test(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = core50(variant=32)
    assert [len(domain) for domain in whole.domains] == [50 * FRAMES] * 8
    assert len(whole.test) == 3 * 50 * FRAMES
    assert whole.class_names == OBJECTS
    for domain in (*whole.domains, whole.test):
        assert domain.classes == tuple(range(50))
    stream = domain_incremental(*whole)
    (tmp_path / "core50").mkdir()
    pack_zip(folder / "core50", tmp_path / "core50/core50_32x32.zip")
    monkeypatch.setenv("PROMPTPOOL_DATA", str(tmp_path))
    assert domain_incremental(*core50(variant=32)).fingerprint == stream.fingerprint


def test_a_frame_that_is_no_image_is_noted(folder: Path) -> None:
    frame = "s1/o1/C_01_01_000.png"
    path = folder / "core50/core50_32x32" / frame
    content = path.read_bytes()
    path.write_bytes(b"nothing")
    try:
        assert [name for name, _ in core50(variant=32).notes.skipped] == [frame]
    finally:  # the folder serves all tests here
        path.write_bytes(content)


def test_fewer_frames_are_spread_over_time() -> None:
    whole, few = core50(variant=32), core50(variant=32, train_per_class=2, test_per_class=1)
    assert [len(domain) for domain in few.domains] == [100] * 8
    assert len(few.test) == 150
    assert torch.equal(few.domains[0].ids[:2], whole.domains[0].ids[[0, 1]])
    assert torch.equal(few.test.ids, whole.test.ids[::FRAMES])
    assert torch.equal(core50(variant=32, train_per_class=99).domains[3].ids, whole.domains[3].ids)


@pytest.mark.parametrize("name", ["train_per_class", "test_per_class"])
def test_counts_are_at_least_one(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} = 0"):
        core50(**{name: 0})


def test_what_is_missing_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="variant = 64"):
        core50(variant=64)
    with pytest.raises(BadFileError, match=r"put core50_128x128\.zip here, or `promptpool data get core50`"):
        core50()
    monkeypatch.setenv("PROMPTPOOL_DATA", str(tmp_path))
    frame = tmp_path / "core50/core50_128x128/s1/o1/C_01_01_000.png"
    frame.parent.mkdir(parents=True)
    with pytest.raises(BadFileError, match="no frames such as"):
        core50()
    frame.write_bytes(image_bytes(0))
    frame.with_name("C_02_01_000.png").write_bytes(image_bytes(0))  # says another session than its folder
    assert len(core50_files(tmp_path / "core50")[1]) == 1
    with pytest.raises(BadFileError, match="session 1 has no plug adapter 2"):
        core50()


@pytest.mark.real
@pytest.mark.skipif("PROMPTPOOL_REAL_DATA" not in os.environ, reason="PROMPTPOOL_REAL_DATA names no folder")
def test_published_frames() -> None:
    store, entries = core50_files(Path(os.environ["PROMPTPOOL_REAL_DATA"]) / "core50")
    album = read_images(store, entries, size=128, strict=True)
    assert len(album.entries) >= 90
    assert {entry.group for entry in album.entries} >= {f"s{session}" for session in range(1, 10)}
    if len(album.entries) == 90:
        pixels = album.examples(OBJECTS).batch(slice(None)).x
        assert pixels.shape == (90, 3, 128, 128)
        assert float(pixels.float().mean()) == pytest.approx(151.53, abs=0.01)
