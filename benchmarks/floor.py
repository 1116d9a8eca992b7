"""The floor: the matrix products that no version of an L2P step can leave out, each timed alone at its best.

    make bench ARGS=--products      prints the list with shapes, milliseconds and GFLOP/s

With queries and embeddings kept, a step is one prompted pass forward, its last block for the rows of prompts alone, and
one backward. Backward goes through activations only: no product makes the gradient of a frozen weight. In the first
block it ends at prompts, so that their rows are the only ones whose queries, keys and values need a gradient; what
softmax needs of the others is in outputs that are there (Dao et al., 2022, Eq. 4). Nothing else counts: no softmax,
GELU, normalisation, copy, choice or optimiser.

A product [m, k] x [k, n] has 2mkn operations. It is done with the second factor as it lies in memory, transposed, and
with the whole product transposed, into memory that is there already, and by oneDNN where it is of two plain matrices
(`backbones/products.py`); the fastest counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from promptpool.backbones.products import by_convolution

LEAST_SECONDS = 0.002  # a shorter product is done several times


@dataclass(frozen=True)
class Shape:
    """What the products of a step depend on."""

    batch: int
    tokens: int  # of an image: [class] and patches
    rows: int  # N * L_p, the tokens of the prompts that an image gets
    dim: int
    mlp_dim: int
    depth: int
    heads: int
    classes: int
    pool_size: int

    @property
    def length(self) -> int:
        """The tokens of the prompted pass."""
        return self.tokens + self.rows


@dataclass(frozen=True)
class Product:
    """`count` products of `parts` pairs of matrices [m, k] x [k, n] each."""

    what: str
    m: int
    k: int
    n: int
    count: int = 1
    parts: int = 1

    @property
    def operations(self) -> int:
        return 2 * self.m * self.k * self.n * self.count * self.parts

    @property
    def text(self) -> str:
        parts = f"{self.parts} of " if self.parts > 1 else ""
        return f"{parts}[{self.m}, {self.k}] x [{self.k}, {self.n}]"


def forward(shape: Shape) -> list[Product]:
    """The products of the prompted pass and of the choice of prompts."""
    every, some, dim, hidden = shape.batch * shape.length, shape.batch * shape.rows, shape.dim, shape.mlp_dim
    length, rows, width, heads, whole = shape.length, shape.rows, dim // shape.heads, _heads(shape), shape.depth - 1
    return [
        Product("choice: queries x keys", shape.batch, dim, shape.pool_size),
        Product("queries, keys, values", every, dim, 3 * dim, whole),
        Product("attention: queries x keys", length, width, length, whole, heads),
        Product("attention: shares x values", length, length, width, whole, heads),
        Product("projection", every, dim, dim, whole),
        Product("MLP, first", every, dim, hidden, whole),
        Product("MLP, second", every, hidden, dim, whole),
        Product("last block: keys, values", every, dim, 2 * dim),
        Product("last block: queries", some, dim, dim),
        Product("last block: queries x keys", rows, width, length, 1, heads),
        Product("last block: shares x values", rows, length, width, 1, heads),
        Product("last block: projection", some, dim, dim),
        Product("last block: MLP, first", some, dim, hidden),
        Product("last block: MLP, second", some, hidden, dim),
        Product("head", shape.batch, dim, shape.classes),
    ]


def backward(shape: Shape) -> list[Product]:
    """The products that bring the loss to prompts, keys and head."""
    every, some, dim, hidden = shape.batch * shape.length, shape.batch * shape.rows, shape.dim, shape.mlp_dim
    length, rows, width, heads, middle = shape.length, shape.rows, dim // shape.heads, _heads(shape), shape.depth - 2
    return [
        Product("back: keys", shape.pool_size, shape.batch, dim),
        Product("back: head's weights", shape.classes, shape.batch, dim),
        Product("back: head", shape.batch, shape.classes, dim),
        Product("back, last block: MLP, second", some, dim, hidden),
        Product("back, last block: MLP, first", some, hidden, dim),
        Product("back, last block: projection", some, dim, dim),
        Product("back, last block: shares", rows, width, length, 1, heads),
        Product("back, last block: values and keys", length, rows, width, 2, heads),
        Product("back, last block: queries of heads", rows, length, width, 1, heads),
        Product("back, last block: queries", some, dim, dim),
        Product("back, last block: keys, values", every, 2 * dim, dim),
        Product("back: MLP, second", every, dim, hidden, middle + 1),
        Product("back: MLP, first", every, hidden, dim, middle + 1),
        Product("back: projection", every, dim, dim, middle + 1),
        Product("back: shares", length, width, length, middle, heads),
        Product("back: values, keys, queries of heads", length, length, width, 3 * middle, heads),
        Product("back: queries, keys, values", every, 3 * dim, dim, middle),
        Product("back, first block: shares of prompts", length, width, rows, 1, heads),
        Product("back, first block: values and keys", rows, length, width, 2, heads),
        Product("back, first block: shares by prompts", rows, width, length, 1, heads),
        Product("back, first block: queries of heads", rows, length, width, 1, heads),
        Product("back, first block: queries, keys, values", some, 3 * dim, dim),
    ]


def _heads(shape: Shape) -> int:
    return shape.batch * shape.heads


class Timed:
    """A product with its factors in memory; calling it does it once in its best way and returns the seconds for all."""

    def __init__(self, product: Product) -> None:
        self.product = product
        ways = self._ways()
        found = [min(_seconds(way, 1) for _ in range(3)) for way in ways]
        self._best = ways[found.index(min(found))]
        self._times = max(1, round(LEAST_SECONDS / max(min(found), 1e-7)))

    def _ways(self) -> list[Callable[[], object]]:
        product = self.product
        left = torch.randn(product.parts, product.m, product.k)
        right = torch.randn(product.parts, product.k, product.n)
        as_transposed = right.transpose(1, 2).contiguous().transpose(1, 2)
        out, turned = torch.empty(product.parts, product.m, product.n), torch.empty(product.parts, product.n, product.m)
        pairs: list[tuple[Tensor, Tensor, Tensor]] = [
            (left, right, out),
            (left, as_transposed, out),
            (as_transposed.transpose(1, 2), left.transpose(1, 2), turned),
        ]
        if product.parts == 1:
            ways: list[Callable[[], object]] = [partial(torch.mm, a[0], b[0], out=c[0]) for a, b, c in pairs]
            return [*ways, partial(by_convolution, left[0], as_transposed[0].T)]
        return [partial(torch.bmm, a, b, out=c) for a, b, c in pairs]

    def __call__(self) -> float:
        return _seconds(self._best, self._times) * self.product.count


def _seconds(way: Callable[[], object], times: int) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        way()
    return (time.perf_counter() - begin) / times


class Floor:
    """The products of a list; calling it times each once more and returns their sum in seconds."""

    @torch.no_grad()
    def __init__(self, products: Sequence[Product]) -> None:
        self.products = [product for product in products if product.operations]
        self.timed = {(p.m, p.k, p.n, p.parts): Timed(p) for p in self.products}
        self.seconds: list[list[float]] = [[] for _ in self.products]

    @torch.no_grad()
    def __call__(self) -> float:
        once = {key: timed() / timed.product.count for key, timed in self.timed.items()}
        total = 0.0
        for product, seconds in zip(self.products, self.seconds, strict=True):
            seconds.append(once[product.m, product.k, product.n, product.parts] * product.count)
            total += seconds[-1]
        return total

    @property
    def pace(self) -> str:
        """GFLOP and GFLOP/s of all products together."""
        work = sum(product.operations for product in self.products) / 1e9
        return f"{work:.2f} GFLOP at {work / sum(map(statistics.median, self.seconds)):.0f} GFLOP/s"

    def lines(self) -> list[str]:
        """A Markdown table: every product with its shape, median milliseconds and GFLOP/s."""
        rows = ["| product | shape | times | GFLOP | ms | GFLOP/s |", "|---|---|---:|---:|---:|---:|"]
        for product, seconds in zip(self.products, self.seconds, strict=True):
            median, work = statistics.median(seconds), product.operations / 1e9
            cells = (product.what, product.text, f"{product.count}", f"{work:.3f}", f"{1e3 * median:.2f}")
            rows.append(f"| {' | '.join(cells)} | {work / median:.0f} |")
        return [*rows, "", self.pace]
