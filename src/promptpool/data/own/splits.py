"""Which examples train and which test, from the words that people and publishers write."""

from __future__ import annotations

from collections.abc import Iterable

WORDS = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
    "eval": "test",
    "evaluation": "test",
}


def meanings(words: Iterable[str]) -> dict[str, str | None]:
    """What each word of a set means: train, test, or None for examples that are left out.

    Validation examples test where nothing else does; beside a test part they are for choosing hyper-parameters, so
    neither training nor testing sees them. A word that says nothing means "" where no word says more, else None.
    """
    known = {word: WORDS.get(word.strip().lower()) for word in words}
    said = set(known.values()) - {None}
    others = {"validation": None if "test" in said else "test", None: None if said else ""}
    return {word: others.get(meant, meant) for word, meant in known.items()}
