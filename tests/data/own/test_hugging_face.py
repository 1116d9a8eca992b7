"""Folders as the package `datasets` 5 saves them and the hub holds them, down to the JSON; and damaged ones."""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from promptpool.data.images import ImageFile
from promptpool.data.own import arrow_files
from promptpool.data.own.hugging_face import read_hugging_face
from promptpool.data.own.hugging_face_files import is_hugging_face
from promptpool.data.stores import Store
from promptpool.errors import BadFileError

IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})
LARGE_IMAGE = pa.struct({"bytes": pa.large_binary(), "path": pa.null()})
FEATURES: dict[str, Any] = {
    "image": {"_type": "Image"},
    "label": {"names": ["cat", "dog", "owl"], "_type": "ClassLabel"},
}
OLD_FEATURES: dict[str, Any] = {  # as datasets 2.0 wrote them
    "image": {"decode": True, "id": None, "_type": "Image"},
    "label": {"num_classes": 3, "names": ["cat", "dog", "owl"], "id": None, "_type": "ClassLabel"},
}


def picture(row: int) -> dict[str, Any]:
    return {"bytes": f"image {row}".encode(), "path": None}


def table(rows: int, features: dict[str, Any] | None = None, start: int = 0, **columns: Any) -> pa.Table:
    """Pictures, the labels 0, 1, 2, 0 and so on, and other columns, with the features in the schema."""
    content: dict[str, Any] = {
        "image": pa.array([picture(start + row) for row in range(rows)], IMAGE),
        "label": pa.array([(start + row) % 3 for row in range(rows)], pa.int64()),
    }
    made = pa.table({name: column for name, column in (content | columns).items() if column is not None})
    if features is None:
        return made
    return made.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def write_stream(path: Path, content: pa.Table, batch: int = 4, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.ipc.new_stream(str(path), content.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(content, max_chunksize=batch)


def write_parquet(path: Path, content: pa.Table, group: int = 4, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(content, path, row_group_size=group, **options)


def save_split(
    folder: Path,
    tables: list[pa.Table],
    split: str | None = "train",
    features: dict[str, Any] | None = None,
    **options: Any,
) -> Path:
    """What `Dataset.save_to_disk` writes; without `features`, those of the tables hold."""
    names = [f"data-{n:05d}-of-{len(tables):05d}.arrow" for n in range(len(tables))]
    for name, content in zip(names, tables, strict=True):
        write_stream(folder / name, content, **options)
    state: dict[str, object] = {
        "_data_files": [{"filename": name} for name in names],
        "_fingerprint": "ed1e3486d53c4afb",
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": split,
    }
    info = {"citation": "", "description": "", "features": features, "homepage": "", "license": ""}
    (folder / "state.json").write_text(json.dumps(state, indent=2))
    (folder / "dataset_info.json").write_text(json.dumps(info, indent=2))
    return folder


def save(folder: Path, **splits: list[pa.Table]) -> Path:
    """What `DatasetDict.save_to_disk` writes."""
    for split, tables in splits.items():
        save_split(folder / split, tables, split)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": list(splits)}))
    return folder


@pytest.fixture(autouse=True, name="cache")
def make_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where our cache is; and nothing here may ask the network."""
    cache = tmp_path_factory.mktemp("cache") / "ours"
    monkeypatch.setenv("PROMPTPOOL_CACHE", str(cache))

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a local folder asked the network")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    return cache


def refusal(folder: Path) -> str:
    with pytest.raises(BadFileError) as error:
        read_hugging_face(folder)
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(str(folder))
    return message.removeprefix(str(folder))


def contents(read: tuple[Store, list[ImageFile]]) -> list[bytes]:
    store, entries = read
    return [store.read(entry.name) for entry in entries]


@pytest.mark.parametrize("features", [FEATURES, OLD_FEATURES], ids=["features", "old features"])
def test_saved_splits(features: dict[str, Any], tmp_path: Path) -> None:
    parts = [table(7, features), table(6, features, start=7)]
    folder = save(tmp_path, train=parts, test=[table(2, features, start=20)])
    assert is_hugging_face(folder)
    store, entries = read_hugging_face(folder)
    assert entries[:2] == [
        ImageFile("train/00000000", "cat", "", "train"),
        ImageFile("train/00000001", "dog", "", "train"),
    ]
    assert entries[-1] == ImageFile("test/00000001", "cat", "", "test")
    assert contents((store, entries)) == [f"image {row}".encode() for row in [*range(13), 20, 21]]
    assert store.names() == [entry.name for entry in entries]
    assert store.where == folder


@pytest.mark.parametrize("layout", ["save_to_disk", "to_parquet"])
def test_what_the_package_itself_writes(layout: str, tmp_path: Path) -> None:
    content: dict[str, list[object]] = {"image": [picture(row) for row in range(4)], "label": [2, 0, 1, 2]}
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog", "owl"])}
    whole = datasets.Dataset.from_dict(content, datasets.Features(features))
    splits = datasets.DatasetDict(train=whole, test=whole.select([3]))
    if layout == "save_to_disk":
        splits.save_to_disk(tmp_path)
    else:
        for split in splits:
            splits[split].to_parquet(tmp_path / f"{split}.parquet")
    read = read_hugging_face(tmp_path)
    found = list(zip([(entry.split, entry.label) for entry in read[1]], contents(read), strict=True))
    labels = {"train": ["owl", "cat", "dog", "owl"], "test": ["owl"]}
    images = {"train": [0, 1, 2, 3], "test": [3]}
    for split in labels:
        assert [label for (part, label), _ in found if part == split] == labels[split]
        assert [image for (part, _), image in found if part == split] == [
            f"image {row}".encode() for row in images[split]
        ]


def test_the_format_in_which_a_set_was_last_used_does_not_count(tmp_path: Path) -> None:
    folder = save_split(tmp_path, [table(2, FEATURES)])
    state = json.loads((folder / "state.json").read_text())
    for kind, columns in (("numpy", ["label"]), ("torch", None), ("pandas", ["image"])):
        (folder / "state.json").write_text(json.dumps(state | {"_format_type": kind, "_format_columns": columns}))
        read = read_hugging_face(folder)
        assert [entry.label for entry in read[1]] == ["cat", "dog"]
        assert contents(read) == [b"image 0", b"image 1"]


def test_one_split_alone(tmp_path: Path) -> None:
    folder = save_split(tmp_path, [table(3, FEATURES)], "train[:50%]")
    assert is_hugging_face(folder)
    assert {entry.split for entry in read_hugging_face(folder)[1]} == {"train"}
    store, entries = read_hugging_face(save_split(tmp_path, [table(3, FEATURES)], None))
    assert (store.names()[0], entries[0].split) == ("all/00000000", "")


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("data/train-00000-of-00002.parquet", "data/test-00000-of-00001.parquet"),
        ("data/train-00000-of-00002-a09b74b3ef9c3b56.parquet", "data/test-00000-of-00001-0123456789abcdef.parquet"),
        ("train.parquet", "test.parquet"),
        ("plain_text/train-00000-of-00001.parquet", "plain_text/test-00000-of-00001.parquet"),
        ("default/train/0000.parquet", "default/test/0000.parquet"),
        ("training.parquet", "my_validation.parquet"),
    ],
)
def test_a_hub_checkout(train: str, test: str, tmp_path: Path) -> None:
    write_parquet(tmp_path / train, table(10, FEATURES))
    write_parquet(tmp_path / test, table(3, FEATURES, start=20))
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n")
    assert is_hugging_face(tmp_path)
    store, entries = read_hugging_face(tmp_path)
    found = {split: [entry for entry in entries if entry.split == split] for split in ("train", "test")}
    assert [entry.label for entry in found["train"]] == ["cat", "dog", "owl"] * 3 + ["cat"]
    assert contents((store, found["train"])) == [f"image {row}".encode() for row in range(10)]
    assert contents((store, found["test"])) == [f"image {row}".encode() for row in range(20, 23)]


def test_shards_are_read_in_order(tmp_path: Path) -> None:
    for part in range(3):
        write_parquet(tmp_path / "data" / f"train-{part:05d}-of-00003.parquet", table(5, FEATURES, start=5 * part))
    store, entries = read_hugging_face(tmp_path)
    assert contents((store, entries)) == [f"image {row}".encode() for row in range(15)]
    assert store.read("train/00000012") == b"image 12"
    assert [entry.label for entry in entries[3:7]] == ["cat", "dog", "owl", "cat"]


def test_an_old_checkout_names_its_classes_beside_the_files(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data" / "train-00000-of-00001.parquet", table(2))
    described = {"description": "", "features": OLD_FEATURES, "splits": None}
    (tmp_path / "dataset_infos.json").write_text(json.dumps({"owner--name": described}))
    assert [entry.label for entry in read_hugging_face(tmp_path)[1]] == ["cat", "dog"]
    (tmp_path / "dataset_infos.json").write_text(json.dumps({"one": described, "two": described}))
    assert [entry.label for entry in read_hugging_face(tmp_path)[1]] == ["0", "1"]


def test_files_without_a_split(tmp_path: Path) -> None:
    write_parquet(tmp_path / "0000.parquet", table(2, FEATURES))
    assert read_hugging_face(tmp_path)[1][0] == ImageFile("all/00000000", "cat", "", "")


def test_a_snapshot_of_the_hub_cache_is_links(tmp_path: Path) -> None:
    write_parquet(tmp_path / "blobs" / "0a1b.parquet", table(2, FEATURES))
    (tmp_path / "snapshot" / "data").mkdir(parents=True)
    (tmp_path / "snapshot" / "data" / "train-00000-of-00001.parquet").symlink_to(tmp_path / "blobs" / "0a1b.parquet")
    assert contents(read_hugging_face(tmp_path / "snapshot")) == [b"image 0", b"image 1"]


def test_other_folders_are_not_taken(tmp_path: Path) -> None:
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "a.png").write_bytes(b"")
    (tmp_path / "state.json").write_text("{}")
    write_parquet(tmp_path / ".cache" / "train.parquet", table(1))
    write_parquet(tmp_path / "metadata.parquet", table(1))
    assert not is_hugging_face(tmp_path)
    assert not is_hugging_face(tmp_path / "state.json")
    assert not is_hugging_face(tmp_path / "missing")


SPLITS: dict[tuple[str, ...], dict[str, str]] = {
    ("train", "validation"): {"train": "train", "validation": "test"},
    ("train", "validation", "test"): {"train": "train", "test": "test"},
    ("train", "extra", "test"): {"train": "train", "test": "test"},
    ("one", "two"): {"one": "", "two": ""},
    ("train_clean", "test_hard"): {"train_clean": "train", "test_hard": "test"},
}


@pytest.mark.parametrize("splits", SPLITS, ids=", ".join)
def test_what_splits_mean(splits: tuple[str, ...], tmp_path: Path) -> None:
    store, entries = read_hugging_face(save(tmp_path, **{split: [table(2, FEATURES)] for split in splits}))
    assert {entry.name.split("/")[0]: entry.split for entry in entries} == SPLITS[splits]
    assert store.names() == [entry.name for entry in entries]


def test_a_split_without_labels_is_left_out(tmp_path: Path) -> None:
    withheld = table(2, FEATURES, label=pa.array([-1, -1]))
    folder = save(tmp_path, train=[table(2, FEATURES)], validation=[table(2, FEATURES)], test=[withheld])
    assert {entry.name.split("/")[0]: entry.split for entry in read_hugging_face(folder)[1]} == {
        "train": "train",
        "validation": "test",
    }


def named(*names: str) -> dict[str, Any]:
    return {"names": list(names), "_type": "ClassLabel"}


VALUE = {"dtype": "string", "_type": "Value"}
COLUMNS: dict[str, tuple[pa.Table, list[str]]] = {
    "no features": (table(2), ["0", "1"]),
    "text": (table(2, FEATURES | {"label": VALUE}, label=pa.array([" cat", "dog"])), ["cat", "dog"]),
    "text although named": (table(2, FEATURES, label=pa.array(["dog", "cat"])), ["dog", "cat"]),
    "dictionary": (table(2, label=pa.array(["cat", "dog"]).dictionary_encode()), ["cat", "dog"]),
    "large text": (table(2, label=pa.array(["cat", "dog"], pa.large_string())), ["cat", "dog"]),
    "truth": (table(2, label=pa.array([True, False])), ["True", "False"]),
    "labels": (table(2, FEATURES | {"labels": named("a", "b")}, label=None, labels=pa.array([1, 0])), ["b", "a"]),
    "fine": (
        table(
            2,
            {"img": {"_type": "Image"}, "fine_label": named("apple", "bear"), "coarse_label": named("x")},
            image=None,
            label=None,
            img=pa.array([picture(0), picture(1)], IMAGE),
            fine_label=pa.array([1, 0]),
            coarse_label=pa.array([0, 0]),
        ),
        ["bear", "apple"],
    ),
    "the only ClassLabel": (table(2, {"kind": named("a", "b")}, label=None, kind=pa.array([1, 0])), ["b", "a"]),
    "other columns": (table(2, FEATURES, text=pa.array([["a"], []]), number=pa.array([0.5, None])), ["cat", "dog"]),
    "sound before": (
        table(2, {"sound": {"_type": "Audio"}} | FEATURES, sound=pa.array([picture(8), picture(9)], IMAGE)).select(
            ["sound", "image", "label"]
        ),
        ["cat", "dog"],
    ),
    "large bytes": (table(2, FEATURES, image=pa.array([picture(0), picture(1)], LARGE_IMAGE)), ["cat", "dog"]),
}


@pytest.mark.parametrize("layout", ["stream", "parquet"])
@pytest.mark.parametrize(("content", "labels"), COLUMNS.values(), ids=COLUMNS.keys())
def test_columns(content: pa.Table, labels: list[str], layout: str, tmp_path: Path) -> None:
    if layout == "stream":
        save_split(tmp_path, [content])
    else:
        write_parquet(tmp_path / "train.parquet", content)
    read = read_hugging_face(tmp_path)
    assert [entry.label for entry in read[1]] == labels
    assert contents(read) == [b"image 0", b"image 1"]


def test_features_may_stand_in_dataset_info_only(tmp_path: Path) -> None:
    assert [entry.label for entry in read_hugging_face(save_split(tmp_path, [table(2)], features=FEATURES))[1]] == [
        "cat",
        "dog",
    ]


@pytest.mark.parametrize("name", ["task", "domain"])
def test_groups(name: str, tmp_path: Path) -> None:
    content = table(3, FEATURES | {name: named("day", "night")}, **{name: pa.array([1, 0, 1])})
    write_parquet(tmp_path / "train.parquet", content)
    assert [entry.group for entry in read_hugging_face(tmp_path)[1]] == ["night", "day", "night"]


def test_stamps_tell_rows_and_files_apart(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    write_parquet(path, table(3, FEATURES))
    store, entries = read_hugging_face(tmp_path)
    before = [store.stamp(entry.name) for entry in entries]
    os.utime(path, ns=(0, 10**9))
    store, entries = read_hugging_face(tmp_path)
    assert len({*before, *(store.stamp(entry.name) for entry in entries)}) == 6


@pytest.mark.parametrize("layout", ["stream", "parquet"])
def test_paths_are_read_inside_the_folder(layout: str, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    (folder / "images").mkdir(parents=True)
    (folder / "images" / "a.png").write_bytes(b"meow")
    (tmp_path / "secret").write_bytes(b"secret")
    odd = ["images/missing.png", "images/a\0.png", "images", None]
    paths = ["images/a.png", "../secret", str(tmp_path / "secret"), *odd]
    pictures: list[dict[str, Any] | None] = [{"bytes": None, "path": path} for path in paths]
    content = table(8, FEATURES, image=pa.array([*pictures, None], IMAGE))
    if layout == "stream":
        save(folder, train=[content])
    else:
        write_parquet(folder / "train.parquet", content)
    store, entries = read_hugging_face(folder)
    assert store.read(entries[0].name) == b"meow"
    for entry in entries[1:]:
        with pytest.raises(BadFileError) as error:
            store.read(entry.name)
        assert "\n" not in str(error.value)


BAD: dict[str, tuple[pa.Table, str]] = {
    "no images": (table(2, image=None), "no column of images (bytes and path) among label"),
    "images without bytes": (table(2, image=pa.array([{"path": "a"}] * 2)), "no column of images"),
    "only sound": (table(2, {"image": {"_type": "Audio"}}), "no column of images"),
    "no labels": (table(2, label=None), "no column label (text or whole numbers) among image"),
    "fractions": (table(2, label=pa.array([0.5, 1.5])), "no column label"),
    "two classes": (
        table(2, {"a": named("x"), "b": named("y")}, label=None, a=pa.array([0, 0]), b=pa.array([0, 0])),
        "no column label",
    ),
    "unknown class": (table(2, FEATURES, label=pa.array([0, 3])), "row 1: label 3, but there are 3 names"),
    "negative class": (table(2, FEATURES, label=pa.array([0, -2])), "row 1: label -2, but"),
    "one label missing": (table(3, FEATURES, label=pa.array([0, None, 1])), "row 1: no label, while other rows"),
    "one label unknown": (table(3, FEATURES, label=pa.array([0, 1, -1])), "row 2: no label, while"),
    "empty text": (table(2, label=pa.array(["cat", " "])), "row 1: no label, while"),
    "one task missing": (table(2, FEATURES, task=pa.array(["a", None])), "row 1: no task or domain, while"),
    "bad text": (table(2, label=pa.array([b"cat", b"\xff"]).view(pa.string())), "cannot be read: "),
    "names not said": (table(2, FEATURES | {"label": {"_type": "ClassLabel"}}), "cannot be read: Please provide"),
    "features": (table(2).replace_schema_metadata({"huggingface": "{"}), "cannot be read: "),
    "features too deep": (table(2).replace_schema_metadata({"huggingface": "[" * 10**5}), "cannot be read: "),
    "features inside": (
        table(2).replace_schema_metadata({"huggingface": '{"info": {"features": 3}}'}),
        "cannot be read",
    ),
}


@pytest.mark.parametrize("layout", ["stream", "parquet"])
@pytest.mark.parametrize(("content", "expected"), BAD.values(), ids=BAD.keys())
def test_names_what_is_wrong(content: pa.Table, expected: str, layout: str, tmp_path: Path) -> None:
    if layout == "stream":
        save_split(tmp_path, [content])
    else:
        write_parquet(tmp_path / "train.parquet", content)
    assert expected in refusal(tmp_path)


JSON: dict[str, tuple[str, str, str]] = {
    "no splits": ("dataset_dict.json", "{}", "dataset_dict.json: names no files"),
    "splits are a text": ("dataset_dict.json", '{"splits": "train"}', "dataset_dict.json: names no files"),
    "a split elsewhere": ("dataset_dict.json", '{"splits": ["../x"]}', "'../x': not the name of a file beside it"),
    "a split that is no text": ("dataset_dict.json", '{"splits": [3]}', "3: not the name of a file beside it"),
    "a split that is not there": ("dataset_dict.json", '{"splits": ["dev"]}', "/dev/state.json: no such file"),
    "not JSON": ("dataset_dict.json", "splits", "dataset_dict.json: its JSON cannot be read"),
    "not UTF-8": ("dataset_dict.json", "\udcff", "dataset_dict.json: its JSON cannot be read"),
    "no files": ("train/state.json", '{"_data_files": []}', "state.json: names no files"),
    "files elsewhere": ("train/state.json", '{"_data_files": [{"filename": "/etc/x"}]}', "'/etc/x': not the name"),
    "files above": ("train/state.json", '{"_data_files": [{"filename": ".."}]}', "'..': not the name"),
    "a file that is not there": ("train/state.json", '{"_data_files": [{"filename": "x"}]}', "train/x: no such file"),
    "rows by an index": ("train/state.json", '{"_indices_data_files": [{"filename": "x"}]}', "rows chosen by an index"),
    "info": ("train/dataset_info.json", "[]", "dataset_info.json: its JSON is not an object"),
}


@pytest.mark.parametrize(("name", "text", "expected"), JSON.values(), ids=JSON.keys())
def test_bad_json(name: str, text: str, expected: str, tmp_path: Path) -> None:
    folder = save(tmp_path, train=[table(2, FEATURES)])
    (folder / name).write_bytes(text.encode(errors="surrogateescape"))
    assert expected in refusal(folder)


def test_nothing_to_read(tmp_path: Path) -> None:
    assert "neither saved by datasets nor a folder of Parquet files" in refusal(tmp_path)
    assert "no image with a label" in refusal(save(tmp_path, train=[table(0, FEATURES)]))


def test_several_sets_in_one_folder(tmp_path: Path) -> None:
    for name in ("cropped_digits", "full_numbers"):
        write_parquet(tmp_path / name / "train-00000-of-00001.parquet", table(1, FEATURES))
    assert "several sets (cropped_digits, full_numbers); give the folder of one" in refusal(tmp_path)
    assert len(read_hugging_face(tmp_path / "full_numbers")[1]) == 1


def test_groups_in_one_split_only(tmp_path: Path) -> None:
    folder = save(tmp_path, train=[table(1, FEATURES, task=pa.array([1]))], test=[table(1, FEATURES)])
    assert "task or domain in some splits only" in refusal(folder)


def test_nothing_is_written_beside_the_data_and_no_code_is_run(tmp_path: Path, cache: Path) -> None:
    write_parquet(tmp_path / "set/data/train.parquet", table(3, FEATURES))
    (tmp_path / "set/set.py").write_text("raise AssertionError('a script of the set was run')\n")
    (tmp_path / "set/data/more.pkl").write_bytes(b"cposix\nabort\n)R.")
    configured = "---\nconfigs:\n- config_name: default\n  data_files: http://localhost/more.parquet\n---\n"
    (tmp_path / "set/README.md").write_text(configured)
    before = sorted(tmp_path.rglob("*"))
    assert contents(read_hugging_face(tmp_path / "set")) == [b"image 0", b"image 1", b"image 2"]
    assert sorted(tmp_path.rglob("*")) == before
    assert [path.name for path in cache.iterdir()] == ["hugging-face"]


def test_parquet_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(tmp_path / "train.parquet", table(3, FEATURES))
    first = contents(read_hugging_face(tmp_path))
    monkeypatch.setattr(arrow_files, "check_parquet", None)
    assert contents(read_hugging_face(tmp_path)) == first
    write_parquet(tmp_path / "train.parquet", table(3, FEATURES, start=7))
    monkeypatch.undo()
    assert contents(read_hugging_face(tmp_path)) == [b"image 7", b"image 8", b"image 9"]


def test_a_path_that_reads_as_an_address(tmp_path: Path) -> None:
    write_parquet(tmp_path / "simplecache::x/train.parquet", table(3, FEATURES))
    assert "give it another name" in refusal(tmp_path / "simplecache::x")
    write_parquet(tmp_path / "set/train::file/x.parquet", table(3, FEATURES))
    assert "give it another name" in refusal(tmp_path / "set")


def test_a_checkout_without_its_large_files(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 119705255\n"
    (tmp_path / "train.parquet").write_text(pointer)
    assert "only a pointer to the file; `git lfs pull`" in refusal(tmp_path)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(tmp_path / "train.parquet", table(1))
    for name in [name for name in sys.modules if name.split(".")[0] == "datasets"]:
        monkeypatch.setitem(sys.modules, name, None)
    assert is_hugging_face(tmp_path)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'promptpool\[datasets\]'$") as error:
        read_hugging_face(tmp_path)
    assert "\n" not in str(error.value)


def test_a_compressed_stream_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    zeros = table(4, FEATURES, image=pa.array([{"bytes": bytes(2**20), "path": None}] * 4, IMAGE))
    assert "a compressed Arrow stream" in refusal(save_split(tmp_path, [zeros], compression="zstd"))
    labels = table(4, label=pa.array(["x" * 10**5] * 4).dictionary_encode())
    assert "a compressed Arrow stream" in refusal(save_split(tmp_path, [labels], compression="lz4"))


def test_a_stream_cut_off_between_two_batches(tmp_path: Path) -> None:
    folder = save_split(tmp_path, [table(8, FEATURES)])
    path = folder / "data-00000-of-00001.arrow"
    path.write_bytes(path.read_bytes()[:-8])  # only the end mark is missing
    assert "does not end as an Arrow stream does" in refusal(folder)


def test_offsets_that_lie_do_not_crash(tmp_path: Path) -> None:
    path = save_split(tmp_path, [table(4, FEATURES)]) / "data-00000-of-00001.arrow"
    content = path.read_bytes()
    offsets = struct.pack("<5i", 0, 7, 14, 21, 28)
    assert content.count(offsets) == 1
    path.write_bytes(content.replace(offsets, struct.pack("<5i", 0, 7, 2**31 - 9, 21, 28)))
    assert "data-00000-of-00001.arrow: cannot be read" in refusal(tmp_path)


def test_a_parquet_file_that_unpacks_to_too_much(tmp_path: Path, cache: Path) -> None:
    one = pa.array([{"bytes": bytes(2**16), "path": None}], IMAGE)
    content = table(1000, FEATURES, image=pa.concat_arrays([one] * 1000))
    write_parquet(tmp_path / "train.parquet", content, group=1000, compression="zstd")
    assert (tmp_path / "train.parquet").stat().st_size < 2**16
    before = pa.total_allocated_bytes()
    assert "refused" in refusal(tmp_path)
    assert pa.total_allocated_bytes() - before < 2**24
    assert not cache.exists()


def mapped(path: Path) -> int:
    """Bytes of a file that are in this process's memory."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    starts = [n for n, line in enumerate(lines) if line.endswith(str(path))]
    return sum(int(next(line for line in lines[n:] if line.startswith("Rss:")).split()[1]) * 1024 for n in starts)


def large(rows: int) -> pa.Table:
    pictures = [{"bytes": row.to_bytes(4, "little") + os.urandom(2**18), "path": None} for row in range(rows)]
    return table(rows, FEATURES, image=pa.array(pictures, IMAGE))


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="counts pages as Linux tells them")
def test_one_image_of_a_stream_is_read_without_the_others(tmp_path: Path) -> None:
    path = save_split(tmp_path, [large(128)], batch=32) / "data-00000-of-00001.arrow"
    before = pa.total_allocated_bytes()
    store, _ = read_hugging_face(tmp_path)
    assert store.read("train/00000100")[:4] == (100).to_bytes(4, "little")
    assert path.stat().st_size > 2**25
    assert pa.total_allocated_bytes() - before < 2**20
    assert 0 < mapped(path) < 2**22


@pytest.mark.parametrize("layout", ["stream", "parquet"])
def test_threads_read_what_one_reads(layout: str, tmp_path: Path) -> None:
    parts = [table(200, FEATURES, start=200 * n) for n in range(2)]
    if layout == "stream":
        save_split(tmp_path, parts, batch=7)
    else:
        for n, part in enumerate(parts):
            write_parquet(tmp_path / f"train-{n:05d}-of-00002.parquet", part, group=7)
    store, entries = read_hugging_face(tmp_path)
    rows = list(range(400)) * 3
    random.Random(0).shuffle(rows)  # noqa: S311
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda row: store.read(entries[row].name), rows))
    assert found == [f"image {row}".encode() for row in rows]


