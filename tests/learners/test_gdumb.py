import gc
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from promptpool.backbones.vit import ViT
from promptpool.data.stream import Batch, Stream
from promptpool.data.views import ImageView
from promptpool.learners.gdumb import GDumb
from promptpool.optim import Descent
from promptpool.training.evaluation import predict
from promptpool.training.loop import Plan, Session
from slowly import Model, assert_loss_and_gradients, cross_entropy, mean, toy_batch
from toys import RANDOM_VIEW, VIEW, refusal, toy_backbone, toy_schedule, toy_stream

SMALL: dict[str, Any] = {"capacity": 9, "epochs": 5, "batch_size": 4, "highest_rate": 0.02, "weight_decay": 0.01}
PLAN = Plan(epochs=1, batch_size=10)


def gdumb(view: ImageView = VIEW, **values: Any) -> GDumb:
    return GDumb(toy_backbone(dim=16), view, **{**SMALL, **values})


def shown(learner: GDumb, classes: int = 3, batches: int = 3) -> GDumb:
    """The learner after some batches of the first classes."""
    learner.add_classes(range(classes))
    for seed in range(batches):
        assert learner.step(toy_batch(10, classes, seed=1 + seed), Descent([])) is None
    return learner


def weights(learner: GDumb) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in learner.state_dict().items()}


