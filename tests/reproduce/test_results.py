"""Entries: numbers of hand-made runs, and the CSV they are kept in."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from promptpool.errors import BadFileError
from promptpool.reproduce.paper import Reported
from promptpool.reproduce.results import Result, Results, filled_from, joined, known_seeds, read_csv, result, to_csv
from promptpool.training.record import Record
from report_runs import TASKS, made_run
from reproduce_runs import made_item, made_result

BETTER = ((90, None, None), (60, 80, None), (80, 60, 90))  # average 76.67, forgetting 15


def test_the_numbers_of_one_run(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", seconds=(1.2, 2.0, 3.4), environment={"revision": "abc"})
    found = result(made_item(loss_classes="all"), [run])
    assert (found.study, found.stream, found.group, found.method) == ("table1", "a stream", "no buffer", "FT-seq")
    assert (found.accuracy, found.accuracy_deviation) == ("53.33", "")
    assert (found.forgetting, found.forgetting_deviation) == ("40.00", "")
    assert (found.loss_classes, found.seconds, found.seeds, found.revision) == ("all", "7", "0", "abc")
    assert (found.runs, found.at, found.prompts, found.pool_size, found.task_given) == ("run", "", "", "", "")
    assert found.value == 53.33


def test_mean_and_deviation_over_seeds(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / "a", seconds=(1,)), made_run(tmp_path / "b", BETTER, seed=1, seconds=(4,))]
    found = result(made_item(at=2, reported=Reported(70.5, 1.25, 8.0)), runs)
    assert found.accuracy == f"{(160 / 3 + 230 / 3) / 2:.2f}" == "65.00"
    assert found.accuracy_deviation == f"{statistics.stdev([160 / 3, 230 / 3]):.2f}" == "16.50"  # 35/3 * sqrt(2)
    assert (found.forgetting, found.forgetting_deviation) == ("27.50", "17.68")  # 25 / sqrt(2)
    assert (found.seeds, found.runs, found.at) == ("0 1", "a b", "2")
    assert found.seconds == "2"  # of 1 and 4, to the even
    assert (found.paper_accuracy, found.paper_forgetting) == ("70.50 ± 1.25", "8.00")


def test_what_does_not_forget_has_no_forgetting(tmp_path: Path) -> None:
    facts = [{"forgets": False}] * 3
    gdumb = result(made_item("gdumb"), [made_run(tmp_path / "gdumb", name="gdumb", facts=facts)])
    assert (gdumb.accuracy, gdumb.forgetting) == ("53.33", "")
    joint = result(made_item("upper-bound"), [made_run(tmp_path / "joint", [(90, 80, 70)])])
    assert (joint.accuracy, joint.forgetting) == ("80.00", "")


def test_a_single_test_set_gives_the_final_accuracy(tmp_path: Path) -> None:
    found = result(made_item(), [made_run(tmp_path / "run", [[30], [20], [50]])])
    assert (found.accuracy, found.forgetting) == ("50.00", "")


def test_prompts_in_use_and_accuracy_with_the_task_given(tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path / f"{n}", seed=n, facts=[{"prompts_in_use": 4 + n, "key_similarity": [[1.0]] * 10}] * 3)
        for n in (0, 1)
    ]
    last = Record(
        2,
        20,
        6,
        0.5,
        (50, 40, 70),
        (100, 100, 100),
        (90, 80, 70),
        {"prompts_in_use": 4, "key_similarity": [[1.0]] * 10},
    )
    runs[0] = replace(runs[0], records=(*runs[0].records[:2], last))
    found = result(made_item("l2p"), runs)
    assert (found.prompts, found.pool_size, found.task_given) == ("4.5", "10", "80.00")


def test_an_item_without_a_finished_run_is_empty(tmp_path: Path) -> None:
    half = made_run(tmp_path / "half", TASKS[:1], environment={"experiences": 3})
    found = result(made_item(loss_classes="all", reported=Reported(1.0)), [half])
    assert found == replace(made_result("FT-seq", stream="a stream"), paper_accuracy="1.00")
    assert found.value is None


def test_a_csv_reads_back_as_it_was(tmp_path: Path) -> None:
    results = [
        made_result("L2P", 12.5, accuracy_deviation="0.25", at="5", runs="a b", revision="c d"),
        made_result('odd, "quoted" & | name', stream="two, words"),
    ]
    file = tmp_path / "table1.csv"
    file.write_text(to_csv(results), encoding="utf-8")
    assert read_csv(file) == results
    assert to_csv(read_csv(file)) == file.read_text()
    file.write_text(to_csv([]))
    assert read_csv(file) == []


def test_a_csv_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    written = to_csv([made_result("L2P", 12.5, seeds="0 1", runs="a b")])
    lines = [line.rsplit(",", 3)[0] for line in written.splitlines()]  # without the last three columns
    (tmp_path / "table1.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert read_csv(tmp_path / "table1.csv") == [made_result("L2P", 12.5, seeds="0 1", runs="a b")]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) * 3 // 4],
        lambda text: text.replace("12.50", "twelve"),
        lambda text: text.replace(",5,", ",five,"),
        lambda text: text.replace("accuracy,", "", 1),
        lambda text: text.rstrip("\n") + ",more\n",
        lambda text: "a,b\n1,2\n",
        lambda text: text.replace("L2P", '"L2P'),
        lambda text: text.replace("L2P", "\0"),
        lambda text: text.replace("12.50 13.00", "12.50"),
        lambda text: text.replace("13.00", "thirteen"),
        lambda text: text.replace("0 1", "0 x"),
        lambda text: text.replace("a b", "a"),
    ],
)  # fmt: skip
def test_a_damaged_csv_is_named(damage: object, tmp_path: Path) -> None:
    assert callable(damage)
    file = tmp_path / "table1.csv"
    file.write_text(
        damage(to_csv([made_result("L2P", 12.5, at="5", seeds="0 1", accuracies="12.50 13.00", runs="a b")]))
    )
    if "\0" in file.read_text():
        file.write_bytes(b"\xff" + file.read_bytes())
    with pytest.raises(BadFileError, match=r"table1\.csv"):
        read_csv(file)


def test_cells_without_a_run_are_taken_from_earlier_results() -> None:
    measured = made_result("L2P", 81)
    old, other = replace(measured, accuracy="80.00"), made_result("ER", 70)
    lacking = replace(other, accuracy="", seeds="")
    nowhere = made_result("BiC")
    found = filled_from(
        Results({"table1": [measured, lacking, nowhere]}), Results({"table1": [old, other], "table2": [old]})
    )
    assert found.studies == {"table1": [measured, other, nowhere]}


def test_seeds_that_were_run_elsewhere_join_a_cell(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / "a", seconds=(2,)), made_run(tmp_path / "b", BETTER, seed=1, seconds=(4,))]
    whole, item = result(made_item(), runs), made_item()
    apart = [replace(result(item, [run]), values="same") for run in runs]
    for here, earlier in (apart, apart[::-1]):
        assert replace(joined(here, earlier), values="") == whole
    assert joined(apart[0], apart[0]) == apart[0]  # a seed that was run here counts once
    assert (whole.accuracies, whole.forgettings, whole.seeds) == ("53.33 76.67", "40.00 15.00", "0 1")


def test_what_an_earlier_cell_must_not_join(tmp_path: Path) -> None:
    here = replace(result(made_item(), [made_run(tmp_path / "a")]), values="new")
    earlier = replace(result(made_item(), [made_run(tmp_path / "b", BETTER, seed=1)]), values="old")
    empty = replace(result(made_item(), []), values="new")
    assert joined(here, earlier) == here  # other values
    assert joined(empty, earlier) == empty
    unknown = replace(earlier, values="", accuracies="", forgettings="")  # a file of an earlier version
    assert joined(here, unknown) == here
    assert joined(empty, unknown) == unknown


def test_seeds_that_are_known_with_the_same_values(tmp_path: Path) -> None:
    cell = replace(result(made_item(), [made_run(tmp_path / "a", seed=2)]), values="new")
    earlier = Results({"table1": [cell]})
    assert known_seeds(earlier, cell.key, "new") == {2}
    assert known_seeds(earlier, cell.key, "old") == set()
    assert known_seeds(earlier, made_result("BiC").key, "new") == set()
    assert known_seeds(Results({"table1": [replace(cell, accuracies="")]}), cell.key, "new") == set()


def test_every_field_is_text() -> None:
    assert all(kind == "str" for kind in Result.__annotations__.values())
