"""BiC is the two stages of Wu et al. (2019), on toy images through a toy ViT."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor

import slow
from promptpool.data.stream import Batch, Examples, Experience, concatenate, examples
from promptpool.data.views import ImageView
from promptpool.learners.bic import BiC
from promptpool.learners.state import restore, state
from promptpool.memory import join
from promptpool.optim import Descent
from promptpool.training.loop import Plan, Session
from toys import (
    RANDOM_VIEW,
    SHORT,
    VIEW,
    refusal,
    toy_backbone,
    toy_domains,
    toy_examples,
    toy_schedule,
    toy_stream,
)

SMALL: dict[str, Any] = {"capacity": 24, "held_out": 0.25}


def experience(index: int, classes: tuple[int, ...], per_class: int = 12) -> Experience:
    some = toy_examples(per_class, 1 + index)
    return Experience(index, some.select(torch.isin(some.y, torch.tensor(classes))), classes)


def shaken(learner: BiC, seed: int) -> None:
    """Other weights for all that is trained."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in learner.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)


def in_third_task(view: ImageView = VIEW, **values: Any) -> tuple[BiC, Experience]:
    """A learner on its way through its third task, unlike its teacher, whose second task was corrected."""
    learner = BiC(toy_backbone(dim=16), view, **{**SMALL, **values})
    for index, classes in enumerate([(1, 4), (0, 2)]):
        learner.add_classes(classes)
        learner.before(experience(index, classes))
        shaken(learner, index)
        learner.after(experience(index, classes))
    third = experience(2, (3, 5))
    learner.add_classes(third.classes)
    learner.before(third)
    shaken(learner, 2)
    return learner.train(), third


def scores_of(learner: BiC, x: Tensor) -> tuple[slow.Rows, slow.Rows]:
    """The corrected scores of the student and of the teacher, for inputs of the backbone."""
    found = []
    scale, shift = learner.scale.tolist(), learner.shift.tolist()
    for backbone, head in ((learner.backbone, learner.head), (learner.teacher["backbone"], learner.teacher["head"])):
        with torch.no_grad():
            features = backbone.features(x).double().tolist()  # type: ignore[operator]
        plain = slow.linear(features, head.weight.tolist(), head.bias.tolist())  # type: ignore[operator]
        found.append([[a * z + b for a, z, b in zip(scale, row, shift, strict=False)] for row in plain])
    return found[0], found[1]


def stage_1(learner: BiC, x: Tensor, y: Tensor) -> tuple[list[float], list[list[float]]]:
    """The loss of each image, and its gradient by each corrected score."""
    n, m = 4, 2
    share = n / (n + m)
    student, teacher = scores_of(learner, x)
    seen = list(range(6))
    losses, gradients = [], []
    for score, answer, label in zip(student, teacher, y.tolist(), strict=True):
        distilled, by_distilled = slow.distillation(score, answer, [0, 1, 2, 4], learner.temperature)
        right, by_right = slow.cross_entropy(score, label, seen)
        losses.append(share * distilled + (1 - share) * right)
        gradients.append([share * a + (1 - share) * b for a, b in zip(by_distilled, by_right, strict=True)])
    return losses, gradients


def drawn(learner: BiC, batch: Batch) -> tuple[Batch, Tensor]:
    """What the next loss replays, and what the backbone will see; draws nothing from the learner's generator."""
    state = learner.generator.get_state()
    replay = learner.memory.sample(len(batch.y))
    x = torch.cat([learner.inputs(batch), learner.inputs(replay)])
    learner.generator.set_state(state)
    return replay, x


