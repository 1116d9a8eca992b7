"""Learning to Prompt (Wang et al., CVPR 2022), and with a memory its rehearsal version L2P-R.

    x_e = f_e(x)
    q = f_r(x_e)[0]                                       the frozen model's [class] feature
    x_p = [P_s1; ...; P_sN; x_e]                          the N prompts whose keys are nearest to q, Eqs. 2 to 4
    z = mean of the first N * L_p rows of f_r(x_p)
    loss = CE(g(z), y) + pull * sum_i gamma(q, k_si)      mean over the batch, Eq. 5

Only prompts, keys and head learn; keys learn from the second term alone. With `train_backbone` f learns too, but for
the f of the query. With `capacity` > 0 the loss is taken over the new images and as many replayed ones together; a
new image competes among the classes of its task, a replayed one among all seen, as in the released code (its
`replay_no_mask`), since the paper does not say.

With `slots`, as public code has it on 5-datasets, task t = 0, 1, ... trains the prompts tN to (t + 1)N - 1, and the
second term is over their keys.

Deviations: none in the default values. The released code's differences are values (see `profiles.py`). Adam
is dense: a prompt that is not chosen in a step still moves by its momentum, as in the released code.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from promptpool import distributed
from promptpool.backbones.base import Backbone
from promptpool.backbones.features import FrozenFeatures
from promptpool.checks import one_of, zero_or_more
from promptpool.data.stream import Batch, Experience, Stream
from promptpool.data.views import View
from promptpool.learners.base import Learner
from promptpool.learners.replay import joint_cross_entropy, rehearsed, too_small
from promptpool.memory import POLICIES, Memory, join
from promptpool.optim import Descent
from promptpool.prompts import Chosen, PromptPool

ORDERS = ("prompts-first", "class-first")
POSITIONS = ("none", "class")
QUERY_VIEWS = ("same", "plain")


class L2P(Learner):
    """A pool of prompts for a frozen transformer; with a memory (`capacity` above 0) this is L2P-R.

    `slots` gives each task its own prompts to train, while the pool reaches. `inherit` starts them from those of the
    task before.
    `order` and `position` say where prompts stand among the tokens and which position embedding they get.
    `query_view` matters with a random training view only: "same" queries with what the model sees, "plain" with
    the unchanged image, whose feature is computed once. `replay_classes` are the classes that the loss sees for
    replayed images, as `loss_classes` for new ones. With `train_backbone` a copy of the transformer learns as well, as
    the released code suggests for rehearsal; queries are of the frozen one all the same.
    """

    remembers = ("memory",)
    keeps_original = True
    backbone: Backbone

    def __init__(
        self,
        backbone: Backbone,
        view: View,
        *,
        pool_size: int = 10,
        top_k: int = 5,
        prompt_length: int = 5,
        pull: float = 0.5,
        start: tuple[float, float] = (0.0, 0.01),
        key: str = "learned",
        diversify: bool = False,
        vote: int = 0,
        slots: bool = False,
        inherit: bool = False,
        order: str = "prompts-first",
        position: str = "none",
        query_view: str = "same",
        capacity: int = 0,
        policy: str = "balanced",
        replay_classes: str = "seen",
        loss_classes: str = "current",
        head_start: str = "zeros",
        train_backbone: bool = False,
        seed: int = 0,
        frozen: FrozenFeatures | None = None,
    ) -> None:
        super().__init__(
            backbone,
            view,
            loss_classes=loss_classes,
            head_start=head_start,
            train_backbone=train_backbone,
            seed=seed,
            frozen=frozen,
        )
        if not isinstance(backbone, Backbone):
            raise ValueError(f"backbone = {type(backbone).__name__}: has no tokens for prompts, use a transformer")
        one_of(ORDERS, order=order)
        one_of(POSITIONS, position=position)
        one_of(QUERY_VIEWS, query_view=query_view)
        one_of(POLICIES, policy=policy)
        one_of(("seen", "all"), replay_classes=replay_classes)
        zero_or_more(pull=pull)
        if capacity < 0:
            raise ValueError(f"capacity = {capacity}: must be 0 (no memory) or the number of images to keep")
        self.pool_size, self.top_k, self.prompt_length = pool_size, top_k, prompt_length
        self.pull, self.start, self.key = pull, start, key
        self.diversify, self.vote = diversify, vote
        self.slots, self.inherit = slots, inherit
        self.order, self.position, self.query_view = order, position, query_view
        self.capacity, self.policy, self.replay_classes = capacity, policy, replay_classes
        self.pool = PromptPool(
            backbone.dim,
            generator=self.generator,
            pool_size=pool_size,
            top_k=top_k,
            prompt_length=prompt_length,
            start=start,
            key=key,
            diversify=diversify,
            vote=vote,
            slots=slots,
            inherit=inherit,
        )
        self.memory = Memory(capacity, generator=self.generator, policy=policy) if capacity else None
        self.chosen_at_test = torch.zeros(pool_size, dtype=torch.long)

    def loss(self, batch: Batch) -> Tensor:
        parts, views = zip(*((part, self.inputs(part)) for part in rehearsed(batch, self.memory)), strict=True)
        features, chosen = self.prompted(reduce(join, parts), torch.cat(views))
        entropy = joint_cross_entropy(self, self.head(features), parts, self.replay_classes)
        return entropy + self.pull * chosen.distance.mean()

    def logits(self, batch: Batch) -> Tensor:
        features, chosen = self.prompted(batch, self.inputs(batch))
        self.chosen_at_test += torch.bincount(chosen.indices.flatten().cpu(), minlength=self.pool_size)
        return self.head(features)  # type: ignore[no-any-return]

    def prompted(self, batch: Batch, x: Tensor) -> tuple[Tensor, Chosen]:
        """f_r^avg(x_p), [B, D], of a batch in its view x, and the prompts that made it."""
        chosen = self.pool(self.query(batch, x))
        tokens, prompts = self.backbone.embed(x), chosen.prompts  # [B, L, D], [B, N * L_p, D]
        if self.position == "class":
            prompts = prompts + self.backbone.class_position
        ahead = 1 if self.order == "class-first" else 0
        tokens = torch.cat([tokens[:, :ahead], prompts, tokens[:, ahead:]], dim=1)
        rows = self.backbone.encode(tokens, rows=ahead + prompts.shape[1])
        return rows[:, ahead:].mean(dim=1), chosen

    def query(self, batch: Batch, x: Tensor) -> Tensor:
        """q(x): [B, D]."""
        if self.training and not self.view.fixed and self.query_view == "same":
            with torch.no_grad():
                return self.frozen.backbone.features(x)
        return self.frozen(batch)

    def step(self, batch: Batch, descend: Descent) -> Tensor | None:
        loss = descend(self.loss(batch))
        if self.memory is not None and batch.fresh:
            self.memory.add(batch)
        return loss

    def before(self, experience: Experience) -> None:
        del experience
        self.pool.begin_task()

    def after(self, experience: Experience) -> None:
        del experience
        self.pool.end_task()

    def objection(self, stream: Stream) -> str | None:
        if self.diversify and not stream.boundaries:
            return "diversify = True (Eq. 4) needs task boundaries, which this stream does not have"
        if self.slots and not stream.boundaries:
            return "slots = True needs task boundaries, which this stream does not have"
        return (too_small(self.capacity, stream) if self.capacity else None) or super().objection(stream)

    @property
    def sees_all(self) -> bool:
        return super().sees_all or (self.replays and self.replay_classes == "all")

    def after_test_set(self) -> Tensor:
        """How often each prompt was chosen for the test set: [M]."""
        chosen, self.chosen_at_test = self.chosen_at_test, torch.zeros(self.pool_size, dtype=torch.long)
        return chosen

    @torch.no_grad()
    def diagnostics(self, tested: Sequence[Any]) -> dict[str, Any]:
        """How often each prompt was chosen, in training so far and on each test set; how alike keys are."""
        keys = F.normalize(self.pool.keys, dim=-1)
        chosen = distributed.total(torch.stack([torch.zeros_like(self.chosen_at_test), *tested])[1:])
        return {
            "chosen_in_training": self.pool.counts.tolist(),
            "chosen_in_tests": chosen.tolist(),
            "key_similarity": [[round(cosine, 3) for cosine in row] for row in (keys @ keys.T).tolist()],
            "prompts_in_use": int((chosen.sum(dim=0) > 0).sum()),
            "vote": self.vote,
        }
