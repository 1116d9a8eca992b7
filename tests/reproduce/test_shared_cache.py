"""Frozen features between processes: a file that is whole and of the same thing is read, any other is as none."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from promptpool.backbones.features import FrozenFeatures
from promptpool.data.stream import Batch
from promptpool.data.views import ImageView
from promptpool.experiments.build import SharedCache
from toys import VIEW, toy_backbone, toy_examples


def batch(seed: int = 1) -> Batch:
    return toy_examples(5, seed).batch(slice(None))


def known(seed: int = 1) -> FrozenFeatures:
    frozen = FrozenFeatures(toy_backbone(), VIEW)
    frozen(batch(seed))
    return frozen


def loaded(path: Path, *, seed: int = 0, view: ImageView = VIEW) -> FrozenFeatures:
    frozen = FrozenFeatures(toy_backbone(seed), view)
    frozen.load(path)
    return frozen


def without_computing(frozen: FrozenFeatures, batch: Batch) -> Tensor:
    size = len(frozen)
    features = frozen(batch)
    assert len(frozen) == size
    return features


def test_features_read_back_to_the_bit(tmp_path: Path) -> None:
    frozen = known()
    frozen.save(tmp_path / "file")
    assert torch.equal(without_computing(loaded(tmp_path / "file"), batch()), frozen(batch()))
    assert len(loaded(tmp_path / "file")) == 30


def test_what_is_known_stays_and_the_rest_is_added(tmp_path: Path) -> None:
    known(1).save(tmp_path / "file")
    frozen = known(2)
    before = frozen(batch(2)).clone()
    frozen.load(tmp_path / "file")
    frozen.load(tmp_path / "file")
    assert len(frozen) == 60
    assert torch.equal(without_computing(frozen, batch(1)), known(1)(batch(1)))
    assert torch.equal(without_computing(frozen, batch(2)), before)


def test_the_file_of_another_backbone_or_view_is_ignored(tmp_path: Path) -> None:
    known().save(tmp_path / "file")
    assert len(loaded(tmp_path / "file", seed=1)) == 0
    assert len(loaded(tmp_path / "file", view=ImageView(8, "symmetric"))) == 0
    assert len(loaded(tmp_path / "file", view=ImageView(8, flip=True))) == 0


@pytest.mark.parametrize("size", [0, 7, 100, -1])
def test_a_truncated_file_is_ignored(size: int, tmp_path: Path) -> None:
    known().save(tmp_path / "file")
    (tmp_path / "file").write_bytes((tmp_path / "file").read_bytes()[:size])
    assert len(loaded(tmp_path / "file")) == 0


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
def test_a_file_that_cannot_be_ours_is_ignored(tensors: dict[str, Tensor], tmp_path: Path) -> None:
    save_file(tensors, tmp_path / "file", metadata={"of": known().fingerprint})
    assert len(loaded(tmp_path / "file")) == 0


def test_no_file_and_a_folder_are_as_none(tmp_path: Path) -> None:
    assert len(loaded(tmp_path / "none")) == 0
    assert len(loaded(tmp_path)) == 0


def filled(folder: Path, seed: int) -> SharedCache:
    cache = SharedCache(folder)
    cache.frozen("key", toy_backbone(), VIEW)(batch(seed))
    return cache


def test_two_stocks_that_write_one_folder_merge(tmp_path: Path) -> None:
    first, second = filled(tmp_path / "features", 1), filled(tmp_path / "features", 2)
    first.keep()
    second.keep()  # had read nothing when it began
    third = SharedCache(tmp_path / "features").frozen("another key", toy_backbone(), VIEW)
    assert len(third) == 60
    for seed in (1, 2):
        assert torch.equal(without_computing(third, batch(seed)), known(seed)(batch(seed)))
    (file,) = (tmp_path / "features").iterdir()
    before = file.stat().st_mtime_ns
    second.keep()  # has nothing new
    assert file.stat().st_mtime_ns == before


def test_a_cache_without_a_folder_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cache = SharedCache()
    cache.frozen("key", toy_backbone(), VIEW)(batch())
    cache.keep()
    assert list(tmp_path.iterdir()) == []


def write_often(folder: Path, seeds: range) -> None:
    for seed in seeds:
        filled(folder, seed).keep()


def test_two_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    """Threads: the lock is the open file's, so they keep each other out as processes do."""
    threads = [Thread(target=write_often, args=(tmp_path, range(n, 12, 2))) for n in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(SharedCache(tmp_path).frozen("key", toy_backbone(), VIEW)) == 12 * 30
