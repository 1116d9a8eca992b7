"""Nothing that Windows lacks is needed to import the package, or for an ordinary run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import promptpool
from promptpool.training.run_folder import read_run
from small_runs import small_preset

SCRIPT = Path(__file__).with_name("without_posix.py")
ROOT = Path(promptpool.__file__).parent


class Told(NamedTuple):
    """What a process says in which no module of POSIX can be imported."""

    modules: list[str]
    run: list[object]  # what was printed, locks taken, locks left
    dry_run: list[object]
    runs: Path


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """One process for all, because torch takes longer to start than the rest."""
    folder = tmp_path_factory.mktemp("windows")
    preset, runs = str(small_preset(folder)), folder / "runs"
    commands = [["run", preset, "plan.epochs=1", "--runs", str(runs)], ["run", preset, "--dry-run"]]
    places = {"PYTHONPATH": str(ROOT.parent), "PROMPTPOOL_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), json.dumps(commands)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", **places},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    run, dry_run = found["commands"]
    return Told(found["modules"], run, dry_run, runs)


def test_every_module_can_be_imported(told: Told) -> None:
    left_out = {Path("__main__"), Path("serve/deployments"), Path("serve/ray_answerer")}  # the last two need Ray
    files = {path.relative_to(ROOT).with_suffix("") for path in ROOT.rglob("*.py")} - left_out
    names = {".".join(("promptpool", *path.parts)).removesuffix(".__init__") for path in files} - {"promptpool"}
    assert set(told.modules) == names


def test_a_run_is_made_and_locked(told: Told) -> None:
    assert told.run[1:] == [2, 0]  # taken, of the run and of the file of drawn images; held
    (folder,) = told.runs.iterdir()
    assert read_run(folder).finished


def test_a_dry_run_leaves_out_the_memory_it_cannot_tell(told: Told) -> None:
    text = str(told.dry_run[0])
    assert "estimated time" in text
    assert "MiB" not in text
