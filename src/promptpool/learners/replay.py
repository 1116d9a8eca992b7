"""What methods with a memory share: as many replayed examples as new ones, and the classes that a loss compares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from promptpool.data.stream import Batch, Stream
from promptpool.learners.base import Learner
from promptpool.memory import Memory, pick


def rehearsed(batch: Batch, memory: Memory | None) -> Iterator[Batch]:
    """The new examples; then as many replayed ones, drawn only when the caller gets to them, if there are any."""
    yield batch
    if memory:
        yield replayed(batch, memory)


def replayed(batch: Batch, memory: Memory) -> Batch:
    """As many rows of a memory as the batch has, on its device."""
    return memory.sample(len(batch.y)).to(batch.y.device)


def replay_classes(loss_classes: str) -> str:
    """The classes that the loss compares for a replayed example, in a method without a keyword for them.

    They are those of a new example. But if these are the classes of the present task, it is all seen so far: the task
    of a replayed example is another.
    """
    return "seen" if loss_classes == "current" else loss_classes


def joint_cross_entropy(learner: Learner, logits: Tensor, parts: Sequence[Batch], classes: str) -> Tensor:
    """Cross-entropy as a mean over new and replayed examples together.

    `logits` are those of all parts in their order. For new examples (the first part) the learner's loss classes are
    compared, for replayed ones those named `classes`.
    """
    if len(parts) == 1:
        return learner.cross_entropy(logits, parts[0].y)
    new = len(parts[0].y)
    seen = torch.cat([learner.visible(logits[:new]), learner.visible(logits[new:], classes)])
    return F.cross_entropy(seen, torch.cat([part.y for part in parts]))


def not_current(loss_classes: str) -> None:
    """Raise a ValueError for loss_classes = "current" in a method with one loss for new and replayed images."""
    if loss_classes == "current":
        raise ValueError("loss_classes = 'current': must be 'seen' or 'all', replayed images are of other classes")


def check_capacity(capacity: int, stream: Stream) -> None:
    """Raise a ValueError if a memory that balances classes has not a place for each."""
    if capacity < len(stream.class_names):
        raise ValueError(f"capacity = {capacity}: must be at least one image per class, {len(stream.class_names)}")


@torch.no_grad()
def plain_logits(learner: Learner, rows: Batch, batch_size: int) -> Tensor:
    """The logits of any number of examples in the plain view, computed `batch_size` at a time: [N, C]."""
    mode = learner.training
    learner.eval()
    indices = torch.arange(len(rows.y)).split(batch_size)
    parts = [learner.logits(pick(rows, index).to(learner.device)) for index in indices]
    learner.train(mode)
    return torch.cat(parts)
