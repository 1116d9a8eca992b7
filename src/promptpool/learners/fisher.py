"""The diagonal of the Fisher information, example by example.

    F_i = mean over the examples n of (d log p(y_n | x_n) / d theta_i)^2

p is the softmax over the classes of the learner's loss. y_n is the example's own label ("empirical", usual in continual
learning) or one drawn from p ("sampled", whose mean over draws is the Fisher information itself). Each example's
gradient is squared by itself. The square of a batch's mean gradient is another quantity, and smaller.

Examples are in the plain view, and batch normalisation uses its stored statistics, so that the gradient of an example
does not depend on the others of its batch.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from promptpool import distributed
from promptpool.checks import at_least, one_of, zero_or_more
from promptpool.data.stream import Batch
from promptpool.learners.base import Learner
from promptpool.memory import pick

FISHERS = ("empirical", "sampled")


class Scores(nn.Module):
    """The trained part of a learner as a function of its input: model inputs, or frozen features."""

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        self.backbone = learner.backbone if learner.train_backbone else None
        self.head = learner.head

    def forward(self, x: Tensor) -> Tensor:
        features = x if self.backbone is None else self.backbone.features(x)
        return self.head(features)  # type: ignore[no-any-return]


def trained(learner: Learner) -> dict[str, nn.Parameter]:
    """The parameters that are trained, by name."""
    return {name: parameter for name, parameter in Scores(learner).named_parameters() if parameter.requires_grad}


def fisher_diagonal(
    learner: Learner, batches: Iterable[Batch], *, micro_batch: int, draws: Tensor | None = None
) -> dict[str, Tensor]:
    """F of each trained parameter, over this rank's `batches` and those of all other ranks.

    The gradients of `micro_batch` examples are held at once, each as large as all trained parameters. With `draws`, a
    number in [0, 1) for each example of this rank, labels are drawn from the model.
    """
    before, count = learner.training, 0
    learner.eval()
    model = Scores(learner)
    parameters = {name: parameter.detach() for name, parameter in trained(learner).items()}
    sums = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}

    def surprise(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        logits = functional_call(model, parameters, (x[None],))
        return F.cross_entropy(learner.visible(logits), y[None])  # -log p(y | x)

    each = vmap(grad(surprise), in_dims=(None, 0, 0))
    with sdpa_kernel(SDPBackend.MATH), learner.backbone.plainly():  # vmap supports neither fused attention nor these
        for batch in batches:
            for begin in range(0, len(batch.y), micro_batch):
                part = pick(batch, slice(begin, begin + micro_batch)).to(learner.device)
                x = learner.inputs(part) if learner.train_backbone else learner.features(part)
                y = part.y if draws is None else _drawn(learner, model, x, draws[count : count + len(x)])
                for name, gradients in each(parameters, x, y).items():
                    sums[name] += gradients.square().sum(dim=0)
                count += len(x)
    learner.train(before)
    everyone = int(distributed.total(torch.tensor(count)))
    return {name: distributed.total(summed).div_(everyone) for name, summed in sums.items()}


@torch.no_grad()
def _drawn(learner: Learner, model: Scores, x: Tensor, draws: Tensor) -> Tensor:
    """A label for each input from the model's own distribution: [B]."""
    sums = learner.visible(model(x)).cpu().double().softmax(dim=1).cumsum(dim=1)  # mps has no float64
    return (sums <= draws.to(sums)[:, None] * sums[:, -1:]).sum(dim=1).to(x.device)


def check_fisher(*, strength: float, fisher: str, fisher_examples: int, micro_batch: int) -> None:
    """Raise a ValueError for a wrong value of a keyword that both versions of EWC have."""
    zero_or_more(strength=strength)
    one_of(FISHERS, fisher=fisher)
    at_least(1, micro_batch=micro_batch)
    if fisher_examples < 0:
        raise ValueError(f"fisher_examples = {fisher_examples}: must be 0 (all) or the number of examples to use")
