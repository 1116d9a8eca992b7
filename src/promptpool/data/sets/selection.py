"""Fewer images per class than were published, and some held out to choose values on."""

from __future__ import annotations

import numpy as np

from promptpool.checks import at_least
from promptpool.data.sets.published import Arrays, Labels, Split


def select(
    published: Split, *, train_per_class: int | None, test_per_class: int | None, held_out: int, seed: int
) -> tuple[Arrays, Arrays]:
    """Training and test images of a published set, so many of each class, or all where None is said.

    `held_out` above 0 puts that many training images of each class in the place of the test set, which is then
    left alone: values are chosen there. Images are drawn with `seed`; those drawn for a small number are among
    those drawn for a larger one, and the held-out ones are the same for any number.
    """
    for name, value in (("train_per_class", train_per_class), ("test_per_class", test_per_class)):
        if value is not None and value < 1:
            raise ValueError(f"{name} = {value}: must be at least 1, or none for all")
    at_least(0, held_out=held_out, seed=seed)
    if held_out and test_per_class is not None:
        raise ValueError(f"test_per_class = {test_per_class}: held_out = {held_out} leaves test images alone, say none")
    drawn = _drawn(published.train.labels, seed)
    fewest = min(len(rows) for rows in drawn)
    if held_out >= fewest:
        raise ValueError(f"held_out = {held_out}: a class has only {fewest} training images")
    if train_per_class is not None and held_out + train_per_class > fewest:
        raise ValueError(
            f"train_per_class = {train_per_class}: a class has only {fewest} training images, "
            f"of which {held_out} are held out"
        )
    train = _taken(published.train, [rows[held_out:][:train_per_class] for rows in drawn])
    if held_out:
        return train, _taken(published.train, [rows[:held_out] for rows in drawn])
    tests = _drawn(published.test.labels, seed)
    if test_per_class is not None and any(len(rows) < test_per_class for rows in tests):
        fewest = min(len(rows) for rows in tests)
        raise ValueError(f"test_per_class = {test_per_class}: a class has only {fewest} test images")
    return train, _taken(published.test, [rows[:test_per_class] for rows in tests])


def _drawn(labels: Labels, seed: int) -> list[Labels]:
    """The rows of each class in an order drawn for that class."""
    return [
        np.random.default_rng([seed, label]).permutation(np.flatnonzero(labels == label))
        for label in np.unique(labels).tolist()
    ]


def _taken(arrays: Arrays, rows: list[Labels]) -> Arrays:
    """The rows, as they lie in the published file."""
    chosen = np.sort(np.concatenate(rows))
    return Arrays(arrays.images[chosen], arrays.labels[chosen])
