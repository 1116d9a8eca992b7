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
from promptpool.data.stream import Batch, Examples

POLICIES = ("reservoir", "balanced")
CHUNK = 256  # examples that are read at once


class Memory:
    """At most `capacity` examples, raw, with whatever was added beside them."""

    def __init__(self, capacity: int, *, generator: torch.Generator, policy: str = "reservoir") -> None:
        if capacity < 1:
            raise ValueError(f"capacity = {capacity}: must be at least 1")
        if policy not in POLICIES:
            raise ValueError(f"policy = {policy!r}: must be one of {', '.join(POLICIES)}")
        self.capacity, self.policy, self.generator = capacity, policy, generator
        self.lots = torch.empty(0, dtype=torch.float64)
        self._rows: Batch | None = None  # room for `capacity` rows, of which the first len(self) are filled

    def __len__(self) -> int:
        return len(self.lots)

    @property
    def rows(self) -> Batch:
        """All that is kept."""
        if self._rows is None:
            raise ValueError("an empty memory has no rows")
        return pick(self._rows, slice(0, len(self)))

    def add(self, batch: Batch) -> None:
        """Offer a batch, with its `extra`; call it once per example."""
        offered = Batch(
            distributed.gather(batch.x).cpu(),
            distributed.gather(batch.y).cpu(),
            distributed.gather(batch.ids).cpu(),
            extra={name: distributed.gather(value).cpu() for name, value in batch.extra.items()},
        )
        if self._rows is None:
            self._rows = _room(offered, self.capacity)
        _check_fit(self._rows, offered)
        lots, held = torch.rand(len(offered.y), generator=self.generator, dtype=torch.float64), len(self)
        kept = self._lowest(torch.cat([self.lots, lots]), torch.cat([self._rows.y[:held], offered.y]))
        stays = torch.zeros(held, dtype=torch.bool)
        stays[kept[kept < held]] = True
        new = kept[kept >= held] - held
        places = torch.cat([(~stays).nonzero().flatten(), torch.arange(held, len(kept))])
        for room, rows in zip(_columns(self._rows), _columns(offered), strict=True):
            room[places] = rows[new]
        self.lots = torch.cat([self.lots, self.lots.new_empty(len(kept) - held)])
        self.lots[places] = lots[new]

    def add_all(self, examples: Examples) -> None:
        """Offer all of these, which every rank has."""
        for index in torch.arange(len(examples)).split(CHUNK):
            self.add(examples.batch(index[distributed.share(len(index))]))

    def sample(self, count: int) -> Batch:
        """`count` rows at random, none again before each had its turn."""
        rows = self.rows
        place = distributed.joined(count)
        wanted = int(distributed.total(torch.tensor(count)))
        rounds = -(-wanted // len(self))
        order = torch.cat([torch.randperm(len(self), generator=self.generator) for _ in range(rounds)])
        return pick(rows, order[place])

    def _lowest(self, lots: Tensor, y: Tensor) -> Tensor:
        """The rows to keep, in order."""
        order = lots.argsort(stable=True)
        if self.policy == "balanced":
            order = order[turns(y[order]).argsort(stable=True)]
        return order[: self.capacity].sort().values

    def state_dict(self) -> dict[str, Any]:
        rows = {**self.rows._asdict(), "extra": dict(self.rows.extra)} if len(self) else None
        return {"rows": rows, "lots": self.lots}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.lots, self._rows = state["lots"], None
        if state["rows"] is None:
            return
        rows = Batch(**state["rows"])
        if not len(rows.x) == len(rows.y) == len(rows.ids) == len(self) <= self.capacity:
            raise ValueError(f"a memory of {self.capacity} cannot hold these {len(rows.x)} rows")
        self._rows = _room(rows, self.capacity)
        for room, column in zip(_columns(self._rows), _columns(rows), strict=True):
            room[: len(self)] = column


def join(first: Batch, second: Batch) -> Batch:
    """Two batches as one; extras that both have are joined, others dropped."""
    if first.x.shape[1:] != second.x.shape[1:]:
        raise ValueError(f"inputs of {[*first.x.shape[1:]]} and {[*second.x.shape[1:]]} do not fit one batch")
    extra = {name: torch.cat([first.extra[name], second.extra[name]]) for name in first.extra if name in second.extra}
    x, y, ids = (torch.cat(pair) for pair in zip(first[:3], second[:3], strict=True))
    return Batch(x, y, ids, fresh=first.fresh, extra=extra)


def pick(batch: Batch, index: Tensor | slice) -> Batch:
    """The rows of a batch at these positions."""
    extra = {name: value[index] for name, value in batch.extra.items()}
    return Batch(batch.x[index], batch.y[index], batch.ids[index], fresh=False, extra=extra)


def turns(y: Tensor) -> Tensor:
    """How many earlier entries have the same label: [n]."""
    order = y.argsort(stable=True)
    ordered = y[order]
    first = torch.searchsorted(ordered, ordered)
    turn = torch.empty_like(order)
    turn[order] = torch.arange(len(y)) - first
    return turn


def _columns(batch: Batch) -> list[Tensor]:
    return [batch.x, batch.y, batch.ids, *(batch.extra[name] for name in sorted(batch.extra))]


def _room(like: Batch, capacity: int) -> Batch:
    """Space for `capacity` rows of this kind."""
    extra = {name: value.new_empty(capacity, *value.shape[1:]) for name, value in like.extra.items()}
    x, y, ids = (column.new_empty(capacity, *column.shape[1:]) for column in like[:3])
    return Batch(x, y, ids, fresh=False, extra=extra)


def _check_fit(room: Batch, offered: Batch) -> None:
    if room.x.shape[1:] != offered.x.shape[1:]:
        raise ValueError(f"inputs of {[*offered.x.shape[1:]]} do not fit a memory of {[*room.x.shape[1:]]}")
    if room.extra.keys() != offered.extra.keys():
        raise ValueError(f"a memory that keeps {sorted(room.extra)} was offered {sorted(offered.extra)}")
