"""Images of one's own: which are to train and which to test on, and the stream they become."""

from __future__ import annotations

import csv
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from image_files import pack_tar, pack_zip, write_images
from promptpool.data import images
from promptpool.data.own.own import own
from promptpool.data.scenarios import OwnSet, class_incremental, from_folders, joint
from promptpool.data.stream import Examples, Notes, Stream
from promptpool.errors import BadFileError
from promptpool.training import Plan, Session, learn
from promptpool.training.checkpoint import load_checkpoint, save_checkpoint
from toys import PLAN, toy_examples, toy_learner
from toys import names as toy_names

SIZE = 8


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPOOL_CACHE", str(tmp_path / "cache"))


def names(*folders: str, each: int = 5) -> list[str]:
    return [f"{folder}/{number}.png" for folder in folders for number in range(each)]


def read(folder: Path, **values: Any) -> OwnSet:
    return own(folder=str(folder), **{"size": SIZE, **values})


def made(tmp_path: Path, files: Iterable[str], **values: Any) -> OwnSet:
    return read(write_images(tmp_path / "images", files), **values)


def counts(part: Examples) -> dict[int, int]:
    return dict(Counter(part.y.tolist()))


def ids(*parts: Examples) -> list[int]:
    return sorted(identity for part in parts for identity in part.ids.tolist())


def test_a_share_of_every_class_is_held_out(tmp_path: Path) -> None:
    found = made(tmp_path, [*names("a", each=10), *names("b", each=2), *names("c", each=1), *names("d", each=5)])
    (train,), (test,) = found.groups, found.tests
    assert found.class_names == ("a", "b", "c", "d")
    assert found.group_names == ()
    assert counts(test) == {0: 2, 1: 1, 3: 1}
    assert counts(train) == {0: 8, 1: 1, 2: 1, 3: 4}
    assert not set(ids(train)) & set(ids(test))
    assert train.batch(slice(None)).x.shape == (14, 3, SIZE, SIZE)


