"""A run killed at any moment goes on, and ends with the records of one never killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from toys import METHODS

TESTS = Path(__file__).parents[1]


class Killed(NamedTuple):
    """Where the runs of every learner are, how many of its lives were taken, and the errors of those that failed."""

    folder: Path
    times: dict[str, int | None]
    errors: str


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """One process starts all runs, because torch takes longer to start than they do."""
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, str(TESTS / "training/kill_worker.py"), str(folder), "1", "12", *METHODS]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return Killed(folder, json.loads(ended.stdout), ended.stderr)


def records(folder: Path) -> bytes:
    left = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    assert left == ["checkpoint", "records.jsonl"]
    return (folder / "records.jsonl").read_bytes()


@pytest.mark.parametrize("name", METHODS)
def test_killed_at_random_moments_equals_never_killed(name: str, killed: Killed) -> None:
    times = killed.times[name]
    assert times is not None, killed.errors[-3000:]
    assert times > 0
    expected, found = (records(killed.folder / name / kind) for kind in ("undisturbed", "disturbed"))
    assert found == expected
