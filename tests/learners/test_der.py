from typing import Any

import pytest
import torch
from torch import Tensor

from promptpool.data.stream import Batch
from promptpool.data.views import ImageView
from promptpool.learners.der import DER
from promptpool.optim import Descent
from promptpool.training.loop import Plan, Session
from slowly import Model, assert_loss_and_gradients, cross_entropy, mean, on_its_way, toy_batch
from toys import RANDOM_VIEW, VIEW, toy_backbone, toy_examples, toy_schedule, toy_stream

NEW = {"all": range(7), "seen": range(5), "current": range(3)}
OLD = {"all": range(7), "seen": range(5), "current": range(5)}


def der(view: ImageView = VIEW, **values: Any) -> DER:
    """Its memory holds ten images with random logits; in half of them classes 3 and up were not there."""
    learner = DER(toy_backbone(dim=16), view, **{"capacity": 10, "alpha": 0.7, "beta": 0.4, **values})
    on_its_way(learner, classes=7)
    logits = torch.randn(10, 7, generator=torch.Generator().manual_seed(8))
    if learner.loss_classes != "all":
        logits[::2, 3:] = -torch.inf
    learner.memory.add(toy_batch(10, classes=5, seed=2)._replace(extra={"logits": logits}))
    return learner


def descent(learner: DER) -> Descent:
    trained = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    return Descent(trained, optimiser="sgd", learning_rate=0.01)


def to_come(learner: DER, batch: Batch) -> tuple[list[Tensor], list[Batch]]:
    """What the next loss sees: the new images, and the two draws of the memory, each in its view."""
    state, parts, views = learner.generator.get_state(), [batch], [learner.inputs(batch)]
    for _ in range(2):
        parts.append(learner.memory.sample(len(batch.y)))
        views.append(learner.inputs(parts[-1]))
    learner.generator.set_state(state)
    return views, parts


def slow_loss(learner: DER, model: Model, views: list[Tensor], parts: list[Batch]) -> Tensor:
    """Eq. 6, term by term; the squared distance is a mean over the classes that were there then."""
    new, old = NEW[learner.loss_classes], OLD[learner.loss_classes]
    first = [cross_entropy(z, y, new) for z, y in zip(model(views[0]), parts[0].y.tolist(), strict=True)]
    second = []
    for z, then in zip(model(views[1]), parts[1].extra["logits"].tolist(), strict=True):
        gaps = [(now - before) ** 2 for now, before in zip(z, then, strict=True) if before != float("-inf")]
        second.append(mean(gaps))
    third = [cross_entropy(z, y, old) for z, y in zip(model(views[2]), parts[2].y.tolist(), strict=True)]
    return mean(first) + learner.alpha * mean(second) + learner.beta * mean(third)


@pytest.mark.parametrize("train_backbone", [True, False])
@pytest.mark.parametrize("loss_classes", NEW)
@pytest.mark.parametrize("view", [VIEW, RANDOM_VIEW], ids=["fixed", "random"])
def test_loss_and_gradients_are_equation_6(view: ImageView, loss_classes: str, train_backbone: bool) -> None:
    learner = der(view, loss_classes=loss_classes, train_backbone=train_backbone)
    batch = toy_batch(8)
    views, parts = to_come(learner, batch)
    assert parts[1].ids.tolist() != parts[2].ids.tolist()  # drawn apart
    model = Model(learner)
    expected = slow_loss(learner, model, views, parts)
    assert_loss_and_gradients(learner, learner.loss(batch), expected, model)


@pytest.mark.parametrize("values", [{"alpha": 0.0}, {"beta": 0.0}, {"alpha": 1.5, "beta": 2.0}])
def test_other_weights_of_the_terms(values: dict[str, Any]) -> None:
    learner, batch = der(**values), toy_batch(6)
    views, parts = to_come(learner, batch)
    model = Model(learner)
    assert_loss_and_gradients(learner, learner.loss(batch), slow_loss(learner, model, views, parts), model)


def test_the_first_batch_has_nothing_to_replay() -> None:
    learner, batch = on_its_way(DER(toy_backbone(dim=16), VIEW)), toy_batch(6)
    model = Model(learner)
    rows = zip(model(learner.inputs(batch)), batch.y.tolist(), strict=True)
    expected = mean([cross_entropy(z, y, range(5)) for z, y in rows])
    assert_loss_and_gradients(learner, learner.loss(batch), expected, model)


