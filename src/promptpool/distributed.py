"""Several processes as one; in a single process every function here returns what it gets or does nothing.

`torchrun` starts one process per device. All processes hold the same learner and draw the same random numbers for the
joined batch. Each works on its own slice of that batch, so that any number of ranks ends with the parameters of one
process.
"""

from __future__ import annotations

import atexit
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

_alone: ContextVar[bool] = ContextVar("alone", default=False)


def start() -> None:
    """Join the other processes if `torchrun` started this one and it has not joined yet."""
    if "WORLD_SIZE" not in os.environ or dist.is_initialized():
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    atexit.register(_leave)


def stop() -> None:
    """Leave the group that `start` joined, all at once: one that leaves early may crash another that talks to it."""
    if dist.is_initialized():
        dist.barrier()
    _leave()


def _leave() -> None:
    """Leave the group, also where another rank has failed and would never come to a meeting."""
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def alone() -> Iterator[None]:
    """Within this context, every rank acts as a single process would: all of them do the same work."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


def rank() -> int:
    return dist.get_rank() if world() > 1 else 0


def world() -> int:
    return dist.get_world_size() if dist.is_initialized() and not _alone.get() else 1


def rank_slice(total: int) -> slice:
    """This rank's slice of `total` items; slices are in rank order and their lengths differ by at most one."""
    return slice(rank() * total // world(), (rank() + 1) * total // world())


def joined(count: int) -> slice:
    """Where this rank's `count` rows lie among the rows of all ranks; the last rank's `stop` is their number."""
    counts = gather(torch.tensor([count]))
    before = int(counts[: rank()].sum())
    return slice(before, before + count)


def total(values: Tensor) -> Tensor:
    """The sum over ranks."""
    if world() == 1:
        return values
    summed = values.clone()
    dist.all_reduce(summed)
    return summed


def gather(rows: Tensor) -> Tensor:
    """The rows of every rank, in rank order; ranks may hold different numbers of them."""
    if world() == 1:
        return rows
    counts = [torch.zeros(1, dtype=torch.long, device=rows.device) for _ in range(world())]
    dist.all_gather(counts, torch.tensor([len(rows)], device=rows.device))
    longest = int(max(int(count) for count in counts))
    padded = torch.zeros(longest, *rows.shape[1:], dtype=rows.dtype, device=rows.device)
    padded[: len(rows)] = rows
    parts = [torch.zeros_like(padded) for _ in range(world())]
    dist.all_gather(parts, padded)
    return torch.cat([part[: int(count)] for part, count in zip(parts, counts, strict=True)])


def gather_together(*columns: Tensor) -> tuple[Tensor, ...]:
    """`gather` of several tensors that have a row for each example, in one exchange, to the bit."""
    if world() == 1:
        return columns
    flat = [rows.reshape(len(rows), math.prod(rows.shape[1:])) for rows in columns]
    parts = [rows.contiguous().view(torch.uint8) for rows in flat]
    found = gather(torch.cat(parts, dim=1)).split([part.shape[1] for part in parts], dim=1)
    return tuple(
        joined.clone(memory_format=torch.contiguous_format).view(rows.dtype).reshape(-1, *rows.shape[1:])
        for joined, rows in zip(found, columns, strict=True)
    )


def gather_with_gradient(rows: Tensor) -> Tensor:
    """`gather`, for a loss that compares the rows of all ranks; the gradient reaches this rank's own rows.

    Every rank then has the loss of the joined rows, and `optim.Descent` weighs it as a mean over the rank's own rows.
    The gradient is therefore multiplied by joined / own, so that its mean over ranks is that of one process.
    """
    if world() == 1:
        return rows
    everyone, place = gather(rows.detach()), joined(len(rows))
    own = everyone[place] + (rows - rows.detach()) * (len(everyone) / len(rows))
    return torch.cat([everyone[: place.start], own, everyone[place.stop :]])


def uniform(count: int, columns: int, generator: torch.Generator) -> Tensor:
    """Random numbers in [0, 1) for this rank's `count` rows: [count, columns].

    Every rank draws for all rows and takes its own, so the numbers do not depend on how rows are split.
    """
    everyone = int(total(torch.tensor(count)))
    return torch.rand(everyone, columns, generator=generator)[joined(count)]


def sync_batch_norm(module: nn.Module) -> None:
    """Replace the running statistics of batch normalisation layers in training mode by their mean over ranks.

    Each rank normalises by its own images, so here ranks differ from one process; but all hold one model.
    """
    if world() == 1:
        return
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d) and part.training:
            for buffer in part.buffers():
                if buffer.is_floating_point():
                    buffer.copy_(total(buffer) / world())
