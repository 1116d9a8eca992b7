"""A version of a classifier: what answers, and does not change."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from promptpool.classifier import files
from promptpool.classifier.classifier import ContinualClassifier
from promptpool.serve.answering import ready_to_answer
from promptpool.serve.facts import Facts


@dataclass(frozen=True)
class Version:
    """A classifier that answers, under the number that it has on disk."""

    number: int
    classifier: ContinualClassifier
    facts: Facts = field(repr=False)


def version_in(folder: Path, classifier: ContinualClassifier) -> Version:
    """The version in a folder, which was just read from there or written."""
    number = int(files.read_header(folder)["version"])
    return Version(number, ready_to_answer(classifier), Facts(classifier))
