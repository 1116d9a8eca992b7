"""notMNIST, small: letters A to J in many fonts, 28 x 28, grey (Yaroslav Bulatov, 2011).

`notMNIST_small/{A..J}/*.png`, or `notMNIST_small.tar.gz` as published. The published archive has two files that are no
images, `A/RGVtb2NyYXRpY2FCb2xkT2xkc3R5bGUgQm9sZC50dGY=.png` and `F/Q3Jvc3NvdmVyIEJvbGRPYmxpcXVlLnR0Zg==.png`: they are
entries like the others, and end as skipped files.

It has no test set of its own. As in the L2P paper a fifth is held out; here of every letter, drawn once with SEED
over the letter's images in the order of their names.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from promptpool.data.images import ImageFile, read_images
from promptpool.data.sets.published import Arrays, Contents, Images, Published, Remote, Split, counted
from promptpool.data.stores import Store, open_store
from promptpool.errors import BadFileError

LETTERS = tuple("ABCDEFGHIJ")
PLACES = ("notMNIST_small", "notMNIST_small.tar.gz")
SIDE = 28
HELD_OUT = 0.2
SEED = 0


def read_notmnist(folder: Path) -> Split:
    """All images that can be read, in 80 % to train on and 20 % to test on."""
    store, entries = notmnist_files(folder)
    decoded = read_images(store, entries, size=SIDE)
    all_examples = decoded.examples(LETTERS)
    images = _grey(all_examples.batch(slice(None)).x.numpy())
    labels = all_examples.y.numpy()
    tested = np.zeros(len(labels), dtype=bool)
    for letter in range(len(LETTERS)):
        places = np.flatnonzero(labels == letter)
        drawn = np.random.default_rng([SEED, letter]).permutation(places)
        tested[drawn[: round(HELD_OUT * len(places))]] = True
    train, test = (Arrays(images[part], labels[part]) for part in (~tested, tested))
    return Split(train, test, LETTERS, decoded.skipped)


def notmnist_files(folder: Path) -> tuple[Store, list[ImageFile]]:
    """The files of the small set, letter by letter and in the order of their names."""
    places = [folder / place for place in PLACES if (folder / place).exists()]
    if not places:
        raise BadFileError(f"{folder}: notMNIST is not there: put {PLACES[1]} into this folder")
    store = open_store(places[0])
    found = ((name, re.fullmatch(r"(?:notMNIST_small/)?([A-J])/[^/]+\.png", name)) for name in store.names())
    entries = [ImageFile(name, match[1]) for name, match in found if match]
    if missing := set(LETTERS) - {entry.label for entry in entries}:
        raise BadFileError(f"{places[0]}: has no images of the letter {min(missing)}")
    return store, sorted(entries, key=lambda entry: (entry.label, entry.name))


def _grey(pixels: Images) -> Images:
    """[n, 3, H, W] as [n, H, W] by ITU-R 601; what was grey stays as it was to the bit."""
    weights = np.array([19595, 38470, 7471], dtype=np.uint32)
    grey: Images = ((np.einsum("nchw,c->nhw", pixels, weights) + 2**15) >> 16).astype(np.uint8)
    return grey


def _contents(folder: Path) -> Contents:
    found = counted(read_notmnist(folder))
    return Contents(found.train + found.test, 0, found.classes)  # the split is ours


PUBLISHED = {
    "notmnist": Published(
        title="notMNIST (small)",
        home="http://yaroslavvb.blogspot.com/2011/09/notmnist-dataset.html",
        licence="not available",
        classes=10,
        train=18_724,  # and two files that are no images
        test=0,
        files=(
            Remote(
                "notMNIST_small.tar.gz",
                (
                    "https://commondatastorage.googleapis.com/books1000/notMNIST_small.tar.gz",
                    "http://yaroslavvb.com/upload/notMNIST/notMNIST_small.tar.gz",
                ),
                8_458_043,
                "c9890a473a9769fda4bdf314aaf500dd",
                unpack=True,
                holds=("notMNIST_small",),
            ),
        ),
        contents=_contents,
    ),
}
