"""Supermasks in Superposition (Wortsman et al., NeurIPS 2020).

    p = f(x, W * M_t)                                     W fixed and random, M_t the mask of task t
    M_t = 1 where |s_t| is among the top k % of its layer     edge-popup (Ramanujan et al., 2020), straight-through
    loss = CE(p, y)                                       over the output neurons, y counted within the task
    t = argmin_i H(f(x, W * M_i))                         at test: the surest subnetwork, H the entropy; each
    p(a) = f(x, W * sum_i a_i M_i),   a_i = 1 / T         or all masks in superposition:
    t = argmin_i dH(p(a)) / da_i                          the One-Shot algorithm
    a_i = 0 where dH/da_i is at or above the median, the others equal; again until one is left: the Binary algorithm

Only the scores are learned, and nothing is forgotten once the task is known. The output layer is the paper's for tasks
with labels of their own (GNu): `outputs` fixed random neurons, masked like every layer. Neuron j is the j-th class of
the task at hand, and neurons beyond a task's classes learn to stay low. Classes of tasks that were not inferred get the
lowest possible score.

Deviations: the task is inferred for each image by itself, so that predictions do not depend on batches; the released
code infers one task per batch. By default every mask is tried. The paper's algorithms estimate the same minimum of H by
a slope, which in a ResNet-18 is blind to the task (docs/methods.md).
Batch normalisation has no learned scale, as in the paper, but each task has its own means and deviations (over its
training images, once its mask is final), mixed like the weights; the released code takes those of the test batch.
On a transformer, biases are zero, and tokens and positions are fixed and random; `weights="pretrained"` takes all of
them, and W, from the backbone. Every layer keeps the same share of its weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from promptpool.backbones.base import FeatureExtractor
from promptpool.checks import at_least, inside_zero_one, one_of
from promptpool.data.stream import Batch, Examples, Experience, Stream
from promptpool.data.views import ImageView
from promptpool.learners.base import Learner, check_boundaries
from promptpool.learners.masks import Fixed, best, fixed_values, pack, signed_constant, straight_through, unpack
from promptpool.losses import entropy

WEIGHTS = ("random", "pretrained")
INFERENCES = ("each", "one-shot", "binary")
STATISTICS_BATCH = 128  # images in a batch whose statistics are taken
Network = dict[str, Tensor]  # what one subnetwork computes with, by name; "output" is its last layer


class SupSup(Learner):
    """A mask per task over weights that are never trained; the task is inferred from the entropy.

    Keywords; `seed` is that of `Learner`:
        `density`: the share of a layer's weights that a mask keeps.
        `outputs`: how many output neurons there are; a task has at most as many classes.
        `weights`: where W comes from, "random" or "pretrained".
        `inference`: how the task of a test image is inferred: "each", "one-shot" or "binary".
    """

    remembers = ("tasks", "masks", "moments")
    at_the_end = "statistics are taken"

    def __init__(
        self,
        backbone: FeatureExtractor,
        view: ImageView,
        *,
        density: float = 0.5,
        outputs: int = 10,
        weights: str = "random",
        inference: str = "each",
        seed: int = 0,
    ) -> None:
        super().__init__(backbone, view, loss_classes="current", train_backbone=False, seed=seed)
        inside_zero_one(density=density)
        at_least(2, outputs=outputs)
        one_of(WEIGHTS, weights=weights)
        one_of(INFERENCES, inference=inference)
        for name, on in (("compile", backbone.compiled), ("checkpointing", backbone.checkpointing)):
            if on:
                raise ValueError(f"backbone.{name} = True: must be False for SupSup, whose masks replace the weights")
        self.density, self.outputs, self.weights, self.inference = density, outputs, weights, inference
        self.head.requires_grad_(False)  # here it only says how many classes there are
        modules = dict(backbone.named_modules())
        self.layers = [f"{name}.weight" for name, m in modules.items() if isinstance(m, nn.Linear | nn.Conv2d)]
        self.normed = [name for name, module in modules.items() if isinstance(module, nn.BatchNorm2d)]
        draws = torch.Generator().manual_seed(seed)
        fixed = fixed_values(backbone, self.layers, draws) if weights == "random" else {}
        self.fixed = Fixed(fixed | {"output": signed_constant((outputs, backbone.dim), draws)})
        self.scores = nn.ParameterList(torch.zeros_like(self.base[name]) for name in (*self.layers, "output"))
        norms = [module for module in modules.values() if isinstance(module, nn.BatchNorm2d)]
        self.norms = nn.ModuleList(nn.BatchNorm2d(n.num_features, n.eps, n.momentum, affine=False) for n in norms)
        self.tasks: list[tuple[int, ...]] = []  # the classes of each task, the present one too
        self.masks: list[Tensor] = []  # of the tasks that are over: uint8, a bit per weight
        self.moments: list[Tensor] = []  # their means and deviations in every normalisation, one after the other

    @property
    def base(self) -> Network:
        """W, and everything else that tasks share."""
        return dict(self.backbone.named_parameters()) | self.fixed.tensors()

    def before(self, experience: Experience) -> None:
        """Initialise the scores and the statistics of a new task."""
        self.tasks = [*self.tasks, tuple(sorted(experience.classes))]
        for scores in self.scores:
            nn.init.kaiming_uniform_(scores, a=5**0.5, generator=self.generator)
        for name, norm in self._norms():
            norm.reset_running_stats()
            if self.weights == "pretrained":
                norm.load_state_dict(self.backbone.get_submodule(name).state_dict(), strict=False)

    def after(self, experience: Experience) -> None:
        """Store the task's mask, and the statistics of its images under that mask."""
        self._settle(self.training_examples(experience))
        masks, moments = self._own()
        self.masks, self.moments = [*self.masks, pack(masks)], [*self.moments, moments.cpu()]

    def loss(self, batch: Batch) -> Tensor:
        y = torch.searchsorted(torch.tensor(self.tasks[-1], device=batch.y.device), batch.y)
        return F.cross_entropy(self._noted(self.inputs(batch)), y)

    def _noted(self, x: Tensor) -> Tensor:
        """The present task's outputs, normalised by this batch's statistics, which are recorded: [B, outputs]."""
        network = self._masked(straight_through(scores, self.density) for scores in self.scores)
        for name, norm in self._norms():
            network |= {f"{name}.{buffer}": value for buffer, value in norm.named_buffers()}
        self.backbone.train()
        outputs = self.run(x, network)
        self.backbone.eval()
        return outputs

    @torch.no_grad()
    def _settle(self, train: Examples) -> None:
        """Take the statistics of the task's images anew: those recorded in training belong to earlier masks.

        They are means over batches of nearly equal size with mixed classes.
        """
        norms = [norm for norm in self.backbone.modules() if isinstance(norm, nn.BatchNorm2d)]
        if not norms or len(train) == 1:
            return
        momenta, mode = [norm.momentum for norm in norms], self.training
        self.eval()
        for norm, (_, own) in zip(norms, self._norms(), strict=True):
            norm.momentum = None  # a plain mean over batches
            own.reset_running_stats()
        order = torch.randperm(len(train), generator=self.generator)
        for index in order.tensor_split(-(-len(order) // STATISTICS_BATCH)):
            self._noted(self.inputs(train.batch(index).to(self.device)))
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        self.train(mode)

    def run(self, x: Tensor, network: Network) -> Tensor:
        """The output neurons of one subnetwork: [B, outputs]."""
        network = self.base | network
        output = network.pop("output")
        features = functional_call(self, {f"backbone.{name}": value for name, value in network.items()}, (x,))
        return F.linear(features, output)

    def forward(self, x: Tensor) -> Tensor:
        return self.backbone.features(x)

    @property
    def answers_from_features(self) -> bool:
        return False  # masks change what the backbone says

    @torch.no_grad()
    def logits(self, batch: Batch) -> Tensor:
        x = self.inputs(batch)
        return self._scores(x, self.infer(x))

    @torch.no_grad()
    def task_logits(self, batch: Batch, classes: Sequence[int]) -> Tensor | None:
        meant = [task for task, own in enumerate(self.tasks) if set(classes) <= set(own)]
        if len(meant) != 1:
            return None  # these classes do not identify a task
        return self._scores(self.inputs(batch), torch.full_like(batch.y, meant[0]))

    def infer(self, x: Tensor) -> Tensor:
        """The task of each image: [B]."""
        if self.inference == "each":
            return self.entropies(x).argmin(dim=1)
        left = torch.ones(len(x), len(self.tasks), dtype=torch.bool, device=x.device)
        while (remaining := int(left[0].sum())) > 1:
            count = 1 if self.inference == "one-shot" else remaining // 2
            lowest = self.slopes(x, left).argsort(dim=1, stable=True)[:, :count]
            left = torch.zeros_like(left).scatter(1, lowest, True)
        return left.int().argmax(dim=1)

    def entropies(self, x: Tensor) -> Tensor:
        """H of each image under each task's own subnetwork: [B, T]."""
        tasks = range(len(self.tasks))
        return torch.stack([entropy(self.run(x, self._ready(self.subnetwork(task)))) for task in tasks], dim=1)

    def slopes(self, x: Tensor, left: Tensor) -> Tensor:
        """dH/da_i of each image with its remaining tasks mixed in equal parts; infinite for the others: [B, T]."""
        found = x.new_full(left.shape, torch.inf)
        for mixture in left.unique(dim=0):
            rows, tasks = (left == mixture).all(dim=1), mixture.nonzero().flatten().tolist()
            own = {task: self.subnetwork(task) for task in tasks}
            mixed = {name: torch.stack([part[name] for part in own.values()]).mean(dim=0) for name in own[tasks[0]]}
            for task in tasks:
                found[rows, task] = self._slope(x[rows], mixed, own[task])
        return found

    def _slope(self, x: Tensor, mixed: Network, own: Network) -> Tensor:
        """The derivative of the entropy as more of one task is added to the mixture: [B]."""

        def along(part: Tensor) -> Tensor:
            return entropy(self.run(x, self._ready({name: mixed[name] + part * own[name] for name in mixed})))

        with sdpa_kernel(SDPBackend.MATH):  # the others do not support forward-mode derivatives
            return jvp(along, (x.new_zeros(()),), (x.new_ones(()),))[1]  # type: ignore[no-any-return]

    def subnetwork(self, task: int) -> Network:
        """A task's own masked weights, means and deviations, in the form in which tasks are mixed."""
        over = task < len(self.masks)
        masks, moments = (unpack(self.masks[task], [*self.scores]), self.moments[task]) if over else self._own()
        parts = moments.to(self.device).split([norm.num_features for _, norm in self._norms() for _ in range(2)])
        names = [f"{name}.{moment}" for name in self.normed for moment in ("mean", "deviation")]
        return self._masked(masks) | dict(zip(names, parts, strict=True))

    def _masked(self, masks: Iterable[Tensor]) -> Network:
        base = self.base
        return {name: base[name] * mask for name, mask in zip((*self.layers, "output"), masks, strict=True)}

    def _own(self) -> tuple[list[Tensor], Tensor]:
        """The mask and the moments of the present task."""
        moments = [self.head.bias.new_empty(0)]
        for _, norm in self._norms():
            buffers = dict(norm.named_buffers())
            moments += [buffers["running_mean"], (buffers["running_var"] + norm.eps).sqrt()]
        return [best(scores, self.density) for scores in self.scores], torch.cat(moments)

    def _norms(self) -> list[tuple[str, nn.BatchNorm2d]]:
        """Each batch normalisation by its name in the backbone, with the statistics of the present task."""
        pairs = zip(self.normed, self.norms, strict=True)
        return [(name, norm) for name, norm in pairs if isinstance(norm, nn.BatchNorm2d)]

    def _ready(self, network: Network) -> Network:
        """The network with means and deviations turned into scale and shift, so that derivatives pass through them."""
        ready, base = dict(network), self.base
        for name, norm in self._norms():
            mean, scale = ready.pop(f"{name}.mean"), base[f"{name}.weight"] / ready.pop(f"{name}.deviation")
            ready |= {f"{name}.weight": scale, f"{name}.bias": base[f"{name}.bias"] - mean * scale}
            unit = torch.ones_like(mean.detach())
            ready |= {f"{name}.running_mean": 0 * unit, f"{name}.running_var": (1 - norm.eps) * unit}
        return ready

    def _scores(self, x: Tensor, tasks: Tensor) -> Tensor:
        """The outputs of each image's task at the columns of its classes: [B, C]."""
        scores = x.new_full((len(x), len(self.head.bias)), torch.finfo(x.dtype).min)
        for task in tasks.unique().tolist():
            rows, classes = tasks == task, list(self.tasks[task])
            outputs = self.run(x[rows], self._ready(self.subnetwork(task)))
            scores[rows.nonzero(), classes] = outputs[:, : len(classes)]
        return scores

    def check(self, stream: Stream) -> None:
        """A task of a single class is fine: output neurons beyond a task's classes learn to stay low."""
        check_boundaries(self, stream, "it finds a mask for each task")
        most = max(len(experience.classes) for experience in stream.experiences)
        if most > self.outputs:
            raise ValueError(f"outputs = {self.outputs}: must be at least the classes of a task, {most}")
