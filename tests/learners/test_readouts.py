"""What learners on frozen features read of the backbone, beyond its [class] feature."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from promptpool.backbones.base import ROWS, FeatureExtractor, Readout
from promptpool.data.views import ImageView
from promptpool.learners.base import Learner
from promptpool.metrics import learning_accuracy
from promptpool.training import learn
from promptpool.training.record import accuracy_matrix
from toys import METHODS, RANDOM_VIEW, SHORT, VALUES, VIEW, toy_backbone, toy_examples, toy_plan, toy_stream

NAMES = ("ft-seq-frozen", "masked-linear", "nearest-mean", "ranpac")
READOUTS = [
    readout for readout in (Readout(blocks, rows) for blocks in (1, 2) for rows in ROWS) if readout != Readout()
]

pytestmark = [pytest.mark.parametrize("name", NAMES), pytest.mark.parametrize("readout", READOUTS, ids=str)]


class Read(FeatureExtractor):
    """A model that gives nothing of an image but a readout of the toy backbone."""

    def __init__(self, readout: Readout) -> None:
        super().__init__()
        self.inner, self.asked = toy_backbone(), readout
        self.dim = readout.parts * self.inner.dim

    def features(self, x: Tensor) -> Tensor:
        return self.inner.read(x, self.asked)


def learner_of(name: str, readout: Readout, view: ImageView = VIEW) -> Learner:
    values = {**VALUES.get(name, {}), "readout_blocks": readout.blocks, "readout_rows": readout.rows}
    return METHODS[name](toy_backbone(), view, **values)


def test_features_are_what_the_backbone_reads(name: str, readout: Readout) -> None:
    learner, batch = learner_of(name, readout), toy_examples(5, 2).batch(slice(None))
    with torch.no_grad():
        expected = toy_backbone().read(VIEW.plain(batch.x), readout)
    assert expected.shape == (30, readout.parts * 32)
    for read in (learner.features, learner.eval().features, learner.frozen):
        torch.testing.assert_close(read(batch), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("view", [VIEW, RANDOM_VIEW], ids=["fixed", "random"])
def test_it_learns_from_the_readout_and_nothing_else(name: str, readout: Readout, view: ImageView) -> None:
    ours, other = learner_of(name, readout, view), METHODS[name](Read(readout), view, **VALUES.get(name, {}))
    stream, batch = toy_stream(), toy_examples(5, 2).batch(slice(None))
    found, expected = (list(learn(learner, stream, SHORT)) for learner in (ours, other))
    assert [record.to_json() for record in found] == [record.to_json() for record in expected]
    assert torch.equal(ours.logits(batch), other.logits(batch))
    default = METHODS[name](toy_backbone(), view, **VALUES.get(name, {}))
    list(learn(default, stream, SHORT))
    assert not torch.allclose(ours.logits(batch), default.logits(batch), atol=1e-3)


def test_it_learns_each_task_when_it_is_new(name: str, readout: Readout) -> None:
    records = list(learn(learner_of(name, readout), toy_stream(), toy_plan(name)))
    assert learning_accuracy(accuracy_matrix(records)) > 0.8
