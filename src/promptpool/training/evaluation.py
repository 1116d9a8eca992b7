"""Accuracy: every test image once, in the plain view, predicted among the classes seen so far or all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from promptpool import distributed
from promptpool.data.stream import Batch, Examples
from promptpool.learners.base import Learner
from promptpool.losses import only
from promptpool.training.record import ClassCount

TEST_CLASSES = ("seen", "all")
TEST_AFTER = ("each", "last")


Predictions = Counter[tuple[int, int]]  # how many examples of a class (first) are predicted as one (second)


class Count(NamedTuple):
    """How many examples of a test set are predicted right: without the task, and with it if that was asked for."""

    correct: int
    predictions: Predictions  # without the task
    correct_given_task: int | None = None


@torch.no_grad()
def predict(learner: Learner, batch: Batch, classes: Sequence[int] | None = None) -> Tensor:
    """The predicted class of each example, among `classes` or all seen so far: [B]."""
    learner.eval()
    batch = batch.to(learner.device)
    given = None if classes is None else learner.task_logits(batch, classes)
    logits = learner.logits(batch) if given is None else given
    return only(logits, torch.tensor(learner.seen if classes is None else classes)).argmax(dim=1).cpu()


def announce(learner: Learner, tests: Sequence[Examples]) -> None:
    """Tell the learner all test sets of an evaluation, before the first of them is counted."""
    learner.eval()
    learner.expect(*map(rank_share, tests))


@torch.no_grad()
def count_correct(
    learner: Learner, test: Examples, batch_size: int, *, task_given: bool = False, test_classes: str = "seen"
) -> Count:
    """Count over all ranks; predictions are among the classes "seen" or "all" rows of the head."""
    learner.eval()
    seen, own = torch.tensor(learner.seen), torch.tensor([], dtype=torch.long)
    if task_given:
        own = torch.tensor(sorted(set(test.classes) & set(learner.seen)))
    right, part = torch.zeros(2, dtype=torch.long), rank_share(test)
    pairs = [torch.empty(0, 2, dtype=torch.long)]
    for batch in part.batches(batch_size, learner.looks_at):
        here = batch.to(learner.device)
        logits = learner.logits(here)
        among = only(logits, seen) if test_classes == "seen" else logits
        predicted = among.argmax(dim=1).cpu()
        right[0] += (predicted == batch.y).sum()
        pairs.append(torch.stack([batch.y, predicted], dim=1))
        if task_given:
            given = learner.task_logits(here, own.tolist())
            right[1] += (only(logits if given is None else given, own).argmax(dim=1).cpu() == batch.y).sum()
    without, with_task = distributed.total(right).tolist()
    found, times = distributed.gather(torch.cat(pairs)).unique(dim=0, return_counts=True)
    predictions = Counter({(label, guess): n for (label, guess), n in zip(found.tolist(), times.tolist(), strict=True)})
    return Count(without, predictions, with_task if task_given else None)


def by_class(counts: Iterable[Predictions]) -> tuple[ClassCount, ...]:
    """The counts of each class over some test sets together, in the order of classes."""
    guesses: dict[int, Counter[int]] = {}
    for predictions in counts:
        for (label, guess), times in predictions.items():
            guesses.setdefault(label, Counter())[guess] += times
    return tuple(_class_count(label, guesses[label]) for label in sorted(guesses))


def _class_count(label: int, guesses: Counter[int]) -> ClassCount:
    wrong = {guess: times for guess, times in guesses.items() if guess != label}
    taken_for = min(wrong, key=lambda guess: (-wrong[guess], guess), default=None)
    times = 0 if taken_for is None else wrong[taken_for]
    return ClassCount(label, guesses[label], guesses.total(), taken_for, times)


def rank_share(test: Examples) -> Examples:
    """This rank's part of a test set."""
    return test.select(distributed.rank_slice(len(test)))