@pytest.mark.parametrize("loss_classes", NEW)
def test_a_step_descends_the_loss_and_keeps_the_logits_of_before_it(loss_classes: str) -> None:
    learner, batch = der(loss_classes=loss_classes, capacity=30), toy_batch(8)
    views, parts = to_come(learner, batch)
    model = Model(learner)
    expected = slow_loss(learner, model, views, parts)
    loss = learner.step(batch, descent(learner))
    assert loss is not None
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    kept = learner.memory.rows
    assert kept.ids[10:].tolist() == batch.ids.tolist()
    then = torch.tensor([[z.item() for z in row] for row in model(views[0])])
    seen = list(OLD[loss_classes])
    torch.testing.assert_close(kept.extra["logits"][10:, seen], then[:, seen], rtol=1e-4, atol=1e-5)
    unseen = [c for c in range(7) if c not in seen]
    assert torch.isneginf(kept.extra["logits"][10:, unseen]).all()


def test_examples_are_offered_at_every_epoch_or_once() -> None:
    for every_epoch, copies in ((True, 2), (False, 1)):
        learner = DER(toy_backbone(), VIEW, capacity=100, every_epoch=every_epoch)
        learner.add_classes([0, 1, 2])
        descend, batch = descent(learner), toy_batch(6)
        learner.step(batch, descend)
        learner.step(batch._replace(fresh=False), descend)
        assert learner.memory.rows.ids.tolist() == batch.ids.tolist() * copies
        if copies == 2:
            earlier, later = learner.memory.rows.extra["logits"].chunk(2)
            assert not torch.equal(earlier, later)


def test_kept_logits_grow_with_the_head() -> None:
    learner = DER(toy_backbone(), VIEW, capacity=24, loss_classes="seen")
    widths = []
    for step in Session(learner, toy_stream(), Plan(epochs=1, batch_size=16)):
        assert learner.memory.rows.extra["logits"].shape[1] == len(learner.head.bias)
        if step.record is not None:
            widths.append(len(learner.head.bias))
    assert widths == [2, 4, 6]
    rows = learner.memory.rows
    for y, logits in zip(rows.y.tolist(), rows.extra["logits"], strict=True):
        assert logits.isfinite().sum() == 2 * (y // 2 + 1)  # as many classes as there were in its task


def test_all_classes_are_kept_where_the_loss_sees_all() -> None:
    learner = DER(toy_backbone(), VIEW, capacity=24)
    for _ in Session(learner, toy_stream(), Plan(epochs=1, batch_size=16)):
        assert learner.memory.rows.extra["logits"].shape[1] == 6
        assert learner.memory.rows.extra["logits"].isfinite().all()


def test_without_boundaries_logits_are_those_of_the_classes_seen_by_then() -> None:
    learner = DER(toy_backbone(), VIEW, capacity=120, loss_classes="seen", every_epoch=False)
    seen: dict[int, int] = {}
    session = Session(learner, toy_schedule(), Plan(epochs=1, batch_size=10))
    for _ in session:
        for identity in learner.memory.rows.ids.tolist():
            seen.setdefault(identity, len(learner.seen))
    rows = learner.memory.rows
    assert len(rows.y) == 120
    assert [seen[i] for i in rows.ids.tolist()] == rows.extra["logits"].isfinite().sum(dim=1).tolist()
    assert min(seen.values()) < 6


def test_5000_small_images_with_100_logits_take_less_than_20_megabytes() -> None:
    learner = DER(toy_backbone(), VIEW, capacity=5000, train_backbone=False)
    learner.grow(100)
    learner.add_classes(range(100))
    images = torch.randint(0, 256, (5500, 3, 32, 32), dtype=torch.uint8)
    batch = Batch(images, torch.arange(5500) % 100, torch.arange(5500))
    learner.step(batch, descent(learner))
    rows = learner.memory.rows
    assert rows.x.shape == (5000, 3, 32, 32)
    assert rows.extra["logits"].shape == (5000, 100)
    columns = (rows.x, rows.y, rows.ids, rows.extra["logits"], learner.memory.lots)
    assert sum(column.untyped_storage().nbytes() for column in columns) < 20e6


def test_one_class_alone() -> None:
    learner = DER(toy_backbone(), VIEW, capacity=5)
    learner.add_classes([0])
    batch = toy_examples(4, 1, classes=1).batch(slice(None))
    for _ in range(2):
        loss = learner.step(batch, descent(learner))
        assert loss is not None
        assert loss.isfinite()


@pytest.mark.parametrize(
    ("keyword", "value"), [("alpha", -0.1), ("beta", float("inf")), ("alpha", float("nan")), ("capacity", 0)]
)
def test_bad_values_raise(keyword: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{keyword} = .*: must"):
        DER(toy_backbone(), VIEW, **{keyword: value})
