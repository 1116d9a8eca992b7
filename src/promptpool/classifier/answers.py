"""What a classifier says of pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from promptpool.classifier.judging import seen_only
from promptpool.classifier.lessons import Knowledge
from promptpool.classifier.pictures import UNKNOWN, Picture
from promptpool.data.stream import Batch, content_id
from promptpool.learners.base import Learner
from promptpool.learners.closed_form import ClosedForm
from promptpool.learners.prompted import PromptedLearner


@dataclass(frozen=True)
class Prediction:
    """An answer: `label`, or "unknown"; `guess` is the best class either way, `top` the best few with their shares."""

    name: str
    label: str
    confidence: float
    top: tuple[tuple[str, float], ...]
    error: str = ""  # why there is no answer: the file is no picture
    prompts: tuple[int, ...] | None = None  # those that were chosen for it, nearest first
    similar: tuple[tuple[str, str], ...] = ()  # learned pictures most like it: the id of each as text, and its label

    @property
    def guess(self) -> str:
        return self.top[0][0] if self.top else ""


class Asked(NamedTuple):
    """What a learner says of some inputs."""

    scores: Tensor  # [n, C], minus infinity for classes that are not known
    far: Tensor | None  # [n], the distance to the nearest class, where the method has distances
    prompts: Tensor | None  # [n, N]
    similar: list[tuple[tuple[str, str], ...]] | None  # of each, the learned pictures that are most like it


@torch.no_grad()
def ask(learner: Learner, images: Tensor, known: Knowledge, *, similar: int = 0) -> Asked:
    """What a learner says of raw inputs [n, 3, H, W]."""
    learner.eval()
    ids = torch.tensor([content_id(image.numpy()) for image in images], dtype=torch.long)
    batch = Batch(images, torch.zeros(len(images), dtype=torch.long), ids).to(learner.device)
    if isinstance(learner, ClosedForm):
        return ask_rows(learner, learner.read(batch), known, similar=similar)
    scores, prompts = seen_only(learner, learner.logits(batch).cpu()[:, : len(known.labels)]), None
    if isinstance(learner, PromptedLearner):
        prompts = learner.pool.choose(learner.pool.distances(learner.frozen(batch))).cpu()
    return Asked(scores, None, prompts, None)


@torch.no_grad()
def ask_rows(learner: ClosedForm, rows: Tensor, known: Knowledge, *, similar: int = 0) -> Asked:
    """What the closed form says of inputs of which it has read the rows [n, d]."""
    scores = seen_only(learner, learner.score(rows)[:, : len(known.labels)])
    far = None if learner.gaussian is None else learner.distance(rows)
    alike = _most_like(learner, rows, similar, known) if similar and len(learner.rows) else None
    return Asked(scores, far, None, alike)


def _most_like(learner: ClosedForm, rows: Tensor, count: int, known: Knowledge) -> list[tuple[tuple[str, str], ...]]:
    """The learned pictures with the most similar features, by cosine: the id of each and its label."""
    near = F.normalize(rows.float(), dim=1) @ F.normalize(learner.rows.float(), dim=1).T
    places = near.topk(min(count, len(learner.rows)), dim=1).indices
    ids, labels = learner.ids[places].tolist(), learner.labels[places].tolist()
    return [
        tuple((id_text(one), known.labels[owner]) for one, owner in zip(*pair, strict=True))
        for pair in zip(ids, labels, strict=True)
    ]


def id_text(identity: int) -> str:
    """The id of a picture as text, and as the name of its thumbnail."""
    return f"{identity % 2**64:016x}"


def answered(
    pictures: list[Picture], asked: Asked | None, known: Knowledge, *, top: int, sure: float | None
) -> Iterator[Prediction]:
    """An answer for each picture; those without pixels are not among the asked."""
    numbers = [number for number, label in enumerate(known.labels) if label]
    needed = 0.0 if sure is None else known.calibration.least_confidence(sure)
    row = 0
    for picture in pictures:
        if picture.pixels is None or asked is None:
            yield Prediction(picture.name, UNKNOWN, 0.0, (), picture.reason)
            continue
        scores = asked.scores[row]
        shares = known.calibration.probabilities(scores[None])[0]
        places = sorted(numbers, key=lambda number: -float(scores[number]))[:top]
        best = tuple((known.labels[place], float(shares[place])) for place in places)
        unsure = needed is None or best[0][1] < needed
        strange = known.calibration.is_strange(best[0][1], None if asked.far is None else float(asked.far[row]))
        yield Prediction(
            picture.name,
            UNKNOWN if unsure or strange else best[0][0],
            best[0][1],
            best,
            prompts=None if asked.prompts is None else tuple(asked.prompts[row].tolist()),
            similar=() if asked.similar is None else asked.similar[row],
        )
        row += 1
