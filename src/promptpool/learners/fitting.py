"""Fitting a model to rows that a learner holds, outside the training loop: GDumb's model, Co2L's head."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from promptpool import distributed
from promptpool.data.stream import Batch
from promptpool.memory import pick
from promptpool.optim import Descent
from promptpool.progress import report


def fit(
    descend: Descent,
    rows: Batch,
    loss: Callable[[Batch], Tensor],
    *,
    epochs: int,
    batch_size: int,
    generator: torch.Generator,
    rate: Callable[[int], float] | None = None,
    what: str = "",
) -> None:
    """Minimise `loss`, a mean over its batch, on batches of nearly equal size; each row comes once per epoch.

    `rate` gives the learning rate of each epoch, if it changes. `what` is reported as steps are taken, if it is given.
    Every rank holds the same rows and takes its part of each batch, so that any number of ranks fits the same model. A
    batch with fewer rows than ranks is taken whole by every rank.
    """
    device = descend.parameters[0].device
    parts, done = -(-len(rows.y) // batch_size), 0
    for epoch in range(epochs):
        if rate is not None:
            descend.set_learning_rate(rate(epoch))
        order = torch.randperm(len(rows.y), generator=generator)
        for index in order.tensor_split(parts):
            if len(index) < distributed.world():
                with distributed.alone():
                    value = loss(pick(rows, index).to(device))
                descend.weight = 1.0
            else:
                own = index[distributed.rank_slice(len(index))]
                descend.weight = len(own) * distributed.world() / len(index)
                value = loss(pick(rows, own).to(device))
            descend(value)
            done += 1
            if what:
                report(what, done, epochs * parts)
