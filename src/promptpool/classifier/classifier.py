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
import reprlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from promptpool.backbones.features import FrozenFeatures
from promptpool.backbones.products import suited
from promptpool.backbones.weights import SHIPPED, load_backbone
from promptpool.checks import at_most, below_one, whole_number
from promptpool.classifier import judging
from promptpool.classifier.answers import Asked, Prediction, answered, ask
from promptpool.classifier.lessons import Knowledge, Lesson, Pictures, has_nonsense, small_grey
from promptpool.classifier.looks import doubtful, near_copies, thumbnail
from promptpool.classifier.pictures import (
    UNKNOWN,
    Labelled,
    Picture,
    checked_label,
    is_one,
    labelled,
    normal,
    unlabelled,
)
from promptpool.classifier.teaching import held_out, teach
from promptpool.data.stream import Examples
from promptpool.data.views import ImageView
from promptpool.experiments.catalogue import benchmarks, memory_values, methods, pair
from promptpool.experiments.config import complete
from promptpool.learners import LEARNERS
from promptpool.learners.base import Learner
from promptpool.learners.closed_form import ClosedForm
from promptpool.learners.state import restore, state
from promptpool.optim import copied
from promptpool.progress import report
from promptpool.training.loop import Plan

if TYPE_CHECKING:
    from promptpool.classifier.onnx_file import Agreement

METHOD = "closed-form"
HELD_OUT = 0.1
AT_ONCE = 64
LARGEST_SIDE = 4096  # pixels that a model looks at; beyond, and with more projections, memory would be gone
MOST_PROJECTIONS = 20_000
NAMED = 20  # classes that an error names


