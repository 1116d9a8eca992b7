"""Co2L against a slow transcription of its paper: the loss and its gradient, the head, the teacher, the memory."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from promptpool.data.scenarios import class_incremental
from promptpool.data.stream import Batch, Experience
from promptpool.data.views import ImageView
from promptpool.learners.co2l import Co2L, _stages
from promptpool.training.loop import Plan, Session
from toys import RANDOM_VIEW, names, refusal, toy_backbone, toy_examples, toy_schedule, toy_stream

SMALL: dict[str, Any] = {"capacity": 12, "projection_dim": 8, "head_epochs": 2, "head_batch_size": 8}


def co2l(view: ImageView | None = None, **values: Any) -> Co2L:
    return Co2L(toy_backbone(dim=16), view or RANDOM_VIEW, **{**SMALL, **values})


def toy_batch(count: int = 6, classes: tuple[int, ...] = (2, 3), seed: int = 1) -> Batch:
    some = toy_examples(12, seed)
    some = some.select(torch.isin(some.y, torch.tensor(classes)))
    return some.batch(torch.randperm(len(some), generator=torch.Generator().manual_seed(seed))[:count])


def task(index: int, classes: tuple[int, ...], per_class: int = 5) -> Experience:
    some = toy_examples(per_class, 3 + index)
    return Experience(index, some.select(torch.isin(some.y, torch.tensor(classes))), classes)


def in_the_second_task(**values: Any) -> Co2L:
    """Classes 0 and 1 are behind it, 2 and 3 are current, and it has moved since its teacher was taken."""
    learner = co2l(**values)
    learner.add_classes([0, 1])
    learner.after(task(0, (0, 1)))
    learner.add_classes([2, 3])
    learner.before(task(1, (2, 3)))
    noise = torch.Generator().manual_seed(9)
    for part in (learner.backbone, learner.projection):
        for parameter in part.parameters():
            parameter.data.add_(torch.randn(parameter.shape, generator=noise), alpha=0.05)
    return learner.train()


def what_comes(learner: Co2L, batch: Batch) -> tuple[list[Batch], Tensor]:
    """The images that the next loss takes and their two views; draws nothing from the learner's generator."""
    state = learner.generator.get_state()
    parts = [batch, learner.memory.sample(len(batch.y))] if len(learner.memory) else [batch]
    x = torch.cat([learner.view(part.x, learner.generator) for _ in range(2) for part in parts])
    learner.generator.set_state(state)
    return parts, x


def projections(backbone: Any, projection: Any, x: Tensor) -> list[Tensor]:
    """z of each row, by the layers' definitions, in double precision."""
    rows = []
    for feature in backbone.features(x.double()):
        hidden = projection.hidden.weight @ feature + projection.hidden.bias
        out = projection.out.weight @ (hidden * (hidden > 0)) + projection.out.bias
        rows.append(out / (out @ out).sqrt())
    return rows


