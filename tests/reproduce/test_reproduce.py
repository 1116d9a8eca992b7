"""`promptpool reproduce` as a person types it, with few and tiny runs: a random ViT, one image a class."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner, Result

from promptpool.cli import app
from promptpool.cli import reproduce as reproduce_commands
from promptpool.experiments.build import SharedCache
from promptpool.report.table import markdown
from promptpool.reproduce import output, plan
from promptpool.reproduce.jobs import Job, JobStatus, carry_out
from promptpool.reproduce.latex import latex
from promptpool.reproduce.output import TITLES, study_tables, write_results
from promptpool.reproduce.plan import Request
from promptpool.reproduce.ray import with_ray
from promptpool.reproduce.results import Results, read_csv, read_results
from promptpool.reproduce.studies import STUDIES, Item
from promptpool.training.run_folder import read_run
from small_runs import write_weights

TABLES = ("table1", "table2", "table3", "table4", "table5", "figure4", "buffers", "batches")
PICTURES = ("figure3", "figure4", "buffers")
# What is left of each study: enough that all that is written has something to say.
FEW: dict[str, Callable[[Item], bool]] = {
    "table1": lambda item: item.method in ("L2P", "Nearest class mean", "ER", "L2P-R"),
    "table2": lambda item: item.group == "ViT" and item.method != "RanPAC",  # whose projections take longest
    "table3": lambda item: item.method in ("L2P", "Nearest class mean"),
    "table4": lambda item: item.method in ("L2P", "Nearest class mean"),
    "table5": lambda item: item.method in ("One prompt", "L2P"),
    "figure3": lambda item: True,
    "figure4": lambda item: item.group in ("N = 1", "pool size") and item.at == 5,
    "buffers": lambda item: item.method == "ER",
    "batches": lambda item: item.method in ("paper", "pytorch-port"),
}


class Reproduced(NamedTuple):
    """What was typed to make all, where it went, and what was said."""

    typed: list[str]
    runs: Path
    out: Path
    said: str


@pytest.fixture(scope="module", autouse=True)
def few_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with tiny weights, and studies of few runs."""
    folder = tmp_path_factory.mktemp("reproduce")
    write_weights(folder / "vit.safetensors")

    def fewer(name: str) -> Callable[[str], Iterator[Item]]:
        return lambda scale: (item for item in STUDIES[name](scale) if FEW[name](item))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROMPTPOOL_CACHE", str(folder / "cache"))
        patch.setenv("COLUMNS", "200")
        patch.setattr(plan, "STUDIES", {name: fewer(name) for name in STUDIES})
        yield folder


@pytest.fixture(scope="module")
def reproduced(few_runs: Path) -> Reproduced:
    runs, out = few_runs / "runs", few_runs / "out"
    weights = str(few_runs / "vit.safetensors")
    common = ["--limit", "1", "--backbone", weights, "--workers", "1", "--runs", str(runs)]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PROMPTPOOL_FEATURES_GB")
        result = typed("all", *common, "--out", str(out))
    assert result.exit_code == 0, result.output
    return Reproduced(common, runs, out, result.stderr)


