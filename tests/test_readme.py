"""What the README shows works as it stands."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from image_files import write_images
from promptpool.cli import app
from promptpool.experiments.catalogue import split
from small_runs import write_weights

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    dice = np.random.default_rng(0)
    names: dict[str, Any] = {}
    for part, labels in {"monday": "ab", "friday": "cd", "test1": "ab", "test2": "cd"}.items():
        names[f"x_{part}"] = dice.integers(0, 256, (8, 20, 24, 3), dtype=np.uint8)
        names[f"y_{part}"] = list(labels * 4)
    lessons, arrays = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    for month, labels in {"january": "ab", "february": "bc"}.items():
        write_images(tmp_path / month, [f"{label}/{n}.png" for label in labels for n in range(6)])
    shutil.copy(tmp_path / "january" / "a" / "0.png", tmp_path / "photo.jpg")
    lessons = lessons.replace('"facebook/dinov2-small"', f'"{write_weights(tmp_path / "vit.safetensors")}"')
    exec(compile(lessons, "README.md", "exec"), names)  # noqa: S102
    assert (tmp_path / "shop" / "model.safetensors").exists()
    exec(compile(arrays, "README.md", "exec"), names)  # noqa: S102
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert (tmp_path / "shop.checkpoint").exists()


def test_every_command_is_there() -> None:
    commands = re.findall(r"^    (?:torchrun .*)?promptpool ([a-z]+) ?([a-z0-9-]*)", README, re.MULTILINE)
    assert len(commands) >= 5
    for verb, name in commands:
        assert CliRunner().invoke(app, [verb, "--help"]).exit_code == 0
        if verb == "run":
            assert split(name) is not None


def test_every_link_leads_somewhere() -> None:
    prose = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    for target in re.findall(r"\]\((?!http)([^)]+)\)", prose):
        assert (Path(__file__).parents[1] / target.partition("#")[0]).exists(), target
