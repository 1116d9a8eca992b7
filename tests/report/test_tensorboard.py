"""Run folders as TensorBoard logs."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from promptpool.report.tensorboard import scalars, write_tensorboard
from report_runs import made_run, toy_run


def test_every_record_is_in_the_log(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what TensorBoard imports is not ours to mend
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        run = toy_run(tmp_path / "l2p")
        folder = write_tensorboard([run], tmp_path / "logs")
        log = EventAccumulator(str(folder / "l2p"))
        log.Reload()
    for name in ("accuracy/mean", "accuracy/test 1", "loss", "prompts in use"):
        points = log.Scalars(name)
        assert [point.step for point in points] == [1, 2, 3]
        assert [point.value for point in points] == pytest.approx([scalars(run, t)[name] for t in range(3)], rel=1e-6)


def test_the_mean_is_over_the_test_sets_known(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run")
    assert scalars(run, 1)["accuracy/mean"] == pytest.approx(0.7)
    assert "accuracy/test 3" not in scalars(run, 1)
    untested = made_run(tmp_path / "untested", ((None, None), (50, 40)))
    assert scalars(untested, 0) == {"loss": 0.5}
