from typing import Any

import pytest
import torch
from torch import Tensor

from promptpool.backbones.resnet import ResNet18
from promptpool.data.stream import Batch
from promptpool.data.views import ImageView
from promptpool.learners.er import ER
from promptpool.optim import Descent
from promptpool.training.loop import Plan, Session
from slowly import Model, assert_loss_and_gradients, cross_entropy, mean, on_its_way, toy_batch
from toys import RANDOM_VIEW, VIEW, refusal, toy_backbone, toy_schedule, toy_stream


def er(view: ImageView = VIEW, **values: Any) -> ER:
    learner = on_its_way(ER(toy_backbone(dim=16), view, **{"capacity": 9, **values}), classes=7)
    assert isinstance(learner, ER)
    return learner


def descent(learner: ER, rate: float = 0.01) -> Descent:
    trained = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    return Descent(trained, optimiser="sgd", learning_rate=rate)


def to_come(learner: ER, batch: Batch) -> tuple[list[Tensor], list[Batch]]:
    """What the next loss sees: new and replayed images in their views; nothing is drawn for good."""
    state = learner.generator.get_state()
    parts = [batch, learner.memory.sample(len(batch.y))] if len(learner.memory) else [batch]
    views = [learner.inputs(part) for part in parts]
    learner.generator.set_state(state)
    return views, parts


def slow_loss(model: Model, views: list[Tensor], parts: list[Batch], classes: list[list[int]]) -> Tensor:
    """Algorithm 1: the mean of the cross-entropy over the new and the replayed batch together."""
    terms = []
    for x, part, seen in zip(views, parts, classes, strict=False):
        for logits, y in zip(model(x), part.y.tolist(), strict=True):
            terms.append(cross_entropy(logits, y, seen))
    return mean(terms)


CLASSES = {
    "all": [[0, 1, 2, 3, 4, 5, 6]] * 2,
    "seen": [[0, 1, 2, 3, 4]] * 2,
    "current": [[0, 1, 2], [0, 1, 2, 3, 4]],
}


@pytest.mark.parametrize("train_backbone", [True, False])
@pytest.mark.parametrize("loss_classes", CLASSES)
@pytest.mark.parametrize("view", [VIEW, RANDOM_VIEW], ids=["fixed", "random"])
def test_loss_and_gradients_are_algorithm_1(view: ImageView, loss_classes: str, train_backbone: bool) -> None:
    learner = er(view, loss_classes=loss_classes, train_backbone=train_backbone)
    learner.memory.add(toy_batch(14, classes=5, seed=2))
    batch = toy_batch(8)
    views, parts = to_come(learner, batch)
    assert len(parts[1].y) == len(batch.y)
    model = Model(learner)
    expected = slow_loss(model, views, parts, CLASSES[loss_classes])
    assert_loss_and_gradients(learner, learner.loss(batch), expected, model)


@pytest.mark.parametrize("kept", [0, 1])
def test_a_memory_that_is_empty_or_smaller_than_a_batch(kept: int) -> None:
    learner, batch = er(), toy_batch(6)
    if kept:
        learner.memory.add(toy_batch(kept, classes=5, seed=2))
    views, parts = to_come(learner, batch)
    assert len(parts) == 1 + kept
    assert all(len(part.y) == 6 for part in parts)  # the one row six times
    model = Model(learner)
    assert_loss_and_gradients(learner, learner.loss(batch), slow_loss(model, views, parts, CLASSES["all"]), model)


def test_both_halves_go_through_batch_normalisation_together() -> None:
    backbone = ResNet18(width=2, stem="cifar").start(torch.Generator().manual_seed(0))
    learner = on_its_way(ER(backbone, VIEW, capacity=9))
    assert isinstance(learner, ER)
    learner.memory.add(toy_batch(9, classes=5, seed=2))
    batch = toy_batch(6)
    views, parts = to_come(learner, batch)
    model = Model(learner)
    logits = model(torch.cat(views))
    labels = torch.cat([part.y for part in parts]).tolist()
    expected = mean([cross_entropy(row, y, range(5)) for row, y in zip(logits, labels, strict=True)])
    torch.testing.assert_close(learner.loss(batch).double(), expected, rtol=1e-4, atol=1e-5)


def test_memory_takes_each_example_once_and_after_the_step() -> None:
    learner, batch = er(capacity=50), toy_batch(6)
    descend = descent(learner)
    model = Model(learner)
    expected = slow_loss(model, [learner.inputs(batch)], [batch], CLASSES["all"])
    loss = learner.step(batch, descend)
    assert loss is not None
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    learner.step(batch._replace(fresh=False), descend)
    assert learner.memory.rows.ids.tolist() == batch.ids.tolist()
    assert torch.equal(learner.memory.rows.x, batch.x)


def test_the_memory_is_a_reservoir_unless_told() -> None:
    stream = toy_stream()
    held = {}
    for policy in ("reservoir", "balanced", "greedy"):
        learner = ER(toy_backbone(), VIEW, capacity=12, policy=policy, train_backbone=False)
        for _ in Session(learner, stream, Plan(epochs=1, batch_size=16)):
            pass
        held[policy] = torch.bincount(learner.memory.rows.y, minlength=6).tolist()
        assert sum(held[policy]) == 12
    assert held["balanced"] == held["greedy"] == [2] * 6
    assert held["reservoir"] != [2] * 6


def test_a_smaller_memory_keeps_less() -> None:
    for capacity in (3, 7):
        learner = er(capacity=capacity)
        learner.step(toy_batch(12), descent(learner))
        assert len(learner.memory) == capacity


def test_5000_small_images_take_less_than_20_megabytes() -> None:
    learner = ER(toy_backbone(), VIEW, capacity=5000)
    images = torch.randint(0, 256, (5500, 3, 32, 32), dtype=torch.uint8)
    learner.memory.add(Batch(images, torch.arange(5500) % 100, torch.arange(5500)))
    rows = learner.memory.rows
    assert rows.x.shape == (5000, 3, 32, 32)
    held = sum(column.untyped_storage().nbytes() for column in (rows.x, rows.y, rows.ids, learner.memory.lots))
    assert held < 20e6


def test_no_boundaries_are_needed_and_a_task_of_one_class_is_no_hindrance() -> None:
    er().check(toy_schedule())
    er(loss_classes="current").check(toy_stream(tasks=6))
    objection = refusal(er(loss_classes="current"), toy_schedule())
    assert objection is not None
    assert "boundaries" in objection


@pytest.mark.parametrize(("keyword", "value"), [("capacity", 0), ("policy", "newest"), ("loss_classes", "old")])
def test_bad_values_raise(keyword: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{keyword} = .*: must"):
        ER(toy_backbone(), VIEW, **{keyword: value})
