import math

import pytest
import torch
import torch.nn.functional as F

from promptpool.losses import barlow_twins, entropy, only

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
