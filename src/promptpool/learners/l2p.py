"""Learning to Prompt (Wang et al., CVPR 2022), and with a memory its rehearsal version L2P-R.

    x_e = f_e(x)
    q = f_r(x_e)[0]                                       the frozen model's [class] feature
    x_p = [P_s1; ...; P_sN; x_e]                          the N prompts whose keys are nearest to q, Eqs. 2 to 4
    z = mean of the first N * L_p rows of f_r(x_p)
    loss = CE(g(z), y) + pull * sum_i gamma(q, k_si)      mean over the batch, Eq. 5

Only prompts, keys and head learn; keys learn from the second term alone. With `train_backbone` f learns too, except in
the query. With `capacity` > 0 the loss is a mean over the new images and as many replayed ones together. A new image is
compared with the classes of its task and a replayed one with all seen, as in the released code (its `replay_no_mask`);
the paper does not say.

With `enter` = k > 0, which no paper has, prompts join at block k: x_e is what blocks 0 to k - 1 make of f_e(x), and f_r
of x_p is the blocks from k on; q stays what it was. The first k blocks of an image are then computed once, like q.

With `slots`, as in public code on 5-datasets, task t = 0, 1, ... trains the prompts tN to (t + 1)N - 1, and the second
term is over their keys.

Deviations: none with the default values. Where the released code differs, a keyword has its value (`profiles.py`). Adam
is dense: a prompt that is not chosen in a step still moves by its momentum, as in the released code.
"""

from __future__ import annotations

from functools import reduce
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from promptpool import distributed
from promptpool.backbones.base import Backbone
from promptpool.checks import one_of, zero_or_more
from promptpool.data.stream import Batch, Experience, Stream
from promptpool.data.views import ImageView
from promptpool.learners.base import Learner
from promptpool.learners.keywords import Shared
from promptpool.learners.prompted import PromptedLearner
from promptpool.learners.replay import check_capacity, joint_cross_entropy, rehearsed
from promptpool.memory import POLICIES, Memory, join
from promptpool.optim import Descent
from promptpool.prompts import Chosen, PromptPool

ORDERS = ("prompts-first", "class-first")
POSITIONS = ("none", "class")


