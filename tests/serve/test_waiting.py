"""Pictures that wait are on disk, are learned once, and are nobody's path."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from promptpool.files import write_whole
from promptpool.serve import lessons as lessons_module
from promptpool.serve.lessons import Lessons, Waiting
from promptpool.serve.limits import Limits, RefusedError
from served import picture

LIMITS = Limits()
RED, GREEN = picture("red", 1), picture("green", 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "lessons"


def kept(folder: Path, **values: Any) -> list[tuple[str, str]]:
    """Name and label of what waits after the next start."""
    return [(each.name, each.label) for each in Lessons(folder, LIMITS, **values).waiting]


def test_what_was_accepted_is_there_after_the_next_start(folder: Path) -> None:
    lessons = Lessons(folder, LIMITS)
    added, busy = lessons.add([("a.png", "mug", RED), ("b.png", "bowl, large", GREEN)])
    assert busy == []
    assert [each.label for each in added] == ["mug", "bowl, large"]
    assert kept(folder) == [("a.png", "mug"), ("b.png", "bowl, large")]
    assert lessons.content(added[0].id) == RED
    lessons.relabel(added[0].id, "cup")
    lessons.remove(added[1].id)
    assert kept(folder) == [("a.png", "cup")]
    lessons.clear()
    assert list(folder.iterdir()) == []


def test_a_picture_that_comes_again_gets_the_new_label(folder: Path) -> None:
    lessons = Lessons(folder, LIMITS)
    first, _ = lessons.add([("a.png", "mug", RED)])
    again, _ = lessons.add([("b.jpg", "cup", RED), ("c.png", "cup", GREEN)])
    assert again[0].id == first[0].id
    assert kept(folder) == [("b.jpg", "cup"), ("c.png", "cup")]
    assert len(list(folder.iterdir())) == 4


@pytest.mark.parametrize("name", ["../../evil.png", "/etc/passwd", "a\0b", "..", "x.json", "con.png/", "é" * 300, ""])
def test_names_of_clients_are_no_paths(name: str, folder: Path) -> None:
    added, _ = Lessons(folder, LIMITS).add([(name, "mug", RED)])
    identity = added[0].id
    assert {path.name.partition(".")[0] for path in folder.parent.rglob("*") if path.is_file()} == {identity}
    assert added[0].file in (identity, f"{identity}.png")
    assert len(added[0].name) <= 200
    assert added[0].name.isprintable()


def test_a_job_that_made_a_version_is_not_learned_again(folder: Path) -> None:
    for learned, expected in ((set[str](), [("a.png", "mug")]), ({"one"}, [])):
        lessons = Lessons(folder, LIMITS)
        lessons.add([("a.png", "mug", RED)])
        table, taken = lessons.take("one")
        assert table.read_text() == f"path,label\n{taken[0].file},mug\n"
        assert lessons.waiting == []
        assert kept(folder, learned=learned) == expected, "as if killed here"
        assert list(folder.glob("*.csv")) == []


def test_pictures_that_are_being_learned_stay_as_they_are(folder: Path) -> None:
    lessons = Lessons(folder, LIMITS)
    added, _ = lessons.add([("a.png", "mug", RED)])
    lessons.take("one")
    assert lessons.add([("a.png", "cup", RED), ("b.png", "cup", GREEN)]) == (lessons.waiting, ["a.png"])
    for change in (lambda: lessons.relabel(added[0].id, "cup"), lambda: lessons.remove(added[0].id)):
        with pytest.raises(RefusedError, match=r"a\.png: this picture is being learned now"):
            change()
    lessons.clear()
    assert lessons.waiting == []
    lessons.put_back("one")
    assert [each.label for each in lessons.waiting] == ["mug"]
    lessons.take("two")
    lessons.learned("two")
    assert list(folder.iterdir()) == []
    with pytest.raises(RefusedError, match="no picture waits to be learned"):
        lessons.take("three")


def test_there_is_only_so_much_room(folder: Path) -> None:
    lessons = Lessons(folder, Limits(waiting=1))
    lessons.add([("a.png", "mug", RED)])
    lessons.add([("a.png", "cup", RED)])
    with pytest.raises(RefusedError, match="1 pictures wait already, at most 1 can: learn first") as refusal:
        lessons.add([("b.png", "mug", GREEN)])
    assert (refusal.value.status, refusal.value.retry) == (429, 60)
    with pytest.raises(RefusedError, match="bytes can wait, not more"):
        Lessons(folder, Limits(waiting_bytes=len(RED))).add([("b.png", "mug", GREEN)])


@pytest.mark.parametrize("writes", range(5))
def test_on_a_full_disk_nothing_of_a_request_is_kept(
    writes: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lessons = Lessons(folder, LIMITS)
    lessons.add([("old.png", "mug", GREEN)])
    write, left = write_whole, [writes]

    def until_full(path: Path, content: bytes) -> None:
        if left[0] == 0:
            path.with_name(f".{path.name}.partial").write_bytes(content[:5])
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        left[0] -= 1
        write(path, content)

    monkeypatch.setattr(lessons_module, "write_whole", until_full)
    with pytest.raises(OSError, match="No space left"):
        lessons.add([("a.png", "mug", RED), ("old.png", "cup", GREEN), ("b.png", "mug", picture("blue", 1))])
    monkeypatch.undo()
    expected = [("old.png", "mug")] if writes < 3 else [("old.png", "cup")]  # which could not be written back
    assert [(each.name, each.label) for each in lessons.waiting] == expected
    assert kept(folder) == expected
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize(
    "change", [{"id": "0" * 32}, {"file": "../model.safetensors"}, {"label": "\x1b"}, {"name": None, "more": 1}]
)
def test_what_does_not_fit_is_not_waiting(change: dict[str, Any], folder: Path) -> None:
    (folder.parent / "model.safetensors").write_bytes(b"mine")
    added, _ = Lessons(folder, LIMITS).add([("a.png", "mug", RED)])
    note = folder / f"{added[0].id}.json"
    note.write_text(json.dumps(json.loads(note.read_text()) | change))
    assert kept(folder) == []
    assert (folder.parent / "model.safetensors").read_bytes() == b"mine"


def test_what_was_never_finished_is_taken_away(folder: Path) -> None:
    added, _ = Lessons(folder, LIMITS).add([("a.png", "mug", RED), ("b.png", "mug", GREEN)])
    (folder / f"{added[0].id}.json").unlink()
    (folder / f".{added[1].id}.json.partial").write_bytes(b"half")
    (folder / "notes.txt").write_text("mine")
    assert kept(folder) == [("b.png", "mug")]
    assert {path.name for path in folder.iterdir()} == {added[1].file, f"{added[1].id}.json", "notes.txt"}


def test_the_order_is_that_of_arrival(folder: Path) -> None:
    lessons = Lessons(folder, LIMITS)
    for number in range(5):
        lessons.add([(f"{number}", "mug", picture("red", number))])
    names = [each.name for each in lessons.waiting]
    assert names == ["0", "1", "2", "3", "4"]
    assert [name for name, _ in kept(folder)] == names
    assert all(isinstance(each, Waiting) for each in lessons.waiting)