def typed(*words: str) -> Result:
    return CliRunner().invoke(app, ["reproduce", *words])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def changed(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def refused(*words: str) -> str:
    """The one line of a command that cannot be meant."""
    result = typed(*words)
    assert result.exit_code == 2, result.output
    assert len(result.stderr.strip().splitlines()) == 1
    return result.stderr


def test_all_that_there_is_to_find(reproduced: Reproduced) -> None:
    expected = {"claims.md", "reproduced.html", "figure3.csv"}
    expected |= {f"{name}.{kind}" for name in TABLES for kind in ("csv", "md", "tex")}
    expected |= {f"{name}.{kind}" for name in PICTURES for kind in ("png", "svg")}
    found = contents(reproduced.out)
    assert found.keys() == expected
    for name in PICTURES:
        assert found[f"{name}.png"].startswith(b"\x89PNG")
        assert b"<svg" in found[f"{name}.svg"]
    for name in TABLES:
        results = read_csv(reproduced.out / f"{name}.csv")
        assert results
        assert found[f"{name}.md"].decode() == markdown([*study_tables(results).values()])
        assert found[f"{name}.tex"].decode() == latex(study_tables(results))
        for result in results:
            assert result.value is not None
            assert result.seeds == "0"
            assert all((reproduced.runs / run / "records.jsonl").exists() for run in result.runs.split())
            assert result.runs.split()
    claims = found["claims.md"].decode()
    assert claims.count("Similar tasks share more") == 1
    assert " | yes | " in claims or " | no | " in claims


def test_the_page_holds_all_and_leads_to_the_runs(reproduced: Reproduced) -> None:
    page = (reproduced.out / "reproduced.html").read_text()
    for title in TITLES.values():
        assert f"<h2>{title}</h2>" in page
    assert page.count("data:image/svg+xml;base64,") == 2 * len(PICTURES)  # in both themes
    result = read_csv(reproduced.out / "table5.csv")[0]
    assert f'<a href="../runs/{result.runs}">' in page
    assert (reproduced.out / "../runs" / result.runs).is_dir()


def test_what_is_said_meanwhile(reproduced: Reproduced) -> None:
    lines = reproduced.said.splitlines()
    count = int(lines[0].split()[0])
    assert lines[0] == f"{count} runs, 0 of them finished"
    assert any(line.startswith("estimate: ") and line.endswith(" with 1 at a time") for line in lines)
    assert sum(" done" in line for line in lines) == count
    assert len([path for path in reproduced.runs.iterdir() if path.name != "features"]) == count
    assert len(list((reproduced.runs / "features").iterdir())) >= 1


def test_again_nothing_runs_and_all_is_the_same(
    reproduced: Reproduced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, files = contents(reproduced.out), changed(reproduced.runs)
    again = typed("all", *reproduced.typed, "--out", str(reproduced.out))
    assert again.exit_code == 0, again.output
    first, last = again.stderr.splitlines()
    count = first.split()[0]
    assert first == f"{count} runs, {count} of them finished"
    assert contents(reproduced.out) == before
    assert changed(reproduced.runs) == files

    stored = typed("all", "--from", str(reproduced.out))
    assert stored.exit_code == 0
    assert stored.stdout == again.stdout
    assert str(reproduced.out) in last
    monkeypatch.setattr(output, "pictures", lambda results: {})  # from here on words alone are looked at
    for form, ending in (("markdown", "md"), ("latex", "tex"), ("csv", "csv")):
        printed = typed("table5", "--from", str(reproduced.out), "--format", form).stdout
        assert printed.startswith((reproduced.out / f"table5.{ending}").read_text())
        if form == "latex":
            continue  # figure3 is a picture
        live = typed("figure3", *reproduced.typed, "--out", str(tmp_path), "--format", form).stdout
        assert live == typed("figure3", "--from", str(tmp_path), "--format", form).stdout


def test_from_keeps_to_what_was_asked_for(reproduced: Reproduced, tmp_path: Path) -> None:
    said = typed("table5", "--from", str(reproduced.out)).stdout
    assert "Table 5" in said
    assert "Table 1" not in said
    assert "Similar tasks" not in said
    assert "Similar tasks" in typed("figure3", "--from", str(reproduced.out)).stdout
    for option in (["--only", "l2p"], ["--list"], ["--limit", "3"], ["--backbone", "vit-glyphs"]):
        assert f"{option[0]} has no say" in refused("table5", "--from", str(reproduced.out), *option)
    assert "csv" in refused("figure3", "--from", str(reproduced.out), "--format", "latex")
    shares = typed("figure3", "--from", str(reproduced.out), "--format", "csv").stdout
    assert shares == (reproduced.out / "figure3.csv").read_text()
    (tmp_path / "table5.csv").write_bytes((reproduced.out / "table5.csv").read_bytes())
    assert "table1" in refused("table1", "--from", str(tmp_path))
    (tmp_path / "table5.csv").write_text("damaged")
    assert "table5.csv" in refused("table5", "--from", str(tmp_path))
    assert "none" in refused("all", "--from", str(tmp_path / "none"))


def in_this_process(jobs: list[Job], *, workers: int, threads: int) -> Iterator[JobStatus]:
    """In place of `with_processes`, where it does not matter who does the work."""
    del workers, threads
    for job in jobs:
        for _ in carry_out(job, SharedCache()):
            pass
        yield JobStatus(job, "done")


def test_two_seeds_give_mean_and_deviation(
    reproduced: Reproduced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce_commands, "with_processes", in_this_process)
    words = ["table5", *reproduced.typed, "--out", str(tmp_path), "--only", "l2p", "--seeds", "2"]
    listed = typed(*words, "--list")
    assert listed.exit_code == 0
    assert [("finished" in line) for line in listed.stdout.splitlines()[1:]] == [True, False]
    assert not (tmp_path / "table5.csv").exists()
    result = typed(*words)
    assert result.exit_code == 0, result.output
    assert "2 runs, 1 of them finished" in result.stderr
    (found,) = [row for row in read_csv(tmp_path / "table5.csv") if row.method == "L2P"]
    runs = [read_run(reproduced.runs / name) for name in found.runs.split()]
    accuracies = [100 * float(run.accuracy[-1].mean()) for run in runs]
    assert [run.config["seed"] for run in runs] == [0, 1]
    assert [run.config["learner"]["seed"] for run in runs] == [0, 1]
    assert found.seeds == "0 1"
    assert float(found.accuracy) == pytest.approx(sum(accuracies) / 2, abs=0.005)
    assert float(found.accuracy_deviation) == pytest.approx(abs(accuracies[0] - accuracies[1]) / 2**0.5, abs=0.005)
    assert f"{found.accuracy} ± {found.accuracy_deviation}" in result.stdout
    fewer = typed("table5", *reproduced.typed, "--out", str(tmp_path), "--no-runs")
    assert fewer.exit_code == 0
    assert found in read_csv(tmp_path / "table5.csv")  # a seed that is finished is not lost
    shutil.rmtree(reproduced.runs / found.runs.split()[1])  # for the other tests


def test_seeds_that_a_folder_of_results_has_are_not_run_again(
    reproduced: Reproduced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce_commands, "with_processes", in_this_process)
    words = ["table5", *reproduced.typed[:-1], str(tmp_path / "runs"), "--fill", str(reproduced.out), "--only", "l2p"]
    listed = typed(*words, "--seeds", "2", "--list").stdout.splitlines()[1:]
    assert [line.partition(",")[2].split()[:3] for line in listed] == [["L2P,", "seed", "1"]]
    assert typed(*words, "--seeds", "2", "--out", str(tmp_path / "out")).exit_code == 0
    (found,) = [row for row in read_csv(tmp_path / "out" / "table5.csv") if row.method == "L2P"]
    (before,) = [row for row in read_csv(reproduced.out / "table5.csv") if row.method == "L2P"]
    assert (found.seeds, found.accuracies.split()[0]) == ("0 1", before.accuracy)
    (tmp_path / "empty").mkdir()
    empty = [str(tmp_path / "empty") if word == str(reproduced.out) else word for word in words]
    assert len(typed(*empty, "--seeds", "2", "--list").stdout.splitlines()[1:]) == 2  # it has nothing of Table 5 yet
    longer = typed(*words, "--seeds", "2", "--limit", "2", "--list").stdout.splitlines()[1:]
    assert len(longer) == 2  # of other values, so nothing is known


def test_studies_of_one_folder_go_together_whatever_came_first(reproduced: Reproduced, tmp_path: Path) -> None:
    whole = read_results(reproduced.out)
    for shares in (dict(list(whole.shares.items())[1:]), whole.shares):
        write_results(Results({"figure3": []}, shares), tmp_path, reproduced.runs)
    assert list(read_results(tmp_path).shares) == list(whole.shares)
    verdict = next(line for line in (reproduced.out / "claims.md").read_text().splitlines() if "Similar" in line)
    assert verdict in (tmp_path / "claims.md").read_text()
    tables = tmp_path / "tables"
    for name in ("table2", "table5"):
        write_results(Results({name: whole.studies[name]}), tables, reproduced.runs)
    (tables / "table2.csv").write_text("damaged")
    write_results(Results({"table4": whole.studies["table4"]}), tables, reproduced.runs)
    page = (tables / "reproduced.html").read_text()
    assert [f"Table {number}:" in page for number in (2, 4, 5)] == [False, True, True]


def test_a_limit_takes_images_away_and_never_adds_any() -> None:
    for scale, least in (("mini", 20), ("paper", 30)):
        (item,) = Request(("figure3",), scale, 1, Path("runs"), "Split*", limit=30).items()
        assert (item.config["dataset"]["train_per_class"], item.config["dataset"]["test_per_class"]) == (least, least)


def test_list_says_how_far_runs_are_and_makes_none(reproduced: Reproduced, tmp_path: Path) -> None:
    listed = typed("table1", *reproduced.typed, "--list", "--only", "L2P*").stdout.splitlines()
    assert len(listed) == 1 + 2 + 2 * 2
    assert all("finished" in line and "L2P" in line for line in listed[1:])
    nothing = typed("table1", *reproduced.typed[:-1], str(tmp_path / "none"), "--list")
    assert nothing.exit_code == 0
    assert "finished" not in nothing.stdout
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["table6"], "table5"),
        (["table1", "--scale", "huge"], "mini, small, small-dinov2, paper"),
        (["table3", "--scale", "small"], "its stream is not there at --scale small"),
        (["table1", "--engine", "horses"], "processes, ray"),
        (["table1", "--format", "html"], "markdown"),
        (["table1", "--only", "nobody"], "nobody: no method of table1 is called so; there are L2P, "),
        (["table5", "--limit", "1", "--backbone", "nowhere.safetensors"], "nowhere.safetensors"),
        (
            ["table5", "--fill", "stored", "--backbone", "other"],
            "--fill stored has the numbers of the scale's own weights",
        ),
        (["table5", "--fill", "nowhere"], "--fill nowhere: there is no such folder"),
    ],
)
def test_what_cannot_be_meant_is_one_line(
    words: list[str], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert part in refused(*words)
    assert not (tmp_path / "reproduced").exists()


def test_data_that_are_missing_are_said_before_anything_runs(few_runs: Path, tmp_path: Path) -> None:
    places = ["--data", str(tmp_path / "data"), "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROMPTPOOL_DATA", str(tmp_path))  # the command sets it
        said = refused("table5", "--scale", "paper", "--backbone", str(few_runs / "vit.safetensors"), *places)
    assert "5-datasets" in said
    assert str(tmp_path / "data") in said
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "out").exists()


