"""CIFAR-10 and CIFAR-100 in each form in which they are published."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from array_files import Pickled, Python2, binary_records, packed, pictures, random_rows, zeros_packed
from damage import damaged, outcome
from promptpool.data.sets.cifar import CIFAR10, CIFAR100, cifar100, read_cifar10, read_cifar100
from promptpool.data.sets.published import Split

LABELS = {"cifar10": [3, 0, 9], "cifar100": [99, 0, 42]}
COARSE = [4, 0, 19]
READERS: dict[str, Callable[[Path], Split]] = {"cifar10": read_cifar10, "cifar100": read_cifar100}
FORMS = {
    ("cifar10", "python"): ("cifar-10-batches-py", "cifar-10-python.tar.gz"),
    ("cifar10", "binary"): ("cifar-10-batches-bin", "cifar-10-binary.tar.gz"),
    ("cifar100", "python"): ("cifar-100-python", "cifar-100-python.tar.gz"),
    ("cifar100", "binary"): ("cifar-100-binary", "cifar-100-binary.tar.gz"),
}
BATCHES = {"cifar10": [f"data_batch_{number}" for number in range(1, 6)], "cifar100": ["train"]}
TESTS = {"cifar10": "test_batch", "cifar100": "test"}


def python_files(name: str) -> dict[str, bytes]:
    files = {}
    for seed, batch in enumerate([*BATCHES[name], TESTS[name]]):
        entries: dict[bytes, Pickled] = {b"batch_label": b"batch", b"filenames": [b"a.png", b"b.png", b"c.png"]}
        if name == "cifar10":
            entries[b"labels"] = LABELS[name]
        else:
            entries |= {b"fine_labels": LABELS[name], b"coarse_labels": COARSE}
        files[batch] = Python2().dumps({**entries, b"data": random_rows(3, seed)})
    if name == "cifar10":
        names = [each.encode() for each in CIFAR10.class_names]
        files["batches.meta"] = Python2().dumps({b"num_cases_per_batch": 3, b"label_names": names, b"num_vis": 3072})
    else:
        names = [each.encode() for each in CIFAR100.class_names]
        files["meta"] = Python2().dumps({b"coarse_label_names": [b"trees"], b"fine_label_names": names})
    return files


def binary_files(name: str) -> dict[str, bytes]:
    labels = [LABELS[name]] if name == "cifar10" else [COARSE, LABELS[name]]
    batches = [*BATCHES[name], TESTS[name]]
    files = {f"{batch}.bin": binary_records(random_rows(3, seed), *labels) for seed, batch in enumerate(batches)}
    if name == "cifar10":
        files["batches.meta.txt"] = "\n".join([*CIFAR10.class_names, ""]).encode() + b"\n"
    else:
        files["fine_label_names.txt"] = "\n".join([*CIFAR100.class_names, ""]).encode()
    return files


def files_of(name: str, version: str) -> dict[str, bytes]:
    return python_files(name) if version == "python" else binary_files(name)


def unpacked(files: dict[str, bytes], folder: Path) -> None:
    folder.mkdir()
    for short, content in files.items():
        (folder / short).write_bytes(content)


def refusal(name: str, folder: Path) -> str:
    message = outcome(READERS[name], folder)
    assert message.startswith(f"{folder}")
    return message


@pytest.mark.parametrize("tar", [False, True])
@pytest.mark.parametrize(("name", "version"), FORMS)
def test_every_form_gives_the_same(name: str, version: str, tar: bool, tmp_path: Path) -> None:
    folder, archive = FORMS[name, version]
    if tar:
        packed({f"{folder}/{short}": content for short, content in files_of(name, version).items()}, tmp_path / archive)
    else:
        unpacked(files_of(name, version), tmp_path / folder)
    found = READERS[name](tmp_path)
    count = len(BATCHES[name])
    assert found.train.images.dtype == found.test.images.dtype == np.uint8
    np.testing.assert_array_equal(
        found.train.images, pictures(np.concatenate([random_rows(3, i) for i in range(count)]))
    )
    np.testing.assert_array_equal(found.test.images, pictures(random_rows(3, count)))
    assert found.train.labels.tolist() == LABELS[name] * count
    assert found.test.labels.tolist() == LABELS[name]
    assert found.train.labels.dtype == np.int64
    assert found.class_names == (CIFAR10 if name == "cifar10" else CIFAR100).class_names


def test_what_python_3_pickled_again(tmp_path: Path) -> None:
    files = python_files("cifar100")
    again = {short: pickle.dumps(pickle.loads(content, encoding="bytes"), 2) for short, content in files.items()}  # noqa: S301
    unpacked(again, tmp_path / "cifar-100-python")
    assert read_cifar100(tmp_path).train.labels.tolist() == LABELS["cifar100"]


@pytest.mark.parametrize(("name", "version"), FORMS)
def test_names_come_from_the_file_or_else_from_the_publication(name: str, version: str, tmp_path: Path) -> None:
    files = files_of(name, version)
    names = next(short for short in files if "meta" in short or "names" in short)
    first = b"airplane" if name == "cifar10" else b"apple"
    files[names] = files[names].replace(first, first[::-1])
    folder = FORMS[name, version][0]
    unpacked(files, tmp_path / folder)
    assert READERS[name](tmp_path).class_names[0] == first[::-1].decode()
    (tmp_path / folder / names).unlink()
    assert READERS[name](tmp_path).class_names[0] == first.decode()


@pytest.mark.parametrize("name", READERS)
def test_nothing_there_says_what_is_looked_for_and_how_to_get_it(name: str, tmp_path: Path) -> None:
    message = refusal(name, tmp_path)
    for form in FORMS:
        if form[0] == name:
            assert all(wanted in message for wanted in FORMS[form])
    assert f"`promptpool data get {name}`" in message
    assert str(tmp_path / "nowhere") in refusal(name, tmp_path / "nowhere")


@pytest.mark.parametrize(("name", "version"), FORMS)
def test_a_batch_that_is_missing_is_named(name: str, version: str, tmp_path: Path) -> None:
    files = files_of(name, version)
    missing = next(iter(files))
    del files[missing]
    unpacked(files, tmp_path / FORMS[name, version][0])
    assert f"{missing} is missing" in refusal(name, tmp_path)


ROWS = random_rows(2, 0)
WRONG_BATCHES = {
    "no dict": b"\x80\x02].",
    "no data": Python2().dumps({b"fine_labels": [1, 2]}),
    "no labels": Python2().dumps({b"data": ROWS}),
    "too few labels": Python2().dumps({b"data": ROWS, b"fine_labels": [1]}),
    "a label too large": Python2().dumps({b"data": ROWS, b"fine_labels": [1, 100]}),
    "a label too small": Python2().dumps({b"data": ROWS, b"fine_labels": [1, -1]}),
    "a label without bounds": Python2().dumps({b"data": ROWS, b"fine_labels": [1, 2**66]}),
    "a label in words": Python2().dumps({b"data": ROWS, b"fine_labels": [b"1", b"2"]}),
    "a yes for a label": Python2()
    .dumps({b"data": ROWS, b"fine_labels": [1, 2]})
    .replace(b"(K\x01K\x02e", b"(\x88K\x02e"),
    "labels in an array": Python2().dumps({b"data": ROWS, b"fine_labels": np.array([1, 2], "<i8")}),
    "data in a list": Python2().dumps({b"data": [1, 2], b"fine_labels": [1, 2]}),
    "data of another type": Python2().dumps({b"data": ROWS.astype("<i2"), b"fine_labels": [1, 2]}),
    "data of another width": Python2().dumps({b"data": ROWS[:, :99].copy(), b"fine_labels": [1, 2]}),
    "data without rows": Python2().dumps({b"data": ROWS[0], b"fine_labels": [1, 2]}),
    "code": b"\x80\x02cposix\nmkdir\nU\x05proof\x85R.",
}


@pytest.mark.parametrize("wrong", WRONG_BATCHES)
def test_a_python_batch_that_does_not_fit(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    unpacked({**python_files("cifar100"), "test": WRONG_BATCHES[wrong]}, tmp_path / "cifar-100-python")
    assert "cifar-100-python: test: " in refusal("cifar100", tmp_path)
    assert not (tmp_path / "proof").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        bytes(3073),
        bytes(2 * 3074 - 1),
        bytes(2 * 3074 + 1),
        bytes([0, 100]) + bytes(3072),
    ],
)
def test_a_binary_batch_that_does_not_fit(wrong: bytes, tmp_path: Path) -> None:
    unpacked({**binary_files("cifar100"), "test.bin": wrong}, tmp_path / "cifar-100-binary")
    assert "cifar-100-binary: test.bin: " in refusal("cifar100", tmp_path)


@pytest.mark.parametrize("wrong", [b"", b"one two", b"\xff\n" * 100])
def test_names_that_do_not_fit(wrong: bytes, tmp_path: Path) -> None:
    unpacked({**binary_files("cifar100"), "fine_label_names.txt": wrong}, tmp_path / "cifar-100-binary")
    assert "different names for 100 classes" in refusal("cifar100", tmp_path)


@pytest.mark.parametrize(("name", "version"), FORMS)
def test_damaged_files_are_read_or_refused(name: str, version: str, tmp_path: Path) -> None:
    files = files_of(name, version)
    folder = tmp_path / FORMS[name, version][0]
    unpacked(files, folder)
    for seed, short in enumerate([TESTS[name] + (".bin" if version == "binary" else ""), [*files][-1]]):
        for content in damaged(files[short], 150, seed, fields=300):
            (folder / short).write_bytes(content)
            outcome(READERS[name], tmp_path)
        (folder / short).write_bytes(files[short])


@pytest.mark.parametrize("packing", ["gz", "plain"])
def test_damaged_archives_are_read_or_refused(packing: str, tmp_path: Path) -> None:
    path = tmp_path / "cifar-100-python.tar.gz"
    packed({f"cifar-100-python/{short}": content for short, content in python_files("cifar100").items()}, path)
    whole = path.read_bytes() if packing == "gz" else gzip.decompress(path.read_bytes())
    for content in damaged(whole, 200, seed=7, fields=600):
        path.write_bytes(content)
        outcome(read_cifar100, tmp_path)


def evil(name: str, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    return member


EVIL = {
    "a path above": evil("../proof"),
    "a path above within": evil("cifar-100-python/../../proof"),
    "a path from the root": evil("/proof"),
    "a link": evil("cifar-100-python/link", tarfile.SYMTYPE),
    "a link as a batch": evil("cifar-100-python/train", tarfile.SYMTYPE),
    "a hard link": evil("cifar-100-python/train", tarfile.LNKTYPE),
    "a device": evil("cifar-100-python/train", tarfile.CHRTYPE),
    "a pipe": evil("cifar-100-python/train", tarfile.FIFOTYPE),
}


@pytest.mark.parametrize("way", EVIL)
def test_an_archive_that_leads_outside_is_refused_whole(way: str, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    path = inside / "cifar-100-python.tar.gz"
    packed({f"cifar-100-python/{short}": content for short, content in python_files("cifar100").items()}, path)
    with tarfile.open(path) as whole, tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as archive:
        for member in whole.getmembers():
            archive.addfile(member, whole.extractfile(member))
        archive.addfile(EVIL[way])
    (tmp_path / "evil.tar.gz").replace(path)
    refusal("cifar100", inside)
    assert [each.name for each in tmp_path.rglob("*")] == ["inside", path.name]


def test_an_archive_that_would_fill_memory_is_refused(tmp_path: Path) -> None:
    member = tarfile.TarInfo("cifar-100-binary/train.bin")
    member.size = 64 * 2**24
    head = io.BytesIO()
    head.write(gzip.compress(member.tobuf(tarfile.USTAR_FORMAT)))
    (tmp_path / "cifar-100-binary.tar.gz").write_bytes(head.getvalue() + zeros_packed(64) + gzip.compress(bytes(1024)))
    assert "refused" in refusal("cifar100", tmp_path)


def test_cifar_100_with_its_fine_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPOOL_DATA", str(tmp_path))
    folder = tmp_path / "cifar100/cifar-100-binary"
    folder.mkdir(parents=True)
    for name, each in (("train.bin", 5), ("test.bin", 2)):
        records = bytearray()
        for label in range(100):
            for number in range(each):
                records += bytes([label // 5, label]) + bytes([label]) * 3071 + bytes([number])
        (folder / name).write_bytes(bytes(records))
    train, test, names, _ = cifar100(train_per_class=3)
    assert torch.bincount(train.y).tolist() == [3] * 100
    assert torch.bincount(test.y).tolist() == [2] * 100
    assert names[:2] == ("apple", "aquarium_fish")
    batch = train.batch(slice(None))
    assert torch.equal(batch.x[:, 0, 0, 0].long(), batch.y)
    assert torch.bincount(cifar100(held_out=2).test.y).tolist() == [2] * 100
