"""Blocks of a transformer, compiled by torch.

One block is compiled, not the whole transformer: all blocks of a backbone, and of its copies, run the same code, so
that compiling takes the time of one block, however deep the model is. Sizes are symbols in that code: another number
of images, tokens or rows is no reason to compile again. What is: gradients or none, one row or several, another
precision. A batch of one image is left to the block itself, for torch would compile all of it once more. The head is
not in it, and may grow.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

BACKEND = "inductor"
COMPILERS = {"win32": "cl", "darwin": "clang++"}  # what torch looks for unless CXX says otherwise; g++ elsewhere


def compiled(block: nn.Module, tokens: Tensor, rows: int | None) -> Tensor:
    """What the block makes of tokens, by compiled code; within an export by the block itself."""
    if len(tokens) == 1 or torch.compiler.is_compiling():
        return block(tokens, rows)  # type: ignore[no-any-return]
    whole, first = _functions(BACKEND)
    return whole(block, tokens) if rows is None else first(block, tokens, rows)


def check_compiler() -> None:
    """Raise a ValueError if torch could not compile here."""
    name = os.environ.get("CXX") or COMPILERS.get(sys.platform, "g++")
    if shutil.which(name) is None:
        raise ValueError(
            f"compile = True: needs a C++ compiler, and there is no {name}; install one, or name it in CXX"
        )
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not header.exists():
        raise ValueError(f"compile = True: needs Python's header files, and there is no {header}; install them")


@cache
def _functions(
    backend: str,
) -> tuple[Callable[[nn.Module, Tensor], Tensor], Callable[[nn.Module, Tensor, int], Tensor]]:
    """A block that keeps all rows, and one that keeps the first few: two, as torch limits the versions of each."""

    def whole(block: nn.Module, tokens: Tensor) -> Tensor:
        return block(tokens)  # type: ignore[no-any-return]

    def first(block: nn.Module, tokens: Tensor, rows: int) -> Tensor:
        return block(tokens, rows)  # type: ignore[no-any-return]

    return torch.compile(whole, backend=backend, dynamic=True), torch.compile(first, backend=backend, dynamic=True)
