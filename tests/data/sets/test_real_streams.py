"""The paper's streams of the published files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from promptpool.data.scenarios import LabelledSet, class_incremental, gaussian_schedule
from promptpool.data.sets import DATASETS
from promptpool.data.stream import class_counts
from promptpool.report.plots import class_schedule
from promptpool.report.themes import png
from promptpool.training.run_folder import Run

REAL = os.environ.get("PROMPTPOOL_REAL_DATA")
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(REAL is None, reason="PROMPTPOOL_REAL_DATA names no folder of published files"),
]


@pytest.fixture(autouse=True)
def _published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPOOL_DATA", str(REAL))


@pytest.fixture(scope="module")
def cifar100() -> LabelledSet:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROMPTPOOL_DATA", str(REAL))
        return LabelledSet(*DATASETS["cifar100"]())


def test_split_cifar_100_is_ten_tasks_of_ten_classes(cifar100: LabelledSet) -> None:
    stream = class_incremental(*cifar100, tasks=10)
    assert [len(experience.train) for experience in stream.experiences] == [5000] * 10
    assert [len(test) for test in stream.tests] == [1000] * 10
    assert stream.class_names[:3] == ("apple", "aquarium_fish", "baby")


def test_the_gaussian_schedule_shows_every_image_exactly_once(cifar100: LabelledSet, tmp_path: Path) -> None:
    stream = gaussian_schedule(*cifar100, seed=0, windows=10)
    ids = np.concatenate([experience.train.ids.numpy() for experience in stream.experiences])
    assert len(ids) == len(np.unique(ids)) == 50_000
    assert set(ids.tolist()) == set(cifar100.train.ids.tolist())
    counts = np.array(class_counts(stream, 100))
    assert counts.sum(axis=0).tolist() == [500] * 100
    middle = (counts * np.arange(100)[:, None]).sum(axis=0) / 500
    assert (np.diff(middle) > 0).all()  # classes come in their order
    assert (counts > 0).sum(axis=1).max() < 40  # at any time most of them are away
    figure = class_schedule(Run(tmp_path, {}, {}, (), (), tuple(tuple(row) for row in class_counts(stream, 50))))
    assert figure is not None
    assert len(figure.axes[0].get_lines()) == 100
    assert len(png(figure)) > 10_000


def test_five_datasets_in_turn() -> None:
    stream = class_incremental(*DATASETS["5-datasets"](train_per_class=20, test_per_class=10), tasks=5)
    assert [experience.classes for experience in stream.experiences] == [
        tuple(range(begin, begin + 10)) for begin in range(0, 50, 10)
    ]
    assert [len(experience.train) for experience in stream.experiences] == [200] * 5
    assert stream.class_names[10:12] == ("mnist 0", "mnist 1")
    firsts = [experience.train.batch(slice(0, 200)).x.float() for experience in stream.experiences]
    grey = [bool((x[:, 0] == x[:, 1]).all() and (x[:, 1] == x[:, 2]).all()) for x in firsts]
    assert grey == [False, True, False, True, True]
    assert {tuple(x.shape) for x in firsts} == {(200, 3, 32, 32)}
