"""The picture of a schedule shows each class's share of what arrives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from promptpool.data.scenarios import class_incremental, gaussian_schedule
from promptpool.data.stream import class_counts, examples
from promptpool.errors import BadFileError
from promptpool.report.plots import class_schedule
from promptpool.training.run_folder import SCHEDULE, Run, read_schedule


def run(rows: list[list[int]]) -> Run:
    return Run(Path("run"), {}, {"experiences": 1}, (), (), tuple(tuple(row) for row in rows))


def test_counts_are_of_equal_stretches_and_lose_nothing() -> None:
    labels = torch.arange(10).repeat_interleave(50)
    pictures = examples(torch.randint(0, 256, (500, 3, 4, 4), dtype=torch.uint8), labels)
    stream = gaussian_schedule(pictures, pictures, [str(c) for c in range(10)], seed=0, width=1.0, windows=3)
    counts = np.array(class_counts(stream, 20))
    assert counts.shape == (20, 10)
    assert counts.sum(axis=0).tolist() == [50] * 10
    assert counts.sum(axis=1).tolist() == [25] * 20
    middle = (counts * np.arange(20)[:, None]).sum(axis=0) / 50
    assert (np.diff(middle) > 0).all()  # classes come in their order
    tasks = class_incremental(pictures, pictures, [str(c) for c in range(10)], tasks=5)
    assert np.array(class_counts(tasks, 5))[0].tolist() == [50, 50] + 8 * [0]


def test_a_line_for_each_class_with_its_share() -> None:
    figure = class_schedule(run([[3, 1], [1, 1], [0, 4]]))
    assert figure is not None
    lines = figure.axes[0].get_lines()
    np.testing.assert_allclose(np.asarray(lines[0].get_ydata(), float), [75, 50, 0])
    np.testing.assert_allclose(np.asarray(lines[1].get_ydata(), float), [25, 50, 100])
    np.testing.assert_allclose(np.asarray(lines[0].get_xdata(), float), [0.002, 0.005, 0.008])


def test_streams_with_boundaries_have_no_schedule() -> None:
    assert class_schedule(run([])) is None
    assert class_schedule(replace(run([[1]]), schedule=())) is None


@pytest.mark.parametrize("content", ["{}", "[1]", "[[1], [1, 2]]", "[[0.5]]", "[[0, 0]]", "[[-1, 2]]", "nothing"])
def test_a_damaged_schedule_is_said(content: str, tmp_path: Path) -> None:
    (tmp_path / SCHEDULE).write_text(content)
    with pytest.raises(BadFileError, match=SCHEDULE):
        read_schedule(tmp_path)
