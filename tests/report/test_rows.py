from __future__ import annotations

from pathlib import Path

import pytest

from promptpool.errors import BadFileError
from promptpool.learners import LEARNERS
from promptpool.report.names import METHODS, method_name
from promptpool.report.rows import compare
from report_runs import STREAM, TASKS, made_run


def test_runs_that_differ_by_seed_alone_share_a_row(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / str(seed), seed=seed) for seed in (0, 1, 2)]
    (comparison,) = compare(runs)
    assert [row.name for row in comparison.rows] == ["FT-seq"]
    assert comparison.rows[0].runs == tuple(runs)


def test_rows_of_one_name_say_what_sets_them_apart(tmp_path: Path) -> None:
    small = made_run(tmp_path / "a", name="l2p", learner={"pool_size": 10, "key": "learned"})
    large = made_run(tmp_path / "b", name="l2p", learner={"pool_size": 20, "key": "learned"})
    (comparison,) = compare([small, large, made_run(tmp_path / "c")])
    assert [row.name for row in comparison.rows] == ["L2P (pool_size=10)", "L2P (pool_size=20)", "FT-seq"]


def test_long_lists_of_values_get_a_short_name_for_pictures(tmp_path: Path) -> None:
    first = made_run(tmp_path / "a", name="l2p", learner={"pool_size": 10, "prompt_length": 5, "top_k": 5})
    second = made_run(tmp_path / "b", name="l2p", learner={"pool_size": 20, "prompt_length": 10, "top_k": 4})
    rows = compare([first, second])[0].rows
    assert [row.name for row in rows] == ["L2P 1", "L2P 2"]
    assert rows[1].values == "pool_size=20, prompt_length=10, top_k=4"


def test_an_unfinished_run_stands_alone(tmp_path: Path) -> None:
    whole = made_run(tmp_path / "a", seed=0)
    parts = [made_run(tmp_path / str(k), TASKS[:k], seed=k, environment={"experiences": 3}) for k in (0, 2)]
    rows = compare([whole, *parts])[0].rows
    assert [row.name for row in rows] == [
        "FT-seq",
        "FT-seq (0 of 3 experiences)",
        "FT-seq (2 of 3 experiences)",
    ]


def test_a_folder_given_twice_counts_once(tmp_path: Path) -> None:
    run = made_run(tmp_path / "a")
    again = made_run(tmp_path / "x" / ".." / "a")
    assert len(compare([run, again])[0].runs) == 1


def test_a_repeated_seed_is_no_further_seed(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / name, seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1))]
    rows = compare(runs)[0].rows
    assert [(row.name, len(row.runs)) for row in rows] == [("FT-seq #1", 2), ("FT-seq #2", 1)]


def test_other_streams_are_other_comparisons(tmp_path: Path) -> None:
    here, there = made_run(tmp_path / "a"), made_run(tmp_path / "b", seed=1, environment={"stream": "other"})
    assert [comparison.stream for comparison in compare([here, there])] == [STREAM, "other"]


def test_the_upper_bound_is_compared_on_the_stream_it_joins(tmp_path: Path) -> None:
    joint = made_run(tmp_path / "b", [[90, 80, 70]], environment={"stream": "joint", "joins": STREAM})
    (comparison,) = compare([made_run(tmp_path / "a"), joint])
    assert [row.name for row in comparison.rows] == ["FT-seq", "Upper bound"]


def test_a_run_must_name_its_stream(tmp_path: Path) -> None:
    with pytest.raises(BadFileError, match="which stream"):
        compare([made_run(tmp_path / "a", environment={"stream": None})])


def test_every_learner_has_a_name_as_people_write_it() -> None:
    assert {*LEARNERS} <= {*METHODS}
    assert method_name("l2p", joint=True) == "Upper bound (L2P)"
    assert method_name("my-own") == "my-own"