def damage_text(content: bytes, draw: random.Random) -> bytes:
    """The content with some characters changed to others that mean something in JSON."""
    changed = bytearray(content)
    for _ in range(draw.randint(1, 3)):
        changed[draw.randrange(len(changed))] = draw.choice(b'0-ae"{}[],: ')
    return bytes(changed)


def damage(content: bytes, draw: random.Random) -> bytes:
    """The content cut off, or with a few bytes changed, removed, put in, or a stretch of zeros or ones."""
    if draw.random() < 0.1:
        return content[: draw.randrange(len(content))]
    changed = bytearray(content)
    for _ in range(draw.randint(1, 8)):
        at = draw.randrange(len(changed) + 1)
        kind = draw.randrange(6)
        if kind == 0:
            del changed[at : at + draw.randint(1, 16)]
        elif kind == 1:
            changed[at:at] = draw.randbytes(draw.randint(1, 16))
        elif kind == 2:
            size = draw.choice([1, 4, 8])
            changed[at : at + size] = draw.choice([b"\0", b"\xff", b"\x7f"]) * size
        else:
            changed[at : at + 1] = draw.randbytes(1)
    return bytes(changed)


FUZZED = {
    "stream": 500,
    "parquet": 300,
    "packed parquet": 300,
    "JSON": 200,
}