def transcription(learner: Co2L, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """Eqs. 9 to 13, one pair of rows at a time, and the gradient of each parameter."""
    parts, x = what_comes(learner, batch)
    backbone, projection = (copy.deepcopy(part).double() for part in (learner.backbone, learner.projection))
    z = projections(backbone, projection, x)
    labels = 2 * [int(label) for part in parts for label in part.y]
    present = 2 * [number == 0 for number, part in enumerate(parts) for _ in part.y]
    rows = range(len(z))
    loss = torch.zeros((), dtype=torch.float64)
    for i in rows:
        below = sum((z[i] @ z[k] / learner.temperature).exp() for k in rows if k != i)
        positives = [j for j in rows if j != i and labels[j] == labels[i]]
        if present[i]:
            for j in positives:
                loss = loss - ((z[i] @ z[j] / learner.temperature).exp() / below).log() / len(positives)
    if learner.past:
        teacher, taught = (copy.deepcopy(learner.past[name]).double() for name in ("backbone", "projection"))
        with torch.no_grad():
            past = projections(teacher, taught, x)
        for i in rows:
            now = {j: (z[i] @ z[j] / learner.relation_temperature).exp() for j in rows if j != i}
            then = {j: (past[i] @ past[j] / learner.past_temperature).exp() for j in rows if j != i}
            for j in now:
                share = then[j] / sum(then.values())
                loss = loss - learner.distillation * share * (now[j] / sum(now.values())).log()
    loss = loss / len(z)
    loss.backward()
    named = [("backbone", backbone), ("projection", projection)]
    gradients = {f"{prefix}.{name}": p.grad for prefix, part in named for name, p in part.named_parameters()}
    return loss.detach(), {name: gradient for name, gradient in gradients.items() if gradient is not None}


def assert_as_transcribed(learner: Co2L, batch: Batch) -> None:
    expected, gradients = transcription(learner, batch)
    learner.zero_grad()
    loss = learner.loss(batch)
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    found = {name: parameter.grad for name, parameter in learner.named_parameters() if parameter.grad is not None}
    assert found.keys() == gradients.keys()
    scale = max(float(gradient.abs().max()) for gradient in gradients.values())
    for name, gradient in gradients.items():
        torch.testing.assert_close(found[name].double(), gradient, rtol=1e-3, atol=1e-4 * scale, msg=name)


def test_the_first_task_is_supervised_contrast_alone() -> None:
    learner = co2l()
    learner.add_classes([2, 3])
    learner.before(task(0, (2, 3)))
    assert not learner.past
    assert_as_transcribed(learner.train(), toy_batch())


@pytest.mark.parametrize(
    "values", [{}, {"temperature": 0.1, "relation_temperature": 0.5, "past_temperature": 0.1, "distillation": 3.0}]
)
def test_later_tasks_are_the_equations(values: dict[str, Any]) -> None:
    assert_as_transcribed(in_the_second_task(**values), toy_batch())


def test_a_task_of_one_class_and_a_memory_that_is_not_full() -> None:
    learner = in_the_second_task(capacity=100)
    assert len(learner.memory) == 10
    assert_as_transcribed(learner, toy_batch(classes=(2,)))


def test_images_of_the_memory_are_never_anchors_but_are_positives() -> None:
    """A class that came before is among the memory's images, as in a stream of domains."""
    assert_as_transcribed(in_the_second_task(), toy_batch(classes=(0, 2)))


@pytest.mark.parametrize(
    ("keyword", "value"),
    [("temperature", 0.05), ("relation_temperature", 0.5), ("past_temperature", 0.1), ("distillation", 0.0)],
)
def test_every_value_of_the_loss_changes_it(keyword: str, value: float) -> None:
    usual, other = in_the_second_task().loss(toy_batch()), in_the_second_task(**{keyword: value}).loss(toy_batch())
    assert usual.item() != pytest.approx(other.item(), rel=1e-3)


def test_the_projection_is_of_length_one_and_of_its_size() -> None:
    z = co2l(projection_dim=5).projection(torch.randn(3, 16, generator=torch.Generator().manual_seed(0)))
    assert z.shape == (3, 5)
    torch.testing.assert_close(z.norm(dim=1), torch.ones(3))


def test_two_views_of_an_image_differ_and_the_seed_draws_them() -> None:
    first, second = in_the_second_task(), in_the_second_task()
    _, x = what_comes(first, toy_batch())
    assert not torch.equal(x[:12], x[12:])
    assert torch.equal(first.loss(toy_batch()), second.loss(toy_batch()))
    assert not torch.equal(first.loss(toy_batch()), in_the_second_task(seed=1).loss(toy_batch()))


def slow_head(learner: Co2L, rows: Batch) -> tuple[Tensor, Tensor]:
    """Softmax regression from zero by SGD with momentum 0.9, on rows drawn by one over the size of their class."""
    generator = torch.Generator()
    generator.set_state(learner.generator.get_state())
    x, y, count = rows.x.double(), rows.y.tolist(), len(rows.y)
    weight = torch.zeros(len(learner.head.bias), x.shape[1], dtype=torch.float64)
    bias = torch.zeros(len(learner.head.bias), dtype=torch.float64)
    rarity = torch.tensor([1 / y.count(label) for label in y])
    milestones = [round(share * learner.head_epochs) for share in (0.6, 0.75, 0.9)]
    for epoch in range(learner.head_epochs):
        if epoch == 0 or epoch in milestones:
            momentum: list[Any] = [0.0, 0.0]
        rate = learner.head_learning_rate * 0.2 ** sum(epoch >= milestone for milestone in milestones)
        drawn = torch.multinomial(rarity, count, replacement=True, generator=generator)
        order = drawn[torch.randperm(count, generator=generator)]
        for index in order.tensor_split(-(-count // learner.head_batch_size)):
            gradient = [torch.zeros_like(weight), torch.zeros_like(bias)]
            for row in index.tolist():
                scores = weight @ x[row] + bias
                powers = {c: float(scores[c].exp()) for c in learner.seen}
                for c in learner.seen:
                    error = (powers[c] / sum(powers.values()) - (y[row] == c)) / len(index)
                    gradient[0][c] += error * x[row]
                    gradient[1][c] += error
            momentum = [0.9 * m + g for m, g in zip(momentum, gradient, strict=True)]
            weight, bias = weight - rate * momentum[0], bias - rate * momentum[1]
    return weight, bias


@pytest.mark.parametrize("values", [{"head_epochs": 1}, {"head_epochs": 10, "head_batch_size": 7}])
def test_the_head_is_that_of_a_loop_and_starts_afresh(values: dict[str, Any]) -> None:
    learner = co2l(head_learning_rate=0.03, **{**SMALL, **values})
    learner.add_classes([0, 1, 4])
    learner.head.weight.data.fill_(7.0)  # of an earlier task
    y = torch.tensor([0] * 9 + [1] * 3 + [4])
    x = torch.randn(len(y), 16, generator=torch.Generator().manual_seed(0)) + y[:, None]
    rows = Batch(x, y, torch.arange(len(y)))
    weight, bias = slow_head(learner, rows)
    learner.fit_head(rows)
    torch.testing.assert_close(learner.head.weight.detach().double(), weight, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(learner.head.bias.detach().double(), bias, rtol=1e-4, atol=1e-5)


def test_the_learning_rate_of_the_head_falls_as_published() -> None:
    assert _stages(100) == [60, 15, 15, 10]
    assert [sum(_stages(epochs)) for epochs in range(1, 30)] == list(range(1, 30))


@pytest.mark.parametrize("keyword", ["head_epochs", "head_batch_size", "head_learning_rate"])
def test_every_value_of_the_head_changes_it(keyword: str) -> None:
    heads = []
    for value in (1, 2):
        values: dict[str, Any] = {keyword: value}
        learner = co2l(**values)
        learner.add_classes([0, 1])
        learner.after(task(0, (0, 1)))
        heads.append(learner.head.weight.detach().clone())
    assert not torch.allclose(heads[0], heads[1])


def test_the_head_is_fitted_to_plain_features_of_the_memory_and_of_the_task() -> None:
    learner = in_the_second_task()
    given: list[Batch] = []
    learner.fit_head = given.append  # type: ignore[method-assign, assignment]
    kept, new = learner.memory.rows, task(1, (2, 3)).train.batch(slice(None))
    kept = kept._replace(raw=kept.x.clone(), y=kept.y.clone(), ids=kept.ids.clone())
    learner.after(task(1, (2, 3)))
    images = torch.cat([kept.x, new.x])
    (rows,) = given
    assert torch.equal(rows.y, torch.cat([kept.y, new.y]))
    assert torch.equal(rows.ids, torch.cat([kept.ids, new.ids]))
    with torch.no_grad():
        expected = learner.backbone.features(learner.view.plain(images))
    torch.testing.assert_close(rows.x, expected, rtol=1e-4, atol=1e-5)


def test_fitting_the_head_moves_nothing_below_it() -> None:
    learner = in_the_second_task()
    before = [p.detach().clone() for part in (learner.backbone, learner.projection) for p in part.parameters()]
    learner.after(task(1, (2, 3)))
    after = [p for part in (learner.backbone, learner.projection) for p in part.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert all(p.grad is None for p in after)


def test_the_memory_holds_earlier_tasks_and_the_teacher_is_the_model_of_their_end() -> None:
    stream = toy_stream(per_class=8)
    learner = co2l()
    session = Session(learner, stream, Plan(epochs=2, batch_size=8, learning_rate=0.001))
    ended: dict[str, Tensor] = {}
    for step in session:
        if step.record is not None:
            assert len(learner.memory) == min(12, 16 * len(session.records))
            ended = {name: value.clone() for name, value in learner.backbone.state_dict().items()}
            continue
        earlier = {c for experience in stream.experiences[: step.experience] for c in experience.classes}
        held = set(learner.memory.rows.y.tolist()) if len(learner.memory) else set()
        assert held == earlier
        assert bool(learner.past) == (step.experience > 0)
        if learner.past:
            teacher = learner.past["backbone"]
            assert all(torch.equal(value, ended[name]) for name, value in teacher.state_dict().items())
            assert not any(torch.equal(ended[name], p) for name, p in learner.backbone.named_parameters() if p.ndim > 1)
            assert not any(parameter.requires_grad for parameter in teacher.parameters())
    assert sorted(learner.memory.rows.y.unique().tolist()) == list(range(6))


def test_a_stream_of_single_classes_is_learned() -> None:
    stream = class_incremental(toy_examples(6, 1), toy_examples(3, 2), names(), tasks=6, seed=0)
    steps = list(Session(co2l(), stream, Plan(epochs=1, batch_size=6, learning_rate=0.001)))
    assert all(step.loss is not None and step.loss == step.loss for step in steps)
    assert steps[-1].record is not None


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("capacity", 0),
        ("temperature", 0.0),
        ("relation_temperature", -1.0),
        ("past_temperature", float("inf")),
        ("distillation", -0.1),
        ("projection_dim", 0),
        ("head_epochs", 0),
        ("head_batch_size", 0),
        ("head_learning_rate", 0.0),
        ("train_backbone", False),
    ],
)
def test_bad_values_raise(keyword: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{keyword} = .*: must"):
        co2l(**{keyword: value})


def test_a_fixed_view_is_refused_with_what_to_set() -> None:
    with pytest.raises(ValueError, match=r"^view\.crop = None.*must be random.*set view\.crop.*view\.flip"):
        co2l(ImageView(8))
    for view in (ImageView(8, flip=True), ImageView(8, crop=(0.5, 1.0))):
        co2l(view)


def test_streams_without_boundaries_and_small_memories_are_refused() -> None:
    reason = refusal(co2l(), toy_schedule())
    assert reason is not None
    assert "boundaries" in reason
    small = refusal(co2l(capacity=5), toy_stream())
    assert small is not None
    assert small.startswith("capacity = 5: must be at least one image per class, 6")
    co2l(capacity=6).check(toy_stream())


def test_the_start_of_the_projection_is_drawn_from_the_seed() -> None:
    first, second, other = (co2l(seed=seed).projection.hidden.weight for seed in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert float(first.detach().abs().max()) <= 16**-0.5
    assert F.relu(first).any()
