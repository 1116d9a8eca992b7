"""The tokens of frozen examples, kept in memory as far as a budget goes.

    f_e(x), or what the first blocks make of it        [L, D] for each example

They depend on backbone, view and example only. They are large: 13 kB for an image of the shipped ViT, 150 kB in a
ViT-Ti/16 and 600 kB in a ViT-B/16. So they stay in memory, below PROMPTPOOL_TOKENS_GB or 1 GB, in the precision in
which they were computed. What finds no room is computed whenever it is asked for, in the same chunks (`chunks.py`):
no bit depends on what is kept.

`expect` begins a round, of an experience or of all test sets of an evaluation. In a full store an example takes the
place of the one that was not asked for for longest, but never of one that was announced for the present round or asked
for in it. So the images of a new task replace those of an earlier one, and epochs over more images than there is room
for keep a part of them in place. So do evaluations of more images than that: what they ask for in the same order again
and again would otherwise always make room for what is asked for earlier.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor

from promptpool.backbones.base import Backbone
from promptpool.backbones.chunks import Chunk, Chunks
from promptpool.data.stream import Batch, Examples
from promptpool.data.views import ImageView
from promptpool.files import gigabytes

FEWEST = 256  # rows of the first table


class TokenStore:
    """The tokens after the first `blocks` blocks of as many examples as the budget holds, by id."""

    def __init__(self, backbone: Backbone, view: ImageView, *, blocks: int = 0) -> None:
        backbone.check_first(blocks)
        self.backbone, self.view, self.blocks = backbone, view, blocks
        self.budget = token_budget()
        self._chunks = Chunks()
        # The row of each id that is kept; what was not asked for for longest is first. A plain dict looks for its first
        # entry past all that were deleted before it.
        self._rows: OrderedDict[int, int] = OrderedDict()
        self._asked: list[int] = []  # the round in which each row was last asked for
        self._round = 0
        self._table: Tensor | None = None  # [rows, L, D]
        self._passing: dict[int, Tensor] = {}  # of the present batch, what found no room

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, identity: object) -> bool:
        return identity in self._rows or identity in self._passing

    def expect(self, *examples: Examples) -> None:
        """Begin a round, and announce its examples; those that are here stay."""
        self._round += 1
        for part in examples:
            self.touch(part.ids.tolist())
        self._chunks.expect(examples, self)

    def __call__(self, batch: Batch) -> Tensor:
        """The tokens of each example in the plain view: [B, L, D]."""
        ids = batch.ids.tolist()
        if not ids:
            return self._computed(batch.x)
        self.touch(ids)
        for chunk in self._chunks.of(batch, self, fill=self._has_room()):
            self.of_chunk(chunk)
        tokens = self._gathered(ids)
        self._passing.clear()
        return tokens.to(batch.y.device)

    def touch(self, ids: list[int]) -> None:
        """Note that these examples are asked for in this round."""
        for identity in ids:
            row = self._rows.get(identity)
            if row is not None and self._asked[row] != self._round:
                self._rows.move_to_end(identity)
                self._asked[row] = self._round

    def of_chunk(self, chunk: Chunk) -> Tensor:
        """The tokens of a chunk; computed unless all are here, and then kept if there is room: [CHUNK, L, D]."""
        if all(identity in self for identity in chunk.ids.values()):
            return self._gathered(chunk.rows).to(chunk.x.device)
        tokens = self._computed(chunk.x)
        if self._table is None:
            self._table = tokens.new_empty(0, *tokens.shape[1:])
        rows: dict[int, int] = {}  # by place
        for place, identity in chunk.ids.items():
            if identity in self:
                continue
            row = self._free_row()
            if row is None:
                self._passing[identity] = tokens[place]
            else:
                rows[place] = self._rows[identity] = row
        self._put(rows, tokens)
        return tokens

    @torch.no_grad()
    def _computed(self, x: Tensor) -> Tensor:
        return self.backbone.begin(self.backbone.embed(self.view.plain(x)), self.blocks)

    def _has_room(self) -> bool:
        """True if another example could be kept."""
        if self._table is None or len(self._rows) < self._capacity(self._table):
            return True
        oldest = next(iter(self._rows), None)
        return oldest is not None and self._asked[self._rows[oldest]] != self._round

    def _free_row(self) -> int | None:
        """A row for another example, if need be that of the one not asked for for longest."""
        if not self._has_room():
            return None
        if self._table is not None and len(self._rows) < self._capacity(self._table):
            self._asked.append(self._round)
            return len(self._rows)
        _, row = self._rows.popitem(last=False)
        self._asked[row] = self._round
        return row

    def _capacity(self, table: Tensor) -> int:
        """How many examples the budget holds."""
        return self.budget // (table.shape[1:].numel() * table.element_size())

    def _put(self, rows: dict[int, int], tokens: Tensor) -> None:
        """Write tokens, by place, into these rows of the table, which grows if it must."""
        if self._table is None or not rows:
            return
        if max(rows.values()) >= len(self._table):
            length = min(max(2 * len(self._table), FEWEST), self._capacity(self._table))
            larger = self._table.new_empty(length, *self._table.shape[1:])
            larger[: len(self._table)] = self._table
            self._table = larger
        self._table[list(rows.values())] = tokens[list(rows)].to(self._table.device)

    def _gathered(self, ids: list[int]) -> Tensor:
        """Copies of the tokens of these ids: [n, L, D]."""
        if self._table is None:
            raise RuntimeError("tokens are gathered when they were computed")
        if not self._passing:
            return self._table[[self._rows[identity] for identity in ids]]
        passing = self._passing
        return torch.stack([passing[i] if i in passing else self._table[self._rows[i]] for i in ids])


def token_budget() -> int:
    """The most bytes that the tokens of a store take."""
    return gigabytes("PROMPTPOOL_TOKENS_GB", 1)
