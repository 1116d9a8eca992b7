"""RanPAC against sums and solutions written as loops; the order of tasks changes nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from promptpool.data.stream import Batch, Examples, Experience
from promptpool.data.views import ImageView
from promptpool.learners.base import trained_parameter_count
from promptpool.learners.ranpac import CHOICES, RIDGES, RanPAC, held_out_errors
from promptpool.learners.state import restore, state
from promptpool.optim import Descent
from promptpool.training.evaluation import predict
from promptpool.training.loop import Plan, Session
from toys import CLASSES, toy_backbone, toy_examples, toy_schedule, toy_stream

VIEW = ImageView(8)
EVERY = list(range(CLASSES))


def learner_of(**values: Any) -> RanPAC:
    return RanPAC(toy_backbone(dim=16), VIEW, **{"projections": 30, **values})


def learned(order: list[int], train: Examples, step: int = 9, **values: Any) -> RanPAC:
    """A learner after the classes came one by one in this order."""
    learner = learner_of(**values)
    for index, label in enumerate(order):
        own = train.select(train.y == label)
        learner.add_classes([label])
        learner.before(Experience(index, own, (label,)))
        for batch in own.batches(step):
            assert learner.step(batch, Descent([])) is None
        learner.before_evaluation()
    return learner.eval()


def slow_h(learner: RanPAC, batch: Batch) -> list[list[float]]:
    columns = learner.directions.T.tolist()
    rows = []
    for feature in learner.frozen(batch).tolist():
        projected = [math.fsum(a * b for a, b in zip(feature, column, strict=True)) for column in columns]
        rows.append([max(0.0, value) for value in projected])
    return rows


def slow_solve(system: list[list[float]], right: list[list[float]]) -> list[list[float]]:
    """Gaussian elimination with the largest pivot."""
    rows = [[*a, *b] for a, b in zip(system, right, strict=True)]
    size = len(rows)
    for i in range(size):
        best = max(range(i, size), key=lambda j: abs(rows[j][i]))
        rows[i], rows[best] = rows[best], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in range(size):
            if j != i:
                rows[j] = [a - rows[j][i] * b for a, b in zip(rows[j], rows[i], strict=True)]
    return [row[size:] for row in rows]


def slow_weights(h: list[list[float]], y: list[int], ridge: float, classes: int = CLASSES) -> list[list[float]]:
    """(H^T H + ridge I)^-1 H^T Y: [M][C]."""
    size, rows = len(h[0]), range(len(h))
    gram = [[math.fsum(h[n][a] * h[n][b] for n in rows) + ridge * (a == b) for b in range(size)] for a in range(size)]
    sums = [[math.fsum(h[n][a] for n in rows if y[n] == c) for c in range(classes)] for a in range(size)]
    return slow_solve(gram, sums)


def scores(h: list[list[float]], weights: list[list[float]]) -> list[list[float]]:
    columns = list(zip(*weights, strict=True))
    return [[math.fsum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in h]


@pytest.mark.parametrize("ridge", [0.1, 100.0])
def test_sums_solution_and_predictions_are_those_of_a_loop(ridge: float) -> None:
    train, batch = toy_examples(13, 1), toy_examples(5, 2).batch(slice(None))
    learner = learned(EVERY, train, ridge=ridge)
    everything = train.batch(slice(None))
    h, y = slow_h(learner, everything), train.y.tolist()
    gram = [[math.fsum(row[a] * row[b] for row in h) for b in range(30)] for a in range(30)]
    torch.testing.assert_close(learner.gram, torch.tensor(gram, dtype=torch.float64), rtol=1e-12, atol=1e-12)
    for label in EVERY:
        own = [row for row, other in zip(h, y, strict=True) if other == label]
        total = torch.tensor([math.fsum(column) for column in zip(*own, strict=True)], dtype=torch.float64)
        torch.testing.assert_close(learner.sums[label], total, rtol=1e-12, atol=1e-12)
    weights = slow_weights(h, y, ridge)
    torch.testing.assert_close(
        learner.head.weight.data, torch.tensor(weights, dtype=torch.float64).T, rtol=1e-7, atol=1e-9
    )
    expected = scores(slow_h(learner, batch), weights)
    torch.testing.assert_close(learner.logits(batch), torch.tensor(expected, dtype=torch.float64), rtol=1e-7, atol=1e-9)
    assert predict(learner, batch).tolist() == [row.index(max(row)) for row in expected]


def test_the_order_of_tasks_and_batches_changes_nothing() -> None:
    train, batch = toy_examples(13, 1), toy_examples(5, 2).batch(slice(None))
    first = learned(EVERY, train, ridge=1.0)
    for order, step in (([5, 4, 3, 2, 1, 0], 9), ([3, 0, 5, 1, 4, 2], 1), (EVERY, 100)):
        other = learned(order, train, step, ridge=1.0)
        torch.testing.assert_close(first.gram, other.gram, rtol=1e-13, atol=1e-12)
        torch.testing.assert_close(first.sums, other.sums, rtol=1e-13, atol=1e-12)
        torch.testing.assert_close(first.logits(batch), other.logits(batch), rtol=1e-8, atol=1e-10)
        assert torch.equal(predict(first, batch), predict(other, batch))


def test_a_stream_with_its_tasks_permuted_ends_with_the_same_classifier() -> None:
    stream, batch = toy_stream(), toy_examples(5, 2).batch(slice(None))
    ends = []
    for order in ([0, 1, 2], [2, 0, 1]):
        learner = learner_of(ridge=10.0)
        for index in order:
            experience = stream.experiences[index]
            learner.add_classes(experience.classes)
            learner.before(experience)
            for part in experience.train.batches(10):
                learner.step(part, Descent([]))
            learner.before_evaluation()
        ends.append(learner)
    torch.testing.assert_close(ends[0].gram, ends[1].gram, rtol=1e-13, atol=1e-12)
    torch.testing.assert_close(ends[0].sums, ends[1].sums, rtol=1e-13, atol=1e-12)
    assert torch.equal(predict(ends[0], batch), predict(ends[1], batch))


def random_rows(rows: int, columns: int, seed: int) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("rows", "columns"), [(12, 5), (4, 9), (5, 5), (1, 3)])
def test_errors_of_all_ridges_are_those_of_one_fit_each(rows: int, columns: int) -> None:
    h, held_h = random_rows(rows, columns, 0), random_rows(3, columns, 1)
    y = [row % 3 for row in range(rows)]
    held_y = [0, 1, 1]
    one_hot = [torch.eye(3, dtype=torch.float64)[labels] for labels in (y, held_y)]
    ridges = (1e-3, 0.1, 1.0, 100.0)
    errors = held_out_errors(h, one_hot[0], held_h, one_hot[1], ridges)
    for ridge, error in zip(ridges, errors, strict=True):
        found = scores(held_h.tolist(), slow_weights(h.tolist(), y, ridge, classes=3))
        squares = [(found[n][c] - (held_y[n] == c)) ** 2 for n in range(3) for c in range(3)]
        assert error == pytest.approx(math.fsum(squares) / 9, rel=1e-7)


def test_the_ridge_is_the_best_on_a_fifth_held_out_of_the_present_experience() -> None:
    assert list(RIDGES) == [float(f"1e{power}") for power in range(-8, 9)]
    train = toy_examples(10, 1)
    learner = learner_of(projections=20)
    learner.add_classes(EVERY)
    for index, part in enumerate((slice(0, 20), slice(20, 60))):
        own = train.select(part)
        learner.before(Experience(index, own, own.classes))
        for batch in own.batches(7):
            learner.step(batch, Descent([]))
        learner.before_evaluation()
    own = train.select(slice(20, 60))
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    h, y = slow_h(learner, own.batch(order)), own.y[order].tolist()
    errors = {}
    for ridge in RIDGES[6:]:  # below, the loop's own rounding is too large
        found = scores(h[32:], slow_weights(h[:32], y[:32], ridge))
        errors[ridge] = math.fsum((found[n][c] - (y[32 + n] == c)) ** 2 for n in range(8) for c in EVERY)
    assert learner.chosen_ridge == min(errors, key=errors.__getitem__)
    assert learner.diagnostics([]) == {"ridge": learner.chosen_ridge}


def slow_cross_validation(h: list[list[float]], y: list[int], ridge: float) -> float:
    """Golub et al.'s criterion, |(I - A) Y|^2 / (1 - tr(A) / n)^2 with A = H (H^T H + ridge I)^-1 H^T."""
    size, rows = len(h[0]), range(len(h))
    gram = [[math.fsum(h[n][a] * h[n][b] for n in rows) + ridge * (a == b) for b in range(size)] for a in range(size)]
    solved = slow_solve(gram, [list(column) for column in zip(*h, strict=True)])
    hat = [[math.fsum(h[n][a] * solved[a][m] for a in range(size)) for m in rows] for n in rows]
    error = math.fsum(
        ((y[n] == c) - math.fsum(hat[n][m] for m in rows if y[m] == c)) ** 2 for n in rows for c in range(CLASSES)
    )
    return error / (1 - math.fsum(hat[n][n] for n in rows) / len(h)) ** 2


