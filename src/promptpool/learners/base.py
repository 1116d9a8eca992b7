"""What a learner is, and the simplest of them: sequential fine-tuning.

    loss = CE(g(f(x)[0]), y) over the classes of the loss

With every class in the loss this is FT-seq of the L2P paper. The upper bound is FT-seq on `joint(stream)`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from promptpool.backbones.base import FeatureExtractor, Readout
from promptpool.backbones.features import FrozenFeatures
from promptpool.checks import one_of
from promptpool.data.stream import Batch, Examples, Experience, Stream
from promptpool.data.views import ImageView
from promptpool.learners.head import Head
from promptpool.learners.keywords import FullSignature, Shared
from promptpool.losses import columns, only
from promptpool.memory import Memory
from promptpool.optim import Descent

LOSS_CLASSES = ("current", "seen", "all")
LARGE_HEAD = 1024  # rows from which on a loss takes those of its classes out


class Learner(nn.Module):
    """Sequential fine-tuning, and the base of every method.

    A method overrides `loss`, and the empty hooks `before` and `after` (no super() needed); seldom `step` and `logits`.
    Few need the hooks from `check` to `sees_all`. Then comes what methods call, from `visible` to `frozen`, and last
    what the training loop calls. Every keyword of the constructor is an attribute of the same name. Random numbers come
    from `self.generator`.

    Keywords:
        `loss_classes`: the classes that the loss compares: "current" (of the present task), "seen" so far, or "all".
        `head_start`: the values that new rows of the head start from, "zeros" or "truncated-normal".
        `train_backbone`: True trains a copy of the backbone; False shares the given one, frozen and in evaluation mode.
        `train_embedding`: False keeps f_e of a trained transformer (patch projection, [class] token, positions) as it
            was given, which steadies training (Chen, Xie and He, 2021) where tokens are small.
        `seed`: the seed of all random numbers that the learner draws.
    """

    __signature__ = FullSignature()
    defaults: ClassVar[Shared] = {
        "loss_classes": "all",
        "head_start": "zeros",
        "train_backbone": True,
        "train_embedding": True,
        "seed": 0,
    }

    remembers: ClassVar[tuple[str, ...]] = ()  # the attributes that a checkpoint holds, beside parameters and buffers
    keeps_original: ClassVar[bool] = False  # True if the given backbone is kept, frozen, beside a copy that is trained
    single_pass: ClassVar[bool] = False  # True if a second epoch would change nothing
    forgets: ClassVar[bool] = True  # False if a fresh model is fitted for each evaluation: it has nothing to forget
    at_the_end: ClassVar[str] = ""  # what takes time after the last step of an experience, in words for the user

    readout = Readout()  # what is read of the frozen backbone; a method that lets users choose sets it on the instance
    original: FeatureExtractor  # the given backbone, where `keeps_original` and a copy is trained
    memory: Memory | None = None  # the examples that are replayed

    def __init__(self, backbone: FeatureExtractor, view: ImageView, **shared: Unpack[Shared]) -> None:
        super().__init__()
        values: Shared = {**self.defaults, **shared}
        if unknown := values.keys() - self.defaults.keys():
            raise TypeError(f"{type(self).__name__} got an unexpected keyword argument {min(unknown)!r}")
        one_of(LOSS_CLASSES, loss_classes=values["loss_classes"])
        image_size = getattr(backbone, "image_size", view.size)
        if view.size != image_size:
            raise ValueError(f"view.size = {view.size}: this backbone reads image_size = {image_size}")
        self.loss_classes, self.head_start = values["loss_classes"], values["head_start"]
        self.train_backbone, self.seed = values["train_backbone"], values["seed"]
        self.backbone = copy.deepcopy(backbone) if self.train_backbone else backbone
        self.backbone.requires_grad_(self.train_backbone)
        self.train_embedding = values["train_embedding"]
        if not self.train_embedding:
            self._freeze_embedding()
        self.view = view
        self._frozen: FrozenFeatures | None = None
        if self.reads_frozen:
            backbone.requires_grad_(False).eval()
            if self.train_backbone:
                self.original = backbone
        self.generator = torch.Generator().manual_seed(self.seed)
        self.head = Head(backbone.dim, start=self.head_start, generator=self.generator)
        self.current: tuple[int, ...] = ()  # the classes of the present task
        self.seen: tuple[int, ...] = ()  # the classes of all tasks so far
        self.class_names: tuple[str, ...] = ()  # of the stream that was learned last

    def _freeze_embedding(self) -> None:
        if not self.train_backbone:
            raise ValueError("train_embedding = False: must be True for a backbone that is frozen as a whole")
        for parameter in self.backbone.embedding():
            parameter.requires_grad_(False)

    def loss(self, batch: Batch) -> Tensor:
        """The method's equation, as a mean over the batch."""
        return self.cross_entropy(self.logits(batch), batch.y)

    def logits(self, batch: Batch) -> Tensor:
        """A score for each class of the head: [B, C]."""
        return self.head(self.features(batch))  # type: ignore[no-any-return]

    def step(self, batch: Batch, descend: Descent) -> Tensor | None:
        """Learn from one batch; returns the loss, or None where the method has none."""
        return descend.over(batch, self.loss)

    def before(self, experience: Experience) -> None:
        """Called when an experience begins, if the stream has boundaries."""

    def after(self, experience: Experience) -> None:
        """Called when an experience ends, if the stream has boundaries."""

    def check(self, stream: Stream) -> None:
        """Raise a ValueError of one line if the method is not defined on this stream."""
        if self.loss_classes != "current":
            return
        if not stream.boundaries:
            raise ValueError(
                "loss_classes = 'current' needs task boundaries, which this stream does not have: use 'seen' or 'all'"
            )
        single = [experience.index for experience in stream.experiences if len(experience.classes) == 1]
        if single and self.memory is None and len(stream.class_names) > 1:
            raise ValueError(
                f"loss_classes = 'current' learns nothing from task {single[0] + 1}, which has a single class: "
                "use 'seen', or more classes per task"
            )

    def training_examples(self, experience: Experience) -> Examples:
        """The examples of an experience that are trained on; the same ones at every call."""
        return experience.train

    def before_evaluation(self) -> None:
        """Called before every evaluation, with or without boundaries; must not change how the learner learns on."""

    def task_logits(self, batch: Batch, classes: Sequence[int]) -> Tensor | None:
        """Scores for a test where the task is given by its classes: [B, C]; None if they are those of `logits`."""
        del batch, classes
        return None

    def after_test_set(self) -> Any:
        """Called after each test set; returns this rank's notes on it, which `diagnostics` gets."""
        return None

    def diagnostics(self, notes: Sequence[Any]) -> dict[str, Any]:
        """What a record says beside accuracies, as JSON values; `notes` are those of `after_test_set`, in order."""
        del notes
        return {}

    def check_state(self) -> None:
        """Raise a ValueError if what was just restored from a checkpoint does not fit this learner."""

    @property
    def whole_batches(self) -> str:
        """Why a batch cannot be learned in parts (`micro_batch` of the plan), in words; empty if it can."""
        if self.single_pass:
            return "takes no steps on batches"
        frozen = set() if self.train_backbone else set(self.backbone.modules())
        if any(isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d) for part in set(self.modules()) - frozen):
            return "normalises an image by the others of its batch"
        return ""

    @property
    def sees_all(self) -> bool:
        """True if a loss compares classes that are still to come: the head then has all rows from the start."""
        return self.loss_classes == "all"

    def visible(self, logits: Tensor, loss_classes: str | None = None) -> Tensor:
        """Logits with all classes at minus infinity but those of `loss_classes`, by default the learner's own."""
        loss_classes = self.loss_classes if loss_classes is None else loss_classes
        if loss_classes == "all":
            return logits
        classes = self.current if loss_classes == "current" else self.seen
        return logits if len(classes) == logits.shape[-1] else only(logits, torch.tensor(classes))

    def cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        """The mean over rows of -log softmax(logits)[y], the softmax over the loss classes alone.

        Of a large head the columns of few classes are taken out first, so that a step goes through the scores of other
        classes in matrix products only. A small one is masked, which rounds as it always did.
        """
        if self.loss_classes != "current" or logits.shape[-1] < max(LARGE_HEAD, 2 * len(self.current)):
            return F.cross_entropy(self.visible(logits), y)
        classes = torch.tensor(self.current, device=y.device)
        return F.cross_entropy(columns(logits, self.current), torch.searchsorted(classes, y))

    def inputs(self, batch: Batch) -> Tensor:
        """What the backbone reads: the training view in training, the plain view otherwise."""
        return self.view(batch.x, self.generator) if self.training else self.view.plain(batch.x)

    def features(self, *batches: Batch) -> Tensor:
        """The readout, f(x)[0], of one batch or of several as one; from the store if the backbone is frozen: [B, D]."""
        if not self.train_backbone and (self.view.fixed or not self.training):
            return torch.cat([self.frozen(batch) for batch in batches])
        with torch.set_grad_enabled(self.train_backbone and torch.is_grad_enabled()):
            return self.backbone.read(torch.cat([self.inputs(batch) for batch in batches]), self.readout)

    @property
    def reads_frozen(self) -> bool:
        """True if the given backbone stays frozen, so that its features can be kept."""
        return self.keeps_original or not self.train_backbone

    @property
    def trains_on_features(self) -> bool:
        """True if a step of training reads the frozen features of its examples."""
        return not self.train_backbone and self.view.fixed

    @property
    def answers_from_features(self) -> bool:
        """True if scores are a function of what is read of the frozen backbone, and the image itself is not needed."""
        return not self.train_backbone

    def looks_at(self, batch: Batch) -> bool:
        """True if a batch's raw inputs will be asked for now, so that reading them ahead pays.

        Nothing but time depends on the answer: inputs that were not read ahead are read when they are asked for.
        """
        if self.training and self.memory is not None:
            return True
        from_features = self.trains_on_features if self.training else self.answers_from_features
        return not (from_features and self.frozen.knows(batch))

    @property
    def frozen(self) -> FrozenFeatures:
        """The features of the given backbone, each computed once; assign a store to share it with other learners."""
        if self._frozen is None:
            if not self.reads_frozen:
                raise AttributeError("a learner that trains its backbone has no frozen features")
            given = self.original if self.train_backbone else self.backbone
            self._frozen = FrozenFeatures(given, self.view, self.readout)
        return self._frozen

    @frozen.setter
    def frozen(self, store: FrozenFeatures) -> None:
        if not self.reads_frozen:
            raise ValueError("a learner that trains its backbone has no frozen features")
        given = self.original if self.train_backbone else self.backbone
        if store.view != self.view or store.backbone is not given or store.readout != self.readout:
            raise ValueError("frozen features must be those of the learner's own backbone, view and readout")
        self._frozen = store

    def add_classes(self, classes: Iterable[int]) -> None:
        """Make these the current classes, and give the head rows for them."""
        self.current = tuple(sorted(set(classes)))
        self.seen = tuple(sorted({*self.seen, *self.current}))
        self.grow(max(self.seen) + 1)

    def grow(self, class_count: int) -> None:
        """Give the head at least `class_count` rows; rows that it has stay as they are."""
        self.head.grow(class_count, self.generator)

    def expect(self, *examples: Examples) -> None:
        """Announce the examples that come next, before an experience or an evaluation with all its test sets."""
        if self.reads_frozen:
            self.frozen.expect(*examples)

    def keep_features(self) -> None:
        """Write the frozen features that were computed where other runs find them, if they are shared."""
        if self.reads_frozen:
            self.frozen.keep()

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.backbone.train(mode and self.train_backbone)
        if hasattr(self, "original"):
            self.original.eval()
        return self

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    def settings(self) -> dict[str, Any]:
        """The keywords that would build this learner again."""
        parameters = inspect.signature(type(self)).parameters.values()
        return {p.name: getattr(self, p.name) for p in parameters if p.kind is p.KEYWORD_ONLY}

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.settings().items())


def check_boundaries(learner: Learner, stream: Stream, reason: str) -> None:
    """Raise a ValueError if a stream does not say where tasks begin and end."""
    if not stream.boundaries:
        name = type(learner).__name__
        raise ValueError(f"{name} needs task boundaries, which this stream does not have: {reason}")


def trained_parameter_count(learner: Learner, class_count: int) -> int:
    """How many numbers are learned once the head has `class_count` rows."""
    head = learner.head
    missing = max(class_count - len(head.bias), 0) * (head.dim + 1) * head.weight.requires_grad
    return missing + sum(parameter.numel() for parameter in learner.parameters() if parameter.requires_grad)
