"""The choice of prompts by hand, its CSV, and figures that can be drawn of what there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from promptpool.errors import BadFileError
from promptpool.report.rows import prompt_shares
from promptpool.report.themes import png, svg
from promptpool.reproduce.figures import buffers, figure3, figure4, overlap
from promptpool.reproduce.results import read_shares, shares_to_csv
from report_runs import made_run
from reproduce_runs import made_result

SHARES = {"split": np.array([[1.0, 0.5, 0.5], [0.25, 1.0, 0.75]]), "five, unlike": np.eye(3) / 8}


def test_shares_are_of_the_images_of_each_test_set(tmp_path: Path) -> None:
    chosen = [[100, 40, 60, 0], [0, 100, 0, 100], [50, 50, 50, 50]]
    run = made_run(tmp_path / "run", facts=[{}, {}, {"chosen_in_tests": chosen}])
    shares = prompt_shares(run)
    assert shares is not None
    np.testing.assert_allclose(shares, np.array(chosen) / 100)
    assert shares.sum(axis=1).tolist() == [2, 2, 2]  # two prompts each


def test_overlap_by_hand() -> None:
    assert overlap(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]])) == 1
    assert overlap(np.array([[1.0, 0.0], [0.0, 1.0]])) == 0
    assert overlap(np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])) == 0.5
    # Parts (1/2, 1/4, 1/4), (1/8, 1/2, 3/8): 1/8 + 1/4 + 1/4.
    assert overlap(SHARES["split"]) == pytest.approx(0.625)
    # Pairs 1, 0 and 0.
    assert overlap(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])) == pytest.approx(1 / 3)
    assert overlap(3 * SHARES["split"]) == pytest.approx(overlap(SHARES["split"]))


def test_shares_read_back_from_csv(tmp_path: Path) -> None:
    file = tmp_path / "figure3.csv"
    file.write_text(shares_to_csv(SHARES))
    found = read_shares(file)
    assert list(found) == list(SHARES)
    for stream, rows in SHARES.items():
        np.testing.assert_allclose(found[stream], rows, atol=5e-5)
    assert shares_to_csv(found) == file.read_text()


@pytest.mark.parametrize(
    ("old", "new"), [("share\n", "part\n"), ("split,1,1,1.0000", "split,1,1,much"), ("split,1,1,1.0000", "split,one")]
)
def test_damaged_shares_are_named(old: str, new: str, tmp_path: Path) -> None:
    file = tmp_path / "figure3.csv"
    file.write_text(shares_to_csv(SHARES).replace(old, new, 1))
    with pytest.raises(BadFileError, match=r"figure3\.csv"):
        read_shares(file)


def test_figures_have_the_numbers_of_their_entries() -> None:
    curves = [
        made_result("L2P", float(at), group, study="figure4", stream=stream, at=str(at), accuracy_deviation="0.50")
        for stream in ("split", "five")
        for group in ("N = 1", "N = 5", "pool size")
        for at in (1, 5, 10)
    ]
    panels = figure4(curves).axes
    assert [axes.get_title(loc="left") for axes in panels] == [
        "split, M = 20",
        "five, M = 20",
        "size of the pool, length 5",
    ]
    assert [axes.get_legend_handles_labels()[1] for axes in panels] == [
        ["N = 1", "N = 5"],
        ["N = 1", "N = 5"],
        ["split", "five"],
    ]
    rows = [made_result(name, 2.0 * at, study="buffers", at=str(at)) for name in ("ER", "BiC") for at in (2, 10)]
    (axes,) = buffers(rows).axes
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[2, 4], [10, 20]]] * 2  # type: ignore[union-attr]
    assert [axes.get_title(loc="left") for axes in figure3(SHARES).axes] == [
        "split, overlap 0.62: task 1",
        "five, unlike, overlap 0.00: task 1",
        "task 2",
        "task 2",
        "",
        "task 3",
    ]


def test_an_accuracy_of_zero_is_a_point() -> None:
    rows = [made_result("ER", value, study="buffers", at=str(at)) for at, value in ((2, 0.0), (10, 5.0))]
    (axes,) = buffers(rows).axes
    assert axes.lines[0].get_xydata().tolist() == [[2, 0], [10, 5]]  # type: ignore[union-attr]


@pytest.mark.filterwarnings("error")
def test_a_figure_of_little_is_a_figure() -> None:
    """One point, one stream, no pool: no warnings, and the same bytes each time."""
    one = [made_result("L2P", 3.0, "N = 1", study="figure4", at="5")]
    first, second = ([figure4(one), figure3({"split": SHARES["split"]}), buffers(one)] for _ in range(2))
    for figure, again in zip(first, second, strict=True):
        assert png(figure) == png(again)
        assert svg(figure) == svg(again)
