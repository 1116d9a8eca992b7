"""What a data set hands to a scenario."""

from __future__ import annotations

from typing import NamedTuple

from promptpool.data.stream import Examples


class LabelledSet(NamedTuple):
    """What `class_incremental` and `gaussian_schedule` take."""

    train: Examples
    test: Examples
    class_names: tuple[str, ...]


class DomainSet(NamedTuple):
    """What `domain_incremental` takes: one set of examples for each domain to train on."""

    domains: tuple[Examples, ...]
    test: Examples
    class_names: tuple[str, ...]


class OwnSet(NamedTuple):
    """What `from_folders` takes: the training images of each group, and the test images of each, or of all in one."""

    groups: tuple[Examples, ...]
    tests: tuple[Examples, ...]
    class_names: tuple[str, ...]
    group_names: tuple[str, ...]  # empty where there are no groups, and `groups` holds one set