class L2P(PromptedLearner):
    """A pool of prompts for a frozen transformer; with a memory (`capacity` above 0) this is L2P-R.

    With `train_backbone` a copy of the transformer learns as well, as the released code suggests for rehearsal.

    Keywords, beside those of `PromptedLearner`:
        `pool_size`: M, how many prompts there are.
        `top_k`: N, how many of them an image gets.
        `prompt_length`: L_p, the tokens of a prompt.
        `pull`: lambda, how strongly chosen keys are pulled towards the queries.
        `start`: prompts and keys start uniformly between these two numbers.
        `start_from`: "range" takes those numbers as they are, "scaled" in units of the tokens of the first batch;
            "tokens" starts prompts as tokens of that batch, in these units, and keys as its queries; "plain-tokens" is
            the same without units, so that steps are as large as the learning rate; "fitting" is "tokens" or "scaled",
            by the size of the tokens.
        `key`: "learned", or "mean": the mean of the prompt as it now is.
        `diversify`: True chooses by Eq. 4 in training, which needs task boundaries.
        `vote`: the size of groups of images that choose their prompts by majority, at test too; 0 for no vote.
        `slots`: True gives each task its own prompts to train, as long as the pool has any left.
        `inherit`: True starts the prompts of a slot from those of the task before.
        `order`: where prompts stand among the tokens, "prompts-first" or "class-first" (after the [class] token).
        `position`: the position embedding that prompts get, "none" or that of the [class] token ("class").
        `enter`: the block at which prompts join the tokens, 0 as in the paper; a later one is faster.
        `capacity`: how many images the memory holds; 0 for no memory.
        `policy`: which images the memory keeps, "balanced" over classes, "reservoir" or "greedy".
        `replay_classes`: the classes that the loss compares for replayed images, "seen" or "all".
    """

    remembers = ("memory",)
    defaults: ClassVar[Shared] = {**Learner.defaults, "loss_classes": "current", "train_backbone": False}

    def __init__(
        self,
        backbone: Backbone,
        view: ImageView,
        *,
        pool_size: int = 10,
        top_k: int = 5,
        prompt_length: int = 5,
        pull: float = 0.5,
        start: tuple[float, float] = (0.0, 0.01),
        start_from: str = "range",
        key: str = "learned",
        diversify: bool = False,
        vote: int = 0,
        slots: bool = False,
        inherit: bool = False,
        order: str = "prompts-first",
        position: str = "none",
        enter: int = 0,
        query_view: str = "same",
        capacity: int = 0,
        policy: str = "balanced",
        replay_classes: str = "seen",
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(backbone, view, query_view=query_view, **shared)
        one_of(ORDERS, order=order)
        one_of(POSITIONS, position=position)
        one_of(POLICIES, policy=policy)
        one_of(("seen", "all"), replay_classes=replay_classes)
        backbone.check_first(enter)
        zero_or_more(pull=pull)
        if capacity < 0:
            raise ValueError(f"capacity = {capacity}: must be 0 (no memory) or the number of images to keep")
        self.pool_size, self.top_k, self.prompt_length = pool_size, top_k, prompt_length
        self.pull, self.start, self.start_from, self.key = pull, start, start_from, key
        self.diversify, self.vote = diversify, vote
        self.slots, self.inherit = slots, inherit
        self.order, self.position, self.enter = order, position, enter
        self.capacity, self.policy, self.replay_classes = capacity, policy, replay_classes
        self.pool = PromptPool(
            backbone.dim,
            generator=self.generator,
            pool_size=pool_size,
            top_k=top_k,
            prompt_length=prompt_length,
            start=start,
            start_from=start_from,
            key=key,
            diversify=diversify,
            vote=vote,
            slots=slots,
            inherit=inherit,
        )
        self.memory = Memory(capacity, generator=self.generator, policy=policy) if capacity else None

    def loss(self, batch: Batch) -> Tensor:
        parts: list[Batch] = []
        views: list[Tensor] = []
        for part in rehearsed(batch, self.memory):
            parts.append(part)
            if not self.keeps_tokens:
                views.append(self.inputs(part))
        features, chosen = self.prompted(reduce(join, parts), torch.cat(views) if views else None)
        entropy = joint_cross_entropy(self, self.head(features), parts, self.replay_classes)
        return entropy + self.pull * chosen.distance.mean()

    def logits(self, batch: Batch) -> Tensor:
        features, _ = self.prompted(batch, None if self.keeps_tokens else self.inputs(batch))
        return self.head(features)  # type: ignore[no-any-return]

    def prompted(self, batch: Batch, x: Tensor | None) -> tuple[Tensor, Chosen]:
        """f_r^avg(x_p), [B, D], of a batch in its view x (`read`), and the prompts that made it."""
        tokens, query = self.read(batch, x)  # [B, L, D], [B, D]
        if self.training and self.pool.waits:
            self._start(tokens, query)
        chosen = self.pool(query)
        features = encoded(
            self.backbone, tokens, chosen.prompts, order=self.order, position=self.position, enter=self.enter
        )
        return features, chosen

    def _start(self, tokens: Tensor, query: Tensor) -> None:
        """Start prompts and keys from the tokens and queries of the first batch, those of all ranks."""
        patches = tokens[:, self.backbone.patches :]
        self.pool.begin(distributed.gather(patches), distributed.gather(query), self.generator)

    @torch.no_grad()
    def _start_in_parts(self, batch: Batch, size: int) -> None:
        """The same of a batch of which at most so many images go through the model at once."""
        parts = [batch.part(slice(begin, begin + size)) for begin in range(0, len(batch.y), size)]
        read = [self.read(part, None if self.keeps_tokens else self.inputs(part)) for part in parts]
        self._start(torch.cat([tokens for tokens, _ in read]), torch.cat([query for _, query in read]))

    def step(self, batch: Batch, descend: Descent) -> Tensor | None:
        if descend.micro_batch is not None and self.pool.waits:
            self._start_in_parts(batch, descend.micro_batch)
        loss = descend.over(batch, self.loss)
        if self.memory is not None and batch.fresh:
            self.memory.add(batch)
        return loss

    def before(self, experience: Experience) -> None:
        del experience
        self.pool.begin_task()

    def after(self, experience: Experience) -> None:
        del experience
        self.pool.end_task()

    def check(self, stream: Stream) -> None:
        if self.diversify and not stream.boundaries:
            raise ValueError("diversify = True (Eq. 4) needs task boundaries, which this stream does not have")
        if self.slots and not stream.boundaries:
            raise ValueError("slots = True needs task boundaries, which this stream does not have")
        if self.memory is not None:
            check_capacity(self.capacity, stream)
        super().check(stream)

    @property
    def whole_batches(self) -> str:
        if self.vote:
            return f"chooses prompts by a vote of images (vote = {self.vote})"
        return super().whole_batches

    @property
    def sees_all(self) -> bool:
        return super().sees_all or (self.memory is not None and self.replay_classes == "all")


def encoded(
    backbone: Backbone, tokens: Tensor, prompts: Tensor, *, order: str, position: str, enter: int = 0
) -> Tensor:
    """f_r^avg of tokens [B, L, D] with prompts [B, N * L_p, D] among them, the mean of the prompts' rows: [B, D].

    Tokens are those at block `enter`, where prompts join.
    """
    if position == "class":
        prompts = prompts + backbone.class_position
    ahead = 1 if order == "class-first" else 0
    tokens = torch.cat([tokens[:, :ahead], prompts, tokens[:, ahead:]], dim=1)
    rows = backbone.encode(tokens, rows=ahead + prompts.shape[1], first=enter)
    return rows[:, ahead:].mean(dim=1)
