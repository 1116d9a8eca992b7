"""So many images of each class, drawn with a seed; held-out ones never meet the others."""

from __future__ import annotations

import numpy as np
import pytest

from promptpool.data.sets.published import Arrays, Split
from promptpool.data.sets.selection import select

CLASSES, TRAIN, TEST = 3, 10, 4


def arrays(each: int, first: int) -> Arrays:
    """Images that are their own number, classes mixed."""
    labels = np.tile(np.arange(CLASSES), each)
    images = (first + np.arange(len(labels), dtype=np.uint8))[:, None, None] * np.ones((1, 2, 2), np.uint8)
    return Arrays(images, labels)


@pytest.fixture
def published() -> Split:
    return Split(arrays(TRAIN, 0), arrays(TEST, 100), ("a", "b", "c"))


def chosen(
    published: Split, train: int | None = None, test: int | None = None, held_out: int = 0, seed: int = 0
) -> tuple[set[int], set[int]]:
    parts = select(published, train_per_class=train, test_per_class=test, held_out=held_out, seed=seed)
    for part in parts:
        assert len(part.images) == len(part.labels)
        own = part.images[:, 0, 0].astype(int)
        assert (own % 100 % CLASSES == part.labels).all()  # each image still has its own label
    train_set, test_set = ({int(image[0, 0]) for image in part.images} for part in parts)
    return train_set, test_set


def test_nothing_said_is_everything_as_published(published: Split) -> None:
    train, test = select(published, train_per_class=None, test_per_class=None, held_out=0, seed=0)
    np.testing.assert_array_equal(train.images, published.train.images)
    np.testing.assert_array_equal(test.labels, published.test.labels)


def test_so_many_of_each_class(published: Split) -> None:
    train, test = select(published, train_per_class=4, test_per_class=2, held_out=0, seed=0)
    assert np.bincount(train.labels).tolist() == [4] * CLASSES
    assert np.bincount(test.labels).tolist() == [2] * CLASSES


def test_a_small_draw_is_part_of_a_larger_one(published: Split) -> None:
    assert chosen(published, train=3)[0] < chosen(published, train=7)[0]


def test_another_seed_draws_others(published: Split) -> None:
    assert chosen(published, train=5)[0] != chosen(published, train=5, seed=1)[0]
    assert chosen(published, train=5, seed=1) == chosen(published, train=5, seed=1)


def test_held_out_images_are_training_images_that_are_never_trained_on(published: Split) -> None:
    train, validation = chosen(published, held_out=3)
    everything = set(range(CLASSES * TRAIN))
    assert train | validation == everything
    assert not train & validation
    assert len(validation) == 3 * CLASSES
    assert chosen(published, train=2, held_out=3)[1] == validation


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"train": 0}, "train_per_class = 0"),
        ({"test": 0}, "test_per_class = 0"),
        ({"held_out": -1}, "held_out = -1"),
        ({"seed": -1}, "seed = -1"),
        ({"train": 11}, "only 10 training images"),
        ({"train": 8, "held_out": 3}, "of which 3 are held out"),
        ({"held_out": 10}, "held_out = 10: a class has only 10"),
        ({"held_out": 2, "test": 2}, "test_per_class = 2: held_out = 2"),
        ({"test": 5}, "only 4 test images"),
    ],
)
def test_what_cannot_be_drawn_is_said(values: dict[str, int], said: str, published: Split) -> None:
    with pytest.raises(ValueError, match=said):
        chosen(published, **values)