class ContinualClassifier:
    """See the module.

    `backbone` is a hub name or a file; without one, the model of the package, which knows drawn characters only.
    `method` is a learner's name, and further keywords are that learner's. A tenth of the pictures of a class that has
    at least five is held out of a lesson first and judged. The closed form then learns them too, unless
    `keep_held_out`; other methods never do. `rehearse` is how many pictures of each class a method with a memory keeps.
    With `thumbnails` a small version of every learned picture is saved, to be shown; otherwise none is.
    """

    holds_features = False  # True while someone else lets go of features

    def __init__(
        self,
        backbone: str | Path = "vit-glyphs",
        *,
        method: str = METHOD,
        image_size: int | None = None,
        held_out: float = HELD_OUT,
        keep_held_out: bool = False,
        rehearse: int | None = None,
        thumbnails: bool = False,
        seed: int = 0,
        **values: Any,
    ) -> None:
        below_one(held_out=held_out)
        if method not in methods():
            raise ValueError(f"method = {method!r}: must be one of {', '.join(methods())}")
        if rehearse is not None:
            whole_number(1, rehearse=rehearse)
            memory_values(methods()[method], rehearse, 1)  # or it keeps none
        if image_size is not None:
            whole_number(1, image_size=image_size)
            at_most(LARGEST_SIDE, image_size=image_size)
        there = str(backbone) not in SHIPPED and Path(backbone).exists()
        self.backbone_name, self.method = str(Path(backbone).resolve() if there else backbone), method
        self.held_out, self.keep_held_out, self.seed = held_out, keep_held_out, seed
        self.rehearse, self.thumbnails = rehearse, thumbnails
        self.values = values
        self.backbone = load_backbone(backbone, image_size=image_size, products=suited()).eval()
        self.view = ImageView(self.backbone.image_size, values=self.backbone.values or "unit")
        config = _configuration(method, seed, values)
        self.plan = Plan(**config["plan"])
        self._learner_values = {name: value for name, value in config["learner"].items() if name != "name"}
        self._learner_name = config["learner"]["name"]
        at_most(MOST_PROJECTIONS, projections=self._learner_values.get("projections", 0))
        if self._learner_name == METHOD:
            self._learner_values["keep"] = values.get("keep", "features")
        self.learner = self._new_learner()
        self.known = Knowledge()
        self.new_thumbnails: dict[int, bytes] = {}  # by the id of the picture, until they are saved
        self.folder: Path | None = None  # where those lie that are saved

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

    def learn(
        self,
        data: Any,
        labels: Iterable[object] | None = None,
        *,
        strict: bool = False,
        progress: str | Path | None = None,
    ) -> Lesson:
        """Learn from a folder, from pairs of picture and label, or from pictures with `labels` beside them.

        In the folder `progress` a long lesson notes how far it is: killed and given again, it goes on from there. Where
        all pictures were learned before there is nothing to learn: the lesson has no pictures and the number 0.
        """
        begin = time.monotonic()
        found = labelled(data, labels, size=self.backbone.image_size, strict=strict)
        saved = copied(state(self.learner)), copy.deepcopy(self.known)
        thumbnails = dict(self.new_thumbnails)
        try:
            return self._learn(found, begin, None if progress is None else Path(progress))
        except BaseException:
            self.known, self.new_thumbnails = saved[1], thumbnails
            self.restore(saved[0], len(self.known.labels))
            raise

    def _learn(self, found: Labelled, begin: float, progress: Path | None) -> Lesson:
        known, number = self.known, self.known.next_lesson
        when = datetime.now(UTC).isoformat(timespec="seconds")
        earlier = judging.kept(self.learner, known, self.seed)
        before = self._judged(earlier)
        new = tuple(label for label in found.labels if label not in known.labels)
        known.labels += new
        table = torch.tensor([known.labels.index(label) for label in found.labels], dtype=torch.long)
        examples = found.examples.relabel(table)
        fresh, again = self._fresh(examples)
        if not len(fresh):
            copies, took = len(examples), round(time.monotonic() - begin, 1)
            return Lesson(
                0, when, {}, (), duplicates=copies, left_out=found.left_out, skipped=found.skipped, seconds=took
            )
        examples = examples.select(fresh)
        known_as = known.learned_as(examples.ids, examples.y)
        names = tuple(found.names[row] for row in fresh.tolist())
        small = _small(examples)
        near = near_copies(small, names, known.pictures)
        held = held_out(examples, self.held_out)
        judged, learned = examples.select(held), examples.select(~held)
        if self.rehearse is not None:
            self.restore(state(self.learner), len(known.labels))
        self._empty_stores(progress)
        self._teach(learned, number, progress)
        scores = self._scores(judged)
        right = judging.Judged(scores, judged.y).accuracy
        if not isinstance(self.learner, ClosedForm) or self.keep_held_out or self.learner.keep != "features":
            self._keep_held_out(judged, number)
        if isinstance(self.learner, ClosedForm) and not self.keep_held_out:
            self._teach(judged, number, progress)
            learned, held = examples, torch.zeros_like(held)
        self._note_pictures(learned, small[~held], again, number)
        self._calibrate(judging.Judged(scores, judged.y))
        after = self._judged(earlier)
        counts = torch.bincount(examples.y, minlength=len(known.labels)).tolist()
        lesson = Lesson(
            number=number,
            when=when,
            counts={label: count for label, count in zip(known.labels, counts, strict=True) if count},
            new=new,
            held_out=len(judged),
            accuracy=right,
            before=before.accuracy,
            after=after.accuracy,
            suffered=judging.suffered(before, after, known.labels),
            doubtful=self._doubtful(learned, tuple(name for name, out in zip(names, held, strict=True) if not out)),
            duplicates=len(found.examples) - len(fresh),
            near=near,
            known_as=known_as,
            left_out=found.left_out,
            skipped=found.skipped,
            seconds=round(time.monotonic() - begin, 1),
        )
        known.lessons.append(lesson)
        self._empty_stores()
        return lesson

    def _fresh(self, examples: Examples) -> tuple[Tensor, Tensor]:
        """The places of pictures that are no copies of others; and those, among the known, of which there are copies.

        Methods that take steps may see a picture again.
        """
        first, again = dict[tuple[int, int], int](), set[int]()
        if not isinstance(self.learner, ClosedForm):
            return torch.arange(len(examples)), torch.zeros(0, dtype=torch.long)
        learned = self.known.pictures.places()
        for place, key in enumerate(zip(examples.ids.tolist(), examples.y.tolist(), strict=True)):
            if key in learned:
                again.add(learned[key])
            else:
                first.setdefault(key, place)
        return torch.tensor(list(first.values()), dtype=torch.long), torch.tensor(sorted(again), dtype=torch.long)

    def restore(self, learned: dict[str, Any], class_count: int) -> None:
        """Have learned what the `state` of a learner says, with memory for so many classes."""
        if self.rehearse is not None and class_count:
            self._learner_values |= memory_values(methods()[self.method], self.rehearse, class_count)
        self.learner = self._new_learner()
        restore(self.learner, learned)
        self.learner.before_evaluation()

    def _empty_stores(self, folder: Path | None = None) -> None:
        """Let go of the features of pictures that were seen, so that memory does not grow with questions.

        Those that stand in the folder are taken, and new ones are written there.
        """
        if self.holds_features:
            return
        if self.learner.reads_frozen:
            store = self.learner.frozen
            self.learner.frozen = FrozenFeatures(store.backbone, store.view, store.readout)
            if folder is not None:
                self.learner.frozen.share(folder / "features")
        if isinstance(self.learner, ClosedForm) and self.learner.prompted is not None:
            self.learner.read_with(self.learner.pool)

    def _teach(self, examples: Examples, number: int, progress: Path | None) -> None:
        if len(examples):
            names = tuple(label or UNKNOWN for label in self.known.labels)
            try:
                teach(self.learner, examples, number - 1, names, self.plan, progress)
            except ValueError as error:
                other = "" if isinstance(self.learner, ClosedForm) else f"; method={METHOD!r} can learn this"
                raise ValueError(f"{error}{other}") from error
            if has_nonsense(state(self.learner)):
                raise ValueError("the lesson ended in numbers that are none: steps are too long, or weights damaged")

    def _scores(self, examples: Examples) -> Tensor:
        """The scores of pictures, minus infinity for classes that are not known: [n, C]."""
        parts = [ask(self.learner, batch.x, self.known).scores for batch in examples.batches(AT_ONCE)]
        return torch.cat(parts) if parts else torch.zeros(0, len(self.known.labels))

    def _keep_held_out(self, examples: Examples, number: int) -> None:
        """Keep the features of held-out pictures, if the method can judge by them later."""
        if not self.learner.answers_from_features or not len(examples):
            return
        rows = torch.cat([self.learner.frozen(batch).cpu().half() for batch in examples.batches(AT_ONCE)])
        known = self.known
        known.held_rows = torch.cat([known.held_rows, rows]) if len(known.held_rows) else rows
        known.held_labels = torch.cat([known.held_labels, examples.y])
        known.held_lessons = torch.cat([known.held_lessons, torch.full_like(examples.y, number)])

    def _note_pictures(self, learned: Examples, small: Tensor, again: Tensor, number: int) -> None:
        """Remember which pictures were learned, and which of earlier lessons this one had too."""
        pictures = Pictures(learned.ids, learned.y, torch.full_like(learned.y, number), small)
        repeated = self.known.pictures.only(again)._replace(lessons=torch.full_like(again, number))
        self.known.pictures = self.known.pictures.with_more(pictures).with_more(repeated)
        if self.thumbnails:
            for batch in learned.batches(AT_ONCE):
                self.new_thumbnails |= {
                    identity: thumbnail(x) for identity, x in zip(batch.ids.tolist(), batch.x, strict=True)
                }

    def _judged(self, places: Tensor) -> judging.Judged:
        return judging.judged(self.learner, self.known, places, learned=not self.keep_held_out)

    def judged(self) -> judging.Judged:
        """Scores of kept examples as if they had not been learned; none where the method keeps none."""
        return self._judged(judging.kept(self.learner, self.known, self.seed))

    def accuracies(self) -> dict[str, float]:
        """For each class the share of its pictures that are right as if they had not been learned."""
        return {self.known.labels[c]: share for c, share in self.judged().by_class().items()}

    def confusion(self) -> tuple[tuple[str, ...], Tensor] | None:
        """Labels, and how often pictures of each (rows) are taken for each (columns); None if that is not known."""
        found = self.judged()
        if not len(found.labels):
            return None
        numbers = torch.tensor([self.known.labels.index(label) for label in self.labels])
        return self.labels, found.confusion()[numbers][:, numbers]

    def prompt_counts(self) -> tuple[int, ...] | None:
        """How often each prompt was chosen in training; None for methods without a pool."""
        counts = getattr(getattr(self.learner, "pool", None), "counts", None)
        return None if counts is None else tuple(counts.tolist())

    def about_prompts(self) -> str:
        """What the first lesson has settled about prompts, in words; nothing for methods that settle nothing."""
        learner = self.learner
        if not isinstance(learner, ClosedForm) or learner.adapt == "none" or not self.lessons:
            return ""
        if learner.adapt == "prompts":
            return "learned in the first lesson"
        taken = "not taken" if learner.prompted is None else "taken"
        gain, error = (100 * share for share in learner.trial.tolist())
        if not error:
            return f"{taken}: the first lesson had no errors that they could mend, or too few classes to try them"
        return f"{taken}: {gain:+.1f} \u00b1 {error:.1f} points right, tried on the first lesson"

    def counts(self) -> dict[str, int]:
        """How many pictures of each class were learned; of methods that never learn those held out, were taught."""
        if not isinstance(self.learner, ClosedForm):
            return {label: sum(each.counts.get(label, 0) for each in self.known.lessons) for label in self.labels}
        found = torch.zeros(len(self.known.labels), dtype=torch.long)
        for _, owner in self.known.pictures.places():
            found[owner] += 1
        return {label: int(found[self._number(label)]) for label in self.labels}

    def _calibrate(self, latest: judging.Judged | None = None) -> None:
        """Find out how sure answers are, from kept examples, or else from those of the latest lesson."""
        found = self.judged()
        if not len(found.labels) and latest is not None and not isinstance(self.learner, ClosedForm):
            if not len(latest.labels):
                return
            found = latest
        self.known.calibration = judging.calibration(found, len(self.labels))

    def _doubtful(self, learned: Examples, names: tuple[str, ...]) -> tuple[tuple[str, str, str], ...]:
        if not isinstance(self.learner, ClosedForm) or len(self.labels) < 2 or not len(learned):
            return ()
        rows = torch.cat([self.learner.read(batch) for batch in learned.batches(AT_ONCE)])
        return doubtful(self.learner, rows, learned.y, names, self.known)

    def predict(self, data: Any, *, top: int = 5, sure: float | None = None) -> Any:
        """A `Prediction` for one picture or the path of one, a list of them for a folder or many pictures.

        With `sure` an answer is given only where, as measured, at least that share of such answers is right.
        """
        found = list(self.predictions(data, top=top, sure=sure))
        alone = Path(data).expanduser().is_file() if isinstance(data, str | Path) else is_one(data)
        return found[0] if alone else found

    def top(self, data: Any, k: int = 5) -> Any:
        """The best k labels with their confidences, for one picture or for each of many."""
        found = self.predict(data, top=k)
        return found.top if isinstance(found, Prediction) else [each.top for each in found]

    def predict_proba(self, data: Any) -> npt.NDArray[np.float64]:
        """The confidence in each class, in the order of `labels`: [n, C]; raises where a file is no picture."""
        numbers = [self._number(label) for label in self.labels]
        rows = []
        for pictures in self._read(data):
            for picture in pictures:
                if picture.pixels is None:
                    raise ValueError(f"{picture.name}: {picture.reason}")
            scores = self.ask(torch.stack([each.pixels for each in pictures if each.pixels is not None])).scores
            rows.append(self.known.calibration.probabilities(scores)[:, numbers].numpy())
        return np.concatenate(rows) if rows else np.zeros((0, len(numbers)))

    def predictions(
        self, data: Any, *, top: int = 5, sure: float | None = None, similar: int = 0
    ) -> Iterator[Prediction]:
        """Answers one by one, so that any number of pictures takes little memory.

        With `similar` each names so many learned pictures that are most like it, if the method keeps their features.
        """
        whole_number(1, top=top)
        whole_number(0, similar=similar)
        if sure is not None and not (isinstance(sure, Real) and 0 < sure <= 1):
            raise ValueError(f"sure = {sure!r}: must be above 0 and at most 1")
        for pictures in self._read(data):
            images = [picture.pixels for picture in pictures if picture.pixels is not None]
            asked = self.ask(torch.stack(images), similar=similar) if images else None
            yield from answered(pictures, asked, self.known, top=top, sure=sure)

    def _read(self, data: Any) -> Iterator[list[Picture]]:
        """Pictures to be asked about, some at once."""
        if not self.labels:
            raise ValueError("nothing was learned yet: learn first")
        waiting: list[Picture] = []
        for number, picture in enumerate(unlabelled(data, size=self.backbone.image_size), start=1):
            waiting.append(picture)
            if len(waiting) == AT_ONCE:
                yield waiting
                report("asking", number)
                waiting = []
        if waiting:
            yield waiting

    def ask(self, pixels: Tensor, *, similar: int = 0) -> Asked:
        """What the learner says of pictures that are as large as the backbone looks at them: uint8 [n, 3, S, S]."""
        self._empty_stores()
        return ask(self.learner, pixels, self.known, similar=similar)

    def strange(self, asked: Asked) -> Tensor:
        """True for pictures that are like none that was learned: [n]."""
        best = self.known.calibration.probabilities(asked.scores).max(dim=1).values.tolist()
        far = [None] * len(best) if asked.far is None else asked.far.tolist()
        return torch.tensor([self.known.calibration.is_strange(*pair) for pair in zip(best, far, strict=True)])

    def forget(self, label: str) -> None:
        """Take a class out, as if it had never been learned; only the closed form can."""
        number, learner = self._number(label), self._exact("take a class out")
        first = min((each.number for each in self.known.lessons), default=0)
        pictures = self.known.pictures
        if learner.adapt != "none" and ((pictures.lessons == first) & (pictures.owners == number)).any():
            settled = _rests_on_first(learner)
            raise ValueError(f"{label!r} cannot be taken out: {settled} with its pictures; teach another instead")
        learner.forget([number])
        self.known.drop_class(number)
        self._calibrate()

    def take_out(self, lesson: int) -> None:
        """Take a lesson out, as if it had never been given; only the closed form can."""
        learner, numbers = self._exact("take a lesson out"), [each.number for each in self.known.lessons]
        if lesson not in numbers or not (self.known.pictures.lessons == lesson).any():
            given = ", ".join(map(str, numbers)) or "none"
            raise ValueError(f"lesson {lesson}: is not there, or its pictures are not known; there are {given}")
        if learner.adapt != "none" and lesson == min(numbers):
            raise ValueError(
                f"lesson {lesson}: {_rests_on_first(learner)} in it, and everything after it rests on that"
            )
        gone = self.known.drop_lesson(lesson)
        keys = zip(learner.ids.tolist(), learner.labels.tolist(), strict=True)
        learner.take_out(torch.tensor([key in gone for key in keys], dtype=torch.bool))
        for number, label in enumerate(self.known.labels):
            if label and not learner.sums.counts[number]:
                self.known.drop_class(number)
        self._calibrate()

    def rename(self, old: str, new: str) -> None:
        """Give a class another name; if a class has it, the two become one, which only the closed form can do."""
        number, new = self._number(old), checked_label(new)
        if self.known.labels[number] == new:
            raise ValueError(f"{new!r}: is its name already")
        if new not in self.known.labels:
            self.known.labels[number] = new
            return
        into, learner = self.known.labels.index(new), self._exact("make one class of two")
        both = self.known.pictures.in_both(number, into)
        learner.take_out((learner.labels == number) & torch.isin(learner.ids, both))  # a picture counts once
        learner.relabel(number, into)
        self.known.join_class(number, into)
        self._calibrate()

    def merge(self, other: ContinualClassifier) -> None:
        """Learn all that another classifier of the same kind has learned; only the closed form can."""
        if not isinstance(other, ContinualClassifier) or other is self:
            raise ValueError(f"{type(other).__name__}: merge takes a classifier, another than itself")
        from promptpool.classifier import files  # which makes classifiers

        own, others = self._exact("be merged"), other._exact("be merged")
        if self.backbone.origin != other.backbone.origin:
            raise ValueError(f"the backbones differ: {self.backbone.origin} and {other.backbone.origin}")
        own.check_fits(others)
        known, theirs = self.known, other.known
        known.labels += [label for label in other.labels if label not in known.labels]
        table = torch.tensor([known.labels.index(label) if label else 0 for label in theirs.labels], dtype=torch.long)
        learned, labels = known.pictures.places(), table[others.labels]
        pairs = zip(others.ids.tolist(), labels.tolist(), strict=True)
        fresh = torch.tensor([key not in learned for key in pairs], dtype=torch.bool)  # a picture counts once
        own.add_rows(others.rows[fresh], labels[fresh], others.ids[fresh])
        numbers = {0: 0}
        for lesson in theirs.lessons:
            numbers[lesson.number] = known.next_lesson
            known.lessons.append(replace(lesson, number=known.next_lesson))
        known.add_known(theirs, table, numbers)
        if self.thumbnails:
            self.new_thumbnails |= files.all_thumbnails(other)
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

    def save_pretrained(self, folder: str | Path) -> None:
        """What `save` does, by the name it has at Hugging Face."""
        self.save(folder)

    @classmethod
    def from_pretrained(
        cls,
        name_or_folder: str | Path,
        *,
        revision: str | None = None,
        token: str | None = None,
        backbone: str | Path | None = None,
    ) -> ContinualClassifier:
        """The classifier in a folder, or on the Hugging Face hub at a branch, tag or commit.

        `token` is for private ones (by default HF_TOKEN), `backbone` says where its backbone lies, as with `load`.
        """
        from promptpool.classifier import pretrained

        return pretrained.from_pretrained(name_or_folder, revision=revision, token=token, backbone=backbone)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool = False,
        token: str | None = None,
        commit_message: str | None = None,
        licence: str | None = None,
    ) -> str:
        """Write it to the Hugging Face hub, and return the address of the commit; the model there is made if needed.

        What was learned goes there: labels, features and tiny grey versions of the pictures, those in the memory of a
        method that has one, and what each lesson said, with names of pictures. Thumbnails and earlier versions do not,
        nor does the backbone: of one that is a file, its name and hash do.
        """
        from promptpool.classifier import pretrained

        return pretrained.push_to_hub(
            self, repo_id, private=private, token=token, commit_message=commit_message, licence=licence
        )

    def export_onnx(self, path: str | Path) -> Agreement:
        """Write one ONNX file that answers without promptpool, and say how well it agrees; needs `promptpool[onnx]`."""
        from promptpool.classifier.onnx_file import export_onnx

        return export_onnx(self, Path(path))

    def _number(self, label: str) -> int:
        text = normal(label) if isinstance(label, str) else label
        if text not in self.labels:
            more = f" and {len(self.labels) - NAMED} more" if len(self.labels) > NAMED else ""
            known = ", ".join(self.labels[:NAMED]) or "none"
            raise ValueError(f"{reprlib.repr(label)}: no such class; it knows {known}{more}")
        return self.known.labels.index(text)

    def _exact(self, what: str) -> ClosedForm:
        """The learner, if it keeps what it learned from."""
        if not isinstance(self.learner, ClosedForm) or self.learner.keep != "features":
            raise ValueError(f"method = {self.method!r}: cannot {what}; {METHOD!r} with keep = 'features' can")
        return self.learner


def _small(examples: Examples) -> Tensor:
    """The small grey versions of all examples: uint8 [n, 64]."""
    parts = [small_grey(batch.x) for batch in examples.batches(AT_ONCE)]
    return torch.cat(parts) if parts else small_grey(torch.zeros(0, 3, 8, 8, dtype=torch.uint8))


def _rests_on_first(learner: ClosedForm) -> str:
    """What the first lesson has settled for good, where there is an `adapt`."""
    return "whether to take prompts was decided" if learner.adapt == "auto" else "the prompts were learned"


def _configuration(method: str, seed: int, values: dict[str, Any]) -> dict[str, Any]:
    """Learner and plan of a method on images of one's own."""
    config = pair(benchmarks()["own"], methods()[method])
    config["learner"] |= values
    return complete(config | {"seed": seed})
