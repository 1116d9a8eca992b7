import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from promptpool.backbones.base import FeatureExtractor
from promptpool.data.scenarios import class_incremental
from promptpool.data.stream import Batch, Examples, examples
from promptpool.data.views import ImageView
from promptpool.learners.nearest_mean import DISTANCES, NearestMean
from promptpool.learners.state import restore, state
from promptpool.optim import Descent
from promptpool.training.evaluation import predict
from promptpool.training.loop import Plan, Session
from toys import CLASSES, toy_backbone, toy_examples, toy_stream

VIEW = ImageView(8)


class Far(FeatureExtractor):
    """Features far from the origin, all close together."""

    dim = 12

    def features(self, x: Tensor) -> Tensor:
        return 300 + x.flatten(1)[:, :12]


def learner_of(distance: str = "cosine") -> NearestMean:
    return NearestMean(toy_backbone(dim=16), VIEW, distance=distance)


def learned(distance: str, order: list[int], train: Examples, step: int = 9) -> NearestMean:
    """A learner after the classes came one by one in this order."""
    learner = learner_of(distance)
    for label in order:
        learner.add_classes([label])
        for batch in train.select(train.y == label).batches(step):
            assert learner.step(batch, Descent([])) is None
    return learner


def slow_means(learner: NearestMean, train: Examples) -> dict[int, list[float]]:
    features = learner.frozen(train.batch(slice(None))).tolist()
    means = {}
    for label in train.classes:
        own = [feature for feature, y in zip(features, train.y.tolist(), strict=True) if y == label]
        means[label] = [math.fsum(column) / len(own) for column in zip(*own, strict=True)]
    return means


def slow_score(distance: str, feature: list[float], mean: list[float]) -> float:
    if distance == "euclidean":
        return -math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(feature, mean, strict=True)))
    norms = math.sqrt(math.fsum(a * a for a in feature)) * math.sqrt(math.fsum(b * b for b in mean))
    return math.fsum(a * b for a, b in zip(feature, mean, strict=True)) / norms


@pytest.mark.parametrize("distance", DISTANCES)
def test_scores_and_predictions_are_those_of_a_loop(distance: str) -> None:
    train, test = toy_examples(13, 1), toy_examples(5, 2)
    learner = learned(distance, list(range(CLASSES)), train).eval()
    means, batch = slow_means(learner, train), test.batch(slice(None))
    scores = [
        [slow_score(distance, feature, means[c]) for c in range(CLASSES)] for feature in learner.frozen(batch).tolist()
    ]
    torch.testing.assert_close(learner.logits(batch), torch.tensor(scores), atol=1e-5, rtol=1e-5)
    assert predict(learner, batch).tolist() == [row.index(max(row)) for row in scores]


@pytest.mark.parametrize("distance", DISTANCES)
def test_the_order_of_tasks_and_batches_changes_nothing(distance: str) -> None:
    train, batch = toy_examples(13, 1), toy_examples(5, 2).batch(slice(None))
    first = learned(distance, [0, 1, 2, 3, 4, 5], train)
    for order, step in (([5, 4, 3, 2, 1, 0], 9), ([3, 0, 5, 1, 4, 2], 1), ([0, 1, 2, 3, 4, 5], 100)):
        other = learned(distance, order, train, step)
        assert torch.equal(first.sums, other.sums)
        assert torch.equal(first.counts, other.counts)
        assert torch.equal(first.logits(batch), other.logits(batch))


def test_sums_are_exact() -> None:
    train = toy_examples(13, 1)
    learner = learned("cosine", [2, 0, 1], train)
    features = learner.frozen(train.batch(slice(None))).tolist()
    assert learner.counts.tolist() == [13, 13, 13]
    for label in range(3):
        own = [feature for feature, y in zip(features, train.y.tolist(), strict=True) if y == label]
        for column, total in enumerate(learner.sums[label].tolist()):
            assert Fraction(total) == sum(Fraction(feature[column]) for feature in own)


def test_a_class_may_come_in_several_tasks() -> None:
    train = toy_examples(12, 1, classes=2)
    at_once = learned("cosine", [0, 1], train)
    in_parts = learner_of()
    for part in (slice(0, 5), slice(10, 24), slice(5, 10)):
        in_parts.add_classes(train.select(part).classes)
        in_parts.step(train.batch(part), Descent([]))
    assert torch.equal(at_once.sums, in_parts.sums)


@pytest.mark.parametrize("epochs", [1, 5])
def test_one_pass_over_a_stream(epochs: int) -> None:
    stream = toy_stream()
    learner = learner_of()
    session = Session(learner, stream, Plan(epochs=epochs, batch_size=10))
    steps = list(session)
    assert len(steps) == session.steps == sum(-(-len(e.train) // 10) for e in stream.experiences)
    assert all(step.loss is None for step in steps)
    assert learner.counts.sum() == sum(len(experience.train) for experience in stream.experiences)


def test_nothing_is_trained() -> None:
    learner = learner_of()
    learner.add_classes(range(3))
    assert not any(parameter.requires_grad for parameter in learner.parameters())


def test_predictions_are_among_the_classes_seen() -> None:
    stream = class_incremental(toy_examples(8, 1), toy_examples(5, 2), [f"{c}" for c in range(CLASSES)], tasks=3)
    learner = learner_of("euclidean")
    for step in Session(learner, stream, Plan(batch_size=16)):
        if step.record is not None:
            predicted = {c for test in stream.tests for c in predict(learner, test.batch(slice(None))).tolist()}
            assert predicted <= set(learner.seen)


@pytest.mark.parametrize("distance", DISTANCES)
def test_scores_do_not_depend_on_how_tests_are_batched(distance: str) -> None:
    pixels = torch.randint(0, 3, (60, 3, 2, 2), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    train = examples(pixels, [row % 6 for row in range(60)])
    learner = NearestMean(Far(), ImageView(2), distance=distance)
    learner.add_classes(range(6))
    learner.step(train.batch(slice(None)), Descent([]))
    alone = torch.cat([learner.logits(batch) for batch in train.batches(1)])
    torch.testing.assert_close(learner.logits(train.batch(slice(None))), alone)


def test_a_state_restores_sums_and_counts() -> None:
    train, batch = toy_examples(6, 1), toy_examples(5, 2).batch(slice(None))
    first = learned("cosine", [0, 1, 2, 3], train)
    second = learner_of()
    restore(second, state(first))
    assert second.seen == (0, 1, 2, 3)
    assert torch.equal(first.logits(batch), second.logits(batch))


def test_a_batch_is_read_whatever_its_freshness() -> None:
    learner = learner_of()
    learner.add_classes([0])
    batch: Batch = toy_examples(3, 1, classes=1).batch(slice(None), fresh=False)
    learner.step(batch, Descent([]))
    assert learner.counts.tolist() == [3]


def test_an_unknown_distance_raises() -> None:
    with pytest.raises(ValueError, match=r"^distance = 'manhattan'"):
        learner_of("manhattan")
