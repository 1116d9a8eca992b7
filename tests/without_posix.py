"""Stand-ins for Windows: the modules it lacks cannot be imported, and `msvcrt` locks within this process.

python tests/without_posix.py import            import every module of promptpool
python tests/without_posix.py run PRESET ...    promptpool, with these arguments
"""

from __future__ import annotations

import errno
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
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


def main(arguments: Sequence[str]) -> None:
    for name in MISSING:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Refusal())
    if arguments == ["import"]:
        import promptpool

        for module in pkgutil.walk_packages(promptpool.__path__, "promptpool."):
            if module.name != "promptpool.__main__":
                importlib.import_module(module.name)
                sys.stdout.write(f"{module.name}\n")
        return
    from promptpool.cli import app

    locks = Locks()
    sys.modules["msvcrt"] = locks  # only now: `subprocess` takes a system that has it for Windows
    app(list(arguments), standalone_mode=False)
    sys.stdout.write(f"{locks.taken} taken, {len(locks.held)} held\n")


if __name__ == "__main__":
    main(sys.argv[1:])
