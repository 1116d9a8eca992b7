"""Accuracy: every test image once, in the plain view, predicted among the classes seen so far or all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from promptpool import distributed
from promptpool.data.stream import Batch, Examples
from promptpool.learners.base import Learner
from promptpool.losses import only

TEST_CLASSES = ("seen", "all")


class Count(NamedTuple):
    """How many examples of a test set are predicted right: without the task, and with it if that was asked for."""

    correct: int
    correct_given_task: int | None = None


@torch.no_grad()
def predict(learner: Learner, batch: Batch, classes: Sequence[int] | None = None) -> Tensor:
    """The predicted class of each example, among `classes` or all seen so far: [B]."""
    learner.eval()
    batch = batch.to(learner.device)
    given = None if classes is None else learner.task_logits(batch, classes)
    logits = learner.logits(batch) if given is None else given
    return only(logits, torch.tensor(learner.seen if classes is None else classes)).argmax(dim=1).cpu()


@torch.no_grad()
def count_correct(
    learner: Learner, test: Examples, batch_size: int, *, task_given: bool = False, test_classes: str = "seen"
) -> Count:
    """Count over all ranks; predictions are among the classes "seen" or "all" rows of the head."""
    learner.eval()
    seen, own = torch.tensor(learner.seen), torch.tensor(sorted(set(test.classes) & set(learner.seen)))
    right, part = torch.zeros(2, dtype=torch.long), rank_share(test)
    learner.expect(part)
    for batch in part.batches(batch_size):
        here = batch.to(learner.device)
        logits = learner.logits(here)
        among = only(logits, seen) if test_classes == "seen" else logits
        right[0] += (among.argmax(dim=1).cpu() == batch.y).sum()
        if task_given:
            given = learner.task_logits(here, own.tolist())
            right[1] += (only(logits if given is None else given, own).argmax(dim=1).cpu() == batch.y).sum()
    without, with_task = distributed.total(right).tolist()
    return Count(without, with_task if task_given else None)


def rank_share(test: Examples) -> Examples:
    """This rank's part of a test set."""
    return test.select(distributed.rank_slice(len(test)))
