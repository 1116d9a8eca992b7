"""A fit on rows that a learner holds, beside the stream: of GDumb's model, Co2L's head."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from promptpool import distributed
from promptpool.data.stream import Batch
from promptpool.memory import pick
from promptpool.optim import Descent


def fit(
    descend: Descent,
    rows: Batch,
    loss: Callable[[Batch], Tensor],
    *,
    epochs: int,
    batch_size: int,
    generator: torch.Generator,
    rate: Callable[[int], float] | None = None,
) -> None:
    """Descend `loss`, a mean over its batch, on batches of nearly equal size; each row comes once per epoch.

    `rate` gives the learning rate of each epoch where it is not the same throughout.
    Every rank holds the same rows and takes its part of each batch, so any number of ranks fits what one would. A batch
    that has not a row for each rank is taken whole by all of them.
    """
    device = descend.parameters[0].device
    for epoch in range(epochs):
        if rate is not None:
            descend.set_learning_rate(rate(epoch))
        order = torch.randperm(len(rows.y), generator=generator)
        for index in order.tensor_split(-(-len(order) // batch_size)):
            if len(index) < distributed.world():
                with distributed.alone():
                    value = loss(pick(rows, index).to(device))
                descend.weight = 1.0
            else:
                mine = index[distributed.rank_slice(len(index))]
                descend.weight = len(mine) * distributed.world() / len(index)
                value = loss(pick(rows, mine).to(device))
            descend(value)
