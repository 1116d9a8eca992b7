"""`benchmarks/stored.py` sets what runs give now beside what is stored, number by number."""

import runpy
from dataclasses import replace
from pathlib import Path

from promptpool.reproduce.results import Result, Results

SCRIPT = runpy.run_path(str(Path(__file__).parent.parent.parent / "benchmarks" / "stored.py"))
CELL = Result("table1", "Split glyphs100", "no buffer", "L2P", seeds="0 1", accuracy="82.70", forgetting="5.00")
EACH = replace(CELL, accuracies="82.40 83.00", forgettings="5.67 4.33", values="c50616eb")


def of(cell: Result) -> Results:
    return Results({"table1": [cell]})


def lines(now: Result, then: Result) -> list[list[str]]:
    return [line[3:] for line in SCRIPT["beside"](of(now), of(then))]


def test_numbers_of_each_seed_stand_beside_each_other() -> None:
    now = replace(EACH, accuracies="82.40 83.05", accuracy="82.73")
    assert lines(now, EACH) == [
        ["0 1", "82.70 5.00", "82.73 5.00", "differs"],
        ["0", "82.40 5.67", "82.40 5.67", ""],
        ["1", "83.00 4.33", "83.05 4.33", "differs"],
    ]


def test_of_seeds_that_only_one_of_them_has_nothing_is_said() -> None:
    one = replace(EACH, seeds="0", accuracy="82.40", forgetting="5.67", accuracies="82.40", forgettings="5.67")
    assert lines(one, EACH) == [["0", "82.40 5.67", "82.40 5.67", ""]]


def test_files_without_numbers_of_each_seed_have_those_of_all() -> None:
    assert lines(EACH, CELL) == [["0 1", "82.70 5.00", "82.70 5.00", ""]]


def test_a_cell_of_other_values_is_not_compared() -> None:
    assert lines(EACH, replace(EACH, values="00000000")) == []
    assert lines(EACH, replace(EACH, method="ER")) == []


def test_an_accuracy_without_forgetting_is_a_number_too() -> None:
    final = replace(EACH, forgetting="", forgettings="")
    assert lines(final, final)[1] == ["0", "82.40", "82.40", ""]
