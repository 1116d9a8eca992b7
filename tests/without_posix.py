"""Stand-ins for Windows: the modules it lacks cannot be imported, and `msvcrt` locks within this process.

    python tests/without_posix.py '[["run", "PRESET", ...], ...]'

Imports every module of promptpool, then is promptpool with each of these arguments in turn. Prints as JSON the modules'
names, and for each command what it printed and how many locks it took and left.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import pkgutil
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from io import StringIO
from types import ModuleType

MISSING = ("fcntl", "grp", "pwd", "resource", "termios")


class Refusal(MetaPathFinder):
    """Finds none of the missing modules, and lets nobody else find them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname in MISSING:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


class Locks(ModuleType):
    """What `msvcrt` has for locks."""

    LK_UNLCK, LK_LOCK, LK_NBLCK = 0, 1, 2

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.held: set[tuple[int, int]] = set()
        self.taken = 0

    def locking(self, descriptor: int, mode: int, count: int) -> None:
        found = os.fstat(descriptor)
        place = found.st_dev, found.st_ino
        if count != 1 or (place in self.held) != (mode == self.LK_UNLCK):
            raise PermissionError(errno.EACCES, "Permission denied")
        self.held ^= {place}
        self.taken += mode != self.LK_UNLCK


def imported() -> list[str]:
    """The names of all modules of promptpool that need no extra, once they are imported."""
    import promptpool

    names = [module.name for module in pkgutil.walk_packages(promptpool.__path__, "promptpool.")]
    for name in (
        "promptpool.__main__",
        "promptpool.serve.deployments",
        "promptpool.serve.ray_answerer",
    ):  # those need Ray
        names.remove(name)
    for name in names:
        importlib.import_module(name)
    return names


def main(commands: Sequence[Sequence[str]]) -> None:
    for name in MISSING:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Refusal())
    names = imported()
    from promptpool.cli import app

    told: list[tuple[str, int, int]] = []
    for arguments in commands:
        sys.modules["msvcrt"] = locks = Locks()  # only now: `subprocess` takes a system that has it for Windows
        with redirect_stdout(StringIO()) as printed:
            app(list(arguments), standalone_mode=False)
        told.append((printed.getvalue(), locks.taken, len(locks.held)))
    json.dump({"modules": names, "commands": told}, sys.stdout)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
