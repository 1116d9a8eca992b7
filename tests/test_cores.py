"""The cores that a process may use, in containers of both versions and outside of any, and how threads wait."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from promptpool import cores

HERE = 8


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "CGROUPS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(HERE)), raising=False)


def test_without_a_container_the_affinity_counts() -> None:
    assert cores.core_count() == HERE


@pytest.mark.parametrize(
    ("said", "count"),
    [
        ("max 100000", HERE),
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("10000 100000", 1),
        ("1600000 100000", HERE),
        ("nonsense", HERE),
        ("200000 0", HERE),
    ],
)
def test_a_container_grants_processor_time(tmp_path: Path, said: str, count: int) -> None:
    (tmp_path / "cpu.max").write_text(said + "\n")
    assert cores.core_count() == count


@pytest.mark.parametrize(("quota", "count"), [("-1", HERE), ("300000", 3), ("0", 1)])
def test_a_container_of_the_first_version(tmp_path: Path, quota: str, count: int) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota + "\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cores.core_count() == count


def test_a_system_without_affinities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores.core_count() == 1


OPENMP = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


@pytest.mark.parametrize(
    ("set_before", "spins"),
    [({}, {cores.SPINS}), ({"GOMP_SPINCOUNT": "77"}, {"77"}), ({"OMP_WAIT_POLICY": "passive"}, {"0"})],
)
def test_threads_of_the_command_that_wait_sleep_soon(set_before: dict[str, str], spins: set[str]) -> None:
    rest = {name: value for name, value in os.environ.items() if name not in OPENMP}
    said = subprocess.run(
        [sys.executable, "-m", "promptpool", "--version"],
        env=rest | set_before | {"OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    if "GOMP_SPINCOUNT" not in said:
        pytest.skip("not GNU's OpenMP")
    assert set(re.findall(r"GOMP_SPINCOUNT = '(\d+)'", said)) == spins
