"""Classifiers from sums, against slow transcriptions of their equations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from promptpool.learners.sums import Gaussian, Ridge, Sums, choose_ridge, spread
from toys import tensors

COUNTS = (7, 12, 3, 0, 9)  # the fourth class has no examples


def data(width: int = 6, counts: tuple[int, ...] = COUNTS, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.full((count,), label) for label, count in enumerate(counts)])
    centres = torch.randn(len(counts), width, generator=generator, dtype=torch.float64)
    mix = torch.randn(width, width, generator=generator, dtype=torch.float64)
    noise = torch.randn(len(labels), width, generator=generator, dtype=torch.float64)
    return centres[labels] + noise @ mix / 2, labels


def summed(rows: Tensor, labels: Tensor, class_count: int = len(COUNTS)) -> Sums:
    sums = Sums(rows.shape[1])
    sums.grow(class_count)
    sums.add(rows, labels)
    return sums


def slow_gaussian(rows: Tensor, labels: Tensor, x: Tensor, shrinkage: float | None) -> dict[int, float]:
    """score_c of one example, from the rows themselves."""
    known = sorted(set(labels.tolist()))
    width = rows.shape[1]
    means = {c: rows[labels == c].mean(dim=0) for c in known}
    scatter = torch.zeros(width, width, dtype=torch.float64)
    for row, label in zip(rows, labels.tolist(), strict=True):
        scatter += torch.outer(row - means[label], row - means[label])
    degrees = len(rows) - len(known)
    a = width / (width + degrees) if shrinkage is None else shrinkage
    covariance = scatter / degrees
    shrunk = (1 - a) * covariance + a * covariance.trace() / width * torch.eye(width, dtype=torch.float64)
    inverse = torch.linalg.inv(shrunk)
    return {c: float(x @ inverse @ mean - mean @ inverse @ mean / 2) for c, mean in means.items()}


@pytest.mark.parametrize("shrinkage", [None, 0.1, 1.0])
def test_gaussian_classes_follow_their_equation(shrinkage: float | None) -> None:
    rows, labels = data()
    classifier = Gaussian(summed(rows, labels), shrinkage)
    for x in rows[::5]:
        expected = slow_gaussian(rows, labels, x, shrinkage)
        found = classifier.weight @ x + classifier.bias
        for c, score in expected.items():
            assert float(found[c]) == pytest.approx(score, rel=1e-9)


def test_distances_are_mahalanobis() -> None:
    rows, labels = data()
    classifier = Gaussian(summed(rows, labels), 0.3)
    for x in rows[::6]:
        for c in (0, 1, 2, 4):
            apart = x - rows[labels == c].mean(dim=0)
            assert float(classifier.distances(x[None])[0, c]) == pytest.approx(
                float(apart @ classifier.precision @ apart), rel=1e-9
            )


def test_leave_one_out_of_gaussian_classes_is_learning_without_it() -> None:
    """Transcribed with A's factor and floor as they are: only W and the mean lose the example."""
    rows, labels = data()
    sums = summed(rows, labels)
    classifier = Gaussian(sums, 0.2)
    degrees = len(rows) - 4
    covariance = (sums.gram - (sums.means * sums.counts[:, None]).T @ sums.means) / degrees
    floor = 0.2 * float(covariance.trace()) / 6
    scores = classifier.leave_one_out(rows, labels)
    for left in range(0, len(rows), 4):
        others = torch.arange(len(rows)) != left
        scatter, means = torch.zeros(6, 6, dtype=torch.float64), {}
        for c in (0, 1, 2, 4):
            own = rows[others & (labels == c)]
            means[c] = own.mean(dim=0)
            scatter += (own - means[c]).T @ (own - means[c])
        inverse = torch.linalg.inv(0.8 / degrees * scatter + floor * torch.eye(6, dtype=torch.float64))
        for c, mean in means.items():
            expected = float(rows[left] @ inverse @ mean - mean @ inverse @ mean / 2)
            assert float(scores[left, c]) == pytest.approx(expected, rel=1e-8, abs=1e-9)


