"""The prompt pool: Eqs. 1 to 4 of "Learning to Prompt for Continual Learning" (Wang et al., CVPR 2022).

    P = {P_1, ..., P_M}, each P_j of L_p tokens with a key k_j                              Eq. 1
    x_p = [P_s1; ...; P_sN; x_e]                                                            Eq. 2
    K_x = the N keys with the least gamma(q(x), k), gamma = 1 - cosine                      Eq. 3
    K_x = the N keys with the least gamma(q(x), k) * h, in training, boundaries known       Eq. 4

h is each prompt's share of the selections made before the present task; it changes only in `end_task`. While it is all
zero (in the first task) every product ties, and Eq. 3 chooses. Of equal scores the lower index wins. Rounding of gamma
differs between processors and between columns of the product. So gammas within `ROUNDING` of each other count as equal,
and every machine chooses alike.

Prompts start uniformly in a range. With `start_from="scaled"` the range counts in units of the tokens that the backbone
makes of the first batch: P = u * theta, u their root mean square, and theta is what is learned, so that steps count in
these units too. With "tokens" prompts start as tokens of that batch, in the same units, and keys as queries of it.
"plain-tokens" is the same with u = 1: where tokens are small, steps are large beside them. "fitting" is "tokens" where
the tokens' root mean square is below 0.3, as in DINOv2, and "scaled" elsewhere. Where a pool has more prompts than the
first batch has images, some keys start from one image: they are equal, and stay so while both are chosen together.

Public code has slots in place of Eq. 4: in training, task t = 0, 1, ... takes prompts tN to (t + 1)N - 1 whatever the
query. When the pool has no such prompts left, and at test, Eq. 3 chooses.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from promptpool import distributed
from promptpool.checks import at_least, one_of

KEYS = ("learned", "mean")
STARTS = ("range", "scaled", "tokens", "plain-tokens", "fitting")
SMALL = 0.3  # tokens of a lesser root mean square are a kind of their own: only tokens themselves start well
ROUNDING = 1e-6  # well above the rounding of gamma in single precision


class Chosen(NamedTuple):
    """What the pool gives each image."""

    prompts: Tensor  # [B, N * L_p, D], best score first
    distance: Tensor  # [B], the sum of gamma over the image's N keys
    indices: Tensor  # [B, N]


class PromptPool(nn.Module):
    """M prompts with keys, of which each query gets the N nearest.

    With `slots` a task trains the prompts of its own slot. With `inherit` as well these start from the prompts, not the
    keys, of the task before.
    """

    counts: Tensor
    chosen_at_test: Tensor
    frequency: Tensor
    task: Tensor
    unit: Tensor

    def __init__(
        self,
        dim: int,
        *,
        generator: torch.Generator,
        pool_size: int = 10,
        top_k: int = 5,
        prompt_length: int = 5,
        start: tuple[float, float] = (0.0, 0.01),
        start_from: str = "range",
        key: str = "learned",
        diversify: bool = False,
        vote: int = 0,
        slots: bool = False,
        inherit: bool = False,
    ) -> None:
        super().__init__()
        check_pool(pool_size, top_k, prompt_length, start, key, vote)
        check_slots(slots, inherit, diversify)
        one_of(STARTS, start_from=start_from)
        self.top_k, self.diversify, self.vote = top_k, diversify, vote
        self.slots, self.inherit, self.start_from = slots, inherit, start_from
        self.prompts = nn.Parameter(torch.empty(pool_size, prompt_length, dim).uniform_(*start, generator=generator))
        self.learned_keys: nn.Parameter | None = None
        if key == "learned":
            self.learned_keys = nn.Parameter(torch.empty(pool_size, dim).uniform_(*start, generator=generator))
        self.register_buffer("counts", torch.zeros(pool_size, dtype=torch.long))  # selections in training so far
        self.register_buffer("chosen_at_test", torch.zeros_like(self.counts), persistent=False)  # on this rank
        self.register_buffer("frequency", torch.zeros(pool_size))  # h, frozen within a task
        if slots:
            self.register_buffer("task", torch.tensor(-1))  # t, once a first one has begun
        if start_from != "range":
            self.register_buffer("unit", torch.tensor(0.0))  # u, once there was a first batch

    @property
    def keys(self) -> Tensor:
        """The keys: [M, D]; without learned ones each is the mean of its prompt as it now is."""
        return self.prompts.mean(dim=1) if self.learned_keys is None else self.learned_keys

    def forward(self, query: Tensor) -> Chosen:
        """Choose for each query [B, D], and count what was chosen."""
        chosen = self.select(query)
        count = torch.bincount(chosen.indices.flatten(), minlength=len(self.counts))
        if self.training:
            self.counts += distributed.total(count)
        else:
            self.chosen_at_test += count
        return chosen

    def select(self, query: Tensor) -> Chosen:
        """Choose for each query [B, D], and count nothing."""
        gamma = self.distances(query)
        indices = self.choose(gamma.detach())  # the choice passes no gradient
        # Unlike indexing, an embedding adds up its gradient in one order, whatever the number of threads.
        prompts = F.embedding(indices, self.prompts.flatten(1)).unflatten(2, self.prompts.shape[1:])  # [B, N, L_p, D]
        if self.start_from != "range":
            prompts = prompts * self.unit
        return Chosen(prompts.flatten(1, 2), gamma.gather(1, indices).sum(dim=1), indices)

    def distances(self, query: Tensor) -> Tensor:
        """gamma of each query to each key: [B, M]."""
        return 1 - F.normalize(query, dim=-1) @ F.normalize(self.keys, dim=-1).T

    def choose(self, gamma: Tensor) -> Tensor:
        """The indices of the N prompts for each row of distances: [B, N]."""
        if self.training and (slot := self.slot()):
            return torch.arange(slot.start, slot.stop, device=gamma.device).expand(len(gamma), -1)
        rounding = torch.full_like(self.frequency, ROUNDING)
        if self.training and self.diversify and bool(self.frequency.any()):
            gamma = gamma.clamp(min=0) * self.frequency  # rounding may leave gamma below 0
            rounding = rounding * self.frequency
        indices = lowest(gamma, rounding, self.top_k)
        if self.vote:
            indices = torch.cat([self._majority(group) for group in indices.split(self.vote)])
        return indices

    def _majority(self, indices: Tensor) -> Tensor:
        """One choice for a whole group of images: the N prompts that most of them chose."""
        votes = torch.bincount(indices.flatten(), minlength=len(self.counts))
        return votes.argsort(descending=True, stable=True)[: self.top_k].expand(len(indices), -1)

    def slot(self, back: int = 0) -> slice | None:
        """The prompts of the present task, or of one `back` tasks ago; None where there is no slot in the pool."""
        begin = (int(self.task) - back) * self.top_k if self.slots else -1
        return slice(begin, begin + self.top_k) if 0 <= begin <= len(self.counts) - self.top_k else None

    @torch.no_grad()
    def begin_task(self) -> None:
        """Go on to the next slot."""
        if self.slots:
            self.task += 1
        if self.inherit and (slot := self.slot()) and (before := self.slot(back=1)):
            self.prompts[slot] = self.prompts[before].clone()

    @property
    def waits(self) -> bool:
        """True if the pool still needs a first batch to start from."""
        return self.start_from != "range" and not self.unit

    @torch.no_grad()
    def begin(self, tokens: Tensor, queries: Tensor, generator: torch.Generator) -> None:
        """Start from the tokens of patches [B, L, D] and the queries [B, D] of a first batch."""
        self.unit.copy_(tokens.square().mean().sqrt())
        if self.start_from == "plain-tokens":
            self.unit.fill_(1.0)
        if self.start_from == "scaled" or (self.start_from == "fitting" and float(self.unit) >= SMALL):
            return
        count, length = self.prompts.shape[:2]
        images = torch.cat([torch.randperm(len(tokens), generator=generator) for _ in range(-(-count // len(tokens)))])
        for index, image in enumerate(images[:count].tolist()):
            places = torch.randint(tokens.shape[1], (length,), generator=generator)
            self.prompts[index] = tokens[image, places.to(tokens.device)] / self.unit
            if self.learned_keys is not None:
                self.learned_keys[index] = queries[image]

    def end_task(self) -> None:
        """Bring h up to date with the selections made so far."""
        self.frequency.copy_(self.counts / self.counts.sum().clamp(min=1))


def lowest(scores: Tensor, rounding: Tensor, count: int) -> Tensor:
    """The columns of the `count` least scores [B, M] of each row, least first: [B, count].

    Scores that lie within the `rounding` [M] of the least of them are equal, and the lowest column is taken.
    """
    scores, largest = scores.nan_to_num(nan=torch.inf), rounding.max()
    rounding = rounding.to(scores).expand_as(scores)
    some = 4 * count + 16
    if scores.shape[1] <= 2 * some or torch.compiler.is_compiling():
        return _lowest(scores, rounding, count)
    # Of a large pool a few candidates are enough, as long as no score beyond them could count as equal.
    least, places = scores.topk(some, dim=1, largest=False)
    if not bool((least[:, count - 1] + largest < least[:, -1]).all()):
        return _lowest(scores, rounding, count)
    places = places.sort(dim=1).values
    return places.gather(1, _lowest(scores.gather(1, places), rounding.gather(1, places), count))


def _lowest(scores: Tensor, rounding: Tensor, count: int) -> Tensor:
    """The same by one search after the other."""
    chosen = []
    taken = torch.zeros_like(scores, dtype=torch.bool)
    for _ in range(count):
        least, place = scores.masked_fill(taken, torch.inf).min(dim=1, keepdim=True)
        equal = (scores <= least + rounding.gather(1, place)) & ~taken
        chosen.append(equal.int().argmax(dim=1, keepdim=True))  # the first of them
        taken = taken.scatter(1, chosen[-1], True)
    return torch.cat(chosen, dim=1)


def check_pool(pool_size: int, top_k: int, prompt_length: int, start: tuple[float, float], key: str, vote: int) -> None:
    at_least(1, pool_size=pool_size, prompt_length=prompt_length)
    one_of(KEYS, key=key)
    if not 1 <= top_k <= pool_size:
        raise ValueError(f"top_k = {top_k}: must lie between 1 and pool_size = {pool_size}")
    if not start[0] < start[1]:
        raise ValueError(f"start = {start}: must be two numbers, the lower first")
    if vote < 0:
        raise ValueError(f"vote = {vote}: must be 0 (each image for itself) or the size of the voting group")


def check_slots(slots: bool, inherit: bool, diversify: bool) -> None:
    if slots and diversify:
        raise ValueError("slots = True: says which prompts a task trains, and so does diversify = True (Eq. 4)")
    if inherit and not slots:
        raise ValueError("inherit = True: prompts start from those of another slot, set slots = True")
