"""A fit shows each row once per epoch, in batches of nearly equal size."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from promptpool.data.stream import Batch
from promptpool.learners.fitting import fit
from promptpool.optim import Descent


def rows(count: int) -> Batch:
    x = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1)
    return Batch(x, torch.zeros(count, dtype=torch.long), torch.arange(count))


def test_every_row_once_per_epoch_in_an_order_of_its_own() -> None:
    weight = nn.Parameter(torch.zeros(1))
    seen: list[list[int]] = []

    def loss(batch: Batch) -> Tensor:
        seen.append(batch.ids.tolist())
        return weight.sum()

    descend = Descent([weight], optimiser="sgd", learning_rate=0.1, clip=None)
    fit(descend, rows(10), loss, epochs=2, batch_size=4, generator=torch.Generator().manual_seed(0))
    assert [len(ids) for ids in seen] == [4, 3, 3, 4, 3, 3]
    first, second = ([number for ids in part for number in ids] for part in (seen[:3], seen[3:]))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    torch.testing.assert_close(weight.detach(), torch.tensor([-0.6]))


def test_one_generator_gives_one_fit() -> None:
    orders = []
    for _ in range(2):
        weight = nn.Parameter(torch.zeros(1))
        order: list[int] = []

        def loss(batch: Batch, weight: nn.Parameter = weight, order: list[int] = order) -> Tensor:
            order += batch.ids.tolist()
            return weight.sum()

        fit(Descent([weight]), rows(7), loss, epochs=1, batch_size=3, generator=torch.Generator().manual_seed(5))
        orders.append(order)
    assert orders[0] == orders[1]


def test_each_epoch_has_its_own_rate() -> None:
    weight = nn.Parameter(torch.zeros(1))
    descend = Descent([weight], optimiser="sgd", learning_rate=7.0, clip=None)
    generator = torch.Generator().manual_seed(0)
    rates = [0.5, 0.25, 0.125]
    fit(descend, rows(4), lambda _: weight.sum(), epochs=3, batch_size=2, generator=generator, rate=rates.__getitem__)
    assert weight.item() == -2 * sum(rates)