def test_leave_one_out_distances_are_mahalanobis_without_it() -> None:
    rows, labels = data()
    sums = summed(rows, labels)
    classifier = Gaussian(sums, 0.2)
    degrees = len(rows) - 4
    floor = 0.2 * float((sums.gram - (sums.means * sums.counts[:, None]).T @ sums.means).trace()) / degrees / 6
    found = classifier.leave_one_out_distances(rows, labels)
    for left in range(0, len(rows), 5):
        others = torch.arange(len(rows)) != left
        means = {c: rows[others & (labels == c)].mean(dim=0) for c in (0, 1, 2, 4)}
        apart = torch.stack([row - means[int(c)] for row, c in zip(rows[others], labels[others], strict=True)])
        inverse = torch.linalg.inv(0.8 / degrees * apart.T @ apart + floor * torch.eye(6, dtype=torch.float64))
        for c, mean in means.items():
            expected = float((rows[left] - mean) @ inverse @ (rows[left] - mean))
            assert float(found[left, c]) == pytest.approx(expected, rel=1e-7)


def test_the_matrices_that_stay_are_those_that_the_docs_name() -> None:
    rows, labels = data()
    classifier = Gaussian(summed(rows, labels), 0.3)

    def kept() -> int:
        return sum(matrix.shape == (6, 6) for matrix in tensors([*vars(classifier).values()]))

    assert kept() == 1, "the factor"
    classifier.leave_one_out(rows, labels)
    assert kept() == 2, "and the inverse"
    classifier.distances(rows)
    classifier.background(rows)
    classifier.leave_one_out_distances(rows, labels)
    classifier.leave_one_out_background(rows)
    assert kept() == 3, "and the factor of the background"
    ridge = Ridge(summed(rows, labels), 0.3)
    ridge.leave_one_out(rows, labels)
    assert sum(matrix.shape == (6, 6) for matrix in tensors([*vars(ridge).values()])) == 1


def test_the_background_is_one_gaussian() -> None:
    rows, labels = data()
    classifier = Gaussian(summed(rows, labels), 0.3)
    covariance = torch.cov(rows.T, correction=0)
    shrunk = 0.7 * covariance + 0.3 * covariance.trace() / 6 * torch.eye(6, dtype=torch.float64)
    apart = rows - rows.mean(dim=0)
    expected = (apart @ torch.linalg.inv(shrunk) * apart).sum(dim=1)
    torch.testing.assert_close(classifier.background(rows), expected, rtol=1e-9, atol=1e-9)
    found, count = classifier.leave_one_out_background(rows), len(rows)
    floor = 0.3 * covariance.trace() / 6 * torch.eye(6, dtype=torch.float64)
    for left in range(0, count, 7):
        others = rows[torch.arange(count) != left]
        scatter = (others - others.mean(dim=0)).T @ (others - others.mean(dim=0))
        own = rows[left] - others.mean(dim=0)
        assert float(found[left]) == pytest.approx(float(own @ torch.linalg.inv(0.7 / count * scatter + floor) @ own))


def test_an_only_example_left_out_leaves_no_class() -> None:
    rows, labels = data(counts=(1, 5, 5))
    scores = Gaussian(summed(rows, labels, 3)).leave_one_out(rows, labels)
    assert float(scores[0, 0]) == -torch.inf
    assert scores[0, 1:].isfinite().all()
    assert scores[1:].isfinite().all()


@pytest.mark.parametrize("ridge", [0.01, 5.0])
def test_the_ridge_follows_its_equation(ridge: float) -> None:
    rows, labels = data()
    indicators = torch.nn.functional.one_hot(labels, 5).double()
    expected = torch.linalg.inv(rows.T @ rows + ridge * torch.eye(6, dtype=torch.float64)) @ rows.T @ indicators
    torch.testing.assert_close(Ridge(summed(rows, labels), ridge).weight.T, expected, rtol=1e-9, atol=1e-12)