def differ(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return any(not torch.equal(first[name], second[name]) for name in first)


def slow_memory(batches: list[Batch], capacity: int, seed: int) -> list[tuple[Tensor, int]]:
    """The balancing sampler, example by example; a newcomer's lot says which row of the largest class it replaces."""
    numbers = torch.Generator().manual_seed(seed)
    places: list[tuple[Tensor, int]] = []
    for batch in batches:
        lots = torch.rand(len(batch.y), generator=numbers, dtype=torch.float64).tolist()
        present: list[tuple[Tensor, int] | None] = [*places]  # in the order of arrival, None once it has left
        for x, y, lot in zip(batch.x, batch.y.tolist(), lots, strict=True):
            count: dict[int, int] = {}
            for row in present:
                if row is not None:
                    count[row[1]] = count.get(row[1], 0) + 1
            if y in count and not count[y] < capacity / len(count):
                continue
            if sum(count.values()) >= capacity:
                largest = min(label for label in count if count[label] == max(count.values()))
                own = [place for place, row in enumerate(present) if row is not None and row[1] == largest]
                present[own[math.floor(lot * len(own))]] = None
            present.append((x, y))
        places = put(present, len(places))
    return places


def put(present: list[tuple[Tensor, int] | None], held: int) -> list[tuple[Tensor, int]]:
    """New rows take the places of those that left, then places at the end."""
    places, new = present[:held], [row for row in present[held:] if row is not None]
    for place in range(held):
        if places[place] is None:
            places[place] = new.pop(0)
    return [row for row in [*places, *new] if row is not None]


def slow_rates(learner: GDumb) -> list[float]:
    """The authors' schedule, as torch computes it: a tenth, the highest rate, then a step before each epoch."""
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=learner.highest_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(
        optimiser, T_0=1, T_mult=2, eta_min=learner.lowest_rate
    )
    rates = [learner.highest_rate * 0.1, learner.highest_rate]
    for _ in range(2, learner.epochs):
        optimiser.step()
        schedule.step()
        rates.append(float(schedule.get_last_lr()[0]))
    return rates[: learner.epochs]


def slow_loss(learner: GDumb, model: Model, images: Tensor, labels: list[int], numbers: torch.Generator) -> Tensor:
    """The mean cross-entropy over the classes seen; of a mixed batch in the shares of its pixels."""
    mixing = torch.rand((), generator=numbers).item() < learner.cutmix
    x = learner.view(images, numbers).double()
    others, share = labels, 1.0
    if mixing:
        own, down, across = torch.rand(3, generator=numbers, dtype=torch.float64).tolist()
        partner = torch.randperm(len(labels), generator=numbers).tolist()
        others, mixed, side = [labels[i] for i in partner], x.clone(), x.shape[-1]
        half = math.floor(side * math.sqrt(1 - own)) // 2
        middle = (math.floor(down * side), math.floor(across * side))
        foreign = 0
        for i in range(side):
            for j in range(side):
                if all(at - half <= k < at + half for at, k in zip(middle, (i, j), strict=True)):
                    mixed[:, :, i, j] = x[partner][:, :, i, j]
                    foreign += 1
        x, share = mixed, 1 - foreign / side**2
    terms = []
    for logits, y, other in zip(model(x), labels, others, strict=True):
        mine = cross_entropy(logits, y, learner.seen)
        terms.append(share * mine + (1 - share) * cross_entropy(logits, other, learner.seen))
    return mean(terms)


def slow_fit(learner: GDumb, model: Model, rows: list[tuple[Tensor, int]], examples: int) -> dict[str, Tensor]:
    """SGD with momentum and decay on the memory, from the weights of `model`, in double precision."""
    state = np.random.SeedSequence([learner.seed, examples]).generate_state(1)
    numbers = torch.Generator().manual_seed(int(state[0]))
    named = model.trained()
    velocity = {name: torch.zeros_like(value) for name, value in named.items()}
    for rate in slow_rates(learner):
        order = torch.randperm(len(rows), generator=numbers).tolist()
        parts = math.ceil(len(rows) / learner.batch_size)
        sizes = [len(rows) // parts + (part < len(rows) % parts) for part in range(parts)]
        for size in sizes:
            taken, order = order[:size], order[size:]
            images, labels = torch.stack([rows[i][0] for i in taken]), [rows[i][1] for i in taken]
            loss = slow_loss(learner, model, images, labels, numbers)
            gradients = torch.autograd.grad(loss, list(named.values()))
            norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
            shrink = 1.0 if learner.clip is None else min(1.0, learner.clip / norm)
            with torch.no_grad():
                for (name, value), gradient in zip(named.items(), gradients, strict=True):
                    pushed = shrink * gradient + learner.weight_decay * value
                    velocity[name] = learner.momentum * velocity[name] + pushed
                    value -= rate * velocity[name]
    return {name: value.detach() for name, value in named.items()}


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"cutmix": 1.0},
        {"cutmix": 0.0, "clip": None},
        {"clip": 0.05},
        {"train_backbone": False, "highest_rate": 0.3},
        {"loss_classes": "all"},
        {"seed": 3},
    ],
    ids=str,
)
@pytest.mark.parametrize("view", [VIEW, RANDOM_VIEW], ids=["fixed", "random"])
def test_memory_and_model_are_those_of_the_transcription(view: ImageView, values: dict[str, Any]) -> None:
    learner = gdumb(view, **values)
    start = toy_backbone(dim=16)
    batches = [toy_batch(10, 3, seed=1), toy_batch(7, 2, seed=2), toy_batch(12, 5, seed=3)]
    for count, classes in enumerate((3, 3, 5), start=1):
        learner.add_classes(range(classes))
        learner.step(batches[count - 1], Descent([]))
        learner.before_evaluation()
        rows = slow_memory(batches[:count], learner.capacity, learner.seed)
        assert learner.memory.rows.y.tolist() == [y for _, y in rows]
        assert torch.equal(learner.memory.rows.x, torch.stack([x for x, _ in rows]))
    fresh = GDumb(start, view, **{**SMALL, **values})
    fresh.add_classes(range(5))
    expected = slow_fit(learner, Model(fresh), rows, 29)
    moved = False
    for name, value in expected.items():
        found = learner.get_parameter(name).detach().double()
        scale = float(value.abs().max())
        torch.testing.assert_close(found, value, rtol=1e-3, atol=1e-4 * scale + 1e-6, msg=name)
        moved = moved or not torch.allclose(found, fresh.get_parameter(name).double(), atol=1e-3)
    assert moved


@pytest.mark.parametrize("train_backbone", [True, False])
@pytest.mark.parametrize("cutmix", [0.0, 1.0])
def test_loss_and_gradients_of_the_fit(cutmix: float, train_backbone: bool) -> None:
    learner, batch = gdumb(RANDOM_VIEW, cutmix=cutmix, train_backbone=train_backbone), toy_batch(6)
    learner.add_classes(range(5))
    learner.head.weight.data.copy_(torch.randn(5, 16, generator=torch.Generator().manual_seed(1)))
    learner.train()
    model, numbers = Model(learner), torch.Generator()
    numbers.set_state(learner.generator.get_state())
    expected = slow_loss(learner, model, batch.x, batch.y.tolist(), numbers)
    assert_loss_and_gradients(learner, learner.loss(batch), expected, model)


