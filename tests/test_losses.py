import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from promptpool.losses import (
    asymmetric_contrast,
    barlow_twins,
    entropy,
    logit_distance,
    only,
    relation_distillation,
)

CHOICES = [[0], [2, 5], [5, 2], [0, 1, 2, 3, 4, 5, 6]]


def random_logits() -> torch.Tensor:
    return torch.randn(4, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("classes", CHOICES)
def test_softmax_sees_the_classes_alone(classes: list[int]) -> None:
    logits = random_logits()
    shares = only(logits, torch.tensor(classes)).softmax(dim=1)
    for row, share in zip(logits.tolist(), shares.tolist(), strict=True):
        weights = {c: torch.tensor(row[c], dtype=torch.float64).exp().item() for c in classes}
        expected = [weights.get(c, 0.0) / sum(weights.values()) for c in range(7)]
        assert share == pytest.approx(expected)


@pytest.mark.parametrize("classes", CHOICES)
def test_cross_entropy_is_that_of_the_sub_vector(classes: list[int]) -> None:
    logits = random_logits()
    places = torch.tensor([0, len(classes) - 1, 0, len(classes) // 2])
    labels = torch.tensor(classes)[places]
    actual = F.cross_entropy(only(logits, torch.tensor(classes)), labels)
    torch.testing.assert_close(actual, F.cross_entropy(logits[:, classes], places))


@pytest.mark.parametrize("classes", CHOICES)
def test_hidden_classes_get_no_gradient(classes: list[int]) -> None:
    logits = random_logits().requires_grad_()
    labels = torch.full((4,), classes[0])
    loss = F.cross_entropy(only(logits, torch.tensor(classes)), labels)
    (gradient,) = torch.autograd.grad(loss, logits)
    hidden = [c for c in range(7) if c not in classes]
    assert torch.equal(gradient[:, hidden], torch.zeros(4, len(hidden), dtype=torch.float64))
    alone = random_logits()[:, classes].requires_grad_()
    (expected,) = torch.autograd.grad(F.cross_entropy(alone, torch.zeros(4, dtype=torch.long)), alone)
    torch.testing.assert_close(gradient[:, classes], expected)


def test_the_prediction_is_one_of_the_classes() -> None:
    logits = torch.tensor([[9.0, 1.0, 2.0, 8.0]])
    assert only(logits, torch.tensor([1, 2])).argmax(dim=1).tolist() == [2]


def test_inputs_are_not_changed() -> None:
    logits, classes = random_logits(), torch.tensor([1, 3])
    only(logits, classes)
    assert torch.equal(logits, random_logits())
    assert classes.tolist() == [1, 3]


def test_any_number_of_leading_dimensions() -> None:
    logits = random_logits().view(2, 2, 7)
    flat = only(logits.view(4, 7), torch.tensor([0, 6]))
    assert torch.equal(only(logits, torch.tensor([0, 6])), flat.view(2, 2, 7))
    assert torch.equal(only(logits[0, 0], torch.tensor([0, 6])), flat[0])


def test_a_class_that_does_not_exist_raises() -> None:
    with pytest.raises(IndexError):
        only(random_logits(), torch.tensor([7]))


def unit_rows(count: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = F.normalize(torch.randn(count, 5, generator=generator, dtype=torch.float64), dim=1)
    return rows.requires_grad_()


def dot(first: list[float], second: list[float]) -> float:
    return math.fsum(a * b for a, b in zip(first, second, strict=True))


def slow_contrast(z: list[list[float]], y: list[int], anchors: list[bool], temperature: float) -> float:
    """Eq. 10 of Co2L, summed as it stands and divided by the number of rows."""
    total, rows = 0.0, range(len(z))
    for i in rows:
        positives = [j for j in rows if j != i and y[j] == y[i]]
        if not anchors[i] or not positives:
            continue
        below = math.fsum(math.exp(dot(z[i], z[k]) / temperature) for k in rows if k != i)
        logs = [math.log(math.exp(dot(z[i], z[j]) / temperature) / below) for j in positives]
        total += -1 / len(positives) * math.fsum(logs)
    return total / len(z)


def slow_relations(z: list[list[float]], past: list[list[float]], kappa: float, past_kappa: float) -> float:
    """Eqs. 11 to 13 of Co2L, divided by the number of rows."""
    total, rows = 0.0, range(len(z))
    for i in rows:
        now = {j: math.exp(dot(z[i], z[j]) / kappa) for j in rows if j != i}
        then = {j: math.exp(dot(past[i], past[j]) / past_kappa) for j in rows if j != i}
        for j in now:
            total += -then[j] / math.fsum(then.values()) * math.log(now[j] / math.fsum(now.values()))
    return total / len(z)


def slow_gradient(function: object, z: list[list[float]], step: float = 1e-6) -> Tensor:
    """Central differences, one number at a time."""
    assert callable(function)
    gradient = torch.zeros(len(z), len(z[0]), dtype=torch.float64)
    for i in range(len(z)):
        for d in range(len(z[0])):
            higher, lower = ([list(row) for row in z] for _ in range(2))
            higher[i][d] += step
            lower[i][d] -= step
            gradient[i, d] = (function(higher) - function(lower)) / (2 * step)
    return gradient


LABELS = [
    ([0, 0, 1, 2, 0, 2, 1], [True, True, False, True, False, True, False]),
    ([0, 0, 0, 0, 0, 0, 0], [True] * 7),  # one class
    ([0, 1, 2, 3, 4, 5, 5], [True] * 7),  # most rows without a positive
    ([0, 0, 1, 1, 2, 2, 2], [False] * 7),
]


@pytest.mark.parametrize(("labels", "anchors"), LABELS)
@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_asymmetric_contrast_is_that_of_a_loop(labels: list[int], anchors: list[bool], temperature: float) -> None:
    z = unit_rows(7)
    loss = asymmetric_contrast(z, torch.tensor(labels), torch.tensor(anchors), temperature)
    assert loss.item() == pytest.approx(slow_contrast(z.tolist(), labels, anchors, temperature), rel=1e-12)
    (gradient,) = torch.autograd.grad(loss, z)
    expected = slow_gradient(lambda rows: slow_contrast(rows, labels, anchors, temperature), z.tolist())
    torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("kappa", "past_kappa"), [(0.2, 0.1), (0.2, 0.01), (1.0, 1.0)])
def test_relation_distillation_is_that_of_a_loop(kappa: float, past_kappa: float) -> None:
    z, past = unit_rows(6), unit_rows(6, seed=1).detach()
    loss = relation_distillation(z, past, kappa, past_kappa)
    assert loss.item() == pytest.approx(slow_relations(z.tolist(), past.tolist(), kappa, past_kappa), rel=1e-12)
    (gradient,) = torch.autograd.grad(loss, z)
    expected = slow_gradient(lambda rows: slow_relations(rows, past.tolist(), kappa, past_kappa), z.tolist())
    torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-7)


def test_relations_are_kept_best_where_nothing_moved() -> None:
    past = unit_rows(6).detach()
    z = past.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(relation_distillation(z, past, 0.2, 0.2), z)
    torch.testing.assert_close(gradient, torch.zeros_like(z), rtol=0, atol=1e-12)


def test_contrast_and_relations_do_not_depend_on_the_order_of_rows() -> None:
    z, past, order = unit_rows(8), unit_rows(8, seed=1), torch.randperm(8, generator=torch.Generator().manual_seed(2))
    y, anchors = torch.tensor([0, 0, 1, 1, 2, 2, 0, 1]), torch.arange(8) < 5
    torch.testing.assert_close(
        asymmetric_contrast(z, y, anchors, 0.5), asymmetric_contrast(z[order], y[order], anchors[order], 0.5)
    )
    torch.testing.assert_close(
        relation_distillation(z, past, 0.2, 0.01), relation_distillation(z[order], past[order], 0.2, 0.01)
    )


def test_logits_are_compared_on_the_classes_that_were_there() -> None:
    logits, then = random_logits().requires_grad_(), random_logits().flip(0)
    then[0, 2:], then[2, [0, 6]] = -torch.inf, -torch.inf
    rows = []
    for now, before in zip(logits, then.tolist(), strict=True):
        gaps = [(z - z_then) ** 2 for z, z_then in zip(now, before, strict=True) if z_then != float("-inf")]
        rows.append(torch.stack(gaps).sum() / len(gaps))
    expected = torch.stack(rows).sum() / len(rows)
    found = logit_distance(logits, then)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, logits)[0], torch.autograd.grad(expected, logits)[0])
    everything = random_logits().flip(0)
    torch.testing.assert_close(logit_distance(logits, everything), F.mse_loss(logits, everything))