@pytest.mark.parametrize(("projections", "columns"), [(8, 8), (0, 12), (30, 12)])
def test_the_sums_choose_the_ridge_by_generalised_cross_validation(projections: int, columns: int) -> None:
    """On all columns, or on the first ones where there are more than half as many as examples."""
    train = toy_examples(4, 1)
    learner = learned(EVERY, train, projections=projections, choose_by="sums")
    batch = train.batch(slice(None))
    h = slow_h(learner, batch) if projections else learner.frozen(batch).tolist()
    few, y = [row[:columns] for row in h], train.y.tolist()
    scale = math.fsum(value * value for row in few for value in row) / columns
    errors = {}
    for power in range(-24, 13):
        ridge = scale * 10 ** (power / 4)
        errors[ridge] = slow_cross_validation(few, y, ridge)
    best = min(errors, key=errors.__getitem__)
    assert min(errors) < best < max(errors)
    assert learner.chosen_ridge == pytest.approx(best, rel=1e-9)
    assert learner.diagnostics([]) == {"ridge": learner.chosen_ridge}
    expected = torch.tensor(slow_weights(h, y, best), dtype=torch.float64).T
    torch.testing.assert_close(learner.head.weight.data, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("projections", [0, 30, 100])
def test_chosen_by_the_sums_even_the_ridge_does_not_depend_on_the_order(projections: int) -> None:
    train, batch = toy_examples(13, 1), toy_examples(5, 2).batch(slice(None))
    first = learned(EVERY, train, projections=projections, choose_by="sums")
    for order, step in (([5, 4, 3, 2, 1, 0], 9), ([3, 0, 5, 1, 4, 2], 1), (EVERY, 100)):
        other = learned(order, train, step, projections=projections, choose_by="sums")
        assert other.chosen_ridge == pytest.approx(first.chosen_ridge, rel=1e-12)
        torch.testing.assert_close(first.head.weight, other.head.weight, rtol=1e-8, atol=1e-8)
        assert torch.equal(predict(first, batch), predict(other, batch))


def test_the_sums_need_no_examples() -> None:
    learner = learned(EVERY, toy_examples(6, 1), choose_by="sums")
    assert len(learner.recent_features) == len(learner.recent_labels) == 0
    assert learner.chosen_ridge not in RIDGES


def test_a_given_ridge_is_kept_and_needs_no_examples() -> None:
    learner = learned(EVERY, toy_examples(6, 1), ridge=0.25)
    assert learner.chosen_ridge == 0.25
    assert len(learner.recent_labels) == 0
    assert not torch.equal(learner.head.weight, learned(EVERY, toy_examples(6, 1), ridge=25.0).head.weight)


def test_the_latest_examples_choose_the_ridge() -> None:
    train = toy_examples(10, 1, classes=2)
    learner = learner_of(recent=12)
    learner.add_classes([0, 1])
    for batch in train.batches(7):
        learner.step(batch, Descent([]))
        assert len(learner.recent_labels) <= 12
    assert torch.equal(learner.recent_labels, train.y[-12:])
    assert torch.equal(learner.recent_features, learner.frozen(train.batch(slice(8, 20))))
    other = learner_of(recent=40)
    other.add_classes([0, 1])
    other.step(train.batch(slice(None)), Descent([]))
    assert len(other.recent_labels) == 20
    torch.testing.assert_close(learner.gram, other.gram)  # sums are over all examples all the same


def test_without_boundaries_it_learns_and_windows_change_nothing() -> None:
    stream = toy_schedule()
    records = [step.record for step in Session(learner_of(recent=50), stream, Plan(batch_size=10)) if step.record]
    assert records[-1].correct[0] is not None
    assert records[-1].correct[0] > 0.8 * records[-1].total[0]
    often, seldom = learner_of(recent=50), learner_of(recent=50)
    for learner in (often, seldom):
        learner.add_classes(EVERY)
        for experience in stream.experiences:
            for batch in experience.train.batches(10):
                learner.step(batch, Descent([]))
                if learner is often:
                    learner.before_evaluation()
        learner.before_evaluation()
    assert torch.equal(often.head.weight, seldom.head.weight)
    assert often.chosen_ridge == seldom.chosen_ridge


def test_it_is_solved_once_per_experience_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    solve, calls = torch.linalg.solve, []

    def counted(system: Tensor, right: Tensor) -> Any:
        calls.append(system.shape)
        return solve(system, right)

    monkeypatch.setattr(torch.linalg, "solve", counted)
    steps = list(Session(learner_of(), toy_stream(), Plan(epochs=5, batch_size=10)))
    assert len(calls) == 3 < len(steps)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_handful_of_examples_is_enough(count: int) -> None:
    learner = learner_of()
    learner.add_classes([0])
    learner.step(toy_examples(count, 1, classes=1).batch(slice(None)), Descent([]))
    learner.before_evaluation()
    assert torch.isfinite(learner.head.weight).all()
    assert learner.chosen_ridge in RIDGES
    assert predict(learner, toy_examples(2, 2, classes=1).batch(slice(None))).tolist() == [0, 0]


def test_no_projections_leave_the_features_as_they_are() -> None:
    learner = learned(EVERY, toy_examples(6, 1), projections=0, ridge=1.0)
    batch = toy_examples(2, 2).batch(slice(None))
    assert torch.equal(learner.project(learner.frozen(batch)), learner.frozen(batch).double())
    assert learner.head.weight.shape == (6, 16)
    assert learner.gram.shape == (16, 16)


def test_the_seed_draws_the_projections_and_a_state_does_not_hold_them() -> None:
    train, batch = toy_examples(6, 1), toy_examples(5, 2).batch(slice(None))
    first = learned([0, 1, 2, 3], train)
    assert first.directions.shape == (16, 30)
    assert not torch.equal(first.directions, learner_of(seed=1).directions)
    saved = state(first)
    assert saved["weights"].keys() == {"head.weight", "head.bias"}
    second = learner_of()
    restore(second, saved)
    assert second.seen == (0, 1, 2, 3)
    assert torch.equal(first.logits(batch), second.logits(batch))
    with pytest.raises(ValueError, match="gram"):
        restore(learner_of(), {**saved, "kept": {**saved["kept"], "gram": torch.zeros(2, 2)}})


def test_nothing_is_trained() -> None:
    learner = learner_of()
    learner.add_classes(range(3))
    assert not any(parameter.requires_grad for parameter in learner.parameters())
    assert trained_parameter_count(learner, 10) == 0


@pytest.mark.parametrize(
    ("keyword", "value"), [("projections", -1), ("ridge", 0.0), ("ridge", math.inf), ("ridge", math.nan), ("recent", 1)]
)
def test_bad_values_raise(keyword: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{keyword} = .*: must"):
        learner_of(**{keyword: value})


@pytest.mark.parametrize("choose_by", CHOICES)
def test_a_bad_ridge_is_refused_in_words_that_hold_for_both_choices(choose_by: str) -> None:
    with pytest.raises(ValueError, match=r"^ridge = 0: must be above 0, or None to choose it as choose_by says$"):
        learner_of(ridge=0, choose_by=choose_by)
    with pytest.raises(ValueError, match=r"^choose_by = 'best': must be one of held-out, sums$"):
        learner_of(choose_by="best")
