"""benchmarks/spinning.py: every way to wait in turn, alone and then beside others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import spinning

from promptpool.cores import core_count


def test_ways_are_taken_in_turn_and_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    present, asked = [0], list[tuple[int, dict[str, str]]]()

    @contextmanager
    def beside(processes: int) -> Iterator[None]:
        present[0] = processes
        yield
        present[0] = 0

    def in_a_process(size: str, given: Any, way: dict[str, str]) -> float:
        assert (size, given.threads) == ("mini", 3)
        asked.append((present[0], way))
        return (0.010 + 0.001 * len(asked)) * (3 if present[0] else 1)

    monkeypatch.setattr(spinning, "refuse_if_busy", lambda *, anyway: None)
    monkeypatch.setattr(spinning, "beside", beside)
    monkeypatch.setattr(spinning, "in_a_process", in_a_process)
    spinning.main(["--sizes", "mini", "--rounds", "2", "--threads", "3"])
    ways = [*spinning.WAYS.values()] * 2
    assert asked == [(0, way) for way in ways] + [(core_count(), way) for way in ways]
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4] == "| vit-glyphs | as torch has it | 13.0 | 63.0 | 4.8 |"


def test_others_end_with_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *words: Any) -> None:
            super().__init__(*words)
            begun.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    with spinning.beside(2):
        assert [each.poll() for each in begun] == [None, None]
    assert all(each.poll() is not None for each in begun)


def test_a_process_measures_steps() -> None:
    words = [sys.executable, spinning.__file__, "--child", "--sizes", "mini", "--batch", "2", "--seconds", "0"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert float(done.stdout) > 0
