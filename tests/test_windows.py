"""Nothing that Windows lacks is needed to import the package, or for an ordinary run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import promptpool
from promptpool.training.run_folder import read_run
from small_runs import preset as preset_fixture

preset = preset_fixture
SCRIPT = Path(__file__).with_name("without_posix.py")
ROOT = Path(promptpool.__file__).parent


def typed(*arguments: object) -> list[str]:
    """What is printed, line by line, where no module of POSIX can be imported."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT.parent)}
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_module_can_be_imported() -> None:
    files = {path.relative_to(ROOT).with_suffix("") for path in ROOT.rglob("*.py")} - {Path("__main__")}
    names = {".".join(("promptpool", *path.parts)).removesuffix(".__init__") for path in files} - {"promptpool"}
    assert set(typed("import")) == names


def test_a_run_is_made_and_locked(preset: Path, tmp_path: Path) -> None:
    lines = typed("run", preset, "plan.epochs=1", "--runs", tmp_path / "runs")
    assert lines[-1] == "2 taken, 0 held"  # of the run, and of the file of drawn images
    (folder,) = (tmp_path / "runs").iterdir()
    assert read_run(folder).finished


def test_a_dry_run_leaves_out_the_memory_it_cannot_tell(preset: Path) -> None:
    text = "\n".join(typed("run", preset, "--dry-run"))
    assert "estimated time" in text
    assert "MiB" not in text
