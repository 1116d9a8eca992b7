"""Every learner on a device that is not the CPU and has no float64, as Apple's mps; see `pretended.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import promptpool
from pretended import CASES

TESTS = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def printed() -> dict[str, Any]:
    """What a process of its own prints: the device stays for as long as the process does."""
    paths = os.pathsep.join((str(Path(promptpool.__file__).parent.parent), str(TESTS)))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(TESTS / "pretended.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("case", CASES)
def test_learns_and_goes_on_where_there_is_no_float64(case: str, printed: dict[str, Any]) -> None:
    problem = printed["problems"][case]
    assert not problem, problem


def test_the_device_refuses_what_a_real_one_does(printed: dict[str, Any]) -> None:
    assert printed["refused"] == ["[2.0, 2.0, 2.0] pretended", *["TypeError"] * 5, "RuntimeError"]
