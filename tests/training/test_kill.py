"""A run killed at any moment goes on, and ends with the records of one never killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from toys import METHODS

TESTS = Path(__file__).parents[1]


def run(name: str, folder: Path, seed: int, kills: int) -> tuple[bytes, int]:
    """The bytes of the records, and how many lives it took."""
    folder.mkdir()
    command = [sys.executable, str(TESTS / "training/kill_worker.py"), name, str(folder), str(seed), str(kills)]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    assert sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")) == [
        "checkpoint",
        "records.jsonl",
    ]
    return (folder / "records.jsonl").read_bytes(), int(ended.stdout)


@pytest.mark.parametrize("name", METHODS)
def test_killed_at_random_moments_equals_never_killed(name: str, tmp_path: Path) -> None:
    expected, killed = run(name, tmp_path / "undisturbed", seed=0, kills=0)
    assert killed == 0
    records, killed = run(name, tmp_path / "disturbed", seed=1, kills=12)
    assert killed > 0
    assert records == expected
