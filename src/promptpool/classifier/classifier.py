"""A classifier that goes on learning.

    shop = ContinualClassifier("facebook/dinov2-small")
    shop.learn("january/")                      a folder of class folders, or pictures and labels
    shop.learn("february/")                     new classes, or known ones that look different now
    shop.predict("photo.jpg").label             "mug"
    shop.save("shop")

A label is a class's identity, always: one that is known means that class, a new one makes a class. Nothing of earlier
lessons is needed. A lesson that fails or is stopped leaves the classifier as it was.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from promptpool.backbones.features import FrozenFeatures
from promptpool.backbones.weights import SHIPPED, load_backbone
from promptpool.checks import below_one
from promptpool.classifier.calibration import MOST, Calibration, calibrated
from promptpool.classifier.pictures import UNKNOWN, Labelled, Picture, checked_label, is_one, labelled, unlabelled
from promptpool.data.stream import Batch, Examples, Experience, Stream, content_id
from promptpool.data.views import ImageView
from promptpool.experiments.catalogue import benchmarks, methods, pair
from promptpool.experiments.config import complete
from promptpool.learners import LEARNERS
from promptpool.learners.base import Learner
from promptpool.learners.closed_form import ClosedForm
from promptpool.learners.state import restore, state
from promptpool.optim import copied
from promptpool.progress import report
from promptpool.training.loop import Plan, Session

METHOD = "closed-form"
HELD_OUT = 0.1
FEWEST = 5  # a class with fewer pictures has none to hold out
AT_ONCE = 64
DOUBTFUL = 10  # learned pictures that a lesson's report names


@dataclass(frozen=True)
class Prediction:
    """An answer: `label`, or "unknown"; `guess` is the best class either way, `top` the best few with their shares."""

    name: str
    label: str
    confidence: float
    top: tuple[tuple[str, float], ...]
    error: str = ""  # why there is no answer: the file is no picture

    @property
    def guess(self) -> str:
        return self.top[0][0] if self.top else ""


@dataclass(frozen=True)
class Lesson:
    """What a lesson was, and what it did."""

    number: int
    when: str
    counts: dict[str, int]  # pictures of each label
    new: tuple[str, ...]  # labels that were not known before
    held_out: int = 0
    accuracy: float | None = None  # of the pictures that were held out of this lesson
    before: float | None = None  # of earlier pictures, before it
    after: float | None = None  # and after it
    doubtful: tuple[tuple[str, str, str], ...] = ()  # picture, its label, and what it looks like
    duplicates: int = 0  # copies of pictures that were learned before, or stood earlier in the lesson
    left_out: int = 0  # pictures of a test folder
    skipped: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    source: str = ""  # the job of a server that it was, whose pictures are therefore not learned again

    @property
    def pictures(self) -> int:
        return sum(self.counts.values())


@dataclass
class Knowledge:
    """All that changes when a classifier learns, beside its learner."""

    labels: list[str] = field(default_factory=list)  # by the number of their class; "" for one that was forgotten
    lessons: list[Lesson] = field(default_factory=list)
    calibration: Calibration = field(default_factory=Calibration)
    ids: dict[int, int] = field(default_factory=dict)  # of every learned picture, by its content: the class


class ContinualClassifier:
    """See the module.

    `backbone` is a hub name or a file; without one, the model of the package, which knows drawn characters only.
    `method` is a learner's name, and further keywords are that learner's. A tenth of the pictures of a class that has
    at least five is held out of a lesson first and judged. The closed form then learns them too, unless
    `keep_held_out`; other methods never do.
    """

    def __init__(
        self,
        backbone: str | Path = "vit-glyphs",
        *,
        method: str = METHOD,
        image_size: int | None = None,
        held_out: float = HELD_OUT,
        keep_held_out: bool = False,
        seed: int = 0,
        **values: Any,
    ) -> None:
        below_one(held_out=held_out)
        if method not in methods():
            raise ValueError(f"method = {method!r}: must be one of {', '.join(methods())}")
        there = str(backbone) not in SHIPPED and Path(backbone).exists()
        self.backbone_name, self.method = str(Path(backbone).resolve() if there else backbone), method
        self.held_out, self.keep_held_out, self.seed = held_out, keep_held_out, seed
        self.values = values
        self.backbone = load_backbone(backbone, image_size=image_size).eval()
        self.view = ImageView(self.backbone.image_size, values=self.backbone.values or "unit")
        config = _configuration(method, seed, values)
        self.plan = Plan(**config["plan"])
        self._learner_values = {name: value for name, value in config["learner"].items() if name != "name"}
        self._learner_name = config["learner"]["name"]
        if self._learner_name == METHOD:
            self._learner_values["keep"] = values.get("keep", "features")
        self.learner = self._new_learner()
        self.known = Knowledge()

    def _new_learner(self) -> Learner:
        return LEARNERS[self._learner_name](self.backbone, self.view, **self._learner_values)

    @property
    def labels(self) -> tuple[str, ...]:
        """What it knows, in the order in which it was learned."""
        return tuple(label for label in self.known.labels if label)

    @property
    def lessons(self) -> tuple[Lesson, ...]:
        return tuple(self.known.lessons)

    @property
    def knows_drawings_only(self) -> bool:
        """True with the model of the package, which is of no use for photographs."""
        return self.backbone_name in SHIPPED

    def learn(self, data: Any, labels: Iterable[object] | None = None, *, strict: bool = False) -> Lesson:
        """Learn from a folder, from pairs of picture and label, or from pictures with `labels` beside them."""
        begin = time.monotonic()
        found = labelled(data, labels, size=self.backbone.image_size, strict=strict)
        saved = (copied(state(self.learner)), copy.deepcopy(self.known))
        try:
            return self._learn(found, begin)
        except BaseException:
            self.learner = self._new_learner()
            restore(self.learner, saved[0])
            self.learner.before_evaluation()
            self.known = saved[1]
            raise

    def _learn(self, found: Labelled, begin: float) -> Lesson:
        number, earlier = len(self.known.lessons), self._kept()
        before = self._accuracy(earlier)
        new = tuple(label for label in found.labels if label not in self.known.labels)
        self.known.labels += new
        table = torch.tensor([self.known.labels.index(label) for label in found.labels], dtype=torch.long)
        examples = found.examples.relabel(table)
        fresh = self._fresh(examples)
        copies, examples = len(examples) - len(fresh), examples.select(fresh)
        names = tuple(found.names[row] for row in fresh.tolist())
        held = _held_out(examples, self.held_out)
        self._teach(examples.select(~held), number)
        judged = examples.select(held)
        scores = self._scores(judged)
        accuracy = float((scores.argmax(dim=1) == judged.y).double().mean()) if len(judged) else None
        learned = examples.select(~held)
        if isinstance(self.learner, ClosedForm):
            if not self.keep_held_out:
                self._teach(judged, number)
                learned = examples
            self._calibrate()
        elif len(judged):
            self.known.calibration = calibrated(scores, judged.y)
        self.known.ids |= dict(zip(learned.ids.tolist(), learned.y.tolist(), strict=True))
        counts = torch.bincount(examples.y, minlength=len(self.known.labels)).tolist()
        lesson = Lesson(
            number=number + 1,
            when=datetime.now(UTC).isoformat(timespec="seconds"),
            counts={label: count for label, count in zip(self.known.labels, counts, strict=True) if count},
            new=new,
            held_out=len(judged),
            accuracy=accuracy,
            before=before,
            after=self._accuracy(earlier),
            doubtful=self._doubtful(examples, names),
            duplicates=copies,
            left_out=found.left_out,
            skipped=found.skipped,
            seconds=round(time.monotonic() - begin, 1),
        )
        self.known.lessons.append(lesson)
        self._empty_stores()
        return lesson

    def _fresh(self, examples: Examples) -> Tensor:
        """The places of pictures that are no copies of others; methods that take steps may see one again."""
        if not isinstance(self.learner, ClosedForm):
            return torch.arange(len(examples))
        first: dict[tuple[int, int], int] = {}
        for place, key in enumerate(zip(examples.ids.tolist(), examples.y.tolist(), strict=True)):
            if self.known.ids.get(key[0]) != key[1]:
                first.setdefault(key, place)
        return torch.tensor(list(first.values()), dtype=torch.long)

    def _empty_stores(self) -> None:
        """Let go of the features of pictures that were seen, so that memory does not grow with questions."""
        if self.learner.reads_frozen:
            store = self.learner.frozen
            self.learner.frozen = FrozenFeatures(store.backbone, store.view, store.readout)
        if isinstance(self.learner, ClosedForm) and self.learner.prompted is not None:
            self.learner.read_with(self.learner.pool)

    def _teach(self, examples: Examples, number: int) -> None:
        """One experience of a stream that has no end."""
        if len(examples) == 0:
            return
        experience = Experience(number, examples, examples.classes)
        names = tuple(label or UNKNOWN for label in self.known.labels)
        stream = Stream((experience,), (examples.select(slice(0, 1)),), names)
        self.learner.class_names = ()  # they may have been renamed
        try:
            session = Session(self.learner, stream, self.plan)
        except ValueError as error:
            other = "" if isinstance(self.learner, ClosedForm) else f"; method={METHOD!r} can learn this"
            raise ValueError(f"{error}{other}") from error
        for step in session:
            report("learning", step.step, step.steps)
        self.learner.eval()

    def _scores(self, examples: Examples) -> Tensor:
        """The scores of pictures, minus infinity for classes that are not known: [n, C]."""
        parts = [self._score(batch) for batch in examples.batches(AT_ONCE)]
        return torch.cat(parts) if parts else torch.zeros(0, len(self.known.labels))

    @torch.no_grad()
    def _score(self, batch: Batch) -> Tensor:
        self.learner.eval()
        scores = self.learner.logits(batch.to(self.learner.device)).cpu()[:, : len(self.known.labels)]
        missing = [number not in self.learner.seen for number in range(scores.shape[1])]
        return scores.masked_fill(torch.tensor(missing, dtype=torch.bool), -torch.inf)

    def _kept(self) -> Tensor:
        """Which learned examples are looked at, by their place among the rows that the learner keeps."""
        if not isinstance(self.learner, ClosedForm):
            return torch.zeros(0, dtype=torch.long)
        count = len(self.learner.labels)
        if count <= MOST:
            return torch.arange(count)
        return torch.randperm(count, generator=torch.Generator().manual_seed(self.seed))[:MOST].sort().values

    def _accuracy(self, kept: Tensor) -> float | None:
        """The share of learned examples that are right as if they had not been learned; None if there are none."""
        if not isinstance(self.learner, ClosedForm) or len(kept) == 0:
            return None
        rows, labels = self.learner.rows[kept], self.learner.labels[kept]
        several = self.learner.sums.counts[labels] > 1  # the only picture of a class says nothing when it is left out
        if not several.any():
            return None
        answers = self.learner.leave_one_out(rows[several], labels[several]).argmax(dim=1)
        return float((answers == labels[several]).double().mean())

    def accuracies(self) -> dict[str, float]:
        """For each class the share of its learned pictures that are right as if they had not been learned."""
        if not isinstance(self.learner, ClosedForm):
            return {}
        kept = self._kept()
        rows, labels = self.learner.rows[kept], self.learner.labels[kept]
        right = self.learner.leave_one_out(rows, labels).argmax(dim=1) == labels
        several = [c for c in labels.unique().tolist() if self.learner.sums.counts[c] > 1]
        return {self.known.labels[c]: float(right[labels == c].double().mean()) for c in several}

    def counts(self) -> dict[str, int]:
        """How many pictures of each class were learned."""
        if isinstance(self.learner, ClosedForm):
            return {label: int(self.learner.sums.counts[self._number(label)]) for label in self.labels}
        return {label: sum(each.counts.get(label, 0) for each in self.known.lessons) for label in self.labels}

    def _calibrate(self) -> None:
        """Find out how sure answers are, from examples that are scored as if they had not been learned."""
        if not isinstance(self.learner, ClosedForm):
            return
        kept = self._kept()
        rows, labels = self.learner.rows[kept], self.learner.labels[kept]
        if len(set(labels.tolist())) < 2:
            self.known.calibration = Calibration()
            return
        distances = None if self.learner.gaussian is None else self.learner.distance(rows, labels)
        self.known.calibration = calibrated(self.learner.leave_one_out(rows, labels), labels, distances)

    def _doubtful(self, examples: Examples, names: tuple[str, ...]) -> tuple[tuple[str, str, str], ...]:
        """The learned pictures that most look like another class than their label says."""
        if not isinstance(self.learner, ClosedForm) or self.keep_held_out or len(self.labels) < 2 or not len(examples):
            return ()
        rows = torch.cat([self.learner.read(batch) for batch in examples.batches(AT_ONCE)])
        scores = self.learner.leave_one_out(rows, examples.y)[:, : len(self.known.labels)]
        shares = self.known.calibration.probabilities(scores)
        own = shares.gather(1, examples.y[:, None])[:, 0]
        best, answers = shares.max(dim=1)
        several = self.learner.sums.counts[examples.y] > 1
        wrong = ((answers != examples.y) & several).nonzero().flatten()
        order = wrong[(best - own)[wrong].argsort(descending=True)].tolist()
        return tuple(
            (names[row], self.known.labels[int(examples.y[row])], self.known.labels[int(answers[row])])
            for row in order[:DOUBTFUL]
        )

    def predict(self, data: Any, *, top: int = 5, sure: float | None = None) -> Any:
        """A `Prediction` for one picture or the path of one, a list of them for a folder or many pictures.

        With `sure` an answer is given only where, as measured, at least that share of such answers is right.
        """
        found = list(self.predictions(data, top=top, sure=sure))
        alone = Path(data).expanduser().is_file() if isinstance(data, str | Path) else is_one(data)
        return found[0] if alone else found

    def predictions(self, data: Any, *, top: int = 5, sure: float | None = None) -> Iterator[Prediction]:
        """Answers one by one, so that any number of pictures takes little memory."""
        if not self.labels:
            raise ValueError("nothing was learned yet: learn first")
        if sure is not None and not 0 < sure <= 1:
            raise ValueError(f"sure = {sure}: must be above 0 and at most 1")
        if top < 1:
            raise ValueError(f"top = {top}: must be at least 1")
        least = 0.0 if sure is None else self.known.calibration.least_confidence(sure)
        least = 2.0 if least is None else least
        waiting: list[Picture] = []
        for picture in unlabelled(data, size=self.backbone.image_size):
            waiting.append(picture)
            if len(waiting) == AT_ONCE:
                yield from self._answers(waiting, top, least)
                waiting = []
        yield from self._answers(waiting, top, least)

    def _answers(self, pictures: list[Picture], top: int, least: float) -> Iterator[Prediction]:
        images = [picture.pixels for picture in pictures if picture.pixels is not None]
        scores, far = self._asked(torch.stack(images)) if images else (torch.zeros(0, 0), torch.zeros(0))
        rows = iter(zip(scores, far.tolist(), strict=True))
        for picture in pictures:
            if picture.pixels is None:
                yield Prediction(picture.name, UNKNOWN, 0.0, (), picture.reason)
                continue
            (row, is_far), known = next(rows), [n for n, label in enumerate(self.known.labels) if label]
            places = sorted(known, key=lambda n: -float(row[n]))[:top]
            shown = self.known.calibration.probabilities(row[None])[0]
            best = tuple((self.known.labels[place], float(shown[place])) for place in places)
            unknown = bool(is_far) or best[0][1] < least
            yield Prediction(picture.name, UNKNOWN if unknown else best[0][0], best[0][1], best)

    def _asked(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The score of each class [n, C], and True for pictures that are like none of them [n]."""
        self._empty_stores()
        ids = torch.tensor([content_id(image.numpy()) for image in images], dtype=torch.long)
        batch = Batch(images, torch.zeros(len(images), dtype=torch.long), ids)
        scores, farthest = self._score(batch), self.known.calibration.farthest
        if farthest is None or not isinstance(self.learner, ClosedForm) or self.learner.gaussian is None:
            return scores, torch.zeros(len(images), dtype=torch.bool)
        return scores, self.learner.distance(self.learner.read(batch)) > farthest

    def forget(self, label: str) -> None:
        """Take a class out, as if it had never been learned; only the closed form can."""
        number = self._number(label)
        self._exact("take a class out").forget([number])
        self.known.labels[number] = ""
        self.known.ids = {identity: owner for identity, owner in self.known.ids.items() if owner != number}
        self._calibrate()

    def rename(self, old: str, new: str) -> None:
        """Give a class another name; if a class has it, the two become one, which only the closed form can do."""
        number = self._number(old)
        checked_label(new)
        if old == new:
            return
        if new not in self.known.labels:
            self.known.labels[number] = new
            return
        into = self.known.labels.index(new)
        self._exact("make one class of two").relabel(number, into)
        self.known.labels[number] = ""
        self.known.ids = {identity: into if owner == number else owner for identity, owner in self.known.ids.items()}
        self._calibrate()

    def merge(self, other: ContinualClassifier) -> None:
        """Learn all that another classifier of the same kind has learned; only the closed form can."""
        own, others = self._exact("be merged"), other._exact("be merged")
        if self.backbone.origin != other.backbone.origin:
            raise ValueError(f"the backbones differ: {self.backbone.origin} and {other.backbone.origin}")
        own.check_fits(others)
        self.known.labels += [label for label in other.labels if label not in self.known.labels]
        table = [self.known.labels.index(label) if label else 0 for label in other.known.labels]
        own.add_rows(others.rows, torch.tensor(table, dtype=torch.long)[others.labels])
        self.known.ids |= {identity: table[owner] for identity, owner in other.known.ids.items()}
        for lesson in other.known.lessons:
            self.known.lessons.append(replace(lesson, number=len(self.known.lessons) + 1))
        self._calibrate()

    def save(self, folder: str | Path) -> None:
        """Write it to a folder as a new version; the last ten are kept."""
        from promptpool.classifier import files  # which makes classifiers

        with files.alone(Path(folder)):
            files.save(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path, *, backbone: str | Path | None = None) -> ContinualClassifier:
        """The classifier in a folder; `backbone` says where its backbone lies now, if that changed."""
        from promptpool.classifier import files

        return files.load(Path(folder), backbone=backbone)

    def _number(self, label: str) -> int:
        if label not in self.labels:
            raise ValueError(f"{label!r}: no such class; it knows {', '.join(self.labels) or 'none'}")
        return self.known.labels.index(label)

    def _exact(self, what: str) -> ClosedForm:
        """The learner, if it keeps what it learned from."""
        if not isinstance(self.learner, ClosedForm) or self.learner.keep != "features":
            raise ValueError(f"method = {self.method!r}: cannot {what}; {METHOD!r} with keep = 'features' can")
        return self.learner


def _held_out(examples: Examples, share: float) -> Tensor:
    """Which pictures are held out: a share of each class that has enough, drawn from their content."""
    held = torch.zeros(len(examples), dtype=torch.bool)
    for label in examples.classes if share else ():
        own = (examples.y == label).nonzero().flatten()
        if len(own) >= FEWEST:
            order = examples.ids[own].argsort(stable=True)
            held[own[order[: max(round(share * len(own)), 1)]]] = True
    return held


def _configuration(method: str, seed: int, values: dict[str, Any]) -> dict[str, Any]:
    """Learner and plan of a method on images of one's own."""
    config = pair(benchmarks()["own"], methods()[method])
    config["learner"] |= values
    return complete(config | {"seed": seed})
