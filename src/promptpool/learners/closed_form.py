"""A head in closed form on frozen features: the method to start with.

    x = readout of the frozen model, rounded to half precision
    h = max(0, x R)                                              R random normal, d x M, drawn once
    score = Gaussian(x) / spread + Ridge(h) / spread             both from sums (`sums.py`)

The Gaussian classes suit classes of one look, the ridge on random projections those of several. `spread` is the root
mean square of a classifier's centred scores over the examples. Like shrinkage and ridge it is a function of the sums.
So nothing depends on the order of tasks, batches or ranks. Two learners that were taught apart add up to the one that
was taught on both, and what was added can be subtracted again.

With `adapt="prompts"` an L2P pool is learned on the first experience, and what the model says with its prompts stands
in x beside what it says without (`adaptation.py`). Then the first experience matters, and only learners with the same
prompts can be joined. With `adapt="auto"` the first experience decides whether to (`trial.py`).

Sources: streaming linear discriminant analysis (Hayes and Kanan, 2020), RanPAC (McDonnell et al., 2023), analytic
continual learning (Zhuang et al., 2022). RanPAC chooses its ridge on the latest task and so depends on the order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from promptpool import distributed
from promptpool.backbones.base import FeatureExtractor, Readout
from promptpool.backbones.features import FrozenFeatures
from promptpool.backbones.vit import ViT
from promptpool.checks import at_least, one_of
from promptpool.data.stream import Batch, Examples, Experience, Stream
from promptpool.data.views import ImageView
from promptpool.errors import UnfitError
from promptpool.learners.adaptation import PromptedBackbone, learn_prompts, prompted_learner
from promptpool.learners.base import Learner
from promptpool.learners.blocks import InBlocks, add_block
from promptpool.learners.head import SolvedHead
from promptpool.learners.sums import Gaussian, Ridge, Sums, spread
from promptpool.learners.trial import Trial, try_prompts
from promptpool.optim import Descent
from promptpool.prompts import PromptPool

CLASSIFIERS = ("both", "gaussian", "ridge")
ADAPTATIONS = ("none", "prompts", "auto")
OPEN, NONE, PROMPTS = -1, 0, 1  # what "auto" has decided
KEEPS = ("sums", "features")
BLOCK = 1024  # examples that are added to the sums at once


class ClosedForm(Learner):
    """Gaussian classes and a ridge classifier on frozen features, from sums alone; reads each example once.

    The sums take 8 (d^2 + M^2) bytes of memory, and as much in each checkpoint; d is the width of the readout.

    Keywords; `seed` is that of `Learner`:
        `readout_blocks`: how many of the last blocks are read.
        `readout_rows`: what is read of each, the [class] row ("class"), the mean of the rows of "patches", or "both".
        `classifier`: "gaussian" classes with one covariance, a "ridge" on random projections, or "both".
        `projections`: M, the number of random directions; 0 for a ridge on the readout as it is.
        `shrinkage`: how far the covariance is drawn to a sphere, from above 0 to 1; None for what the sums say.
        `ridge`: a fixed ridge; None for what the sums say.
        `adapt`: "none", or "prompts": those that an L2P learned on the first experience, which needs task boundaries;
            "auto" takes one of the two, by a trial on the first experience, and "none" where there are no boundaries.
        `keep`: "sums" alone, or "features" as well, in half precision, so that classes can be taken out again.
    """

    here: Tensor
    decision: Tensor
    trial: Tensor
    rows, labels, ids = InBlocks(), InBlocks(), InBlocks()  # of the examples that are in the sums, if they are kept
    remembers = ("sums", "projected", "waiting", "waiting_labels", "waiting_ids", "rows", "labels", "ids")
    at_the_end = "a system of equations is solved"
    single_pass = True

    def __init__(
        self,
        backbone: FeatureExtractor,
        view: ImageView,
        *,
        readout_blocks: int = 2,
        readout_rows: str = "both",
        classifier: str = "both",
        projections: int = 2000,
        shrinkage: float | None = None,
        ridge: float | None = None,
        adapt: str = "none",
        keep: str = "sums",
        seed: int = 0,
    ) -> None:
        super().__init__(backbone, view, train_backbone=False, seed=seed)
        one_of(CLASSIFIERS, classifier=classifier)
        one_of(ADAPTATIONS, adapt=adapt)
        one_of(KEEPS, keep=keep)
        at_least(0, projections=projections)
        if shrinkage is not None and not 0 < shrinkage <= 1:
            raise ValueError(f"shrinkage = {shrinkage}: must be above 0 and at most 1, or None for what the sums say")
        if ridge is not None and not 0 < ridge < math.inf:
            raise ValueError(f"ridge = {ridge}: must be above 0 and finite, or None for what the sums say")
        self.readout = Readout(readout_blocks, readout_rows)
        self.readout_blocks, self.readout_rows = readout_blocks, readout_rows
        self.classifier, self.projections, self.keep = classifier, projections, keep
        self.shrinkage, self.ridge, self.adapt = shrinkage, ridge, adapt
        self.prompted: FrozenFeatures | None = None  # what the model says with prompts
        if adapt != "none":
            if not isinstance(backbone, ViT):
                raise ValueError(f"adapt = {adapt!r}: {type(backbone).__name__} has no tokens for prompts, set 'none'")
            self.vit = (backbone,)  # in a tuple, so as not to be a part of the learner twice
            self.pool = prompted_learner(backbone, view, seed).pool.requires_grad_(False).eval()
        if adapt == "prompts":
            self.read_with(self.pool)
        elif adapt == "auto":
            self.register_buffer("decision", torch.tensor(OPEN))
            self.register_buffer("trial", torch.zeros(2))  # the gain and its standard error
        self.register_buffer("here", torch.empty(0), persistent=False)  # tells the device, the head stays on the CPU
        self._begin()
        self.gaussian: Gaussian | None = None
        self.regression: Ridge | None = None

    def _begin(self) -> None:
        """Know nothing, in sums that are as wide as what is read now; the classes stay."""
        width = self.frozen.width if self.prompted is None else 2 * self.frozen.width
        classes, drawn = len(self.head.bias), torch.Generator().manual_seed(self.seed)
        self.sums = Sums(0 if self.classifier == "ridge" else width)
        self.projected = Sums(0 if self.classifier == "gaussian" else self.projections or width)
        # Not a buffer: the seed draws them again, and they stay on the CPU.
        self.directions = torch.randn(width, self.projections, generator=drawn, dtype=torch.float64)
        self.head = SolvedHead(self.sums.width + self.projected.width, generator=drawn)
        self.waiting = torch.zeros(0, width, dtype=torch.half)  # examples that are not in the sums yet
        self.waiting_labels = torch.zeros(0, dtype=torch.long)
        self.waiting_ids = torch.zeros(0, dtype=torch.long)
        self.rows, self.labels, self.ids = self.waiting, self.waiting_labels, self.waiting_ids
        self.grow(classes)

    def read_with(self, pool: PromptPool) -> None:
        """Read images with the prompts of this pool from now on."""
        self.pool = pool.requires_grad_(False).eval()
        self.prompted = FrozenFeatures(PromptedBackbone(self.vit[0], self.pool), self.view, self.readout)

    def before(self, experience: Experience) -> None:
        """Learn the prompts, if this is the first experience and they are wanted."""
        if self.adapt == "auto" and self.decision == OPEN:
            self._decide(experience.train)
        elif self.prompted is not None and self.pool.waits:
            self.read_with(self._learned(experience.train))

    def _learned(self, examples: Examples, what: str = "learning prompts") -> PromptPool:
        """The prompts that these examples teach; `what` is reported meanwhile."""
        learner = prompted_learner(self.vit[0], self.view, self.seed).to(self.device)
        if self.frozen.beside is not None:
            learner.frozen = self.frozen.beside  # queries that another run has computed
        learn_prompts(learner, examples, what)
        learner.frozen.drop_tokens()  # nobody else asks for them
        return learner.pool

    def _decide(self, examples: Examples) -> None:
        """Hold the trial; what was learned without boundaries, or joined, has no prompts and must keep its sums."""
        trial = None
        if not self.sums.count and not len(self.waiting):
            trial = try_prompts(examples, learned=self._learned, reading_with=self._reading_with, seed=self.seed)
        self.decision.fill_(NONE if trial is None else trial.won)
        self.trial.copy_(torch.tensor(trial or Trial()))
        if self.decision == PROMPTS:
            self.read_with(self._learned(examples))
            self._begin()

    def _reading_with(self, pool: PromptPool | None) -> ClosedForm:
        """A closed form with these values that knows nothing, and reads with the prompts of a pool or with none."""
        adapt = "none" if pool is None else "prompts"
        values = {**self.settings(), "adapt": adapt, "keep": "features"}
        learner = ClosedForm(self.backbone, self.view, **values).to(self.device).eval()
        learner.frozen = self.frozen
        if pool is not None:
            learner.read_with(pool)
        return learner

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """The same for a state whose "auto" has decided otherwise: rows have another width then."""
        if self.adapt == "auto" and (int(state_dict["decision"]) == PROMPTS) != (self.prompted is not None):
            if self.prompted is None:
                self.read_with(self.pool)
            else:
                self.prompted = None
            self._begin()
        return super().load_state_dict(state_dict, strict=strict, assign=assign)

    def check(self, stream: Stream) -> None:
        if self.adapt == "prompts" and not stream.boundaries:
            raise ValueError("adapt = 'prompts': needs task boundaries, to learn on a first task, set 'none' or 'auto'")
        super().check(stream)

    def expect(self, *examples: Examples) -> None:
        super().expect(*examples)
        if self.prompted is not None:
            self.prompted.share_as(self.frozen)
            self.prompted.expect(*examples)

    def looks_at(self, batch: Batch) -> bool:
        return not (self.frozen.knows(batch) and (self.prompted is None or self.prompted.knows(batch)))

    def keep_features(self) -> None:
        super().keep_features()
        if self.prompted is not None:
            self.prompted.keep()

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.adapt != "none":
            self.pool.eval()
        return self

    def grow(self, class_count: int) -> None:
        super().grow(class_count)
        for sums in (self.sums, self.projected):
            sums.grow(len(self.head.bias))

    def step(self, batch: Batch, descend: Descent) -> Tensor | None:
        """Note the examples of all ranks; they come into the sums by the block."""
        del descend
        rows, labels, ids = distributed.gather_together(self.read(batch), batch.y.cpu(), batch.ids.cpu())
        self.waiting, self.waiting_labels = torch.cat([self.waiting, rows]), torch.cat([self.waiting_labels, labels])
        self.waiting_ids = torch.cat([self.waiting_ids, ids])
        if len(self.waiting) >= BLOCK:
            self.add_waiting()
        return None

    def read(self, batch: Batch) -> Tensor:
        """x, on the CPU and in half precision: [B, d]."""
        rows = self.frozen(batch)
        if self.prompted is not None:
            if self.pool.waits:
                raise RuntimeError("prompts are learned when the first experience begins: call before(experience)")
            rows = torch.cat([rows, self.prompted(batch)], dim=1)
        return finite(rows.cpu().half())

    def inputs_of(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """x and h of rows, in double precision: [n, d] and [n, M]; the one that is not used has no columns."""
        x = rows.double()
        h = F.relu(x @ self.directions) if self.projections and self.projected.width else x
        return x[:, : self.sums.width], h[:, : self.projected.width]

    def add_waiting(self) -> None:
        """Bring the sums up to date; every rank has the rows of all, and adds them all up."""
        self._change(self.waiting, self.waiting_labels)
        if self.keep == "features":
            self._keep(self.waiting, self.waiting_labels, self.waiting_ids)
        self.waiting, self.waiting_labels = self.waiting[:0], self.waiting_labels[:0]
        self.waiting_ids = self.waiting_ids[:0]

    def _keep(self, rows: Tensor, labels: Tensor, ids: Tensor) -> None:
        add_block(self, "rows", rows)
        add_block(self, "labels", labels)
        add_block(self, "ids", ids)

    def _change(self, rows: Tensor, labels: Tensor, sign: int = 1) -> None:
        for sums, values in zip((self.sums, self.projected), self.inputs_of(rows), strict=True):
            sums.add(values, labels, sign)

    def before_evaluation(self) -> None:
        """Solve: one factorisation for each of the two classifiers."""
        self.add_waiting()
        self.head.weight.data.zero_()
        self.head.bias.data.fill_(-torch.inf)  # of classes without examples
        self.gaussian = self.regression = None
        known, begin = self.sums.known, 0
        if not known.any():
            return
        self.head.bias.data[known] = 0.0
        self.gaussian = Gaussian(self.sums, self.shrinkage) if self.sums.width else None
        self.regression = Ridge(self.projected, self.ridge) if self.projected.width else None
        for classifier, sums in ((self.gaussian, self.sums), (self.regression, self.projected)):
            scale = 0.0 if classifier is None else spread(classifier, sums)
            if classifier is not None and scale:
                self.head.weight.data[known, begin : begin + sums.width] = classifier.weight[known] / scale
                self.head.bias.data[known] += classifier.bias[known] / scale
            begin += sums.width

    def logits(self, batch: Batch) -> Tensor:
        """A score for each class of the head, on the CPU: [B, C]."""
        return self.score(self.read(batch))

    def score(self, rows: Tensor) -> Tensor:
        """The scores of rows as `read` gives them: [n, C]."""
        return self.head(torch.cat(self.inputs_of(rows), dim=1))  # type: ignore[no-any-return]

    @torch.no_grad()
    def leave_one_out(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The scores of learned examples, each as if it had not been learned: [n, C]."""
        total = torch.zeros(len(rows), len(self.head.bias), dtype=torch.float64)
        x, h = self.inputs_of(rows)
        for classifier, sums, values in ((self.gaussian, self.sums, x), (self.regression, self.projected, h)):
            scale = 0.0 if classifier is None else spread(classifier, sums)
            if classifier is not None and scale:
                total += classifier.leave_one_out(values, labels) / scale
        return total.masked_fill(~self.sums.known, -torch.inf)

    @torch.no_grad()
    def distance(self, rows: Tensor, labels: Tensor | None = None) -> Tensor:
        """How far each row is from the nearest class, large if it is like none of them: [n].

        The squared Mahalanobis distance to that class, less that to all examples as one Gaussian (Ren et al., 2021).
        With `labels` rows are learned examples, and each is taken as if it had not been learned.
        """
        if self.gaussian is None:
            raise ValueError("classifier = 'ridge': has no distances, use 'both' or 'gaussian'")
        x, _ = self.inputs_of(rows)
        if labels is None:
            found, background = self.gaussian.distances(x), self.gaussian.background(x)
        else:
            found = self.gaussian.leave_one_out_distances(x, labels)
            background = self.gaussian.leave_one_out_background(x)
        return found.masked_fill(~self.sums.known, torch.inf).min(dim=1).values - background

    def join(self, other: ClosedForm, sign: int = 1) -> None:
        """Learn all that another learner has learned, or with sign -1 unlearn it; its classes are numbered as here."""
        self.check_fits(other)
        if sign < 0 and self.keep == "features":
            raise ValueError("keep = 'features': forget classes instead, rows cannot be told from equal ones")
        self.add_waiting()
        other.add_waiting()
        self.grow(len(other.head.bias))
        self.sums.join(other.sums, sign)
        self.projected.join(other.projected, sign)
        if self.keep == "features":
            self._keep(other.rows, other.labels, other.ids)
        self._note_classes({*self.seen, *other.seen})
        self.before_evaluation()

    def check_fits(self, other: ClosedForm) -> None:
        """Raise a ValueError unless the rows of another learner mean what they mean here."""
        same = self.settings() == other.settings() and self.view == other.view
        if not same or self.backbone.fingerprint() != other.backbone.fingerprint():
            raise ValueError("only learners with the same values and the same backbone can be joined")
        if (self.prompted is None) != (other.prompted is None):
            raise ValueError("adapt = 'auto': one of the two learners has taken prompts and the other has not")
        both = zip(self._pool_values(), other._pool_values(), strict=True)
        if not all(torch.equal(own, theirs) for own, theirs in both):
            raise ValueError(f"adapt = {self.adapt!r}: the other learner's prompts were learned on other images")

    def _pool_values(self) -> list[Tensor]:
        """All that decides what is read with prompts; nothing where there are none."""
        return [] if self.prompted is None else [self.pool.prompts, self.pool.keys, self.pool.unit]

    def forget(self, classes: Iterable[int]) -> None:
        """Take classes out, as if they had never been learned; needs keep = "features"."""
        self.add_waiting()
        self.take_out(torch.isin(self.labels, torch.tensor(sorted(classes), dtype=torch.long)))

    def take_out(self, gone: Tensor) -> None:
        """Take examples out, as if they had never been learned: [n], True for those of the kept rows that go."""
        if self.keep != "features":
            raise ValueError(
                "keep = 'sums': examples can be taken out only with keep = 'features', or by join(other, -1) where "
                "other was taught the same images"
            )
        self._change(self.rows[gone], self.labels[gone], -1)
        self.rows, self.labels, self.ids = self.rows[~gone], self.labels[~gone], self.ids[~gone]
        self._note_classes(self.seen)
        self.before_evaluation()

    def relabel(self, old: int, new: int) -> None:
        """Make one class of two, as if all examples of `old` had been of `new`; needs keep = "features"."""
        own = self.labels == old
        rows, ids = self.rows[own], self.ids[own]
        self.forget([old])
        self.add_rows(rows, torch.full((len(rows),), new), ids)

    def add_rows(self, rows: Tensor, labels: Tensor, ids: Tensor) -> None:
        """Learn rows as `read` gives them, with the ids of their examples; needs keep = "features"."""
        if self.keep != "features":
            raise ValueError("keep = 'sums': rows are learned as they are only with keep = 'features'")
        self.add_waiting()
        self.grow(int(labels.max()) + 1 if len(labels) else 0)
        for part, own in zip(rows.split(BLOCK), labels.split(BLOCK), strict=True):
            self._change(part, own)
        self._keep(rows.clone(), labels.clone(), ids.clone())
        self._note_classes({*self.seen, *labels.tolist()})
        self.before_evaluation()

    def _note_classes(self, classes: Iterable[int]) -> None:
        known = set(self.sums.known.nonzero().flatten().tolist())
        self.seen = tuple(sorted(set(classes) & known))
        self.current = tuple(sorted(set(self.current) & known))

    @property
    def answers_from_features(self) -> bool:
        return self.prompted is None

    @property
    def device(self) -> torch.device:
        return self.here.device

    def diagnostics(self, notes: Sequence[Any]) -> dict[str, Any]:
        """The shrinkage and the ridge that were used, and what "auto" has decided, by what trial."""
        del notes
        used = {} if self.gaussian is None else {"shrinkage": self.gaussian.shrinkage}
        used |= {} if self.regression is None else {"ridge": self.regression.ridge}
        if self.adapt == "auto":
            used |= {"adapt_gain": float(self.trial[0]), "adapt_error": float(self.trial[1])}
        facts: dict[str, Any] = {name: float(f"{value:.6g}") for name, value in used.items()}
        return facts | ({"adapt": "none" if self.prompted is None else "prompts"} if self.adapt == "auto" else {})

    def check_state(self) -> None:
        shape = (len(self.labels), len(self.directions))
        if len(self.sums.counts) != len(self.head.bias) or self.rows.shape != shape or len(self.ids) != shape[0]:
            raise ValueError("the state is of another learner: sums and rows do not match the head")
        if self.adapt == "auto" and int(self.decision) not in (OPEN, NONE, PROMPTS):
            raise ValueError(f"decision = {int(self.decision)}: must be {OPEN} (open), {NONE} or {PROMPTS} (prompts)")
        if self.prompted is not None:
            self.read_with(self.pool)  # what it knew before was read with other prompts


def finite(rows: Tensor) -> Tensor:
    """The rows; raises an `UnfitError` if there is one that nothing can be learned from."""
    if not rows.isfinite().all():
        raise UnfitError("a feature of this backbone is not a number, or one that half precision cannot hold")
    return rows
