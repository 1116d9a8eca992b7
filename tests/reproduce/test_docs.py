"""The tables in the docs are those that the command prints from the CSV files beside them."""

import runpy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from promptpool.cli import app
from promptpool.reproduce.plan import Request
from promptpool.reproduce.results import read_results
from promptpool.reproduce.studies import STUDIES

DOCS = Path(__file__).parent.parent.parent / "docs"
STORED = DOCS / "results" / "mini"
KEPT = [path.stem for path in sorted(STORED.glob("*.csv")) if path.stem != "figure3"]


def printed(name: str) -> str:
    command = ["reproduce", name, "--from", str(STORED), "--format", "markdown"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("name", ["docs/results.md", "README.md"])
def test_nothing_in_the_docs_is_older_than_the_files(name: str) -> None:
    page = (DOCS.parent / name).read_text(encoding="utf-8")
    filled = runpy.run_path(str(DOCS.parent / "benchmarks" / "docs_tables.py"))["filled"]
    assert filled(page, STORED) == page


@pytest.mark.parametrize("name", KEPT)
def test_a_table_of_the_docs_is_what_the_command_prints(name: str) -> None:
    table = printed(name).split("\n| claim")[0]
    assert table.strip()
    assert table.rstrip("\n") in (DOCS / "results.md").read_text(encoding="utf-8")


def test_the_verdicts_of_the_docs_are_those_that_the_command_prints() -> None:
    whole = printed("all")
    verdicts = whole[whole.index("| claim") :]
    assert verdicts.rstrip("\n") in (DOCS / "results.md").read_text(encoding="utf-8")


def test_the_tables_of_the_paper_are_there() -> None:
    assert set(KEPT) == {*STUDIES} - {"figure3"}
    assert list(read_results(STORED).shares) == ["Split glyphs100", "glyph-five"]


def test_stored_results_are_of_runs_that_the_command_would_make() -> None:
    made = {job.folder.name for job in Request(tuple(STUDIES), "mini", 3, Path("runs")).jobs()}
    stored = [result for results in read_results(STORED).studies.values() for result in results]
    assert {run for result in stored for run in result.runs.split()} <= made


def test_stored_results_say_which_revision_made_them() -> None:
    for results in read_results(STORED).studies.values():
        for result in results:
            assert result.revision, f"{result.study}, {result.stream}, {result.method}"
            assert "dirty" not in result.revision
            assert "unknown" not in result.revision
