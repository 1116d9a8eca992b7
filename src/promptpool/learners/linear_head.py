"""A linear head on frozen features, trained by steps.

    loss = CE(g(readout(x)), y) over the classes of the loss

With every class in the loss this is FT-seq-frozen of the L2P paper, with `loss_classes="current"` the masked linear
head: L2P without prompts.
"""

from __future__ import annotations

from typing import ClassVar, Unpack

from promptpool.backbones.base import FeatureExtractor, Readout
from promptpool.data.views import ImageView
from promptpool.learners.base import Learner
from promptpool.learners.head import Head
from promptpool.learners.keywords import Shared


class LinearHead(Learner):
    """Sequential fine-tuning of a head.

    Keywords, beside those of `Learner`:
        `readout_blocks`: how many of the last blocks are read.
        `readout_rows`: what is read of each, the [class] row ("class"), the mean of the rows of "patches", or "both".
    """

    defaults: ClassVar[Shared] = {**Learner.defaults, "train_backbone": False}

    def __init__(
        self,
        backbone: FeatureExtractor,
        view: ImageView,
        *,
        readout_blocks: int = 1,
        readout_rows: str = "class",
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(backbone, view, **shared)
        self.readout = Readout(readout_blocks, readout_rows)
        self.readout_blocks, self.readout_rows = readout_blocks, readout_rows
        backbone.check_readout(self.readout)
        self.head = Head(self.readout.parts * backbone.dim, start=self.head_start, generator=self.generator)
