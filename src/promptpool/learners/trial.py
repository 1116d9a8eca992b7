"""Whether prompts are worth having, found out on the first experience alone.

    the classes in two halves; for each half h
        P_h = prompts learned on the images of h
        for every image i of the other half, left out of the sums of all classes:
            a_i = 1 if the closed form without prompts is right,   b_i = 1 if that with the rows of P_h is right
    gain = mean of (b - a),   error = deviation of (b - a) / sqrt(n)
    prompts are taken if gain > error

What counts is their worth on classes that come later. So no image is judged by prompts that were learned on its class:
they part those classes too well, which says nothing of others. They are told from all classes, since among half of them
fewer are wrong and less can be found out; that flatters prompts somewhat, as classes that taught them are among those.
The comparison is paired, image by image. One standard error is little proof: of prompts that do nothing one in six is
taken, or a few more. What they do to new looks of known classes a first experience cannot tell.

There must be two classes to learn from in each half. Where the closed form without prompts is wrong on fewer than two
images no gain could be above its error, and nothing is learned to find that out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from promptpool import distributed
from promptpool.data.stream import Examples
from promptpool.prompts import PromptPool

if TYPE_CHECKING:
    from promptpool.learners.closed_form import ClosedForm

LEAST_CLASSES = 4
LEAST_IMAGES = 2  # of a class: one to judge, one to know the class by
LEAST_ERRORS = 2
AT_ONCE = 64


class Trial(NamedTuple):
    """What prompts gain, as a share of the images, and its standard error."""

    gain: float = 0.0
    error: float = 0.0

    @property
    def won(self) -> bool:
        return self.gain > self.error


def try_prompts(
    examples: Examples,
    *,
    learned: Callable[[Examples, str], PromptPool],
    reading_with: Callable[[PromptPool | None], ClosedForm],
    seed: int,
) -> Trial | None:
    """The trial on these examples; None if there are too few for one.

    `learned` learns prompts and reports that under a name; `reading_with` makes a closed form that reads with prompts
    and knows nothing yet.
    """
    counts = torch.bincount(examples.y)
    classes = (counts >= LEAST_IMAGES).nonzero().flatten()
    if len(classes) < LEAST_CLASSES:
        return None
    examples = examples.select(torch.isin(examples.y, classes))
    without = right(reading_with(None), examples)
    if int((~without).sum()) < LEAST_ERRORS:
        return Trial()
    with_prompts = torch.zeros_like(without)
    for number, half in enumerate(halves(classes, seed), start=1):
        own = torch.isin(examples.y, half)
        pool = learned(examples.select(own), f"trying prompts, {number} of 2")
        with_prompts[~own] = right(reading_with(pool), examples)[~own]
    return compared(with_prompts.double() - without.double())


def halves(classes: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """The classes in two halves, drawn by the seed."""
    order = classes[torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed))]
    return order[: len(order) // 2], order[len(order) // 2 :]


def compared(change: Tensor) -> Trial:
    """The mean of what changed, image by image, and its standard error."""
    return Trial(float(change.mean()), float(change.std()) / math.sqrt(len(change)))


@torch.no_grad()
def right(learner: ClosedForm, examples: Examples) -> Tensor:
    """Which examples a closed form names rightly, each left out of what it learns of all of them: [n].

    Ranks that round differently still decide alike, by the answers of the first.
    """
    learner.expect(examples)
    rows = torch.cat([learner.read(batch.to(learner.device)) for batch in examples.batches(AT_ONCE)])
    learner.add_rows(rows, examples.y, examples.ids)
    found = learner.leave_one_out(rows, examples.y).argmax(dim=1) == examples.y
    return distributed.total(found.long() * (distributed.rank() == 0)) == 1
