"""A rehearsal memory: rows of raw inputs, kept by lot.

Every example draws one number when it arrives, and the memory keeps the lowest: over all examples (a reservoir:
each example seen so far is equally likely to be there), or in turn over the classes (balanced: no class has two
rows more than another that had as many to give). Both are one sort per batch, without a loop over examples.
Under several ranks each holds the whole memory, so any number of ranks replays what one process would.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from promptpool import distributed
from promptpool.data.stream import Batch

POLICIES = ("reservoir", "balanced")


class Memory:
    """At most `capacity` examples, raw, with whatever was added beside them."""

    def __init__(self, capacity: int, *, generator: torch.Generator, policy: str = "reservoir") -> None:
        if capacity < 1:
            raise ValueError(f"capacity = {capacity}: must be at least 1")
        if policy not in POLICIES:
            raise ValueError(f"policy = {policy!r}: must be one of {', '.join(POLICIES)}")
        self.capacity, self.policy, self.generator = capacity, policy, generator
        self.rows: Batch | None = None
        self.lots = torch.empty(0, dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.lots)

    def add(self, batch: Batch) -> None:
        """Offer a batch, with its `extra`; call it once per example."""
        lots = distributed.uniform(len(batch.y), 1, self.generator).double()[:, 0]
        offered = Batch(
            distributed.gather(batch.x).cpu(),
            distributed.gather(batch.y).cpu(),
            distributed.gather(batch.ids).cpu(),
            extra={name: distributed.gather(value).cpu() for name, value in batch.extra.items()},
        )
        rows = offered if self.rows is None else join(self.rows, offered)
        self.lots = torch.cat([self.lots, distributed.gather(lots)])
        kept = self._lowest(rows.y)
        self.rows, self.lots = pick(rows, kept), self.lots[kept]

    def sample(self, count: int) -> Batch:
        """`count` rows at random, none again before each had its turn."""
        if self.rows is None:
            raise ValueError("an empty memory has nothing to replay")
        place = distributed.joined(count)
        wanted = int(distributed.total(torch.tensor(count)))
        rounds = -(-wanted // len(self))
        order = torch.cat([torch.randperm(len(self), generator=self.generator) for _ in range(rounds)])
        return pick(self.rows, order[place])

    def _lowest(self, y: Tensor) -> Tensor:
        """The rows to keep, in the order in which they arrived."""
        order = self.lots.argsort(stable=True)
        if self.policy == "balanced":
            order = order[_turn(y[order]).argsort(stable=True)]
        return order[: self.capacity].sort().values

    def state_dict(self) -> dict[str, Any]:
        return {
            "rows": None if self.rows is None else {**self.rows._asdict(), "extra": dict(self.rows.extra)},
            "lots": self.lots,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows = None if state["rows"] is None else Batch(**state["rows"])
        self.lots = state["lots"]


def join(first: Batch, second: Batch) -> Batch:
    """Two batches as one; extras that both have are joined, others dropped."""
    if first.x.shape[1:] != second.x.shape[1:]:
        raise ValueError(f"inputs of {[*first.x.shape[1:]]} and {[*second.x.shape[1:]]} do not fit one memory")
    extra = {name: torch.cat([first.extra[name], second.extra[name]]) for name in first.extra if name in second.extra}
    x, y, ids = (torch.cat(pair) for pair in zip(first[:3], second[:3], strict=True))
    return Batch(x, y, ids, fresh=first.fresh, extra=extra)


def pick(batch: Batch, index: Tensor) -> Batch:
    """The rows of a batch at these positions."""
    extra = {name: value[index] for name, value in batch.extra.items()}
    return Batch(batch.x[index], batch.y[index], batch.ids[index], fresh=False, extra=extra)


def _turn(y: Tensor) -> Tensor:
    """How many earlier entries have the same label: [n]."""
    order = y.argsort(stable=True)
    ordered = y[order]
    first = torch.searchsorted(ordered, ordered)
    turn = torch.empty_like(order)
    turn[order] = torch.arange(len(y)) - first
    return turn
