"""What a review finds among pictures without labels, and among those that have some.

A method other than the closed form has confidences alone: what cannot be said without features is named in `missing`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from promptpool.classifier.classifier import METHOD, ContinualClassifier
from promptpool.classifier.evaluation import ClassResult, evaluated
from promptpool.classifier.looking import Seen
from promptpool.classifier.review import first_of_copies, groups, margins, reach, to_label, wrong_labels
from promptpool.learners.closed_form import ClosedForm


@dataclass(frozen=True)
class ToLabel:
    """Pictures without labels, as rows of what was seen."""

    first: tuple[int, ...]  # to label first, in this order
    new: tuple[tuple[int, ...], ...]  # like no known class: groups of look-alikes, large ones first
    learned: int = 0  # copies of pictures that were learned, which need no label
    copies: int = 0  # of others among them
    missing: str = ""  # what cannot be said


@dataclass(frozen=True)
class Doubts:
    """Pictures with labels, as rows of what was seen."""

    wrong: tuple[tuple[int, str], ...]  # whose labels look wrong, the likeliest first, and what they look like
    unknown: tuple[ClassResult, ...]  # labels that the classifier does not know
    judged: int  # pictures with a label that it knows
    learned: int = 0  # among them
    missing: str = ""


def unlabelled_findings(seen: Seen, classifier: ContinualClassifier, most: int) -> ToLabel:
    """Choose `most` pictures to label first, and group those that look new."""
    r = _reach(classifier)
    rows = seen.rows if r is not None else None
    first, fresh = first_of_copies(seen.ids), seen.owners < 0
    open_ = (first & fresh & ~seen.far).nonzero().flatten()
    chosen = to_label(1 - margins(seen.shares[open_]), None if rows is None else rows[open_], r, most)
    new = (first & fresh & seen.far).nonzero().flatten()
    grouped = (
        groups(rows[new], r) if rows is not None and r is not None and len(new) else [[n] for n in range(len(new))]
    )
    return ToLabel(
        first=tuple(open_[chosen].tolist()),
        new=tuple(tuple(new[group].tolist()) for group in grouped),
        learned=int((~fresh).sum()),
        copies=int((fresh & ~first).sum()),
        missing=_missing(classifier, r),
    )


def labelled_findings(seen: Seen, classifier: ContinualClassifier) -> Doubts:
    """Ask which labels look wrong, and which are not known."""
    column = {label: place for place, label in enumerate(seen.classes)}
    rows = [row for row, label in enumerate(seen.labels) if label in column]
    labels = torch.tensor([column[seen.labels[row]] for row in rows], dtype=torch.long)
    learned = int((seen.owners[rows] >= 0).sum())
    missing = ""
    if learned and not isinstance(classifier.learner, ClosedForm):
        missing = (
            f"{learned:,} of these pictures were learned, and {classifier.method} cannot judge them as if they had not "
            f"been: their labels look right to it; {METHOD} can"
        )
    return Doubts(
        wrong=tuple((rows[place], seen.classes[other]) for place, other in wrong_labels(seen.shares[rows], labels)),
        unknown=evaluated(seen).strange,
        judged=len(rows),
        learned=learned,
        missing=missing,
    )


def _reach(classifier: ContinualClassifier) -> float | None:
    """How far apart pictures of one class are; None where features were not kept, or no class has two."""
    learner = classifier.learner
    return reach(learner.rows, learner.labels) if isinstance(learner, ClosedForm) else None


def _missing(classifier: ContinualClassifier, r: float | None) -> str:
    learner = classifier.learner
    if not isinstance(learner, ClosedForm):
        return (
            f"{classifier.method} has no features to compare: look-alikes may be listed beside each other, and none is "
            f"said to look new; {METHOD} can say so"
        )
    if r is None:
        return "no class has two learned pictures whose features were kept: look-alikes may be listed beside each other"
    if learner.gaussian is None or classifier.known.calibration.farthest is None:
        return "nothing is said to look new: that needs distances to at least two classes"
    return ""
