"""Accuracy class by class."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parsed_page import Parsed
from promptpool.cli import app
from promptpool.errors import BadFileError
from promptpool.report.classes import class_table, worst_first, worst_lines
from promptpool.report.report import write_report
from promptpool.training.record import ClassCount
from promptpool.training.run_folder import Run, read_run, write_records
from report_runs import EVIL, made_run, toy_run

COUNTS = (ClassCount(0, 10, 10), ClassCount(1, 3, 10, 2, 5), ClassCount(2, 1, 5, 1, 4), ClassCount(3, 9, 10, 0, 1))


def counted_run(
    folder: Path, names: list[str], counts: tuple[ClassCount, ...] = COUNTS, *, seed: int = 0, method: str = "ft-seq"
) -> Run:
    """A run whose last record has counts of classes."""
    run = made_run(folder, name=method, seed=seed, environment={"class_names": names})
    write_records(folder, [*run.records[:-1], replace(run.records[-1], by_class=counts)])
    return read_run(folder)


def test_classes_stand_from_worst_to_best(tmp_path: Path) -> None:
    run = counted_run(tmp_path / "a", ["cat", "dog", "fox", "owl"])
    table = class_table(run)
    assert table is not None
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["fox", "20.0", "1", "5", "dog (4)"],
        ["dog", "30.0", "3", "10", "fox (5)"],
        ["owl", "90.0", "9", "10", "cat (1)"],
        ["cat", "100.0", "10", "10", "-"],
    ]
    assert worst_lines([run]) == [
        "worst classes: fox 20 % (1 of 5, most often taken for dog), dog 30 % (3 of 10, most often taken for fox), "
        "owl 90 % (9 of 10, most often taken for cat)"
    ]


def test_seeds_are_counted_together_and_methods_apart(tmp_path: Path) -> None:
    names = ["cat", "dog", "fox", "owl"]
    other = (ClassCount(0, 2, 10, 1, 8), *COUNTS[1:])
    runs = [counted_run(tmp_path / "a", names), counted_run(tmp_path / "b", names, other, seed=1)]
    third = counted_run(tmp_path / "c", names, (ClassCount(0, 5, 5),), method="er")
    assert worst_lines([*runs, third]) == [
        "worst classes of FT-seq: fox 20 % (2 of 10), dog 30 % (6 of 20), cat 60 % (12 of 20)"
    ]


def test_a_class_without_a_name_has_its_number(tmp_path: Path) -> None:
    assert worst_lines([counted_run(tmp_path / "a", [], COUNTS[1:2])]) == [
        "worst classes: class 2 30 % (3 of 10, most often taken for class 3)"
    ]


def test_runs_of_earlier_versions_have_no_classes(tmp_path: Path) -> None:
    run = made_run(tmp_path / "a")
    assert (worst_first(run), class_table(run), worst_lines([run])) == ([], None, [])
    page = write_report([run], tmp_path / "out")
    assert "worst first" not in page.read_text(encoding="utf-8")
    assert not (tmp_path / "out/classes.csv").exists()


def test_a_page_of_many_classes(tmp_path: Path) -> None:
    names = [f"character {number}" for number in range(150)]
    counts = tuple(ClassCount(n, n % 21, 20 + n % 7, (n + 1) % 150 if n % 21 < 20 else None, n % 2) for n in range(150))
    page = write_report([counted_run(tmp_path / "a", names, counts)], tmp_path / "out")
    parsed = Parsed(page.read_text(encoding="utf-8"))
    assert len(parsed.all("td")) >= 4 * 150
    assert page.stat().st_size < 400_000
    assert {"class": "classes"} in parsed.all("div")
    with (tmp_path / "out/classes.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 150
    assert rows[0]["right"] == "0"


def test_class_names_are_shown_not_obeyed(tmp_path: Path) -> None:
    page = write_report([counted_run(tmp_path / "a", [EVIL] * 4)], tmp_path / "out")
    parsed = Parsed(page.read_text(encoding="utf-8"))
    assert parsed.text.count(EVIL) >= 7
    assert not parsed.all("script")


def test_a_real_run_is_reported_with_its_classes(tmp_path: Path) -> None:
    run = toy_run(tmp_path / "linear", "masked-linear")
    last = run.records[-1]
    assert last.by_class is not None
    assert sum(count.correct for count in last.by_class) == sum(right or 0 for right in last.correct)
    assert sum(count.total for count in last.by_class) == sum(last.total)
    said = CliRunner().invoke(app, ["report", str(run.path), "--out", str(tmp_path / "out")])
    assert said.exit_code == 0, said.output
    assert "worst classes: " in said.output


@pytest.mark.parametrize(
    "row", [[0, 3, 2, None, 0], [0, 1, 0, None, 0], [0, "1", 2, None, 0], [0, 1, -2, 1, 0], [None, 1, 2, 1, 0], [0], 7]
)
def test_counts_that_cannot_be_are_a_damaged_file(row: object, tmp_path: Path) -> None:
    run = counted_run(tmp_path / "a", [])
    *lines, last = (run.path / "records.jsonl").read_text().splitlines()
    lines.append(json.dumps(json.loads(last) | {"by_class": [row]}))
    (run.path / "records.jsonl").write_text("\n".join(lines))
    with pytest.raises(BadFileError, match="damaged"):
        read_run(run.path)