def test_the_seed_draws_and_draws_the_same(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", names("a", "b", each=20))
    drawn = [ids(*read(folder, seed=seed).tests) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(read(folder, held_out=0.5).tests[0]) == 20


def test_a_set_that_moves_or_grows_keeps_its_split(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", names("a", "b", each=20))
    before = read(folder)
    shutil.copytree(folder, tmp_path / "moved")
    write_images(tmp_path / "moved", [])
    for name in names("c", each=4):
        (tmp_path / "moved" / name).parent.mkdir(exist_ok=True)
        shutil.copy(folder / "a/1.png", tmp_path / "moved" / name)
    after = read(tmp_path / "moved")
    assert set(ids(*before.tests)) <= set(ids(*after.tests))
    assert set(ids(*before.groups)) - set(ids(*after.tests)) <= set(ids(*after.groups))


def test_a_test_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    found = made(tmp_path, [*names("train/a", "train/b", each=3), *names("test/a", each=2)])
    assert counts(found.groups[0]) == {0: 3, 1: 3}
    assert counts(found.tests[0]) == {0: 2}


def test_images_of_no_given_size(tmp_path: Path) -> None:
    assert made(tmp_path, names("a", "b", each=2), size=None).tests[0].batch(slice(None)).x.shape == (2, 3, 224, 224)


def test_classes_in_natural_order(tmp_path: Path) -> None:
    assert made(tmp_path, names("class10", "class9", "Class1")).class_names == ("Class1", "class9", "class10")


def test_folder_zip_tar_and_table_are_one_stream(tmp_path: Path) -> None:
    files = names("t2/a", "t2/b", "t10/c", "t10/d")
    folder = write_images(tmp_path / "images", files)
    expected = from_folders(*read(folder)).fingerprint
    for archive in (
        pack_zip(folder, tmp_path / "i.zip", "photos/"),
        pack_tar(folder, tmp_path / "i.tar"),
        pack_tar(folder, tmp_path / "i.tar.gz"),
    ):
        assert from_folders(*read(archive)).fingerprint == expected
    with (folder / "table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label", "task"])
        for name in (
            f"{task}/{label}/{n}.png"
            for task, label in (("t2", "a"), ("t2", "b"), ("t10", "c"), ("t10", "d"))
            for n in range(5)
        ):
            writer.writerow([name, name.split("/")[1], name.split("/")[0]])
    assert from_folders(*read(folder / "table.csv")).fingerprint == expected


@pytest.mark.parametrize(
    ("files", "values", "said"),
    [
        (names("a", "b"), {"held_out": 0.0}, "held_out = 0.0"),
        (names("a", "b"), {"held_out": 1.0}, "held_out = 1.0"),
        (names("a", "b"), {"fit": "all"}, "fit = 'all'"),
        (names("a", "b"), {"size": 0}, "size = 0: must be at least 1, or none"),
        (names("a", "b", each=1), {}, "no image is left to test on"),
        (names("a"), {}, "only one class, 'a'"),
        (["a/1.txt", "b/2.txt"], {}, r"no image that can be read; 2 files skipped: a/1\.txt \(not an image"),
        ([*names("train/a", "train/b"), "test/c/1.png"], {}, "test label 'c' occurs in no training image"),
        ([*names("test/a", "test/b")], {}, "no image is left to train on"),
        ([*names("train/a", "train/b", each=1), "test/a/1.txt"], {}, "no image is left to test on"),
    ],
)
def test_what_cannot_be_learned_or_tested_is_one_line(
    tmp_path: Path, files: list[str], values: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        made(tmp_path, files, **values)
    assert "\n" not in str(caught.value)


def test_a_folder_must_be_given() -> None:
    with pytest.raises(ValueError, match="folder is missing: give --data FOLDER"):
        own()
    with pytest.raises(BadFileError, match="no such file or folder"):
        own(folder="/nowhere")


def test_files_that_are_no_images(tmp_path: Path) -> None:
    files = [*names("a", "b"), "a/notes.txt"]
    found = made(tmp_path, files)
    ((name, reason),) = found.notes.skipped
    assert name == "a/notes.txt"
    assert reason.startswith("not an image")
    assert len(found.groups[0]) + len(found.tests[0]) == 10
    with pytest.raises(BadFileError, match=r"a/notes\.txt: not an image"):
        made(tmp_path, files, strict=True)


def test_copies_of_an_image_stay_together(tmp_path: Path) -> None:
    write_images(tmp_path / "set", names("cat", "dog"))
    for number in range(5):
        shutil.copy(tmp_path / "set" / names("cat")[0], tmp_path / "set/cat" / f"copy {number}.png")
    whole = read(tmp_path / "set")
    assert not set(ids(*whole.groups)) & set(ids(*whole.tests))
    assert len(ids(*whole.groups)) + len(ids(*whole.tests)) == 15


@pytest.mark.parametrize(
    ("copies", "said"),
    [
        ({"train/cat/1.png": "test/cat/9.png"}, "1 of the 3 test images are copies of training images"),
        ({"train/cat/1.png": "train/dog/9.png"}, "1 of the images are there under more than one label"),
    ],
)
def test_copies_that_spoil_a_measurement_are_said(tmp_path: Path, copies: dict[str, str], said: str) -> None:
    folder = tmp_path / "set"
    write_images(folder, [f"train/{label}/{number}.png" for label in ("cat", "dog") for number in range(3)])
    write_images(folder, ["test/cat/7.png", "test/dog/8.png"], first=50)
    for source, target in copies.items():
        shutil.copy(folder / source, folder / target)
    assert read(folder).notes.texts == (said,)


def test_classes_without_images_are_named(tmp_path: Path) -> None:
    write_images(tmp_path, [*names("cat", "dog"), "owl/1.png"])
    (tmp_path / "rat").mkdir()
    (tmp_path / "rat/1.png").write_bytes(b"none")
    notes = read(tmp_path).notes
    assert [name for name, _ in notes.skipped] == ["rat/1.png"]
    assert notes.texts == (
        "1 of the classes have no image that can be read: rat",
        "1 of the classes have no image to test on: owl",
    )


def test_which_column_was_taken_is_said(tmp_path: Path) -> None:
    files = names("a", "b")
    folder = write_images(tmp_path, files)
    lines = [f"{name},{name[0]},7" for name in files]
    (folder / "table.csv").write_text("\n".join(["filename,class,target", *lines]))
    found = read(folder / "table.csv")
    assert found.class_names == ("a", "b")
    assert found.notes.texts == ("each of the columns 'class', 'target' could be the label: 'class' was taken",)


def test_one_task_for_all_is_said(tmp_path: Path) -> None:
    whole = made(tmp_path, [*names("cat", "dog", each=5), *names("owl", each=1), "cat/notes.txt"])
    stream = from_folders(*whole)
    assert stream.notes.skipped == whole.notes.skipped != ()
    assert stream.notes.texts == (*whole.notes.texts, "all classes come at once, in one task: nothing comes after it")
    assert len(whole.notes.texts) == 1
    assert joint(stream).notes == stream.notes


def test_nothing_is_noted_where_nothing_is_to_be_said(tmp_path: Path) -> None:
    assert from_folders(*made(tmp_path, names("a", "b", "c", "d"))).notes == Notes()


def classes(stream: Stream) -> list[list[str]]:
    return [[stream.class_names[label] for label in experience.classes] for experience in stream.experiences]


@pytest.mark.parametrize(("count", "sizes"), [(2, [2]), (3, [3]), (4, [2, 2]), (7, [3, 2, 2]), (12, [3, 3, 2, 2, 2])])
def test_class_folders_become_at_most_five_tasks(tmp_path: Path, count: int, sizes: list[int]) -> None:
    stream = from_folders(*made(tmp_path, names(*(f"c{number}" for number in range(count)), each=2)))
    assert [len(experience.classes) for experience in stream.experiences] == sizes
    assert stream.class_names == tuple(f"c{number}" for number in range(count))
    assert stream.task_tests
    for experience, test in zip(stream.experiences, stream.tests, strict=True):
        assert experience.classes == test.classes == experience.train.classes


def test_so_many_classes_per_task(tmp_path: Path) -> None:
    found = made(tmp_path, names("t1/a", "t1/c", "t2/b", "t2/d", "t2/e"))
    stream = from_folders(*found, classes_per_task=2)
    assert classes(stream) == [["a", "b"], ["c", "d"], ["e"]]
    assert stream.task_tests
    assert ids(*(e.train for e in stream.experiences)) == ids(*found.groups)
    for wrong in (-1, 0, 6):
        with pytest.raises(ValueError, match=f"classes_per_task = {wrong}: must lie between 1 and 5, or be none"):
            from_folders(*found, classes_per_task=wrong)


def test_tasks_by_folder_number_classes_as_they_appear(tmp_path: Path) -> None:
    found = made(tmp_path, names("t10/a", "t10/x", "t2/b", "t2/z"))
    assert found.group_names == ("t2", "t10")
    stream = from_folders(*found)
    assert stream.class_names == ("b", "z", "a", "x")
    assert [experience.classes for experience in stream.experiences] == [(0, 1), (2, 3)]
    assert stream.class_order == (1, 3, 0, 2)
    assert stream.task_tests
    assert [test.classes for test in stream.tests] == [(0, 1), (2, 3)]
    assert ids(stream.experiences[0].train) == ids(found.groups[0])


def test_domains_share_their_classes(tmp_path: Path) -> None:
    stream = from_folders(*made(tmp_path, names("ink/a", "ink/b", "chalk/b", "chalk/a")))
    assert stream.class_names == ("a", "b")
    assert [experience.classes for experience in stream.experiences] == [(0, 1), (0, 1)]
    assert stream.task_tests
    assert len(stream.tests) == 2
    records = list(learn(toy_learner("l2p"), stream, Plan(epochs=1, batch_size=4, task_given=True)))
    assert all(None not in record.correct for record in records), "every domain is judged from the start"
    assert joint(stream).experiences[0].classes == (0, 1)


def test_one_test_for_all_domains(tmp_path: Path) -> None:
    found = made(tmp_path, [*names("train/ink/a", "train/ink/b", "train/oil/a"), *names("test/a", "test/b", each=2)])
    stream = from_folders(*found)
    assert not stream.task_tests
    assert [len(test) for test in stream.tests] == [4]


@pytest.mark.parametrize(
    "files",
    [
        [*names("t1/a", "t1/b", each=2), *names("t2/c", "t2/d", each=1)],  # nothing of t2 can be held out
        [*names("train/t1/a", "train/t1/b", "train/t2/c", each=2), *names("test/t1/a", "test/t1/c", each=1)],
        [*names("train/t1/a", "train/t2/b", each=2), *names("test/t3/a", "test/t3/b", each=1)],
    ],
)
def test_where_not_every_task_can_be_judged_there_is_one_test(tmp_path: Path, files: list[str]) -> None:
    found = made(tmp_path, files)
    stream = from_folders(*found)
    assert not stream.task_tests
    assert len(stream.tests) == 1
    assert ids(*stream.tests) == ids(*found.tests)


def test_a_masked_loss_refuses_tasks_of_one_class(tmp_path: Path) -> None:
    stream = from_folders(*made(tmp_path, names("a", "b", "c")), classes_per_task=2)
    for name in ("l2p", "masked-linear"):
        with pytest.raises(ValueError, match="learns nothing from task 2, which has a single class"):
            Session(toy_learner(name), stream, Plan())
    for learner in (toy_learner("nearest-mean"), toy_learner("l2p", loss_classes="seen"), toy_learner("l2p-r")):
        learner.check(stream)


def test_a_memory_learns_tasks_of_one_class() -> None:
    stream = class_incremental(toy_examples(16, 1), toy_examples(7, 2), toy_names(), tasks=6)
    last = list(learn(toy_learner("l2p-r"), stream, PLAN))[-1]
    assert sum(right or 0 for right in last.correct) > 3 * sum(last.total) / 6


@pytest.mark.parametrize("name", ["l2p", "masked-linear"])
def test_a_run_is_the_same_whether_images_are_held_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = write_images(tmp_path / "images", names("a", "b", "c", "d", each=8))
    plan = Plan(epochs=2, batch_size=5, learning_rate=0.01, test_batch_size=3)
    held = from_folders(*read(folder))
    expected = [record.to_json() for record in learn(toy_learner(name), held, plan)]
    monkeypatch.setattr(images, "LARGEST_IN_MEMORY", 0)
    lazy = from_folders(*read(folder))
    assert isinstance(lazy.experiences[0].train.source, images.ImageFiles)
    assert lazy.fingerprint == held.fingerprint
    assert [record.to_json() for record in learn(toy_learner(name), lazy, plan)] == expected
    for stop in (1, 3, 5, 7):  # within an epoch, at its end, in the second task; begun lazily, gone on with in memory
        first = Session(toy_learner(name), lazy, plan)
        steps = iter(first)
        for _ in range(stop):
            next(steps)
        save_checkpoint(tmp_path / "checkpoint", first)
        steps.close()  # type: ignore[attr-defined]
        second = Session(toy_learner(name), held if stop == 5 else lazy, plan)
        load_checkpoint(tmp_path / "checkpoint", second)
        for _ in second:
            pass
        assert [record.to_json() for record in second.records] == expected


def test_copies_of_one_image_train_like_any_others(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", names("a", "b", each=4))
    for label in "ab":
        shutil.copy(folder / "a/0.png", folder / label / "copy.png")
    stream = from_folders(*read(folder))
    plan = Plan(epochs=1, batch_size=4)
    for learner in (toy_learner("l2p-r", capacity=6), toy_learner("nearest-mean")):
        (record,) = learn(learner, stream, replace(plan, batch_size=3))
        assert record.total == (len(stream.tests[0]),)
    assert torch.unique(torch.cat([stream.experiences[0].train.ids, stream.tests[0].ids])).numel() == 8