@pytest.mark.parametrize("layout", FUZZED)
def test_damaged_files_give_pictures_or_one_line(layout: str, tmp_path: Path) -> None:
    kinds = pa.array(["x", "y", "x"] * 3).dictionary_encode()
    content = table(9, FEATURES, task=kinds, kind=pa.array(["a", "b", "c"] * 3))
    if layout in ("stream", "JSON"):
        folder = save(tmp_path, train=[content])
    else:
        folder = tmp_path
        write_parquet(folder / "train.parquet", content, compression="zstd" if layout == "packed parquet" else "none")
    files = sorted(path for path in folder.rglob("*.*") if (path.suffix == ".json") == (layout == "JSON"))
    draw = random.Random(len(layout))  # noqa: S311
    refused = 0
    for _ in range(FUZZED[layout]):
        path = draw.choice(files)
        original = path.read_bytes()
        path.unlink()  # a file that is mapped must not change
        path.write_bytes(damage_text(original, draw) if layout == "JSON" else damage(original, draw))
        try:
            store, entries = read_hugging_face(folder)
            for entry in entries:
                store.stamp(entry.name)
                assert isinstance(store.read(entry.name), bytes)
        except BadFileError as error:
            assert "\n" not in str(error)  # noqa: PT017
            refused += 1
        path.unlink()
        path.write_bytes(original)
    assert 0.1 * FUZZED[layout] < refused < FUZZED[layout]
