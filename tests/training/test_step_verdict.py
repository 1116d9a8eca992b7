"""What benchmarks/step.py, step_verdict.py and step_table.py say and write of rows that are made up."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace

import pytest
import step
from idle import Meanwhile
from models import TITLES
from step_table import (
    FIRST,
    FIRST_ONEDNN,
    FLOOR,
    HALVES,
    ONEDNN,
    OURS,
    TEXTBOOK,
    TEXTBOOK_ONEDNN,
    Measured,
    drawn,
    memories,
    read,
    speeds,
    written,
)
from step_verdict import judged

# Images per second: three times the textbook's by oneDNN, half of which is the library's doing.
RATES = {
    TEXTBOOK: 10.0,
    FIRST: 12.0,
    OURS: 18.0,
    TEXTBOOK_ONEDNN: 20.0,
    FIRST_ONEDNN: 22.0,
    ONEDNN: 30.0,
    HALVES: 9.0,
    FLOOR: 33.0,
}
MEGABYTES = {TEXTBOOK: 100.0, OURS: 60.0, HALVES: 40.0, TEXTBOOK_ONEDNN: 80.0, ONEDNN: 60.0}


def rows(what: str = "training", model: str = "ViT-B/16") -> list[Measured]:
    who = [who for who in RATES if what == "training" or who != HALVES]
    return [Measured(model, what, name, [RATES[name]] * 3, MEGABYTES.get(name)) for name in who]


def test_a_step_is_judged_beside_the_textbook_of_the_same_library() -> None:
    assert judged(rows()) == [
        "yes ViT-B/16 training: 1.80 times as fast as the textbook (aim >= 1.75)",
        "yes ViT-B/16 training: 1.20 times as fast as the textbook, in the first epoch (aim >= 1.15)",
        "NO  ViT-B/16 training: 1.83 times as long as the floor (aim <= 1.2)",
        "NO  ViT-B/16 training: 1.50 times as fast as the textbook, both by oneDNN (aim >= 1.75)",
        "NO  ViT-B/16 training: 1.10 times as fast as the textbook, both by oneDNN, in the first epoch (aim >= 1.15)",
        "yes ViT-B/16 training: 1.10 times as long as the floor, by oneDNN (aim <= 1.2)",
        "yes ViT-B/16 training: 0.60 of the textbook's memory (aim <= 0.7)",
        "NO  ViT-B/16 training: 0.75 of the textbook's memory, both by oneDNN (aim <= 0.7)",
        "yes ViT-B/16 training: 0.40 of the textbook's memory, in halves (aim <= 0.7)",
        "    ViT-B/16 training: 3.00 times as fast as the textbook, ours alone by oneDNN",
    ]


def test_an_evaluation_has_one_aim_of_speed_for_each_library() -> None:
    found = judged([row._replace(memory=None) for row in rows("evaluation")])
    assert found == [
        "NO  ViT-B/16 evaluation: 1.80 times as fast as the textbook (aim >= 2.1)",
        "NO  ViT-B/16 evaluation: 1.50 times as fast as the textbook, both by oneDNN (aim >= 2.1)",
        "    ViT-B/16 evaluation: 3.00 times as fast as the textbook, ours alone by oneDNN",
    ]


def test_a_model_without_aims_is_measured_all_the_same() -> None:
    assert not any("fast" in line for line in judged(rows(model="ViT-S/16")) if not line.startswith("    "))


def cells(line: str) -> list[str]:
    return line.strip("| ").split(" | ")


def test_tables_say_both_comparisons_and_stay_readable() -> None:
    found = speeds([*rows(), *rows("evaluation")])
    first, second = found[: found.index("")], found[found.index("") + 1 :]
    assert [len(first), len(second)] == [4, 4]
    assert {len(cells(line)) for line in (*first, *second) if "---" not in line} == {7}
    assert cells(first[2])[4:] == ["18.0 (18.0 to 18.0), 1.80x", "33.0 (33.0 to 33.0), 3.30x", "1.83"]
    assert cells(second[0])[2:] == [
        TEXTBOOK_ONEDNN,
        FIRST_ONEDNN,
        ONEDNN,
        "by oneDNN / textbook",
        "by oneDNN in floors",
    ]
    assert cells(second[2])[4:] == ["30.0 (30.0 to 30.0), 1.50x", "3.00", "1.10"]


def test_memory_is_a_share_of_the_textbooks_by_the_same_library() -> None:
    found = memories([*rows(), *rows("evaluation")])
    assert cells(found[2])[2:] == ["100", "60, 0.60", "40, 0.40", "80", "60, 0.75", "0.50"]
    assert cells(found[3])[2:] == ["100", "60, 0.60", "-", "80", "60, 0.75", "-"]
    assert len(memories([row._replace(memory=None) for row in rows()])) == 2


def test_a_file_says_what_was_measured(tmp_path: Path) -> None:
    found = [*rows(), *rows("evaluation")]
    spread = [row._replace(rates=[row.rate - 1, row.rate, row.rate + 2]) for row in found]
    written(tmp_path / "speed.csv", spread)
    again = read(tmp_path / "speed.csv")
    assert [row.quartiles for row in again] == [row.quartiles for row in spread]
    assert (speeds(again), memories(again), judged(again)) == (speeds(spread), memories(spread), judged(spread))
    drawn(tmp_path / "speed.png", again)
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")


def made_up(size: str, what: str, given: argparse.Namespace) -> tuple[list[Measured], SimpleNamespace]:
    del given
    return rows(what, TITLES[size]), SimpleNamespace(pace="100 GFLOP/s", lines=list)


def test_a_busy_machine_leaves_earlier_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(step, "refuse_if_busy", lambda *, anyway: None)
    monkeypatch.setattr(step, "keep_freed_memory", lambda: None)
    monkeypatch.setattr(step, "measured", made_up)
    out, plot = tmp_path / "speed.csv", tmp_path / "speed.png"
    for path in (out, plot):
        path.write_text("an earlier result")
    words = ["--sizes", "mini", "--out", str(out), "--plot", str(plot)]
    monkeypatch.setattr(Meanwhile, "share", lambda _: 0.5)
    step.main(words)
    said = capsys.readouterr().out
    assert "took 50% of the processors meanwhile; what was measured is in speed-busy.csv and speed-busy.png\n" in said
    assert out.read_text() == plot.read_text() == "an earlier result"
    assert (tmp_path / "speed-busy.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(Meanwhile, "share", lambda _: 0.05)
    step.main(words)
    assert "no verdict" not in capsys.readouterr().out
    assert out.read_bytes() == (tmp_path / "speed-busy.csv").read_bytes()
    assert plot.read_bytes().startswith(b"\x89PNG")
    step.main(words[:2])