@pytest.mark.parametrize("view", [VIEW, RANDOM_VIEW], ids=["fixed", "random"])
@pytest.mark.parametrize("train_backbone", [True, False])
@pytest.mark.parametrize("temperature", [2.0, 4.0])
def test_stage_1_is_the_papers_loss(view: ImageView, train_backbone: bool, temperature: float) -> None:
    learner, third = in_third_task(view, train_backbone=train_backbone, temperature=temperature)
    assert (learner.scale != 1).sum() == 2
    batch = learner.training_examples(third).batch(slice(0, 18, 3))
    replay, x = drawn(learner, batch)
    losses, gradients = stage_1(learner, x, torch.cat([batch.y, replay.y]))
    images = [len(learner.training_examples(third))] * 6 + [len(learner.memory)] * 6
    weights = [count / 6 / (len(learner.training_examples(third)) + len(learner.memory)) for count in images]
    trained = [p for p in learner.parameters() if p.requires_grad]
    scores = learner.head(learner.backbone.features(x)) * learner.scale + learner.shift
    by_score = torch.tensor([[w * g for g in row] for w, row in zip(weights, gradients, strict=True)])
    wanted = torch.autograd.grad(scores, trained, by_score)
    loss = learner.loss(batch)
    assert loss.item() == pytest.approx(math.fsum(w * v for w, v in zip(weights, losses, strict=True)), rel=1e-5)
    for mine, theirs in zip(torch.autograd.grad(loss, trained), wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5 * max(1.0, float(theirs.abs().max())))


def test_stage_1_is_the_mean_over_new_images_and_memory() -> None:
    learner, third = in_third_task()
    trained = learner.training_examples(third)
    assert (len(trained), len(learner.memory)) == (18, 18)  # so each row is replayed once
    batch, kept = trained.batch(slice(None)), learner.memory.rows
    losses, _ = stage_1(learner, VIEW.plain(torch.cat([batch.x, kept.x])), torch.cat([batch.y, kept.y]))
    assert learner.loss(batch).item() == pytest.approx(math.fsum(losses) / 36, rel=1e-5)


def test_an_epoch_has_the_steps_of_one_over_new_images_and_memory() -> None:
    """Each new image then weighs 1 / B in an epoch, however large the memory is."""
    learner, third = in_third_task()
    batch, taken = learner.training_examples(third).batch(slice(0, 6)), list[float]()

    class Noting:
        def over(self, batch: Batch, loss: Callable[[Batch], Tensor]) -> Tensor:
            taken.append(loss(batch).item())
            return torch.tensor(taken[-1])

    for memory, expected in ((0, 1), (18, 2), (36, 3), (40, 3), (90, 6)):
        learner.memory_share = memory / (memory + 18)
        taken.clear()
        last = learner.step(batch, cast("Descent", Noting()))
        assert len(taken) == expected
        assert last is not None
        assert last.item() == taken[-1]
    assert len(set(taken)) == 6  # other images are replayed each time


def test_the_first_task_is_cross_entropy_and_is_not_corrected() -> None:
    learner, first = BiC(toy_backbone(), VIEW, head_start="truncated-normal", **SMALL).train(), experience(0, (0, 1))
    learner.add_classes(first.classes)
    learner.before(first)
    batch = learner.training_examples(first).batch(slice(None))
    assert torch.equal(learner.loss(batch), super(BiC, learner).loss(batch))
    learner.after(first)
    assert learner.scale.tolist() == [1, 1]
    assert learner.shift.tolist() == [0, 0]
    assert learner.old == (0, 1)


def slow_fit(
    scores: slow.Rows, y: list[int], newest: set[int], *, steps: int, rate: float, momentum: float
) -> tuple[float, float]:
    """Eq. 5 descended by alpha and beta, the gradients of Eq. 4 by hand."""
    alpha, beta = 1.0, 0.0
    fast_alpha = fast_beta = 0.0
    classes = list(range(len(scores[0])))
    for _ in range(steps):
        by_alpha = by_beta = 0.0
        for row, label in zip(scores, y, strict=True):
            corrected = [alpha * z + beta if c in newest else z for c, z in enumerate(row)]
            _, gradient = slow.cross_entropy(corrected, label, classes)
            by_alpha += sum(gradient[c] * row[c] for c in newest) / len(scores)
            by_beta += sum(gradient[c] for c in newest) / len(scores)
        fast_alpha, fast_beta = momentum * fast_alpha + by_alpha, momentum * fast_beta + by_beta
        alpha, beta = alpha - rate * fast_alpha, beta - rate * fast_beta
    return alpha, beta


