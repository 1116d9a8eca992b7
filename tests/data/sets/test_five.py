"""Five unlike sets, one after the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from promptpool.data.sets import five
from promptpool.data.sets.five import five_datasets, in_colour
from promptpool.data.sets.published import Arrays, Split
from promptpool.data.stream import Notes

SHAPES = {
    "cifar10": (32, 32, 3),
    "mnist": (28, 28),
    "svhn": (32, 32, 3),
    "notmnist": (28, 28),
    "fashion-mnist": (28, 28),
}


def arrays(shape: tuple[int, ...], each: int, seed: int) -> Arrays:
    """Ten classes, mixed; the first pixel of an image is its label."""
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(10), each))
    images = np.random.default_rng(seed).integers(0, 256, (len(labels), *shape), dtype=np.uint8)
    images.reshape(len(labels), -1)[:, 0] = labels
    return Arrays(images, labels)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> dict[str, Split]:
    names = tuple(f"class {number}" for number in range(10))
    sets = {
        name: Split(arrays(shape, 6, seed), arrays(shape, 3, 100 + seed), names)
        for seed, (name, shape) in enumerate(SHAPES.items())
    }
    monkeypatch.setattr(five, "FIVE", {name: lambda folder: sets[folder.name] for name in sets})
    return sets


@pytest.mark.usefixtures("published")
def test_five_datasets_follow_each_other() -> None:
    train, test, names, _ = five_datasets(train_per_class=4, test_per_class=2)
    assert list(five.FIVE) == list(SHAPES)  # the paper's order
    assert torch.bincount(train.y).tolist() == [4] * 50
    assert torch.bincount(test.y).tolist() == [2] * 50
    assert names[19:21] == ("mnist class 9", "svhn class 0")
    for part in (train, test):
        batch = part.batch(slice(None))
        assert batch.x.shape == (len(part), 3, 32, 32)
        for number, shape in enumerate(SHAPES.values()):
            own = batch.y // 10 == number
            if len(shape) == 3:  # not resized: the first pixel still tells the label
                assert torch.equal(batch.x[own][:, 0, 0, 0].long(), batch.y[own] - 10 * number)
            else:
                assert torch.equal(batch.x[own][:, 0], batch.x[own][:, 2])


def test_files_that_were_skipped_are_noted(published: dict[str, Split]) -> None:
    for name in ("mnist", "notmnist"):
        published[name] = published[name]._replace(skipped=((f"{name}.png", "not an image"),))
    notes = five_datasets(train_per_class=1, test_per_class=1).notes
    assert notes == Notes((("mnist.png", "not an image"), ("notmnist.png", "not an image")))


def test_held_out_images_come_from_training(published: dict[str, Split]) -> None:
    train, validation, *_ = five_datasets(held_out=2)
    assert torch.bincount(train.y).tolist() == [4] * 50
    assert torch.bincount(validation.y).tolist() == [2] * 50
    known = {image.tobytes() for image in in_colour(published["mnist"].train.images)}
    own = validation.batch((validation.y // 10 == 1).nonzero().flatten()).x.numpy()
    assert {image.tobytes() for image in own} <= known


def test_small_grey_images_grow_and_stay_what_they_are() -> None:
    grey: npt.NDArray[np.uint8] = np.zeros((1, 28, 28), np.uint8)
    grey[0, :14] = 200
    large = in_colour(grey)
    assert large.shape == (1, 3, 32, 32)
    assert (large[0, :, :15] == 200).all()
    assert (large[0, :, 17:] == 0).all()
    assert in_colour(np.zeros((0, 28, 28), np.uint8)).shape == (0, 3, 32, 32)