def test_entropy_is_the_sum_over_classes() -> None:
    for row, found in zip(random_logits().tolist(), entropy(random_logits()).tolist(), strict=True):
        total = math.fsum(math.exp(z) for z in row)
        assert found == pytest.approx(-math.fsum(math.exp(z) / total * (z - math.log(total)) for z in row))


def slow_barlow_twins(first: torch.Tensor, second: torch.Tensor, redundancy: float) -> torch.Tensor:
    """Zbontar et al., 2021, Eqs. 1 and 2, an entry at a time."""
    count, dim = first.shape
    loss = first.new_zeros(())
    means = [[sum(z[b, i] for b in range(count)) / count for i in range(dim)] for z in (first, second)]
    for i in range(dim):
        for j in range(dim):
            u = [first[b, i] - means[0][i] for b in range(count)]
            v = [second[b, j] - means[1][j] for b in range(count)]
            norms = sum(a * a for a in u) ** 0.5 * sum(b * b for b in v) ** 0.5
            correlation = sum(a * b for a, b in zip(u, v, strict=True)) / norms
            loss = loss + ((1 - correlation) ** 2 if i == j else redundancy * correlation**2)
    return loss


@pytest.mark.parametrize(("count", "dim", "redundancy"), [(5, 3, 0.002), (2, 4, 0.5), (7, 1, 1.0), (6, 5, 0.0)])
def test_barlow_twins_is_a_loop_over_pairs_of_dimensions(count: int, dim: int, redundancy: float) -> None:
    draws = torch.Generator().manual_seed(0)
    pair = [torch.randn(count, dim, generator=draws, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    actual, expected = barlow_twins(*pair, redundancy=redundancy), slow_barlow_twins(pair[0], pair[1], redundancy)
    torch.testing.assert_close(actual, expected)
    for ours, theirs in zip(torch.autograd.grad(actual, pair), torch.autograd.grad(expected, pair), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_barlow_twins_of_one_view_twice_leaves_the_redundancy_alone() -> None:
    z = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert barlow_twins(z, 3 * z + 1, redundancy=0.0).item() == pytest.approx(0.0, abs=1e-12)


def test_barlow_twins_of_a_single_image_is_finite() -> None:
    z = torch.ones(1, 3, requires_grad=True)
    loss = barlow_twins(z, z, redundancy=0.1)
    loss.backward()
    assert loss.item() == 3
    assert z.grad is not None
    assert torch.isfinite(z.grad).all()
