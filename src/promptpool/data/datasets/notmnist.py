"""notMNIST, small: letters A to J in many fonts, 28 x 28, grey (Yaroslav Bulatov, 2011).

It has no test set of its own. As in the L2P paper a fifth is held out; here of every letter, drawn once with SEED
over the letter's images in the order of their names.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from promptpool.data.images import read_images
from promptpool.data.readers.arrays import Arrays, Images, Split
from promptpool.data.readers.notmnist import LETTERS, read_notmnist

SIDE = 28
HELD_OUT = 0.2
SEED = 0


def notmnist_arrays(folder: Path) -> Split:
    """All images that can be read, in 80 % to train on and 20 % to test on."""
    store, entries = read_notmnist(folder)
    decoded = read_images(store, entries, size=SIDE)
    all_examples = decoded.examples(LETTERS)
    images = _grey(all_examples.batch(slice(None)).x.numpy())
    labels = all_examples.y.numpy()
    tested = np.zeros(len(labels), dtype=bool)
    for letter in range(len(LETTERS)):
        places = np.flatnonzero(labels == letter)
        drawn = np.random.default_rng([SEED, letter]).permutation(places)
        tested[drawn[: round(HELD_OUT * len(places))]] = True
    return Split(Arrays(images[~tested], labels[~tested]), Arrays(images[tested], labels[tested]), LETTERS)


def _grey(pixels: Images) -> Images:
    """[n, 3, H, W] as [n, H, W] by ITU-R 601; what was grey stays as it was to the bit."""
    weights = np.array([19595, 38470, 7471], dtype=np.uint32)
    grey: Images = ((np.einsum("nchw,c->nhw", pixels, weights) + 2**15) >> 16).astype(np.uint8)
    return grey
