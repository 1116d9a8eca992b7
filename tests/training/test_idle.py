"""benchmarks/idle.py: the share of the processors that others take, by a /proc/stat that is made up."""

from __future__ import annotations

import os
from pathlib import Path

import idle
import pytest
from idle import Meanwhile, refuse_if_busy

from promptpool.experiments import machine as here


class Machine:
    """Two processors: ticks that others took, this process, nobody, nobody while a disk was read, another machine."""

    def __init__(self, stat: Path) -> None:
        self.stat, self.own = stat, 0
        self.ticks = {"user": 0, "nice": 0, "system": 0, "idle": 0, "iowait": 0, "irq": 0, "softirq": 0, "steal": 0}
        self.goes(others=1000, nobody=500)

    def goes(self, *, others: int = 0, own: int = 0, nobody: int = 0, disk: int = 0, stolen: int = 0) -> None:
        self.own += own
        for name, more in (("user", own), ("system", others), ("idle", nobody), ("iowait", disk), ("steal", stolen)):
            self.ticks[name] += more
        self.stat.write_text(f"cpu  {' '.join(map(str, self.ticks.values()))} 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path / "stat")
    monkeypatch.setattr(here, "STAT", machine.stat)
    monkeypatch.setattr(here, "_own", lambda: machine.own)
    return machine


@pytest.mark.parametrize(
    ("ticks", "share"),
    [
        ({"nobody": 200}, 0.0),
        ({"own": 200}, 0.0),
        ({"own": 100, "nobody": 60, "disk": 40}, 0.0),
        ({"own": 100, "others": 50, "nobody": 50}, 0.25),
        ({"others": 200}, 1.0),
        ({"own": 150, "stolen": 50}, 0.25),  # by another machine on the same processors
        ({}, 0.0),  # no time has gone by
    ],
)
def test_what_others_take_meanwhile(machine: Machine, ticks: dict[str, int], share: float) -> None:
    meanwhile = Meanwhile()
    machine.goes(**ticks)
    assert meanwhile.share() == pytest.approx(share)


@pytest.mark.parametrize(
    ("ticks", "taken"),
    [
        ({"own": 200}, None),  # nobody else
        ({"own": 190, "others": 10}, None),  # little
        ({"own": 40, "others": 60, "nobody": 100}, None),  # a processor was left
        ({"own": 80, "others": 60, "nobody": 60}, 0.3),
        ({"own": 100, "others": 100}, 0.5),
    ],
)
def test_a_machine_is_crowded_where_others_leave_less_than_a_processor(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, ticks: dict[str, int], taken: float | None
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    meanwhile = Meanwhile()
    machine.goes(**ticks)
    assert meanwhile.crowded() == (None if taken is None else pytest.approx(taken))


def test_a_system_that_tells_nothing_is_not_crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "STAT", tmp_path / "nowhere")
    monkeypatch.delattr(os, "getloadavg", raising=False)
    monkeypatch.delattr(os, "sysconf", raising=False)
    assert Meanwhile().crowded() is None


def test_a_stretch_of_time_goes_on(machine: Machine) -> None:
    meanwhile = Meanwhile()
    machine.goes(others=100)
    assert meanwhile.share() == 1.0
    machine.goes(nobody=300)
    assert meanwhile.share() == 0.25


def test_ticks_of_this_process_that_are_counted_late_are_not_less_than_nothing(machine: Machine) -> None:
    meanwhile = Meanwhile()
    machine.goes(nobody=100)
    machine.own += 10
    assert meanwhile.share() == 0.0


def test_without_the_file_the_load_of_the_last_minute_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "STAT", tmp_path / "nowhere")
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    for load, share in ((1.0, 0.25), (9.0, 1.0)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert Meanwhile().share() == share


def test_a_busy_machine_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(idle, "busy", lambda: 0.1)
    refuse_if_busy()
    monkeypatch.setattr(idle, "busy", lambda: 0.4)
    with pytest.raises(SystemExit, match="other processes take 40% of the processors"):
        refuse_if_busy()
    refuse_if_busy(anyway=True)
    assert capsys.readouterr().err.startswith("note: other processes take 40%")