def test_leave_one_out_of_the_ridge_is_fitting_without_it() -> None:
    rows, labels = data()
    scores = Ridge(summed(rows, labels), 0.5).leave_one_out(rows, labels)
    for left in range(0, len(rows), 3):
        others = torch.arange(len(rows)) != left
        without = Ridge(summed(rows[others], labels[others]), 0.5)
        torch.testing.assert_close(scores[left], without.weight @ rows[left], rtol=1e-9, atol=1e-10)


def slow_cross_validation(rows: Tensor, labels: Tensor, ridge: float) -> float:
    """Golub et al.'s criterion, by the matrix that makes fitted values of indicators."""
    indicators = torch.nn.functional.one_hot(labels).double()
    hat = rows @ torch.linalg.inv(rows.T @ rows + ridge * torch.eye(rows.shape[1], dtype=torch.float64)) @ rows.T
    error = float((indicators - hat @ indicators).square().sum())
    return error / (1 - float(hat.trace()) / len(rows)) ** 2


def test_the_ridge_is_chosen_by_generalised_cross_validation() -> None:
    rows, labels = data(width=12, counts=(9, 9, 9, 9))
    sums = summed(rows, labels, 4)
    chosen = choose_ridge(sums.gram, sums.sums, sums.count)
    least = min(slow_cross_validation(rows, labels, chosen * 10 ** (power / 4)) for power in range(-12, 13))
    assert slow_cross_validation(rows, labels, chosen) == pytest.approx(least, rel=1e-9)


def test_with_more_columns_than_examples_the_first_ones_choose() -> None:
    rows, labels = data(width=60, counts=(5, 5, 5, 5))
    sums, few = summed(rows, labels, 4), summed(rows[:, :10], labels, 4)
    assert choose_ridge(sums.gram, sums.sums, 20) == choose_ridge(few.gram, few.sums, 20)


def test_spread_is_that_of_the_scores() -> None:
    rows, labels = data()
    sums = summed(rows, labels)
    classifier = Gaussian(sums)
    scores = (rows @ classifier.weight.T + classifier.bias)[:, [0, 1, 2, 4]]
    expected = (scores - scores.mean(dim=1, keepdim=True)).square().mean().sqrt()
    assert spread(classifier, sums) == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("counts", [(1, 1, 1), (1,), (4,), (1, 6)])
def test_few_examples_are_enough(counts: tuple[int, ...]) -> None:
    rows, labels = data(width=40, counts=counts)
    sums = summed(rows, labels, len(counts))
    for classifier in (Gaussian(sums), Ridge(sums)):
        scores = rows @ classifier.weight.T + classifier.bias
        assert scores.isfinite().all()
        assert (scores.argmax(dim=1) == labels).all()


def test_constant_features_are_no_reason_to_fail() -> None:
    rows, labels = data(width=8)
    rows[:, 3:] = 2.0
    sums = summed(rows, labels)
    assert Gaussian(sums).weight.isfinite().all()
    assert Ridge(sums).weight.isfinite().all()
    same = summed(torch.zeros(6, 8, dtype=torch.float64), torch.tensor([0, 0, 1, 1, 2, 2]), 3)
    assert Gaussian(same).weight.isfinite().all()
    assert Ridge(same).weight.isfinite().all()


def test_sums_of_parts_add_up_and_can_be_subtracted() -> None:
    rows, labels = data()
    whole, first, second = summed(rows, labels), summed(rows[:11], labels[:11]), summed(rows[11:], labels[11:])
    first.join(second)
    assert torch.equal(first.counts, whole.counts)
    torch.testing.assert_close(first.gram, whole.gram, rtol=1e-12, atol=1e-12)
    first.join(second, -1)
    torch.testing.assert_close(first.gram, summed(rows[:11], labels[:11]).gram, rtol=1e-10, atol=1e-10)
    with pytest.raises(ValueError, match="rows of 3 numbers, not of 6"):
        first.join(Sums(3))
