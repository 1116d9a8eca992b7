"""The tables in the docs are made of the CSV files beside them, and say what the command says of those files."""

import csv
import re
import runpy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from promptpool.cli import app
from promptpool.reproduce.expected import stored
from promptpool.reproduce.plan import Request
from promptpool.reproduce.results import read_results
from promptpool.reproduce.studies import STUDIES, studies_at

DOCS = Path(__file__).parent.parent.parent / "docs"
STORED = stored()
TABLES = runpy.run_path(str(DOCS.parent / "benchmarks" / "docs_tables.py"))
KEPT = [path.stem for path in sorted(STORED.glob("*.csv")) if path.stem != "figure3"]


def printed(name: str) -> str:
    command = ["reproduce", name, "--from", "stored", "--format", "markdown"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    return result.stdout


def page(name: str) -> str:
    return (DOCS.parent / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TABLES["PAGES"])
def test_nothing_in_the_docs_is_older_than_the_files(name: str) -> None:
    assert TABLES["filled"](page(name), STORED) == page(name)


def test_every_study_has_its_place_in_the_docs() -> None:
    marks = {mark for name in TABLES["PAGES"] for mark in re.findall(r"<!-- (\w+) -->", page(name))} - {"end"}
    studies = {*KEPT} - {"table1", "table3", "table4"} | {"streams"}  # those three are one table
    others = {"claims", "summary", "search", "search_again", "recommended", "behind"}
    others |= {"small", "small_parts", "small_claims", "dinov2", "answers", "comparison", "heads", "speed", "memory"}
    others |= {"trials", "adapt"}
    assert marks == studies | others


def test_the_verdicts_of_the_docs_are_those_that_the_command_prints() -> None:
    whole = printed("all")
    _, _, *lines = whole[whole.index("| claim") :].splitlines()
    assert len(lines) > 20
    for line in lines:
        claim, stream, verdict, _, numbers = line.strip("| ").split(" | ")
        rows = [row for row in page("docs/results.md").splitlines() if row.startswith(f"| {claim.split(', ')[0]}")]
        parts = [part for row in rows for part in row.split("<br>")]
        assert any(f"**{verdict}**, {stream}" in part and numbers in part for part in parts), line


def test_the_names_of_runs_are_in_the_files_alone() -> None:
    assert not re.search(r"-[0-9a-f]{8}\b", page("docs/results.md"))


def test_the_tables_of_the_paper_are_there() -> None:
    assert set(KEPT) == {*STUDIES} - {"figure3"}
    assert list(read_results(STORED).shares) == ["Split glyphs100", "glyph-five"]


def test_stored_results_are_of_runs_that_the_command_would_make() -> None:
    made = {job.folder.name for job in Request(tuple(STUDIES), "mini", 3, Path("runs")).jobs()}
    kept = [result for results in read_results(STORED).studies.values() for result in results]
    assert {run for result in kept for run in result.runs.split()} <= made


@pytest.mark.parametrize("scale", ["small", "small-dinov2"])
def test_stored_results_on_photographs_are_of_runs_that_the_command_would_make(scale: str) -> None:
    asked = Request(studies_at(scale), scale, 3, Path("runs"), precision="bfloat16")
    made = {job.folder.name for job in asked.jobs()}
    kept = read_results(stored(scale))
    results = [result for of_study in kept.studies.values() for result in of_study if result.accuracy]
    assert {run for result in results for run in result.runs.split()} <= made
    table1 = Request(("table1",), scale, 3, Path("runs"), precision="bfloat16")
    stored_runs = {run for result in kept.studies["table1"] if result.accuracies for run in result.runs.split()}
    assert stored_runs
    left = {job.folder.name for job in table1.jobs(kept)}  # with --fill stored
    assert left == {job.folder.name for job in table1.jobs()} - stored_runs


@pytest.mark.parametrize("scale", ["mini", "small", "small-dinov2"])
def test_stored_results_say_which_revision_made_them(scale: str) -> None:
    for result in [each for results in read_results(stored(scale)).studies.values() for each in results]:
        if result.accuracy:
            assert result.revision, f"{result.study}, {result.stream}, {result.method}"
            assert "dirty" not in result.revision
            assert "unknown" not in result.revision


def test_the_comparison_is_made_of_the_answers_of_its_runs() -> None:
    script = runpy.run_path(str(DOCS.parent / "benchmarks" / "recommended.py"))
    table = script["compared"](script["read"](DOCS / "results" / "recommended_runs.csv"))
    stored_table = (DOCS / "results" / "recommended.csv").read_text(encoding="utf-8")
    assert [script["TABLE"], *table] == list(csv.reader(stored_table.splitlines()))
    for line in script["read"](DOCS / "results" / "recommended_runs.csv"):
        right = script["unpacked"](line[-1])
        assert sum(right) / len(right) == pytest.approx(float(line[3]) / 100, abs=1e-4)
