"""The memory of a process, by files as Linux has them, and by those of the system itself."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from promptpool import resident

LINES = "Name:\tpython\nVmHWM:\t    3000 kB\nVmRSS:\t    2000 kB\n"


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(resident, "PROC", tmp_path)
    return tmp_path


def test_files_of_linux_are_read(proc: Path) -> None:
    (proc / "self").mkdir()
    (proc / "self" / "status").write_text(LINES)
    (proc / "meminfo").write_text("MemFree:  5 kB\nMemAvailable:  7 kB\n")
    assert resident.resident() == 2000 * 1024
    assert resident.available() == 7 * 1024
    assert resident.peak(lambda: "taken") == ("taken", 3000 * 1024)
    assert (proc / "self" / "clear_refs").read_text() == "5"


def test_another_system_does_not_tell(proc: Path) -> None:
    assert not list(proc.iterdir())
    assert (resident.resident(), resident.available()) == (None, None)
    assert resident.peak(lambda: "taken") == ("taken", None)


def held_for_a_while(size: int) -> tuple[int | None, int | None, int | None]:
    """What a process holds before, at most while it has so many bytes more, and after."""
    before = resident.resident()
    length, most = resident.peak(lambda: len(b"\1" * size))
    assert length == size
    return before, most, resident.resident()


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="not Linux")
def test_what_is_held_for_a_while_counts_in_the_peak_alone() -> None:
    size = 64_000_000
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:  # this one may have memory to give at hand
        before, most, after = fresh.submit(held_for_a_while, size).result()
    assert before is not None
    assert most is not None
    assert after is not None
    assert most > before + 0.9 * size
    assert after < before + 0.5 * size
