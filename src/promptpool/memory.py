"""A rehearsal memory: rows of raw inputs, kept by lot.

Every example draws one number when it arrives, and the memory keeps the lowest: over all examples (a reservoir:
each example seen so far is equally likely to be there), or in turn over the classes (balanced: no class has two
rows more than another that had as many to give). Both are one sort per batch, without a loop over examples. The
greedy policy is GDumb's, one example after the other, whose number then says who leaves for it.
Under several ranks each holds the whole memory, so any number of ranks replays what one process would.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from promptpool import distributed
from promptpool.checks import at_least, one_of
from promptpool.data.stream import Batch, Examples

POLICIES = ("reservoir", "balanced", "greedy")
AT_ONCE = 256  # examples that are read at once


class Memory:
    """At most `capacity` examples, raw, with whatever was added beside them."""

    def __init__(self, capacity: int, *, generator: torch.Generator, policy: str = "reservoir") -> None:
        at_least(1, capacity=capacity)
        one_of(POLICIES, policy=policy)
        self.capacity, self.policy, self.generator = capacity, policy, generator
        self.lots = torch.empty(0, dtype=torch.float64)
        self._rows: Batch | None = None  # room for rows, of which the first len(self) are filled

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
            self._rows = pick(offered, slice(0, 0))
        _check_fit(self._rows, offered)
        lots, held = torch.rand(len(offered.y), generator=self.generator, dtype=torch.float64), len(self)
        labels = torch.cat([self._rows.y[:held], offered.y])
        if self.policy == "greedy":
            kept = greedy(labels, lots, self.capacity)
        else:
            kept = self._lowest(torch.cat([self.lots, lots]), labels)
        if len(kept) > len(self._rows.y):
            self._rows = _widened(self._rows, min(max(len(kept), 2 * held), self.capacity))
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
        for index in torch.arange(len(examples)).split(AT_ONCE):
            self.add(examples.batch(index[distributed.rank_slice(len(index))]))

    def sample(self, count: int) -> Batch:
        """`count` rows at random; in this draw none comes twice before each came once."""
        rows = self.rows
        place = distributed.joined(count)
        wanted = int(distributed.total(torch.tensor(count)))
        rounds = -(-wanted // len(self))
        order = torch.cat([torch.randperm(len(self), generator=self.generator) for _ in range(rounds)])
        return pick(rows, order[place])

    def widen(self, name: str, columns: int, filler: float) -> None:
        """Give the extra of this name at least so many columns; rows that it has hold `filler` in new ones."""
        if self._rows is None or (added := columns - self._rows.extra[name].shape[1]) <= 0:
            return
        wider = F.pad(self._rows.extra[name], (0, added), value=filler)
        self._rows = self._rows._replace(extra={**self._rows.extra, name: wider})

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
        self._rows = _widened(rows, len(self))  # a copy


def greedy(y: Tensor, lots: Tensor, capacity: int) -> Tensor:
    """The rows to keep, in order, when the last `len(lots)` of these labels arrive one by one.

    The greedy balancing sampler of GDumb (Prabhu et al., 2020): an example is taken if its class is new or has
    fewer rows than capacity / classes. In a full memory a row of the largest class (of equal ones the first) leaves
    for it; the newcomer's lot in [0, 1) says which.
    """
    held = len(y) - len(lots)
    members: dict[int, list[int]] = {}
    for row, label in enumerate(y[:held].tolist()):
        members.setdefault(label, []).append(row)
    count = held
    for row, (label, lot) in enumerate(zip(y[held:].tolist(), lots.tolist(), strict=True), start=held):
        if label in members and len(members[label]) >= capacity / len(members):
            continue
        if count == capacity:
            largest = max(sorted(members), key=lambda known: len(members[known]))
            members[largest].pop(int(lot * len(members[largest])))
            if not members[largest]:
                del members[largest]
            count -= 1
        members.setdefault(label, []).append(row)
        count += 1
    return torch.tensor(sorted(row for rows in members.values() for row in rows), dtype=torch.long)


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


def _widened(rows: Batch, count: int) -> Batch:
    """The rows with space for `count` in all."""

    def wider(column: Tensor) -> Tensor:
        return torch.cat([column, column.new_empty(count - len(column), *column.shape[1:])])

    x, y, ids = map(wider, rows[:3])
    return Batch(x, y, ids, fresh=False, extra={name: wider(value) for name, value in rows.extra.items()})


def _check_fit(room: Batch, offered: Batch) -> None:
    if room.x.shape[1:] != offered.x.shape[1:]:
        raise ValueError(f"inputs of {[*offered.x.shape[1:]]} do not fit a memory of {[*room.x.shape[1:]]}")
    if room.extra.keys() != offered.extra.keys():
        raise ValueError(f"a memory that keeps {sorted(room.extra)} was offered {sorted(offered.extra)}")
