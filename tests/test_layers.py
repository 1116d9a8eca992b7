"""A module imports only from the rows below it."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import promptpool

ROOT = Path(promptpool.__file__).parent
ROWS = [
    {"__main__"},
    {"cli"},
    {"reproduce", "serve"},
    {"classifier"},
    {"experiments", "report"},
    {"training"},
    {"learners"},
    {"memory", "optim", "prompts", "backbones"},
    {"data"},
    {
        "losses",
        "metrics",
        "distributed",
        "allocator",
        "checks",
        "client",
        "cores",
        "errors",
        "files",
        "progress",
        "resident",
    },
]


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The parts of promptpool that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path} imports relatively"
            names = [node.module]
            if node.module == "promptpool":
                names = [f"promptpool.{alias.name}" for alias in node.names]
            found |= set(names)
    return {name.split(".")[1] for name in found if name.startswith("promptpool.")} - {"__version__"}


def test_every_module_is_in_a_row() -> None:
    parts = {part_of(path) for path in ROOT.rglob("*.py")} - {"__init__"}
    assert parts <= set().union(*ROWS)


def test_imports_point_downwards() -> None:
    level = {part: row for row, parts in enumerate(ROWS) for part in parts}
    upwards = [
        f"{path.relative_to(ROOT)} imports {other}"
        for path in ROOT.rglob("*.py")
        for other in imports(path)
        if part_of(path) in level and other != part_of(path) and level[other] <= level[part_of(path)]
    ]
    assert upwards == []


def test_the_bottom_row_needs_torch_and_numpy_only() -> None:
    allowed = {"torch", "numpy", "promptpool"}
    for part in ROWS[-1]:
        for node in ast.walk(ast.parse((ROOT / f"{part}.py").read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            outside = {name.split(".")[0] for name in names} - allowed - sys.stdlib_module_names
            assert not outside, f"{part}.py imports {outside}"
