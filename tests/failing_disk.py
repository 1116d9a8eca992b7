"""A disk on which files cannot be written any more."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


class FailingDisk:
    """While `left` operations are left all is well; the next one raises, and with `stays` so do all that follow."""

    def __init__(self, patch: pytest.MonkeyPatch, error: Callable[[str], BaseException], *, stays: bool = True) -> None:
        self.left, self.error, self.stays = 10**9, error, stays
        for owner, name in ((Path, "mkdir"), (Path, "replace"), (os, "fsync"), (shutil, "copyfile")):
            patch.setattr(owner, name, self._failing(getattr(owner, name)))
        opened, failing = Path.open, self._failing(Path.open)

        def opening(path: Path, mode: str = "r", *rest: Any, **given: Any) -> Any:
            return (failing if "w" in mode else opened)(path, mode, *rest, **given)

        patch.setattr(Path, "open", opening)

    def _failing(self, done: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*given: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left == -1 or (self.stays and self.left < 0):
                raise self.error(str(given[0]))
            return done(*given, **more)

        return operation
