"""The one place where parameters are updated: zero, backward, average over ranks, clip, step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from promptpool import distributed
from promptpool.checks import one_of
from promptpool.data.stream import Batch

OPTIMISERS = ("adam", "sgd")


class Descent:
    """An optimiser; call it with a loss to take one step.

    `weight` is this rank's fraction of the joined batch times the number of ranks. With it the mean of the ranks'
    gradients is the gradient of the joined batch's mean loss, also if ranks hold different numbers of examples.
    `measured` are parameters that are not updated but count in the norm that is clipped, as in the released L2P code;
    the loss is then computed under `measuring()`.

    With `micro_batch`, `over` adds up the gradients of a batch part by part, each of at most so many examples.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        optimiser: str = "adam",
        learning_rate: float = 0.03,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        clip: float | None = 1.0,
        measured: Iterable[nn.Parameter] = (),
        micro_batch: int | None = None,
    ) -> None:
        one_of(OPTIMISERS, optimiser=optimiser)
        self.parameters = list(parameters)
        self.measured = list(measured)
        self.clip, self.micro_batch = clip, micro_batch
        self.weight = 1.0
        self.optimiser: torch.optim.Optimizer | None = None
        if self.parameters and optimiser == "adam":
            self.optimiser = torch.optim.Adam(self.parameters, lr=learning_rate, weight_decay=weight_decay)
        elif self.parameters:
            self.optimiser = torch.optim.SGD(
                self.parameters, lr=learning_rate, momentum=momentum, weight_decay=weight_decay
            )

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Within this context, gradients reach the `measured` parameters too."""
        for parameter in self.measured:
            parameter.requires_grad_(True)
        try:
            yield
        finally:
            for parameter in self.measured:
                parameter.requires_grad_(False)

    def __call__(self, loss: Tensor) -> Tensor:
        """Take a step on a loss."""
        if self.micro_batch is not None:
            raise ValueError(
                f"micro_batch = {self.micro_batch}: this method computes the loss of a whole batch, set none "
                "(a method that calls descend.over(batch, self.loss) takes it in parts)"
            )
        return self._step([(1.0, lambda: loss)])

    def over(self, batch: Batch, loss: Callable[[Batch], Tensor]) -> Tensor:
        """Take a step on the loss of a batch, a mean over its examples; in parts if `micro_batch` says so.

        Parts come one after the other, each with its share of the examples as a weight, and none is in memory when the
        next is computed. Every rank has as many parts, since a loss may exchange something between them.
        """
        return self._step([(len(part.y) / len(batch.y), partial(loss, part)) for part in self._parts(batch)])

    def _parts(self, batch: Batch) -> list[Batch]:
        if self.micro_batch is None:
            return [batch]
        everyone = int(distributed.total(torch.tensor(len(batch.y))))
        largest = -(-everyone // distributed.world())  # of the ranks' batches
        count = -(-largest // self.micro_batch)
        ends = [len(batch.y) * number // count for number in range(count + 1)]
        return [batch.part(slice(*place)) for place in pairwise(ends)]

    def _step(self, parts: Sequence[tuple[float, Callable[[], Tensor]]]) -> Tensor:
        """Take a step on the weighted sum of losses; returns that sum."""
        if self.optimiser is None:
            raise ValueError("a learner without trained parameters cannot descend")
        everything = self.parameters + self.measured
        for parameter in everything:
            parameter.grad = None
        values = []
        for share, compute in parts:
            loss = compute()
            (loss * (self.weight * share)).backward()
            values.append(loss.detach() if share == 1 else loss.detach() * share)
            del loss
        average_gradients(everything)
        if self.clip is not None:
            norm = torch.nn.utils.get_total_norm([p.grad for p in everything if p.grad is not None])
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.clip, norm)
        self.optimiser.step()
        for parameter in self.measured:
            parameter.grad = None
        return values[0] if len(values) == 1 else torch.stack(values).sum()

    def set_learning_rate(self, learning_rate: float) -> None:
        """Use this learning rate from the next step on."""
        if self.optimiser is not None:
            for group in self.optimiser.param_groups:
                group["lr"] = learning_rate

    def state_dict(self) -> dict[str, Any]:
        return {} if self.optimiser is None else self.optimiser.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.optimiser is not None:
            self.optimiser.load_state_dict(copied(state))


def copied(value: Any) -> Any:
    """A nested value with every tensor in it copied to memory of its own.

    A restored tensor must not lie in the memory of a mapped file. It may not be aligned there, and then matrix products
    differ in their last bits.
    """
    if isinstance(value, Tensor):
        return value.detach().clone(memory_format=torch.contiguous_format)
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copied(item) for item in value)
    return value


def average_gradients(parameters: list[nn.Parameter]) -> None:
    """Replace every gradient by its mean over ranks, in one exchange."""
    if distributed.world() == 1:
        return
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    mean = distributed.total(torch.cat([gradient.flatten() for gradient in gradients])) / distributed.world()
    for gradient, part in zip(gradients, mean.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))
