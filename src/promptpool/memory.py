"""A rehearsal memory: raw examples, chosen at random.

Every example draws a random number (its lot) when it arrives, and the memory keeps those with the lowest lots:

- "reservoir": over all examples, so that each example seen so far is equally likely to be in the memory;
- "balanced": in turn over the classes, so that no class has two rows more than another that had as many to give;
- "greedy": GDumb's sampler, one example after the other, where the lot of a new example says which row it replaces.

The first two take one sort per batch and no loop over examples. Every rank holds the whole memory, so that any number
of ranks replays the same examples as one process.
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
    """At most `capacity` raw examples, with the extras that were added with them."""

    def __init__(self, capacity: int, *, generator: torch.Generator, policy: str = "reservoir") -> None:
        at_least(1, capacity=capacity)
        one_of(POLICIES, policy=policy)
        self.capacity, self.policy, self.generator = capacity, policy, generator
        self.lots = torch.empty(0, dtype=torch.float64)
        self._rows: Batch | None = None  # storage, of which the first len(self) rows are in use

    def __len__(self) -> int:
        return len(self.lots)

    @property
    def rows(self) -> Batch:
        """All rows in the memory."""
        if self._rows is None:
            raise ValueError("an empty memory has no rows")
        return pick(self._rows, slice(0, len(self)))

    def add(self, batch: Batch) -> None:
        """Offer a batch, with its `extra`; offer each example once."""
        offered = Batch(
            distributed.gather(batch.x).cpu(),
            distributed.gather(batch.y).cpu(),
            distributed.gather(batch.ids).cpu(),
            extra={name: distributed.gather(value).cpu() for name, value in batch.extra.items()},
        )
        if self._rows is None:
            self._rows = pick(offered, slice(0, 0))
        _check_fit(self._rows, offered)
        lots, count = torch.rand(len(offered.y), generator=self.generator, dtype=torch.float64), len(self)
        labels = torch.cat([self._rows.y[:count], offered.y])
        if self.policy == "greedy":
            chosen = greedy(labels, lots, self.capacity)
        else:
            chosen = self._lowest(torch.cat([self.lots, lots]), labels)
        if len(chosen) > len(self._rows.y):
            self._rows = _widened(self._rows, min(max(len(chosen), 2 * count), self.capacity))
        stays = torch.zeros(count, dtype=torch.bool)
        stays[chosen[chosen < count]] = True
        new = chosen[chosen >= count] - count
        places = torch.cat([(~stays).nonzero().flatten(), torch.arange(count, len(chosen))])
        for room, rows in zip(_columns(self._rows), _columns(offered), strict=True):
            room[places] = rows[new]
        self.lots = torch.cat([self.lots, self.lots.new_empty(len(chosen) - count)])
        self.lots[places] = lots[new]

    def add_all(self, examples: Examples) -> None:
        """Offer examples that every rank holds; each rank reads its part."""
        for index in torch.arange(len(examples)).split(AT_ONCE):
            self.add(examples.batch(index[distributed.rank_slice(len(index))]))

    def sample(self, count: int) -> Batch:
        """`count` rows at random; within a draw no row comes twice before every row came once."""
        rows = self.rows
        place = distributed.joined(count)
        wanted = int(distributed.total(torch.tensor(count)))
        rounds = -(-wanted // len(self))
        order = torch.cat([torch.randperm(len(self), generator=self.generator) for _ in range(rounds)])
        return pick(rows, order[place])

    def widen(self, name: str, columns: int, filler: float) -> None:
        """Give an extra at least this many columns; present rows get `filler` in the new ones."""
        if self._rows is None or (added := columns - self._rows.extra[name].shape[1]) <= 0:
            return
        wider = F.pad(self._rows.extra[name], (0, added), value=filler)
        self._rows = self._rows._replace(extra={**self._rows.extra, name: wider})

    def _lowest(self, lots: Tensor, y: Tensor) -> Tensor:
        """The rows with the lowest lots, by the policy, in order."""
        order = lots.argsort(stable=True)
        if self.policy == "balanced":
            order = order[turns(y[order]).argsort(stable=True)]
        return order[: self.capacity].sort().values

    def state_dict(self) -> dict[str, Any]:
        if not len(self):
            return {"rows": None, "lots": self.lots}
        rows = self.rows
        kept = {"x": rows.x, "y": rows.y, "ids": rows.ids, "fresh": rows.fresh, "extra": dict(rows.extra)}
        return {"rows": kept, "lots": self.lots}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.lots, self._rows = state["lots"], None
        if state["rows"] is None:
            return
        kept = dict(state["rows"])
        rows = Batch(kept.pop("x"), **kept)
        if not len(rows.x) == len(rows.y) == len(rows.ids) == len(self) <= self.capacity:
            raise ValueError(f"a memory of {self.capacity} cannot hold these {len(rows.x)} rows")
        self._rows = _widened(rows, len(self))  # a copy


def greedy(y: Tensor, lots: Tensor, capacity: int) -> Tensor:
    """The rows to keep, in order, when the last `len(lots)` of these labels arrive one by one.

    The greedy balancing sampler of GDumb (Prabhu et al., 2020): an example is taken if its class is new or has
    fewer rows than capacity / classes. In a full memory it replaces a row of the largest class (of equally large ones
    the first); its lot in [0, 1) says which row.
    """
    present = len(y) - len(lots)
    members: dict[int, list[int]] = {}
    for row, label in enumerate(y[:present].tolist()):
        members.setdefault(label, []).append(row)
    count = present
    for row, (label, lot) in enumerate(zip(y[present:].tolist(), lots.tolist(), strict=True), start=present):
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
    x, y, ids = (torch.cat(pair) for pair in zip(_without_extra(first), _without_extra(second), strict=True))
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


def _without_extra(batch: Batch) -> list[Tensor]:
    return [batch.x, batch.y, batch.ids]


def _columns(batch: Batch) -> list[Tensor]:
    return [*_without_extra(batch), *(batch.extra[name] for name in sorted(batch.extra))]


def _widened(rows: Batch, count: int) -> Batch:
    """The rows, with storage for `count` in all."""

    def wider(column: Tensor) -> Tensor:
        return torch.cat([column, column.new_empty(count - len(column), *column.shape[1:])])

    x, y, ids = map(wider, _without_extra(rows))
    return Batch(x, y, ids, fresh=False, extra={name: wider(value) for name, value in rows.extra.items()})


def _check_fit(room: Batch, offered: Batch) -> None:
    if room.x.shape[1:] != offered.x.shape[1:]:
        raise ValueError(f"inputs of {[*offered.x.shape[1:]]} do not fit a memory of {[*room.x.shape[1:]]}")
    if room.extra.keys() != offered.extra.keys():
        raise ValueError(f"a memory that keeps {sorted(room.extra)} was offered {sorted(offered.extra)}")