def test_ray_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r"promptpool\[ray\]"):
        next(with_ray([], workers=1))


def test_a_failed_run_leaves_its_cell_empty_and_the_exit_code_1(
    few_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(jobs: list[Job], *, workers: int, threads: int) -> Iterator[JobStatus]:
        assert (workers, threads) == (2, 1)
        yield from (JobStatus(job, "failed", reason="no [more] room") for job in jobs)

    monkeypatch.setattr(reproduce_commands, "with_processes", failing)
    weights = str(few_runs / "vit.safetensors")
    places = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    result = typed("table5", "--limit", "1", "--backbone", weights, "--workers", "3", *places)
    assert result.exit_code == 1
    assert result.stderr.count("failed: no [more] room") == 2
    assert [result.accuracy for result in read_csv(tmp_path / "out/table5.csv")] == ["", ""]
    assert "not measured" in (tmp_path / "out/claims.md").read_text()


def test_stopped_it_goes_on(few_runs: Path, reproduced: Reproduced, tmp_path: Path) -> None:
    """SIGTERM while a run goes; it then ends with the numbers of one that nobody stopped."""
    (job,) = Request(("table5",), "mini", 1, tmp_path / "runs", "L2P", 1, str(few_runs / "vit.safetensors")).jobs()
    words = ["table5", "--only", "L2P", *reproduced.typed[:-1], str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    command = [str(Path(sys.executable).with_name("promptpool")), "reproduce", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    while not list((tmp_path / "runs").glob("*/environment.json")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert "the same command goes on" in said
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()
    assert (job.folder / "checkpoint").exists()
    assert "finished" not in typed(*words, "--list").stdout
    for _ in carry_out(job, SharedCache()):
        pass
    whole = reproduced.runs / job.folder.name
    assert (job.folder / "records.jsonl").read_bytes() == (whole / "records.jsonl").read_bytes()
