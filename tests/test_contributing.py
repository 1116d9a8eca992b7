"""What CONTRIBUTING.md shows works as it stands, and Markdown is wrapped alike."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from promptpool.experiments.catalogue import Method
from promptpool.metrics import learning_accuracy
from promptpool.training import accuracy_matrix, learn
from toys import DESCENT, VIEW, toy_backbone, toy_stream

ROOT = Path(__file__).parents[1]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PROSE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_method_learns() -> None:
    names: dict[str, Any] = {"__name__": "feature_distillation"}
    (block,) = re.findall(r"```python\n(.*?)```", CONTRIBUTING, re.DOTALL)
    exec(compile(block, "CONTRIBUTING.md", "exec"), names)  # noqa: S102
    learner = names["FeatureDistillation"](toy_backbone(), VIEW, strength=0.1)
    records = list(learn(learner, toy_stream(), DESCENT))
    assert learning_accuracy(accuracy_matrix(records)) > 0.8
    assert learner.settings()["strength"] == 0.1


def test_the_table_is_a_method() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", CONTRIBUTING, re.DOTALL)
    ((name, values),) = tomllib.loads(block).items()
    assert f'"{name}": FeatureDistillation,' in CONTRIBUTING
    assert Method(name, **values).learner == {"name": name}


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_is_wrapped(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = [line for line in text.splitlines() if not line.startswith(("|", "    ", "!["))]
    assert [line for line in lines if len(line) > 120] == []


def test_every_link_leads_somewhere() -> None:
    for page in PROSE:
        prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\((?!http)([^)#]+)", prose):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
