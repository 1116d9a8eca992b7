"""Frozen features between processes: a file that is whole and of the same thing is read, any other is as none."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from promptpool.backbones import feature_files
from promptpool.backbones.base import Readout
from promptpool.backbones.feature_files import MANY, FeatureFiles, limit, trim
from promptpool.backbones.features import FrozenFeatures
from promptpool.data.stream import Batch
from promptpool.data.views import ImageView
from promptpool.experiments.build import SharedCache
from toys import THREADS, VIEW, toy_backbone, toy_examples

MAPS = Path("/proc/self/maps")  # what is mapped into the memory of this process, where the system tells
SEEDS = range(24)  # of the batches that two processes ask for


@pytest.fixture(autouse=True)
def usual_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROMPTPOOL_FEATURES_GB")


def batch(seed: int = 1) -> Batch:
    return toy_examples(5, seed).batch(slice(None))


def opened(folder: Path, *, seed: int = 0, view: ImageView = VIEW, readout: Readout | None = None) -> FrozenFeatures:
    frozen = FrozenFeatures(toy_backbone(seed), view, readout)
    frozen.share(folder)
    return frozen


def filled(folder: Path, seed: int = 1) -> FrozenFeatures:
    """A store that computed a batch and wrote it."""
    frozen = opened(folder)
    frozen(batch(seed))
    frozen.keep()
    return frozen


def computed(seed: int = 1) -> Tensor:
    return FrozenFeatures(toy_backbone(), VIEW)(batch(seed))


def without_computing(frozen: FrozenFeatures, batch: Batch) -> Tensor:
    size = len(frozen)
    features = frozen(batch)
    assert len(frozen) == size
    return features


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*"))


def test_features_read_back_to_the_bit(tmp_path: Path) -> None:
    filled(tmp_path)
    assert len(opened(tmp_path)) == 30
    assert torch.equal(without_computing(opened(tmp_path), batch()), computed())


def test_what_is_known_stays_and_the_rest_is_added(tmp_path: Path) -> None:
    frozen = opened(tmp_path)
    frozen(batch(2))
    filled(tmp_path, 1)
    frozen.share(tmp_path)
    frozen.share(tmp_path)
    assert len(frozen) == 60
    x, y, ids = (torch.cat([getattr(batch(n), name) for n in (2, 1, 2)]) for name in ("x", "y", "ids"))
    mixed = Batch(x, y, ids)
    assert torch.equal(without_computing(frozen, mixed), torch.cat([computed(n) for n in (2, 1, 2)]))


def test_only_what_was_computed_since_is_written(tmp_path: Path) -> None:
    frozen = filled(tmp_path, 1)
    frozen.keep()
    assert len(files(tmp_path)) == 1
    frozen(batch(2))
    frozen.keep()
    assert sorted(len(load_file(path)["ids"]) for path in files(tmp_path)) == [30, 30]


def test_what_memory_lets_go_is_read_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [computed(seed) for seed in range(1, 9)]
    frozen = opened(tmp_path)
    monkeypatch.setattr(frozen, "_most", 2 * len(batch().ids))
    for seed in range(1, 9):
        frozen(batch(seed))
    assert sum(len(table) for table in frozen._tables[:2]) <= 2 * 8 * len(batch().ids)
    assert all(frozen.knows(batch(seed)) for seed in range(1, 9))
    for seed, features in enumerate(expected, 1):
        assert torch.equal(without_computing(frozen, batch(seed)), features)


def test_what_was_written_here_is_not_mapped_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frozen, read = opened(tmp_path), list[Path]()
    of = FeatureFiles._read

    def noted(self: FeatureFiles, path: Path) -> tuple[Tensor, Tensor]:
        read.append(path)
        return of(self, path)

    monkeypatch.setattr(FeatureFiles, "_read", noted)
    for seed in range(MANY + 1):
        frozen(batch(seed))
        frozen.keep()
        if seed < MANY:
            frozen.share(tmp_path)
            assert read == []
    joined = len(read)
    frozen.share(tmp_path)
    assert len(read) == joined == MANY + 1, "those that were joined, and not the one that they are now"
    assert len(frozen._tables) == 2


def test_what_others_wrote_is_read_where_it_was_joined_with_own_files(tmp_path: Path) -> None:
    frozen = opened(tmp_path)
    filled(tmp_path, 100)
    for seed in range(MANY):
        frozen(batch(seed))
        frozen.keep()
    assert len(files(tmp_path)) == 1
    assert not frozen.knows(batch(100))
    frozen.share(tmp_path)
    assert torch.equal(without_computing(frozen, batch(100)), computed(100))


def test_the_files_of_another_backbone_view_or_readout_are_not_taken(tmp_path: Path) -> None:
    filled(tmp_path)
    assert len(opened(tmp_path, seed=1)) == 0
    assert len(opened(tmp_path, view=ImageView(8, "symmetric"))) == 0
    assert len(opened(tmp_path, view=ImageView(8, flip=True))) == 0
    assert len(opened(tmp_path, readout=Readout(2, "both"))) == 0
    assert len(files(tmp_path)) == 1, "they are whole, and stay"


@pytest.mark.parametrize("size", [0, 7, 100, -1])
def test_a_truncated_file_is_removed_and_made_again(size: int, tmp_path: Path) -> None:
    filled(tmp_path)
    (path,) = files(tmp_path)
    path.write_bytes(path.read_bytes()[:size])
    assert len(opened(tmp_path)) == 0
    assert files(tmp_path) == []
    filled(tmp_path)
    assert len(opened(tmp_path)) == 30


def test_a_file_with_a_flipped_bit_is_removed(tmp_path: Path) -> None:
    filled(tmp_path)
    (path,) = files(tmp_path)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    assert len(opened(tmp_path)) == 0


@pytest.mark.parametrize(
    "tensors",
    [
        {"ids": torch.arange(3)},
        {"ids": torch.arange(3), "features": torch.zeros(2, 32)},
        {"ids": torch.arange(3), "features": torch.zeros(3, 16)},
        {"ids": torch.arange(3), "features": torch.zeros(3, 32, dtype=torch.float16)},
        {"ids": torch.zeros(3), "features": torch.zeros(3, 32)},
        {"ids": torch.tensor([[1]]), "features": torch.zeros(1, 32)},
        {"ids": torch.tensor([1, 2, 1]), "features": torch.zeros(3, 32)},
    ],
)
def test_a_file_that_cannot_be_ours_is_removed(tensors: dict[str, Tensor], tmp_path: Path) -> None:
    frozen = opened(tmp_path)
    folder = tmp_path / frozen.fingerprint[:16]
    folder.mkdir(parents=True)
    save_file(tensors, folder / "a.safetensors", metadata={"of": frozen.fingerprint})
    frozen.share(tmp_path)
    assert len(frozen) == 0
    assert files(tmp_path) == []


def test_many_files_become_one(tmp_path: Path) -> None:
    frozen = opened(tmp_path)
    for seed in range(MANY + 1):
        frozen(batch(seed))
        frozen.keep()
    assert len(files(tmp_path)) == 1
    later = opened(tmp_path)
    assert len(later) == 30 * (MANY + 1)
    for seed in (0, MANY):
        assert torch.equal(without_computing(later, batch(seed)), computed(seed))
        assert torch.equal(without_computing(frozen, batch(seed)), computed(seed))


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        known = set(files(tmp_path))
        filled(tmp_path, seed)
        (path,) = set(files(tmp_path)) - known
        path.rename(path.with_name(f"{seed}.safetensors"))
    for path, when in zip(files(tmp_path), (100, 300, 200), strict=True):
        os.utime(path, (when, when))
    one = files(tmp_path)[0].stat().st_size
    trim(tmp_path, 2 * one)
    assert [path.name for path in files(tmp_path)] == ["2.safetensors", "3.safetensors"]
    trim(tmp_path, one)
    assert [path.name for path in files(tmp_path)] == ["2.safetensors"]


def test_a_file_that_is_read_counts_as_used(tmp_path: Path) -> None:
    filled(tmp_path)
    os.utime(files(tmp_path)[0], (100, 100))
    opened(tmp_path)
    assert files(tmp_path)[0].stat().st_mtime > 1000


def test_the_limit_is_a_number_of_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert limit() == 4_000_000_000
    for little in ("0", "0.000001"):
        monkeypatch.setenv("PROMPTPOOL_FEATURES_GB", little)
        filled(tmp_path)
        assert files(tmp_path) == []
    monkeypatch.setenv("PROMPTPOOL_FEATURES_GB", "much")
    with pytest.raises(ValueError, match="PROMPTPOOL_FEATURES_GB = 'much': must be a number"):
        limit()


def test_a_full_disk_does_not_stop_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, f"No space left on device for {len(content)} bytes", str(path))

    monkeypatch.setattr(feature_files, "write_whole", full)
    frozen = filled(tmp_path)
    assert torch.equal(without_computing(frozen, batch()), computed())


def test_a_file_that_another_process_joined_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    (path,) = files(tmp_path)
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter([path.with_name("gone.safetensors"), path]))
    assert len(list(FeatureFiles(tmp_path, opened(tmp_path).fingerprint, 32).read())) == 1


def test_a_file_that_another_process_joined_while_it_was_opened_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, 1)
    filled(tmp_path, 2)
    mapped, gone = torch.UntypedStorage.from_file, files(tmp_path)[0]

    def joined(name: str, *arguments: Any, **values: Any) -> Any:
        gone.unlink(missing_ok=True)
        return mapped(name, *arguments, **values)

    monkeypatch.setattr(torch.UntypedStorage, "from_file", joined)
    frozen = opened(tmp_path)
    assert len(frozen) == 30
    assert torch.equal(torch.cat([frozen(batch(1)), frozen(batch(2))]), torch.cat([computed(1), computed(2)]))


def test_runs_share_a_folder(tmp_path: Path) -> None:
    first = SharedCache(tmp_path).frozen("key", toy_backbone(), VIEW, Readout())
    first(batch())
    first.keep()
    cache = SharedCache(tmp_path)
    second = cache.frozen("another key", toy_backbone(), VIEW, Readout())
    assert torch.equal(without_computing(second, batch()), computed())
    assert cache.frozen("another key", toy_backbone(), VIEW, Readout()) is second
    assert cache.frozen("another key", toy_backbone(), VIEW, Readout(2, "both")) is not second


@pytest.mark.parametrize("readout", [Readout(), Readout(2, "both")], ids=str)
def test_caches_that_work_side_by_side_take_what_the_other_has_written(readout: Readout, tmp_path: Path) -> None:
    backbones = toy_backbone(), toy_backbone()
    one, other = (SharedCache(tmp_path) for _ in backbones)
    first, second = (
        cache.frozen("key", backbone, VIEW, readout) for cache, backbone in zip((one, other), backbones, strict=True)
    )
    first(batch(1))
    first.keep()
    assert not second.knows(batch(1))
    assert other.frozen("key", backbones[1], VIEW, readout) is second
    assert torch.equal(without_computing(second, batch(1)), first(batch(1)))
    second(batch(2))
    second.keep()
    one.frozen("key", backbones[0], VIEW, readout)
    assert torch.equal(without_computing(first, batch(2)), second(batch(2)))
    plain = one.frozen("key", backbones[0], VIEW, Readout())
    assert torch.equal(without_computing(plain, batch(2)), computed(2)), "and what was made beside it"


def test_a_cache_without_a_folder_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    frozen = SharedCache().frozen("key", toy_backbone(), VIEW, Readout())
    frozen(batch())
    frozen.keep()
    assert list(tmp_path.iterdir()) == []


def write_often(folder: Path, seeds: Iterable[int]) -> None:
    for seed in seeds:
        filled(folder, seed)


def test_two_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    threads = [Thread(target=write_often, args=(tmp_path, range(n, 12, 2))) for n in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened(tmp_path)) == 12 * 30


def fill_and_read(folder: Path, found: Path, seeds: list[int], together: Barrier) -> None:
    """What one of two processes does: compute and write, and when both have, read everything."""
    torch.set_num_threads(THREADS)
    feature_files.MANY = 2  # files are joined at almost every write
    together.wait(120)
    try:
        write_often(folder, seeds)
    except BaseException:
        together.abort()  # the other need not wait
        raise
    together.wait(120)
    frozen = opened(folder)
    save_file({str(seed): without_computing(frozen, batch(seed)) for seed in SEEDS}, found)


def test_two_processes_fill_a_folder_at_once_and_read_all(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    together, folder, found = context.Barrier(2), tmp_path / "features", [tmp_path / "first", tmp_path / "second"]
    orders = [[*SEEDS], [*reversed(SEEDS)]]  # they meet in the middle
    processes = [
        context.Process(target=fill_and_read, args=(folder, path, order, together))
        for path, order in zip(found, orders, strict=True)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    read = [load_file(path) for path in found]
    for seed in SEEDS:
        assert all(torch.equal(rows[str(seed)], computed(seed)) for rows in read)
    assert {path.suffix for path in files(folder)} == {".safetensors"}


@pytest.mark.skipif(not MAPS.exists(), reason="the system does not tell what is mapped")
def test_rows_of_files_are_mapped_into_memory(tmp_path: Path) -> None:
    filled(tmp_path)
    (path,) = files(tmp_path)
    assert str(path) not in MAPS.read_text()
    frozen = opened(tmp_path)
    rows = frozen._tables[-1]
    mapped = [line.split()[0].split("-") for line in MAPS.read_text().splitlines() if line.endswith(str(path))]
    assert len(rows) == 30
    assert any(int(begin, 16) <= rows.data_ptr() < int(end, 16) for begin, end in mapped)
    del frozen, rows
    assert str(path) not in MAPS.read_text()
