"""Every learner on a device that is not the CPU and has no float64, as Apple's mps; see `pretended.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import promptpool
from pretended import CASES

TESTS = Path(__file__).parent.parent
REFUSED = """
import torch
from pretended import DEVICE, Everywhere, pretend
pretend()
with Everywhere():
    there = torch.ones(3).to(DEVICE)
    print((there + there).cpu().tolist(), there.device.type)
    for wrong in (
        there.double,
        lambda: there.sum(dtype=torch.float64),
        lambda: torch.zeros(2, device=DEVICE, dtype=torch.float64),
        lambda: torch.zeros(2, dtype=torch.float64).to(DEVICE),
        lambda: torch.nn.Linear(2, 2).double().to(DEVICE),
        lambda: there + torch.ones(3),
    ):
        try:
            wrong()
        except (RuntimeError, TypeError) as error:
            print(type(error).__name__)
"""


def printed(*arguments: str) -> str:
    """What a process of its own prints: the device stays for as long as the process does."""
    paths = os.pathsep.join((str(Path(promptpool.__file__).parent.parent), str(TESTS)))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def problems() -> dict[str, str]:
    found: dict[str, str] = json.loads(printed(str(TESTS / "pretended.py")))
    return found


@pytest.mark.parametrize("case", CASES)
def test_learns_and_goes_on_where_there_is_no_float64(case: str, problems: dict[str, str]) -> None:
    assert not problems[case], problems[case]


def test_the_device_refuses_what_a_real_one_does() -> None:
    lines = printed("-c", REFUSED).splitlines()
    assert lines == ["[2.0, 2.0, 2.0] pretended", *["TypeError"] * 5, "RuntimeError"]
