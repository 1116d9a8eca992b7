"""A compiler that takes a minute for each kind of call, on a clock that hardly moves otherwise."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from promptpool.backbones import vit


class FakeCompiler:
    """In place of torch's while a test lasts; blocks are run as they are."""

    seconds = 60.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.kinds = 0.0, set[tuple[bool, bool]]()
        monkeypatch.setattr(vit, "check_compiler", lambda: None)
        monkeypatch.setattr(vit, "compiled", self.run)
        monkeypatch.setattr("time.perf_counter", self.clock)

    def clock(self) -> float:
        self.now += 0.001
        return self.now

    def run(self, block: nn.Module, tokens: Tensor, rows: int | None) -> Tensor:
        kind = (torch.is_grad_enabled(), rows is None)
        if len(tokens) > 1 and kind not in self.kinds:
            self.kinds.add(kind)
            self.now += self.seconds
        return block(tokens, rows)  # type: ignore[no-any-return]