def test_the_published_schedule() -> None:
    learner = GDumb(toy_backbone(dim=16), VIEW)
    assert [learner.rate(epoch) for epoch in range(256)] == pytest.approx(slow_rates(learner), rel=1e-9)
    assert learner.rate(0) == pytest.approx(0.005)
    assert [learner.rate(epoch) for epoch in (1, 2, 4, 8, 128)] == pytest.approx([0.05] * 5)
    assert learner.rate(255) == pytest.approx(0.0005, rel=0.02)


def test_nothing_is_learned_while_the_stream_passes() -> None:
    learner = gdumb()
    learner.add_classes(range(3))
    before = weights(learner)
    shown(learner)
    assert not differ(before, weights(learner))
    learner.before_evaluation()
    assert differ(before, weights(learner))


@pytest.mark.parametrize("head_start", ["zeros", "truncated-normal"])
def test_a_conclusion_changes_nothing_but_the_model(head_start: str) -> None:
    often, once = (gdumb(RANDOM_VIEW, head_start=head_start) for _ in range(2))
    for classes in (2, 4):
        for learner in (often, once):
            shown(learner, classes)
        often.before_evaluation()
        often.before_evaluation()
    assert torch.equal(often.generator.get_state(), once.generator.get_state())
    assert often.generator is often.memory.generator
    assert often.memory.rows.ids.tolist() == once.memory.rows.ids.tolist()
    once.before_evaluation()
    assert not differ(weights(often), weights(once))


def test_there_are_the_given_backbone_and_one_copy() -> None:
    def models() -> int:
        gc.collect()
        return sum(type(thing) is ViT for thing in gc.get_objects())

    backbone, before = toy_backbone(dim=16), models()
    learner = shown(GDumb(backbone, VIEW, **SMALL))
    learner.before_evaluation()
    learner.before_evaluation()
    assert learner.given[0] is backbone
    assert models() <= before + 1
    assert all(parameter.grad is None for parameter in learner.parameters())


@pytest.mark.parametrize("make", [toy_stream, toy_schedule])
def test_a_record_after_each_experience_and_no_forgetting(make: Any) -> None:
    stream: Stream = make()
    learner = gdumb(capacity=12, epochs=8)
    session = Session(learner, stream, Plan(epochs=3, batch_size=10))
    assert all(step.loss is None for step in session)
    assert learner.shown == sum(len(experience.train) for experience in stream.experiences)
    assert len(session.records) == 3
    for record in session.records:
        assert record.facts["forgets"] is False
        assert record.facts["loss_classes"] == "seen"
    assert session.records[-1].correct[-1] is not None


def test_one_class_and_a_memory_that_is_not_full() -> None:
    learner = gdumb(capacity=100)
    learner.add_classes([0])
    learner.step(toy_batch(3, classes=1), Descent([]))
    learner.before_evaluation()
    assert len(learner.memory) == 3
    assert predict(learner, toy_batch(4, classes=1)).tolist() == [0] * 4


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("capacity", 6),
        ("epochs", 3),
        ("batch_size", 9),
        ("highest_rate", 0.01),
        ("lowest_rate", 0.015),
        ("momentum", 0.5),
        ("weight_decay", 0.1),
        ("clip", 0.01),
        ("cutmix", 0.0),
        ("loss_classes", "all"),
        ("head_start", "truncated-normal"),
        ("train_backbone", False),
        ("seed", 1),
    ],
)
def test_every_keyword_changes_the_model(keyword: str, value: Any) -> None:
    learners = [shown(gdumb()), shown(gdumb(**{keyword: value}))]
    for learner in learners:
        learner.grow(6)  # more than were seen
        learner.before_evaluation()
    assert differ(*(weights(learner) for learner in learners))


def test_a_memory_below_one_image_per_class_is_refused() -> None:
    objection = refusal(gdumb(capacity=5), toy_stream())
    assert objection == "capacity = 5: must be at least one image per class, 6"
    gdumb(capacity=6).check(toy_stream())
    gdumb(capacity=6).check(toy_schedule())
    gdumb(capacity=6).check(toy_stream(tasks=6))


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("capacity", 0),
        ("epochs", 0),
        ("batch_size", 0),
        ("highest_rate", 0.0),
        ("lowest_rate", 0.06),
        ("lowest_rate", -1.0),
        ("momentum", 1.0),
        ("weight_decay", -1.0),
        ("clip", 0.0),
        ("cutmix", 1.1),
        ("loss_classes", "current"),
    ],
)
def test_bad_values_raise(keyword: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{keyword} = .*: must"):
        GDumb(toy_backbone(dim=16), VIEW, **{keyword: value})
