"""What methods share that choose prompts for a transformer: tokens and query, and what a record says of the prompts.

    x_e = f_e(x)
    q(x) = f_r(x_e)[0] of the frozen model

A method makes its `pool` in the constructor and asks it for prompts with the query that `read` gives it beside the
tokens. How the prompts go into the backbone and what the loss is, the method says.

A frozen model that looks at an image in the same way every time makes the same tokens of it. They are computed once, as
far as memory goes (`backbones/token_store.py`), and then neither view nor embedding is computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from promptpool import distributed
from promptpool.backbones.base import Backbone
from promptpool.checks import one_of
from promptpool.data.stream import Batch
from promptpool.data.views import ImageView
from promptpool.learners.base import Learner
from promptpool.learners.keywords import Shared
from promptpool.prompts import PromptPool

QUERY_VIEWS = ("same", "plain")
LISTED = 100  # the most prompts, and the most test sets, that a record lists one by one


class PromptedLearner(Learner):
    """A learner with a pool of prompts; queries are features of the frozen model, also where a copy of it is trained.

    Keywords, beside those of `Learner`:
        `query_view`: with a random training view, "same" queries with the view that the model sees, and "plain" with
            the unchanged image, whose feature is computed once.
    """

    keeps_original = True
    backbone: Backbone
    pool: PromptPool
    enter = 0  # the block at which prompts join the tokens

    def __init__(
        self, backbone: Backbone, view: ImageView, *, query_view: str = "same", **shared: Unpack[Shared]
    ) -> None:
        super().__init__(backbone, view, **shared)
        if not isinstance(backbone, Backbone):
            raise ValueError(f"backbone = {type(backbone).__name__}: has no tokens for prompts, use a transformer")
        one_of(QUERY_VIEWS, query_view=query_view)
        self.query_view = query_view

    @property
    def trains_on_features(self) -> bool:
        return self.view.fixed or self.query_view == "plain"

    @property
    def answers_from_features(self) -> bool:
        return False

    @property
    def keeps_tokens(self) -> bool:
        """True if images have the same tokens at every look, and no gradient is wanted of what makes them."""
        if self.train_backbone or (self.training and not self.view.fixed):
            return False
        return not next(self.backbone.parameters()).requires_grad  # it is where a plan has clip_frozen

    def looks_at(self, batch: Batch) -> bool:
        if self.training and self.memory is not None:
            return True
        return not (self.keeps_tokens and self.frozen.knows_tokens(batch, self.enter))

    def read(self, batch: Batch, x: Tensor | None) -> tuple[Tensor, Tensor]:
        """The tokens that prompts join, [B, L, D], and q(x), [B, D].

        x is the batch in its view, or None if tokens are kept: then both are those of the plain view.
        """
        if x is None:
            query, tokens = self.frozen.with_tokens(batch, self.enter)
            return tokens, query
        tokens = self.backbone.begin(self.backbone.embed(x), self.enter)
        return tokens, self._query(batch, x, tokens)

    def _query(self, batch: Batch, x: Tensor, tokens: Tensor) -> Tensor:
        if not self.training or self.view.fixed or self.query_view == "plain":
            return self.frozen(batch)
        with torch.no_grad():
            if self.train_backbone:
                return self.frozen.backbone.features(x)
            return self.backbone.encode(tokens, rows=1, first=self.enter)[:, 0]

    def after_test_set(self) -> Tensor:
        """How often each prompt was chosen since the last call: [M], sparse if the pool is too large to be listed."""
        chosen = self.pool.chosen_at_test.cpu().clone()
        self.pool.chosen_at_test.zero_()
        return chosen.to_sparse() if len(chosen) > LISTED else chosen

    @torch.no_grad()
    def diagnostics(self, notes: Sequence[Any]) -> dict[str, Any]:
        """How often each prompt was chosen, in training so far and on each test set; how similar the keys are.

        Above `LISTED` prompts or test sets only how many prompts there are and how many are in use: similarities of ten
        thousand prompts would be a hundred million numbers in every record.
        """
        keys = F.normalize(self.pool.keys, dim=-1)
        nothing = torch.zeros(len(keys), dtype=torch.long)  # there may be no test set yet
        if max(len(keys), len(notes)) > LISTED:
            used = int((distributed.total(sum(notes, start=nothing)) > 0).sum())
            return {"pool_size": len(keys), "prompts_in_use": used, "vote": self.pool.vote}
        chosen = distributed.total(torch.stack([nothing, *notes])[1:])
        return {
            "chosen_in_training": self.pool.counts.tolist(),
            "chosen_in_tests": chosen.tolist(),
            "key_similarity": [[round(cosine, 3) for cosine in row] for row in (keys @ keys.T).tolist()],
            "prompts_in_use": int((chosen.sum(dim=0) > 0).sum()),
            "vote": self.pool.vote,
        }
