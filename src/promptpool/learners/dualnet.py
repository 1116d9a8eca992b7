"""DualNet: Continual Learning, Fast and Slow (Pham, Liu and Hoi, NeurIPS 2021), on a ResNet-18.

    slow:  w <- w - slow_rate * grad BT(P(f_w(x')), P(f_w(x'')))     K times, from w = phi
           phi <- phi + lookahead * (w - phi)                        Look-ahead (Zhang et al., 2019)
    fast:  h'_0 = x,   h'_l = h_l * g_l(h'_(l-1)),   l = 1..4        h_l the slow net's map after stage l
    loss = CE(g(mean h'_4), y) + CE of replayed + distil * KL(soft label, softmax(replayed / temperature))

BT is the Barlow Twins loss of two views x', x'' of stream and memory images, through a projector P. Each g_l is a 3x3
convolution, batch normalisation, relu, and pooling to the size of h_l; g is the head. One memory serves both nets. A
replayed image's soft label is the softmax(z / temperature) that the model gave it at the end of the task in which it
came into the memory. Until then, and on streams without boundaries, an image has no soft label and the last term leaves
it out. As in the released code, the supervised loss also trains the slow net. With `train_backbone=False` the slow net
is frozen.

Deviations: two views differ by crop and flip alone (the released code also changes colours and blurs). The slow net
sees the present batch and as many replayed images (there: the batch in the first task, 32 replayed ones after).
New and replayed images go through the model together, so that batch normalisation sees both, and images are replayed
from the second batch on (there: from the second task). The divergence is the sum over classes that the paper writes;
a mean over 5 classes in the code for given tasks is why its factor 10 is 2 here (that for streams without tasks would
make it 1.2, and pulls images that have no soft label yet towards equal scores). Maps are pooled to exactly the slow
map's size, whatever the stem.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from promptpool.backbones.base import FeatureExtractor
from promptpool.backbones.resnet import ResNet18
from promptpool.checks import above_zero, at_least, zero_or_more
from promptpool.data.stream import Batch, Experience
from promptpool.data.views import ImageView
from promptpool.learners.base import Learner
from promptpool.learners.keywords import Shared
from promptpool.learners.replay import plain_logits, rehearsed, replay_classes
from promptpool.losses import barlow_twins
from promptpool.memory import AT_ONCE, Memory, pick
from promptpool.optim import Descent


class DualNet(Learner):
    """A slow net that learns without labels, and a fast net that adapts its maps; needs a ResNet-18.

    Keywords, beside those of `Learner`:
        `capacity`: how many examples the memory holds.
        `policy`: which examples the memory keeps: "reservoir", "balanced" over classes, or "greedy".
        `distil`: the weight of the divergence from soft labels.
        `temperature`: what scores are divided by for soft labels.
        `fast_steps`: the supervised steps for each batch.
        `slow_steps`: K, the steps without labels before a look-ahead.
        `slow_rounds`: how many look-aheads there are for each batch.
        `slow_rate`: the learning rate of the steps without labels.
        `lookahead`: the share of the way that a look-ahead goes.
        `redundancy`: the weight of the off-diagonal terms in the Barlow Twins loss.
        `projector`: the hidden width of the projector P.
        `slow_crop`: the least and the largest share of the area that the slow net's random crops take.
        `slow_flip`: True flips the slow net's views at random.
    """

    remembers = ("memory", "soft_ids", "soft")
    memory: Memory
    backbone: ResNet18

    def __init__(
        self,
        backbone: FeatureExtractor,
        view: ImageView,
        *,
        capacity: int = 1000,
        policy: str = "reservoir",
        distil: float = 2.0,
        temperature: float = 2.0,
        fast_steps: int = 2,
        slow_steps: int = 2,
        slow_rounds: int = 1,
        slow_rate: float = 3e-4,
        lookahead: float = 0.05,
        redundancy: float = 2e-3,
        projector: int = 256,
        slow_crop: tuple[float, float] = (0.4, 1.0),
        slow_flip: bool = True,
        **shared: Unpack[Shared],
    ) -> None:
        if not isinstance(backbone, ResNet18):
            raise ValueError(f"backbone = {type(backbone).__name__}: has no maps for DualNet to adapt, use resnet18")
        super().__init__(backbone, view, **shared)
        at_least(1, fast_steps=fast_steps, slow_steps=slow_steps, projector=projector)
        zero_or_more(distil=distil, redundancy=redundancy, slow_rounds=slow_rounds)
        above_zero(temperature=temperature, slow_rate=slow_rate)
        if not 0 < lookahead <= 1:
            raise ValueError(f"lookahead = {lookahead}: must be above 0 and at most 1")
        if not 0 < slow_crop[0] <= slow_crop[1] <= 1:
            raise ValueError(f"slow_crop = {slow_crop}: must be two shares of the area with 0 < least <= most <= 1")
        self.capacity, self.policy, self.distil, self.temperature = capacity, policy, distil, temperature
        self.fast_steps, self.slow_steps, self.slow_rounds = fast_steps, slow_steps, slow_rounds
        self.slow_rate, self.lookahead, self.redundancy = slow_rate, lookahead, redundancy
        self.slow_crop, self.slow_flip = slow_crop, slow_flip
        self.projector = projector
        self.slow_view = replace(view, crop=slow_crop, flip=slow_flip)
        self.fast = Fast(backbone.width, self.generator)
        self.projection = _started(
            nn.Sequential(
                nn.Linear(backbone.dim, projector, bias=False),
                nn.BatchNorm1d(projector),
                nn.ReLU(),
                nn.Linear(projector, backbone.dim, bias=False),
            ),
            self.generator,
        ).requires_grad_(self.train_backbone)
        self.memory = Memory(capacity, generator=self.generator, policy=policy)
        self.soft_ids = torch.empty(0, dtype=torch.long)  # sorted: the rows of the memory that have a soft label
        self.soft = torch.empty(0, 0)  # one row each, one column per class

    def grow(self, class_count: int) -> None:
        super().grow(class_count)
        self.soft = F.pad(self.soft, (0, max(len(self.head.bias) - self.soft.shape[1], 0)))

    def features(self, *batches: Batch) -> Tensor:
        return self.adapted(torch.cat([self.inputs(batch) for batch in batches]))

    @property
    def answers_from_features(self) -> bool:
        return False  # the fast net reads the image too

    def adapted(self, x: Tensor) -> Tensor:
        """The mean of h'_4: [B, D]."""
        return self.fast(x, self.backbone.maps(x)).mean(dim=(2, 3))  # type: ignore[no-any-return]

    def loss(self, batch: Batch) -> Tensor:
        parts = tuple(rehearsed(batch, self.memory))
        logits, new = self.head(self.features(*parts)), len(batch.y)
        loss = F.cross_entropy(self.visible(logits[:new]), batch.y)
        for old in parts[1:]:
            again = self.visible(logits[new:], replay_classes(self.loss_classes))
            loss = loss + F.cross_entropy(again, old.y) + self.distil * self.divergence(again, old)
        return loss

    def divergence(self, logits: Tensor, old: Batch) -> Tensor:
        """KL(soft label, softmax(logits / temperature)), mean over replayed images; 0 for those without a label."""
        if not len(self.soft_ids):
            return logits.new_zeros(())
        place = torch.searchsorted(self.soft_ids, old.ids.cpu()).clamp(max=len(self.soft_ids) - 1)
        known = (self.soft_ids[place] == old.ids.cpu()).to(logits.device)
        target = self.soft[place].to(logits.device)
        log = (logits / self.temperature).log_softmax(dim=1).where(target > 0, 0.0)  # 0 log 0 = 0
        each = F.kl_div(log, target, reduction="none").sum(dim=1)
        return (each * known).mean()

    def step(self, batch: Batch, descend: Descent) -> Tensor | None:
        if self.train_backbone:
            for _ in range(self.slow_rounds):
                self.look_ahead(batch, descend.weight)
        for _ in range(self.fast_steps):
            loss = descend.over(batch, self.loss)
        if batch.fresh:
            self.memory.add(batch)
        return loss

    def look_ahead(self, batch: Batch, weight: float) -> None:
        """Take `slow_steps` steps without labels, then go back to `lookahead` of the way."""
        slow = nn.ModuleList([self.backbone, self.projection])
        state = [value for value in (*slow.parameters(), *slow.buffers()) if value.is_floating_point()]
        before = [value.detach().clone() for value in state]
        descend = Descent(slow.parameters(), optimiser="sgd", learning_rate=self.slow_rate, clip=None)
        descend.weight = weight
        for _ in range(self.slow_steps):
            descend(self.slow_loss(batch))
        with torch.no_grad():
            for value, was in zip(state, before, strict=True):
                value.copy_(torch.lerp(was, value, self.lookahead))

    def slow_loss(self, batch: Batch) -> Tensor:
        x = torch.cat([part.x for part in rehearsed(batch, self.memory)])
        first, second = (self.projection(self.backbone.features(self.slow_view(x, self.generator))) for _ in range(2))
        return barlow_twins(first, second, redundancy=self.redundancy)

    @torch.no_grad()
    def after(self, experience: Experience) -> None:
        """Give soft labels to images that came into the memory in this task; drop those of images that left it."""
        del experience
        rows = self.memory.rows
        fresh = pick(rows, ~torch.isin(rows.ids, self.soft_ids))
        logits = self.visible(plain_logits(self, fresh, AT_ONCE), replay_classes(self.loss_classes))
        labels = (logits / self.temperature).softmax(dim=1).cpu()
        stays = torch.isin(self.soft_ids, rows.ids)
        ids, soft = torch.cat([self.soft_ids[stays], fresh.ids]), torch.cat([self.soft[stays], labels])
        order = ids.argsort()
        self.soft_ids, self.soft = ids[order], soft[order]


class Fast(nn.Module):
    """g_1 to g_4, one small convolution for each stage of the slow net."""

    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        channels = (3, width, 2 * width, 4 * width, 8 * width)
        layers = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())
            for inputs, outputs in pairwise(channels)
        )
        self.layers = nn.ModuleList(_started(layer, generator) for layer in layers)

    def forward(self, x: Tensor, maps: list[Tensor]) -> Tensor:
        for layer, slow in zip(self.layers, maps, strict=True):
            x = slow * F.adaptive_max_pool2d(layer(x), slow.shape[-2:])
        return x


def _started(module: nn.Module, generator: torch.Generator) -> nn.Module:
    """The module with weights drawn from torch's default distribution, and biases at zero."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            nn.init.kaiming_uniform_(part.weight, a=5**0.5, generator=generator)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
    return module