def doubtful(count: int = 60) -> Batch:
    """Images of every class with many wrong labels, so that no correction is perfect."""
    some = toy_examples(count // 6, 9)
    return some.batch(slice(None))._replace(y=torch.randint(0, 6, (count,), generator=torch.Generator().manual_seed(3)))


@pytest.mark.parametrize("values", [{}, {"bias_epochs": 20}, {"bias_rate": 0.02}, {"bias_momentum": 0.0}])
def test_stage_2_is_a_slow_fit_of_equations_4_and_5(values: dict[str, Any]) -> None:
    learner, _ = in_third_task(**values)
    rows, scale, shift = doubtful(), learner.scale.clone(), learner.shift.clone()
    scores, _ = scores_of(learner, VIEW.plain(rows.x))
    alpha, beta = slow_fit(
        scores,
        rows.y.tolist(),
        {3, 5},
        steps=learner.bias_epochs,
        rate=learner.bias_rate,
        momentum=learner.bias_momentum,
    )
    weights = {name: value.clone() for name, value in learner.named_parameters()}
    learner.correct(rows)
    assert abs(alpha - 1) > 0.01
    assert learner.scale[[3, 5]].tolist() == pytest.approx([alpha] * 2, abs=1e-4)
    assert learner.shift[[3, 5]].tolist() == pytest.approx([beta] * 2, abs=1e-4)
    older = [0, 1, 2, 4]
    assert torch.equal(learner.scale[older], scale[older])
    assert torch.equal(learner.shift[older], shift[older])
    assert all(torch.equal(value, weights[name]) for name, value in learner.named_parameters())


def test_stage_2_ends_at_the_least_loss() -> None:
    learner, _ = in_third_task()
    learner.bias_epochs = 800
    rows = doubtful()
    scores, _ = scores_of(learner, VIEW.plain(rows.x))

    def loss(alpha: float, beta: float) -> float:
        corrected = [[alpha * z + beta if c in (3, 5) else z for c, z in enumerate(row)] for row in scores]
        pairs = zip(corrected, rows.y.tolist(), strict=True)
        return math.fsum(slow.cross_entropy(row, label, list(range(6)))[0] for row, label in pairs) / len(scores)

    learner.correct(rows)
    alpha, beta = learner.scale[3].item(), learner.shift[3].item()
    least = loss(alpha, beta)
    for step in (0.01, 0.1, 1.0):
        for a, b in ((step, 0), (-step, 0), (0, step), (0, -step), (step, step), (step, -step)):
            assert loss(alpha + a, beta + b) > least
    assert loss(1, 0) > least


def test_corrections_of_older_tasks_stay_and_the_teacher_has_them() -> None:
    learner, third = in_third_task()
    scale, shift = learner.scale.clone(), learner.shift.clone()
    assert scale[[1, 4, 3, 5]].tolist() == [1, 1, 1, 1]
    assert scale[0] == scale[2] != 1
    assert shift[0] == shift[2] != 0
    learner.after(third)
    assert torch.equal(learner.scale[:3], scale[:3])
    assert torch.equal(learner.shift[:3], shift[:3])
    assert learner.scale[3] == learner.scale[5] != 1
    assert learner.old == (0, 1, 2, 3, 4, 5)
    batch = third.train.batch(slice(None))
    student, teacher = scores_of(learner, VIEW.plain(batch.x))
    torch.testing.assert_close(torch.tensor(student), torch.tensor(teacher), rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(learner.eval().logits(batch), torch.tensor(student), rtol=1e-4, atol=1e-4)


def test_a_class_that_comes_again_is_corrected_anew() -> None:
    learner = BiC(toy_backbone(dim=16), VIEW, **SMALL)
    for index in range(3):
        domain = experience(index, (0, 1, 2))
        learner.add_classes(domain.classes)
        learner.before(domain)
        shaken(learner, index)
        assert learner.loss(learner.training_examples(domain).batch(slice(0, 4))).isfinite()
        before = learner.eval().logits(domain.train.batch(slice(None))).argmax(dim=1)
        learner.after(domain)
        after = learner.eval().logits(domain.train.batch(slice(None))).argmax(dim=1)
        assert torch.equal(before, after)  # one scale above 0 for all classes moves no prediction
    assert learner.scale[0] == learner.scale[2] != 1


@pytest.mark.parametrize("stream", [toy_stream(), toy_domains()], ids=["classes", "domains"])
def test_held_out_images_are_never_trained_on(stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = BiC(toy_backbone(), VIEW, **SMALL)
    trained: set[int] = set()
    corrected: list[Counter[int]] = []
    loss, sample, correct = learner.loss, learner.memory.sample, learner.correct

    def spied_loss(batch: Batch) -> Tensor:
        trained.update(batch.ids.tolist())
        return loss(batch)

    def spied_sample(count: int) -> Batch:
        rows = sample(count)
        trained.update(rows.ids.tolist())
        return rows

    def spied_correct(rows: Batch) -> None:
        assert trained.isdisjoint(rows.ids.tolist())
        corrected.append(Counter(rows.y.tolist()))
        correct(rows)

    monkeypatch.setattr(learner, "loss", spied_loss)
    monkeypatch.setattr(learner.memory, "sample", spied_sample)
    monkeypatch.setattr(learner, "correct", spied_correct)
    for step in Session(learner, stream, SHORT):
        assert len(learner.memory) + len(learner.held) <= learner.capacity
        if step.record is not None:
            assert trained.isdisjoint(learner.held.rows.ids.tolist())
            assert set(learner.memory.rows.ids.tolist()) <= trained
    everything = {int(identity) for e in stream.experiences for identity in e.train.ids}
    held = {int(identity) for e in stream.experiences for identity in learner.split(e)[1].ids}
    assert trained == everything - held
    assert len(corrected) == 2
    for counts, task in zip(corrected, stream.experiences[1:], strict=True):
        assert len(set(counts.values())) == 1, "as many of each class"
        assert set(task.classes) <= set(counts)
    assert set(corrected[-1]) == set(range(6))


def test_training_examples_are_the_same_whenever_they_are_asked_for() -> None:
    first, learner = experience(0, (0, 1)), BiC(toy_backbone(), VIEW, **SMALL)
    ids = learner.training_examples(first).ids
    learner.add_classes([3, 4])
    assert torch.equal(learner.training_examples(first).ids, ids)
    assert torch.equal(BiC(toy_backbone(), VIEW, **SMALL).training_examples(first).ids, ids)
    assert not torch.equal(BiC(toy_backbone(), VIEW, seed=1, **SMALL).training_examples(first).ids, ids)
    trained, held = learner.split(first)
    assert sorted([*trained.ids.tolist(), *held.ids.tolist()]) == sorted(first.train.ids.tolist())


@pytest.mark.parametrize(
    ("capacity", "held_out", "per_class", "expected"),
    [
        (20, 0.1, 12, 1),  # two places for two classes
        (40, 0.25, 40, 5),  # ten places
        (400, 0.25, 12, 3),  # a quarter of each class's images, which are fewer than the places
        (400, 0.1, 3, 1),
        (400, 0.1, 1, 0),  # an only image is trained on
    ],
)
def test_how_many_are_held_out(capacity: int, held_out: float, per_class: int, expected: int) -> None:
    learner = BiC(toy_backbone(), VIEW, capacity=capacity, held_out=held_out)
    trained, held = learner.split(experience(0, (0, 1), per_class))
    assert Counter(held.y.tolist()) == ({0: expected, 1: expected} if expected else {})
    assert len(trained) == 2 * (per_class - expected)


def test_places_in_the_memory_do_not_change_what_a_task_gives_up() -> None:
    half: dict[str, Any] = {"capacity": 12, "held_out": 0.5}
    tenth: dict[str, Any] = {"capacity": 12, "held_places": 6}
    for values, held in ((half, 3), (tenth, 1)):
        learner = BiC(toy_backbone(), VIEW, **values)
        assert (learner.memory.capacity, learner.held.capacity) == (6, 6)
        assert Counter(learner.split(experience(0, (0, 1), 12))[1].y.tolist()) == {0: held, 1: held}
        learner.check(toy_stream())
    with pytest.raises(ValueError, match=r"^capacity = 12: must have places for .*; held_places = 12"):
        BiC(toy_backbone(), VIEW, capacity=12, held_places=12)


def uneven(counts: dict[int, int], seed: int) -> Examples:
    some = toy_examples(20, seed)
    return concatenate([some.select((some.y == label).nonzero()[:count, 0]) for label, count in counts.items()])


def test_classes_of_one_image_and_a_memory_that_is_not_full() -> None:
    learner = BiC(toy_backbone(), VIEW, capacity=200, held_out=0.25)
    for index, counts in enumerate([{0: 16, 1: 1}, {2: 1, 3: 1}, {4: 4, 5: 12}]):
        task = Experience(index, uneven(counts, index + 1), tuple(counts))
        learner.add_classes(task.classes)
        learner.before(task)
        learner.train()
        assert learner.loss(learner.training_examples(task).batch(slice(None))).isfinite()
        learner.after(task)
    assert Counter(learner.held.rows.y.tolist()) == {0: 4, 4: 1, 5: 3}
    assert len(learner.memory) + len(learner.held) == 35
    assert learner.shift[:4].tolist() == [0, 0, 0, 0]  # nothing of classes 2 and 3 was held out
    assert learner.shift[4] == learner.shift[5] != 0


def test_five_thousand_small_images_take_less_than_20_megabytes() -> None:
    learner = BiC(toy_backbone(), VIEW, capacity=5000)
    x = torch.randint(0, 256, (600, 3, 32, 32), dtype=torch.uint8)
    for index in range(10):
        some = examples(x ^ index, [index] * 600)
        learner.memory.add_all(some.select(slice(0, 540)))
        learner.held.add_all(some.select(slice(540, 600)))
    assert (len(learner.memory), len(learner.held)) == (4500, 500)
    rows = [memory.rows for memory in (learner.memory, learner.held)]
    held = [part.x.untyped_storage().nbytes() + part.y.nbytes + part.ids.nbytes for part in rows]
    assert sum(held) + learner.memory.lots.nbytes + learner.held.lots.nbytes < 20e6


def test_keywords_change_what_they_should() -> None:
    def loss(**values: Any) -> float:
        learner, third = in_third_task(**values)
        return learner.loss(third.train.batch(slice(0, 6))).item()

    usual, (learner, _) = loss(), in_third_task()
    assert loss() == usual
    changes: list[dict[str, Any]] = [
        {"temperature": 1.0},
        {"capacity": 12, "held_out": 0.5},
        {"held_places": 12},
        {"seed": 1},
    ]
    for values in changes:
        assert loss(**values) != pytest.approx(usual, rel=1e-4)
    stages: list[dict[str, Any]] = [{"bias_epochs": 5}, {"bias_rate": 0.01}, {"bias_momentum": 0.0}]
    for values in stages:
        other, _ = in_third_task(**values)
        assert other.scale[0].item() != pytest.approx(learner.scale[0].item(), rel=1e-4)
    uncorrected, _ = in_third_task(bias_epochs=0)
    assert uncorrected.scale.tolist() == [1] * 6
    seen, everything = (in_third_task(loss_classes=name)[0] for name in ("seen", "all"))
    batch = toy_examples(2, 4).batch(slice(None))
    for changed in (seen, everything):
        changed.grow(8)
    assert seen.loss(batch) < everything.loss(batch)


def test_boundaries_and_a_held_out_image_per_class_are_needed() -> None:
    learner = BiC(toy_backbone(), VIEW, **SMALL)
    assert "boundaries" in str(refusal(learner, toy_schedule()))
    learner.check(toy_stream())
    learner.check(toy_domains())
    small = BiC(toy_backbone(), VIEW, capacity=24, held_out=0.2)
    for few in (small, BiC(toy_backbone(), VIEW, capacity=24, held_places=20)):
        assert "each must have one per class, 6: set held_places" in str(refusal(few, toy_stream()))
    with pytest.raises(ValueError, match=r"^capacity = 24"):
        Session(small, toy_stream(), Plan())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("capacity", 0),
        ("capacity", 4),
        ("held_out", 0.0),
        ("held_out", 1.0),
        ("temperature", 0.0),
        ("bias_epochs", -1),
        ("bias_rate", 0.0),
        ("bias_momentum", 1.0),
        ("loss_classes", "current"),
    ],
)
def test_bad_values_raise(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} = {value!r}: must"):
        BiC(toy_backbone(), VIEW, **{name: value})


def test_a_state_brings_back_memories_teacher_and_corrections() -> None:
    learner, third = in_third_task()
    again = BiC(toy_backbone(dim=16), VIEW, **SMALL)
    restore(again, state(learner))
    assert torch.equal(again.scale, learner.scale)
    assert (again.old, again.memory_share) == (learner.old, learner.memory_share)
    batch = join(learner.training_examples(third).batch(slice(0, 4)), learner.memory.rows)
    assert torch.equal(again.train().loss(batch), learner.loss(batch))
