"""What methods with a memory share: as many replayed examples as new ones, and the classes each are told from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from promptpool.data.stream import Batch, Stream
from promptpool.learners.base import Learner
from promptpool.memory import Memory


def rehearsed(batch: Batch, memory: Memory | None) -> Iterator[Batch]:
    """The new examples; then as many replayed ones, drawn when they are asked for, unless there are none yet."""
    yield batch
    if memory:
        yield replayed(batch, memory)


def replayed(batch: Batch, memory: Memory) -> Batch:
    """As many rows of a memory as the batch has, beside it."""
    return memory.sample(len(batch.y)).to(batch.y.device)


def replay_classes(loss_classes: str) -> str:
    """The classes that a replayed example is told from, where no value of its own says it.

    Those of a new one; where that are the classes of the present task, all seen, as the task of an old example is
    not the present one.
    """
    return "seen" if loss_classes == "current" else loss_classes


def joint_cross_entropy(learner: Learner, logits: Tensor, parts: Sequence[Batch], classes: str) -> Tensor:
    """The mean over new and replayed examples together.

    `logits` are those of all parts in their order. New examples (the first part) see the learner's loss classes,
    replayed ones those named `classes`.
    """
    new = len(parts[0].y)
    seen = torch.cat([learner.visible(logits[:new]), learner.visible(logits[new:], classes)])
    return F.cross_entropy(seen, torch.cat([part.y for part in parts]))


def not_current(loss_classes: str) -> None:
    """Refuse the classes of the present task where new and replayed images share one loss."""
    if loss_classes == "current":
        raise ValueError("loss_classes = 'current': must be 'seen' or 'all', replayed images are of other classes")


def too_small(capacity: int, stream: Stream) -> str | None:
    """Why a memory that balances classes cannot serve a stream, in one line; None where it can."""
    if capacity < len(stream.class_names):
        return f"capacity = {capacity}: must be at least one image per class, {len(stream.class_names)}"
    return None
