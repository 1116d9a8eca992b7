"""Metrics of a run: pure functions of the accuracy matrix.

`R[t, i]` is the accuracy on test set i after experience t, for T experiences and as many test sets. Cells that
were not measured are NaN (a test set whose classes are still unknown). A function whose metric is not defined
for a matrix raises `ValueError`; none returns a made-up 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]


def average_accuracy(accuracy: npt.ArrayLike) -> float:
    """A = mean over i of R[T, i]."""
    matrix = _matrix(accuracy)
    return _mean(matrix[-1], "average accuracy")


def forgetting(accuracy: npt.ArrayLike) -> float:
    """F = mean over i < T of (max over t of R[t, i]) - R[T, i]."""
    matrix = _square(accuracy, "forgetting")
    best = np.nanmax(matrix[:, :-1], axis=0)
    return _mean(best - matrix[-1, :-1], "forgetting")


def backward_transfer(accuracy: npt.ArrayLike) -> float:
    """B = mean over i < T of R[T, i] - R[i, i] (Lopez-Paz and Ranzato, 2017)."""
    matrix = _square(accuracy, "backward transfer")
    return _mean(matrix[-1, :-1] - np.diag(matrix)[:-1], "backward transfer")


def learning_accuracy(accuracy: npt.ArrayLike) -> float:
    """L = mean over i of R[i, i]: how well each task was learned when it was new."""
    matrix = _matrix(accuracy)
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"learning accuracy needs one test set per experience, not {_shape(matrix)}")
    return _mean(np.diag(matrix), "learning accuracy")


def average_incremental_accuracy(accuracy: npt.ArrayLike) -> float:
    """I = mean over t of the mean over i <= t of R[t, i] (Rebuffi et al., 2017)."""
    matrix = _matrix(accuracy)
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"average incremental accuracy needs one test set per experience, not {_shape(matrix)}")
    rows = [_mean(matrix[t, : t + 1], "average incremental accuracy") for t in range(len(matrix))]
    return float(np.mean(rows))


def final_accuracy(accuracy: npt.ArrayLike) -> float:
    """The last accuracy on the one test set of a domain-incremental or task-agnostic stream."""
    matrix = _matrix(accuracy)
    if matrix.shape[1] != 1:
        raise ValueError(f"final accuracy is for a single test set, not {_shape(matrix)}: use average_accuracy")
    return _mean(matrix[-1], "final accuracy")


def _matrix(accuracy: npt.ArrayLike) -> Matrix:
    matrix = np.asarray(accuracy, dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(f"an accuracy matrix has two dimensions and at least one cell, not shape {matrix.shape}")
    if np.any(matrix[~np.isnan(matrix)] < 0) or np.any(matrix[~np.isnan(matrix)] > 1):
        raise ValueError("an accuracy matrix holds shares between 0 and 1")
    return matrix


def _square(accuracy: npt.ArrayLike, name: str) -> Matrix:
    matrix = _matrix(accuracy)
    if matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        raise ValueError(f"{name} needs at least two experiences, each with its test set, not {_shape(matrix)}")
    if np.any(np.isnan(np.diag(matrix))):
        raise ValueError(f"{name} needs the accuracy on each test set right after its experience")
    return matrix


def _mean(values: Matrix, name: str) -> float:
    if np.any(np.isnan(values)):
        raise ValueError(f"{name} needs accuracies that were not measured")
    return float(np.mean(values))


def _shape(matrix: Matrix) -> str:
    return f"{matrix.shape[0]} experiences with {matrix.shape[1]} test sets"
