"""What pictures look like: near-copies, labels that look wrong, thumbnails."""

from __future__ import annotations

import io

from PIL import Image
from torch import Tensor

from promptpool.classifier.lessons import NEAR, Knowledge, Pictures, nearest
from promptpool.learners.closed_form import ClosedForm

NAMED = 10  # pictures that a lesson's report names
THUMBNAIL = 96  # pixels of a side, at most


def near_copies(small: Tensor, names: tuple[str, ...], earlier: Pictures) -> tuple[tuple[str, str], ...]:
    """Pictures of a lesson that are nearly the same as one before them in it, or as one of an earlier lesson.

    Two are nearly the same if their small grey versions are less than four of 255 levels apart, root mean square.
    """
    found: dict[int, str] = {}
    if len(small) and len(earlier.small):
        place, distance = nearest(small, earlier.small)
        for row in (distance < NEAR).nonzero().flatten().tolist():
            lesson = int(earlier.lessons[place[row]])
            found[row] = f"a picture of lesson {lesson}" if lesson else "an earlier picture"
    for row in range(1, len(small)):
        if row not in found:
            place, distance = nearest(small[row : row + 1], small[:row])
            if float(distance) < NEAR:
                found[row] = names[int(place)]
    return tuple((names[row], what) for row, what in sorted(found.items()))


def doubtful(
    learner: ClosedForm, rows: Tensor, labels: Tensor, names: tuple[str, ...], known: Knowledge
) -> tuple[tuple[str, str, str], ...]:
    """The learned pictures that most look like another class than their label says: name, label, and that class."""
    scores = learner.leave_one_out(rows, labels)[:, : len(known.labels)]
    shares = known.calibration.probabilities(scores)
    own = shares.gather(1, labels[:, None])[:, 0]
    best, answers = shares.max(dim=1)
    several = learner.sums.counts[labels] > 1
    wrong = ((answers != labels) & several).nonzero().flatten()
    order = wrong[(best - own)[wrong].argsort(descending=True, stable=True)].tolist()
    return tuple((names[row], known.labels[int(labels[row])], known.labels[int(answers[row])]) for row in order[:NAMED])


def thumbnail(pixels: Tensor) -> bytes:
    """A small JPEG of raw pixels [3, H, W]."""
    image = Image.fromarray(pixels.permute(1, 2, 0).contiguous().cpu().numpy())
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    file = io.BytesIO()
    image.save(file, format="JPEG", quality=85)
    return file.getvalue()
