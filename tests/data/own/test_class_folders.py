"""Class folders in every layout that people have them in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from image_files import image_bytes, pack_tar, pack_zip, write_images
from promptpool.data.images import ImageFile, read_images
from promptpool.data.own.class_folders import natural, read_class_folders
from promptpool.errors import BadFileError


def found(path: Path) -> list[tuple[str, ...]]:
    """Label, group and split of each file, in order, without names."""
    return [entry[1:] for entry in read_class_folders(path)[1]]


def laid_out(tmp_path: Path, *names: str) -> Path:
    return write_images(tmp_path / "images", names)


def test_class_folders(tmp_path: Path) -> None:
    path = laid_out(tmp_path, "cat/1.png", "cat/2.jpg", "dog/1.png")
    store, entries = read_class_folders(path)
    assert entries == [ImageFile("cat/1.png", "cat"), ImageFile("cat/2.jpg", "cat"), ImageFile("dog/1.png", "dog")]
    assert store.read("cat/1.png") == image_bytes(0)


def test_below_train_and_test(tmp_path: Path) -> None:
    path = laid_out(tmp_path, "Train/cat/1.png", "test/cat/1.png", "test/dog/1.png")
    assert sorted(found(path)) == [("cat", "", "test"), ("cat", "", "train"), ("dog", "", "test")]


@pytest.mark.parametrize("name", ["val", "valid", "Validation"])
def test_validation_is_the_test_where_there_is_none(tmp_path: Path, name: str) -> None:
    path = laid_out(tmp_path, "train/cat/1.png", f"{name}/cat/1.png")
    assert sorted(found(path)) == [("cat", "", "test"), ("cat", "", "train")]
    write_images(path, ["test/dog/1.png"])
    assert sorted(found(path)) == [("cat", "", "train"), ("dog", "", "test")]


def test_only_train(tmp_path: Path) -> None:
    assert found(laid_out(tmp_path, "train/cat/1.png", "train/dog/1.png")) == [
        ("cat", "", "train"),
        ("dog", "", "train"),
    ]


def test_tasks_in_natural_order(tmp_path: Path) -> None:
    path = laid_out(tmp_path, "task10/cat/1.png", "task2/dog/1.png", "Task1/cow/10.png", "Task1/cow/9.png")
    entries = read_class_folders(path)[1]
    assert [entry.group for entry in entries] == ["Task1", "Task1", "task2", "task10"]
    assert [entry.name for entry in entries[:2]] == ["Task1/cow/9.png", "Task1/cow/10.png"]
    assert {entry.split for entry in entries} == {""}


def test_names_in_natural_order() -> None:
    ordered = ["", "1a", "9", "10", "a", "a01", "a1", "a1b", "a2", "a10", "B", "c"]
    backwards = list(reversed(ordered))
    assert sorted(backwards, key=natural) == ordered
    assert natural("9" * 10_000) > natural("8" * 10_000)


@pytest.mark.parametrize("name", ["train/a/cat/1.png", "a/train/cat/1.png"])
def test_tasks_above_or_below_train_and_test(tmp_path: Path, name: str) -> None:
    names = [name, name.replace("a/", "b/").replace("cat", "dog"), name.replace("train", "test")]
    assert sorted(found(laid_out(tmp_path, *names))) == [
        ("cat", "a", "test"),
        ("cat", "a", "train"),
        ("dog", "b", "train"),
    ]


def test_tasks_to_train_on_and_one_test_for_all(tmp_path: Path) -> None:
    path = laid_out(tmp_path, "train/a/cat/1.png", "train/b/cat/1.png", "test/cat/1.png")
    assert sorted(found(path)) == [("cat", "", "test"), ("cat", "a", "train"), ("cat", "b", "train")]


@pytest.mark.parametrize(
    "names",
    [
        ["cat/1.png", "dog/2.jpg", "dog/3.gif"],
        ["train/cat/1.png", "train/dog/2.jpg", "test/cat/3.gif", "test/dog/4.png"],
        ["t2/cat/1.png", "t10/dog/2.jpg"],
    ],
)
def test_a_folder_a_zip_and_a_tar_say_the_same(tmp_path: Path, names: list[str]) -> None:
    folder = laid_out(tmp_path, *names)
    around = tmp_path / "around"
    around.mkdir()
    folder.rename(around / "images")
    expected = found(around / "images")
    for path in (
        around,
        pack_zip(around / "images", tmp_path / "images.zip"),
        pack_zip(around, tmp_path / "around.zip"),
        pack_tar(around / "images", tmp_path / "images.tar", "./"),
        pack_tar(around, tmp_path / "around.tar.gz", "deep/deeper/"),
    ):
        assert found(path) == expected
        store, entries = read_class_folders(path)
        assert len(read_images(store, entries, size=8).entries) == len(names)


def test_clutter_is_not_there(tmp_path: Path) -> None:
    path = laid_out(tmp_path, "cat/1.png", "dog/1.png")
    for name in (".hidden/x.png", "cat/.x.png", "cat/Thumbs.db", "dog/desktop.ini", "__MACOSX/cat/1.png"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(b"clutter")
    for place in (path, pack_zip(path, tmp_path / "images.zip")):
        assert found(place) == [("cat", "", ""), ("dog", "", "")]


def test_other_files_are_entries_that_end_as_skipped(tmp_path: Path) -> None:
    path = laid_out(tmp_path, "cat/1.png", "cat/notes.txt", "dog/1.png", "README.txt", "dog/more/licence.txt")
    (path / "LICENSE").write_text("free")
    store, entries = read_class_folders(path)
    labels = {entry.name: entry.label for entry in entries}
    assert labels["cat/notes.txt"] == "cat"
    assert labels["README.txt"] == labels["LICENSE"] == labels["dog/more/licence.txt"] == ""
    decoded = read_images(store, entries, size=8)
    assert len(decoded.entries) == 2
    assert len(decoded.skipped) == 4
    assert ("README.txt", "lies in no class folder") in decoded.skipped


def test_images_need_no_suffix(tmp_path: Path) -> None:
    path = tmp_path / "images"
    for name in ("a/0001", "b/0002"):
        (path / name).parent.mkdir(parents=True)
        (path / name).write_bytes(image_bytes(1))
    assert found(path) == [("a", "", ""), ("b", "", "")]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["cat/1.png", "dogs/small/1.png"], r"different depths \(cat/1.png and dogs/small/1.png\)"),
        (["1.png", "cat/1.png"], "different depths"),
        (["1.png", "2.png"], "1.png lies in no class folder"),
        (["train/1.png", "test/1.png"], "1.png lies in no class folder"),
        (["cat/train/1.png", "cat/test/1.png", "dog/train/1.png"], "lies in no class folder"),
        (["a/b/c/d/1.png", "a2/b/c/d/1.png"], "lies in no class folder"),
        (["train/cat/1.png", "test/cat/1.png", "extra/cat/1.png"], "extra lies beside train or test"),
        (["train/cat/1.png", "train/a/dog/1.png", "test/cat/1.png"], "different depths"),
    ],
)
def test_a_layout_that_is_not_known_is_one_line_with_those_that_are(
    tmp_path: Path, names: list[str], said: str
) -> None:
    with pytest.raises(BadFileError, match=said) as caught:
        read_class_folders(laid_out(tmp_path, *names))
    assert "expected CLASS/image or TASK/CLASS/image" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_classes_may_be_called_train_and_test(tmp_path: Path) -> None:
    assert found(laid_out(tmp_path, "train/1.png", "bus/1.png")) == [("bus", "", ""), ("train", "", "")]


def test_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "images/cat").mkdir(parents=True)
    with pytest.raises(BadFileError, match="holds no files; expected CLASS/image"):
        read_class_folders(tmp_path / "images")
    with pytest.raises(BadFileError, match="no such file or folder"):
        read_class_folders(tmp_path / "nowhere")


def test_links_to_folders_are_not_followed_and_named(tmp_path: Path) -> None:
    path = laid_out(tmp_path, "cat/1.png", "dog/1.png")
    write_images(tmp_path / "outside", ["1.png"])
    (path / "cow").symlink_to(tmp_path / "outside")
    (path / "kitten").symlink_to(path / "cat")
    store, entries = read_class_folders(path)
    decoded = read_images(store, entries, size=8)
    assert [entry.label for entry in decoded.entries] == ["cat", "dog"]
    assert [name for name, _ in decoded.skipped] == ["cow", "kitten"]
    only = tmp_path / "only"
    only.mkdir()
    (only / "cow").symlink_to(tmp_path / "outside")
    with pytest.raises(BadFileError, match="only links to folders"):
        read_class_folders(only)


def test_a_class_whose_name_is_no_text(tmp_path: Path) -> None:
    path = laid_out(tmp_path, "cat/1.png")
    os.mkdir(os.fsencode(path) + b"/\xff")
    with open(os.fsencode(path) + b"/\xff/1.png", "wb") as file:
        file.write(image_bytes(1))
    store, entries = read_class_folders(path)
    assert sorted(entry.label for entry in entries) == ["?", "cat"]
    assert len(read_images(store, entries, size=8).entries) == 2
