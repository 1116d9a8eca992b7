"""Every test image once, in the plain view, among the classes seen so far."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from promptpool import distributed
from promptpool.data.stream import Batch, Examples
from promptpool.learners.base import Learner
from promptpool.losses import only


@torch.no_grad()
def predict(learner: Learner, batch: Batch, classes: Sequence[int] | None = None) -> Tensor:
    """The predicted class of each example, among `classes` or all seen so far: [B]."""
    learner.eval()
    batch = batch.to(learner.device)
    told = None if classes is None else learner.told(batch, classes)
    logits = learner.logits(batch) if told is None else told
    return only(logits, torch.tensor(learner.seen if classes is None else classes)).argmax(dim=1).cpu()


@torch.no_grad()
def count_correct(learner: Learner, test: Examples, batch_size: int) -> tuple[int, int]:
    """How many examples are predicted right without the task, and with the task given, over all ranks."""
    learner.eval()
    seen, own = torch.tensor(learner.seen), torch.tensor(sorted(set(test.classes) & set(learner.seen)))
    right = torch.zeros(2, dtype=torch.long)
    for batch in my_part(test).batches(batch_size):
        here = batch.to(learner.device)
        logits, told = learner.logits(here), learner.told(here, own.tolist())
        right[0] += (only(logits, seen).argmax(dim=1).cpu() == batch.y).sum()
        right[1] += (only(logits if told is None else told, own).argmax(dim=1).cpu() == batch.y).sum()
    without, given = distributed.total(right).tolist()
    return without, given


def my_part(test: Examples) -> Examples:
    """This rank's stretch of a test set."""
    return test.select(distributed.share(len(test)))
