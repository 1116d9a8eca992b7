from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from promptpool import metrics

NAN = float("nan")
Metric = Callable[[npt.ArrayLike], float]
METRICS: tuple[Metric, ...] = (
    metrics.average_accuracy,
    metrics.forgetting,
    metrics.backward_transfer,
    metrics.learning_accuracy,
    metrics.average_incremental_accuracy,
    metrics.final_accuracy,
)
PAIRWISE = METRICS[1:5]  # these compare each experience with its own test set

FULL = [
    [0.90, 0.20, 0.10],
    [0.70, 0.80, 0.30],
    [0.75, 0.60, 0.70],
]
LOWER = [
    [0.90, NAN, NAN],
    [0.70, 0.80, NAN],
    [0.75, 0.60, 0.70],
]


@pytest.mark.parametrize("matrix", [FULL, LOWER], ids=["full", "lower"])
def test_a_matrix_worked_by_hand(matrix: list[list[float]]) -> None:
    # The last row: (0.75 + 0.60 + 0.70) / 3 = 2.05 / 3
    assert metrics.average_accuracy(matrix) == pytest.approx(2.05 / 3)
    # Best 0.90 and 0.80, last 0.75 and 0.60: (0.15 + 0.20) / 2; the third test set does not count
    assert metrics.forgetting(matrix) == pytest.approx(0.175)
    # (0.75 - 0.90 + 0.60 - 0.80) / 2
    assert metrics.backward_transfer(matrix) == pytest.approx(-0.175)
    # The diagonal: (0.90 + 0.80 + 0.70) / 3
    assert metrics.learning_accuracy(matrix) == pytest.approx(0.8)
    # (0.90 + (0.70 + 0.80) / 2 + 2.05 / 3) / 3 = (0.90 + 0.75 + 0.68333) / 3 = 2.33333 / 3
    assert metrics.average_incremental_accuracy(matrix) == pytest.approx(7 / 9)


def test_the_best_may_come_between_learning_and_the_end() -> None:
    matrix = [
        [0.50, NAN, NAN],
        [0.90, 0.40, NAN],
        [0.60, 0.70, 0.80],
    ]
    # Test set 0: best 0.90 after experience 1, last 0.60. Test set 1: best is the last. (0.30 + 0.00) / 2
    assert metrics.forgetting(matrix) == pytest.approx(0.15)
    # Against the diagonal: (0.60 - 0.50 + 0.70 - 0.40) / 2
    assert metrics.backward_transfer(matrix) == pytest.approx(0.20)


def test_the_best_may_come_before_learning() -> None:
    # max over t of R[t, 1] runs over every t: 0.9 at t = 0. ((0.5 - 0.5) + (0.9 - 0.4)) / 2
    matrix = [[0.5, 0.9, 0.0], [0.5, 0.6, 0.0], [0.5, 0.4, 1.0]]
    assert metrics.forgetting(matrix) == pytest.approx(0.25)


def test_two_experiences() -> None:
    matrix = [[1.0, NAN], [0.0, 1.0]]
    assert metrics.average_accuracy(matrix) == 0.5
    assert metrics.forgetting(matrix) == 1.0
    assert metrics.backward_transfer(matrix) == -1.0
    assert metrics.learning_accuracy(matrix) == 1.0
    assert metrics.average_incremental_accuracy(matrix) == 0.75  # (1 + (0 + 1) / 2) / 2


def test_one_test_set() -> None:
    matrix = [[0.25], [0.50], [0.40]]
    assert metrics.final_accuracy(matrix) == 0.40
    assert metrics.average_accuracy(matrix) == 0.40


def test_one_experience() -> None:
    assert metrics.learning_accuracy([[0.7]]) == 0.7
    assert metrics.average_incremental_accuracy([[0.7]]) == 0.7
    assert metrics.final_accuracy([[0.7]]) == 0.7


def test_against_loops_on_random_matrices() -> None:
    draws = np.random.default_rng(0)
    for count in range(2, 7):
        matrix = draws.random((count, count))
        lost, gained = 0.0, 0.0
        for i in range(count - 1):
            best = max(matrix[t][i] for t in range(count))
            lost += (best - matrix[count - 1][i]) / (count - 1)
            gained += (matrix[count - 1][i] - matrix[i][i]) / (count - 1)
        seen = sum(sum(matrix[t][i] for i in range(t + 1)) / (t + 1) for t in range(count)) / count
        assert metrics.forgetting(matrix) == pytest.approx(lost)
        assert metrics.backward_transfer(matrix) == pytest.approx(gained)
        assert metrics.average_incremental_accuracy(matrix) == pytest.approx(seen)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("wrong", [[], [[]], [0.5, 0.6], 0.5, [[[0.5]]]], ids=["none", "empty", "1d", "0d", "3d"])
def test_what_is_not_a_matrix_raises(metric: Metric, wrong: npt.ArrayLike) -> None:
    with pytest.raises(ValueError, match="two dimensions"):
        metric(wrong)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("wrong", [-0.1, 1.1, 75.0, np.inf, -np.inf])
def test_what_is_not_a_share_raises(metric: Metric, wrong: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        metric([[wrong, NAN], [0.5, 0.5]])


@pytest.mark.parametrize("metric", PAIRWISE)
@pytest.mark.parametrize("shape", [(3, 1), (3, 2), (2, 3), (1, 2)])
def test_a_test_set_per_experience_is_needed(metric: Metric, shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"{shape[0]} experiences with {shape[1]} test sets"):
        metric(np.full(shape, 0.5))


@pytest.mark.parametrize("metric", [metrics.forgetting, metrics.backward_transfer])
def test_nothing_is_forgotten_in_one_experience(metric: Metric) -> None:
    with pytest.raises(ValueError, match="at least two experiences"):
        metric([[0.5]])


@pytest.mark.parametrize("shape", [(1, 2), (2, 2), (3, 4)])
def test_final_accuracy_is_for_one_test_set(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="average_accuracy"):
        metrics.final_accuracy(np.full(shape, 0.5))


@pytest.mark.parametrize("metric", METRICS[:3])
def test_an_unfinished_last_row_raises(metric: Metric) -> None:
    with pytest.raises(ValueError, match="not measured"):
        metric([[0.5, NAN], [NAN, 0.5]])


@pytest.mark.parametrize("metric", PAIRWISE)
def test_a_hole_on_the_diagonal_raises(metric: Metric) -> None:
    with pytest.raises(ValueError, match="needs"):
        metric([[NAN, NAN], [0.5, 0.5]])


def test_a_hole_below_the_diagonal_raises_only_where_it_counts() -> None:
    matrix = [[0.9, NAN, NAN], [NAN, 0.8, NAN], [0.6, 0.5, 0.7]]
    assert metrics.average_accuracy(matrix) == pytest.approx(0.6)
    assert metrics.forgetting(matrix) == pytest.approx(0.3)  # (0.3 + 0.3) / 2 of what was measured
    with pytest.raises(ValueError, match="not measured"):
        metrics.average_incremental_accuracy(matrix)


def test_final_accuracy_must_be_measured() -> None:
    with pytest.raises(ValueError, match="not measured"):
        metrics.final_accuracy([[0.5], [NAN]])


@pytest.mark.parametrize("metric", METRICS)
def test_inputs_are_not_changed(metric: Metric) -> None:
    matrix = np.array([[0.5], [0.6]] if metric is metrics.final_accuracy else LOWER)
    before = matrix.tobytes()
    matrix.flags.writeable = False
    assert isinstance(metric(matrix), float)
    assert matrix.tobytes() == before
