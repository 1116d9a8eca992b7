"""What a learner is, and the simplest of them: sequential fine-tuning.

    loss = CE(g(f(x)[0]), y) over the classes the loss may see

With every class in the loss this is FT-seq of the L2P paper; with `train_backbone=False` FT-seq-frozen; and with
`loss_classes="current"` as well the masked linear head. The upper bound is FT-seq on `joint(stream)`.

Every keyword of a constructor is an attribute of the same name: `settings()` reads them back.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from promptpool.backbones.base import FeatureExtractor
from promptpool.backbones.features import FrozenFeatures
from promptpool.checks import one_of
from promptpool.data.stream import Batch, Examples, Experience, Stream
from promptpool.data.views import View
from promptpool.learners.head import Head
from promptpool.losses import only
from promptpool.memory import pick
from promptpool.optim import Descent, copied

LOSS_CLASSES = ("current", "seen", "all")


class Learner(nn.Module):
    """Sequential fine-tuning, of the head and of the backbone unless that is frozen.

    The base of every method. A method overrides `loss`, and the two empty hooks `before` and `after` (no super()
    needed); seldom `step` and `logits`. `remembers` names plain attributes that belong in a checkpoint: tensors,
    numbers, strings, containers of them, memories. A learner that trains its backbone works on a copy of its own; one
    that does not shares the one it is given and freezes it: its parameters no longer ask for gradients, and it is in
    evaluation mode. One that reads frozen features even so (`keeps_original`) shares and freezes the given one too.
    """

    frozen: FrozenFeatures  # of the backbone as it was given; not of learners that train it and do without
    original: FeatureExtractor  # the backbone as it was given, where a copy is trained beside it
    keeps_original: ClassVar[bool] = False
    remembers: ClassVar[tuple[str, ...]] = ()
    single_pass: ClassVar[bool] = False  # a second epoch would change nothing
    forgets: ClassVar[bool] = True  # a learner that starts afresh each time has no forgetting to report
    at_the_end: ClassVar[str] = ""  # what takes time once an experience is over
    needs_boundaries: ClassVar[str] = ""  # why a stream must tell where tasks begin and end, where it must

    def __init__(
        self,
        backbone: FeatureExtractor,
        view: View,
        *,
        loss_classes: str = "all",
        head_start: str = "zeros",
        train_backbone: bool = True,
        seed: int = 0,
        frozen: FrozenFeatures | None = None,
    ) -> None:
        super().__init__()
        one_of(LOSS_CLASSES, loss_classes=loss_classes)
        image_size = getattr(backbone, "image_size", view.size)
        if view.size != image_size:
            raise ValueError(f"view.size = {view.size}: this backbone reads image_size = {image_size}")
        self.loss_classes, self.head_start = loss_classes, head_start
        self.train_backbone, self.seed = train_backbone, seed
        self.backbone = copy.deepcopy(backbone) if train_backbone else backbone
        self.backbone.requires_grad_(train_backbone)
        self.view = view
        reads_frozen = self.keeps_original or not train_backbone
        if frozen is not None and not reads_frozen:
            raise ValueError("a learner that trains its backbone has no frozen features")
        if reads_frozen:
            backbone.requires_grad_(False).eval()
            if train_backbone:
                self.original = backbone
            self.frozen = FrozenFeatures(backbone, view) if frozen is None else frozen
            if self.frozen.view != view or self.frozen.backbone is not backbone:
                raise ValueError("frozen features must be those of the learner's own backbone and view")
        self.generator = torch.Generator().manual_seed(seed)
        self.head = Head(backbone.dim, start=head_start, generator=self.generator)
        self.current: tuple[int, ...] = ()
        self.seen: tuple[int, ...] = ()

    def loss(self, batch: Batch) -> Tensor:
        """The equation, as a mean over the batch."""
        return F.cross_entropy(self.visible(self.logits(batch)), batch.y)

    def logits(self, batch: Batch) -> Tensor:
        """A score for each class of the head: [B, C]."""
        return self.head(self.features(batch))  # type: ignore[no-any-return]

    def task_logits(self, batch: Batch, classes: Sequence[int]) -> Tensor | None:
        """The scores when the task is given at test, by its classes; None where they are those of `logits`."""
        del batch, classes
        return None

    def before(self, experience: Experience) -> None:
        """Called when an experience begins and the stream has boundaries."""

    def after(self, experience: Experience) -> None:
        """Called when an experience ends and the stream has boundaries."""

    def training_examples(self, experience: Experience) -> Examples:
        """The examples of an experience that are trained on; the same ones whenever it is asked."""
        return experience.train

    def before_evaluation(self) -> None:
        """Called before the learner is judged, with or without boundaries; it must not change how it learns on."""

    def step(self, batch: Batch, descend: Descent) -> Tensor | None:
        """Learn from one batch; returns the loss, or None where there is none."""
        return descend(self.loss(batch))

    def objection(self, stream: Stream) -> str | None:
        """Why this learner is not defined on a stream, in one line; None where it is."""
        if self.needs_boundaries and not stream.boundaries:
            name = type(self).__name__
            return f"{name} needs task boundaries, which this stream does not have: {self.needs_boundaries}"
        if self.loss_classes == "current" and not stream.boundaries:
            return (
                "loss_classes = 'current' needs task boundaries, which this stream does not have: use 'seen' or 'all'"
            )
        alone = [experience.index for experience in stream.experiences if len(experience.classes) == 1]
        if self.masked and alone and len(stream.class_names) > 1:
            return (
                f"loss_classes = 'current' learns nothing from task {alone[0] + 1}, which has a single class: "
                "use 'seen', or more classes per task"
            )
        return None

    @property
    def masked(self) -> bool:
        """Whether no image is ever told from the classes of another task."""
        return self.loss_classes == "current" and not self.replays

    @property
    def replays(self) -> bool:
        """Whether old images come again, which are told from all classes seen."""
        return getattr(self, "memory", None) is not None

    @property
    def sees_all(self) -> bool:
        """Whether a loss sees classes that are still to come."""
        return self.loss_classes == "all"

    def expect(self, examples: Examples) -> None:
        """Hear which examples come next, before an experience or a test set."""
        if hasattr(self, "frozen"):
            self.frozen.expect(examples)

    def after_test_set(self) -> Any:
        """What to note of the test set that has just been gone through, on this rank."""
        return None

    def diagnostics(self, tested: Sequence[Any]) -> dict[str, Any]:
        """What else a record should hold; `tested` are the notes on each test set."""
        del tested
        return {}

    def add_classes(self, classes: Iterable[int]) -> None:
        """Make room for these classes; they are the current ones from now on."""
        self.current = tuple(sorted(set(classes)))
        self.seen = tuple(sorted({*self.seen, *self.current}))
        self.grow(max(self.seen) + 1)

    def grow(self, classes: int) -> None:
        """Give the head rows for classes 0 to `classes` - 1; rows it has stay as they are."""
        self.head.grow(classes, self.generator)

    def visible(self, logits: Tensor, loss_classes: str | None = None) -> Tensor:
        """The logits with only the classes that the loss may see, by name; the learner's own unless told."""
        loss_classes = self.loss_classes if loss_classes is None else loss_classes
        if loss_classes == "all":
            return logits
        classes = self.current if loss_classes == "current" else self.seen
        return only(logits, torch.tensor(classes))

    @torch.no_grad()
    def logits_of(self, rows: Batch, at_once: int) -> Tensor:
        """The logits of any number of examples in the plain view, `at_once` of them at a time: [N, C]."""
        mode = self.training
        self.eval()
        parts = [self.logits(pick(rows, index).to(self.device)) for index in torch.arange(len(rows.y)).split(at_once)]
        self.train(mode)
        return torch.cat(parts)

    def inputs(self, batch: Batch) -> Tensor:
        """What the backbone reads: the training view in training, the plain one otherwise."""
        return self.view(batch.x, self.generator) if self.training else self.view.plain(batch.x)

    def features(self, *batches: Batch) -> Tensor:
        """f(x)[0] of one batch, or of several as one; read where nothing can have changed it: [B, D]."""
        if not self.train_backbone and (self.view.fixed or not self.training):
            return torch.cat([self.frozen(batch) for batch in batches])
        with torch.set_grad_enabled(self.train_backbone and torch.is_grad_enabled()):
            return self.backbone.features(torch.cat([self.inputs(batch) for batch in batches]))

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.backbone.train(mode and self.train_backbone)
        if hasattr(self, "original"):
            self.original.eval()
        return self

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    def trained_parameters(self, classes: int) -> int:
        """How many numbers are learned once the head has rows for this many classes."""
        missing = max(classes - len(self.head.bias), 0) * (self.head.dim + 1) * self.head.weight.requires_grad
        return missing + sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)

    def settings(self) -> dict[str, Any]:
        """The keywords that would build this learner again."""
        signature = inspect.signature(type(self).__init__)
        names = [name for name, p in signature.parameters.items() if p.kind is p.KEYWORD_ONLY and name != "frozen"]
        return {name: getattr(self, name) for name in names}

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.settings().items())

    def state(self) -> dict[str, Any]:
        """All that was learned and drawn; frozen weights are not part of it."""
        kept = {name: _packed(getattr(self, name)) for name in self._kept()}
        return {"weights": self._weights(), "kept": kept}

    def restore(self, state: dict[str, Any]) -> None:
        """Become the learner whose `state` this is; nothing of it is shared."""
        self.grow(len(state["weights"]["head.weight"]))
        wrong = (set(self._weights()) ^ set(state["weights"])) | (set(self._kept()) ^ set(state["kept"]))
        if wrong:
            raise ValueError(f"the state is of another learner: {', '.join(sorted(wrong))} do not match")
        self.load_state_dict(state["weights"], strict=False)  # all but those of the backbone as it was given
        for name, value in copied(state["kept"]).items():
            _unpack(self, name, value)

    def _weights(self) -> dict[str, Tensor]:
        given = "original." if self.train_backbone else "backbone."
        return {name: value for name, value in self.state_dict().items() if not name.startswith(given)}

    def _kept(self) -> tuple[str, ...]:
        return ("current", "seen", "generator", *self.remembers)


def _packed(value: Any) -> Any:
    if isinstance(value, torch.Generator):
        return value.get_state()
    return value.state_dict() if hasattr(value, "state_dict") else value


def _unpack(owner: Learner, name: str, value: Any) -> None:
    present = getattr(owner, name)
    if isinstance(present, torch.Generator):
        present.set_state(value)
    elif hasattr(present, "load_state_dict"):
        present.load_state_dict(value)
    else:
        setattr(owner, name, value)
