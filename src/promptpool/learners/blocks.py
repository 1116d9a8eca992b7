"""An attribute of rows that come in blocks, which are joined when somebody reads it.

So adding a block copies none of the rows before it, however many there are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class InBlocks:
    """Such an attribute; to set it is to have one block."""

    def __set_name__(self, owner: type, name: str) -> None:
        del owner
        self.name = name

    def __set__(self, holder: Any, rows: Tensor) -> None:
        vars(holder)[_place(self.name)] = (rows,)

    def __get__(self, holder: Any, owner: type) -> Tensor:
        blocks: tuple[Tensor, ...] = vars(holder)[_place(self.name)]
        if len(blocks) > 1:
            vars(holder)[_place(self.name)] = blocks = (torch.cat(blocks),)
        return blocks[0]


def add_block(holder: object, name: str, rows: Tensor) -> None:
    """Add rows after those of this attribute; they must not be changed afterwards."""
    vars(holder)[_place(name)] += (rows,)


def _place(name: str) -> str:
    return f"_{name}_in_blocks"
