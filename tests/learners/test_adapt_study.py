"""benchmarks/adapt.py: what the first task says of prompts, beside what later tasks show."""

from __future__ import annotations

import csv
from pathlib import Path

import adapt
import pytest

from promptpool.learners import adaptation


def test_every_way_to_judge_is_a_line_and_a_second_call_finds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adaptation, "LEAST_STEPS", 4)
    monkeypatch.setattr(adaptation, "EPOCHS", 1)
    words = ["glyphs-validation", "--images", "3", "--tasks", "2", "--rows", str(tmp_path / "rows")]
    table = tmp_path / "adapt.csv"
    adapt.main([*words, "--out", str(table)])
    header, *lines = csv.reader(table.read_text().splitlines())
    assert header == adapt.HEADER
    found = [dict(zip(header, line, strict=True)) for line in lines]
    assert [line["judged on"] for line in found] == [
        "first task, other classes among all (the rule)",
        "first task, other classes among themselves",
        "first task, the images that taught the prompts",
        "held-out images after 2 tasks, later classes",
        "held-out images after 2 tasks, all classes",
        "first task, other images of the same classes",
    ]
    for line in found:
        gain = float(line["with prompts"]) - float(line["without prompts"])
        assert gain == pytest.approx(float(line["gain"]), abs=0.11)
    monkeypatch.setattr(adapt, "learn_prompts", None)  # rows that were read are kept
    adapt.main([*words, "--out", str(table)])
    assert list(csv.reader(table.read_text().splitlines())) == [header, *lines]
