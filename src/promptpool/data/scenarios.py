"""Scenarios: pure functions that make a stream, and the sets of examples that they take.

A set's fields are the positional parameters of its scenario, `class_incremental(*glyphs100(), tasks=10)`; notes are
the last of them and go on with the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from promptpool.data.stream import NO_NOTES, Examples, Experience, Notes, Stream, concatenate, examples

MOST_TASKS = 5  # of a folder that does not say how many
Arrays = tuple[npt.NDArray[np.uint8], npt.ArrayLike]


class LabelledSet(NamedTuple):
    """What `class_incremental` and `gaussian_schedule` take."""

    train: Examples
    test: Examples
    class_names: tuple[str, ...]
    notes: Notes = NO_NOTES


class DomainSet(NamedTuple):
    """What `domain_incremental` takes: one set of examples for each domain to train on."""

    domains: tuple[Examples, ...]
    test: Examples
    class_names: tuple[str, ...]
    notes: Notes = NO_NOTES


class OwnSet(NamedTuple):
    """What `from_folders` takes: the training images of each group, and the test images of each, or of all in one."""

    groups: tuple[Examples, ...]
    tests: tuple[Examples, ...]
    class_names: tuple[str, ...]
    group_names: tuple[str, ...]  # empty where there are no groups, and `groups` holds one set
    notes: Notes = NO_NOTES


def class_incremental(
    train: Examples,
    test: Examples,
    class_names: Sequence[str],
    notes: Notes = NO_NOTES,
    *,
    tasks: int,
    seed: int | None = None,
    class_order: Sequence[int] | None = None,
) -> Stream:
    """Disjoint classes per task, each task with its own test set.

    Classes come in the order of their labels, in `class_order`, or in one permutation drawn from `seed`; the
    order is kept in the stream. When `tasks` does not divide the classes, the first tasks get one class more.
    """
    count = len(class_names)
    if not 1 <= tasks <= count:
        raise ValueError(f"tasks = {tasks}: must lie between 1 and the number of classes, {count}")
    if seed is not None and class_order is not None:
        raise ValueError("give either a seed or a class_order, not both")
    order = list(range(count)) if class_order is None else [int(c) for c in class_order]
    if seed is not None:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    if sorted(order) != list(range(count)):
        raise ValueError(f"class_order must name each of the classes 0..{count - 1} once")
    position = torch.empty(count, dtype=torch.long)
    position[order] = torch.arange(count)
    train, test = train.relabel(position), test.relabel(position)
    groups = [tuple(group.tolist()) for group in torch.arange(count).tensor_split(tasks)]
    return Stream(
        tuple(Experience(t, _of_classes(train, group), group) for t, group in enumerate(groups)),
        tuple(_of_classes(test, group) for group in groups),
        tuple(class_names[label] for label in order),
        tuple(order),
        task_tests=True,
        notes=notes,
    )


def domain_incremental(
    domains: Sequence[Examples], test: Examples, class_names: Sequence[str], notes: Notes = NO_NOTES
) -> Stream:
    """The same classes in shifting domains, judged on one fixed test set."""
    experiences = tuple(Experience(d, domain, domain.classes) for d, domain in enumerate(domains))
    return Stream(experiences, (test,), tuple(class_names), tuple(range(len(class_names))), notes=notes)


def gaussian_schedule(
    train: Examples,
    test: Examples,
    class_names: Sequence[str],
    notes: Notes = NO_NOTES,
    *,
    seed: int,
    width: float = 3.0,
    windows: int = 1,
) -> Stream:
    """Classes that come and go smoothly, with no boundary: the task-agnostic setting.

    Each example of class c draws its arrival time from a Gaussian centred at c with deviation `width`, both in
    units of the distance between the centres of neighbouring classes; the examples then arrive in that order.
    One pass, each example exactly once, by construction. `windows` cuts the schedule into stretches after
    which a record is taken; a learner is not told of them.
    """
    if width <= 0:
        raise ValueError(f"width = {width}: must be above 0")
    if not 1 <= windows <= len(train):
        raise ValueError(f"windows = {windows}: must lie between 1 and the number of examples, {len(train)}")
    noise = torch.randn(len(train), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    arrival = train.y + width * noise
    parts = torch.argsort(arrival, stable=True).tensor_split(windows)
    stretches = [train.select(part) for part in parts]
    return Stream(
        tuple(Experience(w, stretch, stretch.classes) for w, stretch in enumerate(stretches)),
        (test,),
        tuple(class_names),
        tuple(range(len(class_names))),
        boundaries=False,
        notes=notes,
    )


def joint(stream: Stream) -> Stream:
    """All training data at once, as if nothing had come in turn: the upper bound."""
    everything = concatenate([experience.train for experience in stream.experiences])
    classes = tuple(sorted({label for experience in stream.experiences for label in experience.classes}))
    return Stream(
        (Experience(0, everything, classes),),
        stream.tests,
        stream.class_names,
        stream.class_order,
        joins=stream.fingerprint,
        notes=stream.notes,
    )


def from_arrays(train: Sequence[Arrays], test: Sequence[Arrays]) -> Stream:
    """A stream of one's own: a pair of inputs and labels per experience, and per test set.

    Labels may be integers or strings; classes are numbered in the order in which they appear, and named by their
    labels as text.
    """
    if not train or not test:
        raise ValueError("a stream has at least one experience and one test set")
    inputs = [x for x, _ in (*train, *test)]
    labels = [[str(label) for label in np.asarray(y).tolist()] for _, y in (*train, *test)]
    names = list(dict.fromkeys(label for part in labels[: len(train)] for label in part))
    number = {name: i for i, name in enumerate(names)}
    unknown = {label for part in labels[len(train) :] for label in part} - set(number)
    if unknown:
        raise ValueError(f"test label {min(unknown)!r} occurs in no training data")
    numbers = [np.array([number[label] for label in part], dtype=np.int64) for part in labels]
    sets = [examples(x, y) for x, y in zip(inputs, numbers, strict=True)]
    experiences = tuple(Experience(t, part, part.classes) for t, part in enumerate(sets[: len(train)]))
    tests = tuple(sets[len(train) :])
    return Stream(experiences, tests, tuple(names), task_tests=_are_matched(sets[: len(train)], tests))


def from_folders(
    groups: Sequence[Examples],
    tests: Sequence[Examples],
    class_names: Sequence[str],
    group_names: Sequence[str],
    notes: Notes = NO_NOTES,
    *,
    classes_per_task: int | None = None,
) -> Stream:
    """Images of one's own: an experience per group (a task or a domain), or so many classes per task.

    Without `classes_per_task` the groups are the experiences; where there are none, the classes are shared out to at
    most five tasks of at least two. With it groups do not count, and classes come in their order, so many at a time.
    Each experience has a test set of its own where there are images for each; otherwise there is one for all.
    """
    count = len(class_names)
    if classes_per_task is not None and not 1 <= classes_per_task <= count:
        raise ValueError(
            f"classes_per_task = {classes_per_task}: must lie between 1 and {count}, or be none for as the folders say"
        )
    trains, judged = list(groups), list(tests)
    if classes_per_task or not group_names:
        train, test, labels = concatenate(groups), concatenate(tests), torch.arange(count)
        shared = labels.tensor_split(max(1, min(MOST_TASKS, count // 2)))
        tasks = labels.split(classes_per_task) if classes_per_task else shared
        trains = [_of_classes(train, task.tolist()) for task in tasks]
        judged = [_of_classes(test, task.tolist()) for task in tasks]
    if len(trains) == 1:
        said = "all classes come at once, in one task: nothing comes after it"
        notes = notes._replace(texts=(*notes.texts, said))
    order = list(dict.fromkeys(label for train in trains for label in train.classes))
    position = torch.full((count,), -1)
    position[order] = torch.arange(len(order))
    trains, judged = [train.relabel(position) for train in trains], [test.relabel(position) for test in judged]
    each = _are_matched(trains, judged)
    return Stream(
        tuple(Experience(t, train, train.classes) for t, train in enumerate(trains)),
        tuple(judged) if each else (concatenate(judged),),
        tuple(class_names[label] for label in order),
        tuple(order),
        task_tests=each,
        notes=notes,
    )


def _are_matched(trains: Sequence[Examples], tests: Sequence[Examples]) -> bool:
    """True if each experience has a test set of its own, with no class that it lacks."""
    return len(trains) == len(tests) and all(
        len(test) and set(test.classes) <= set(train.classes) for train, test in zip(trains, tests, strict=True)
    )


def _of_classes(part: Examples, classes: Sequence[int]) -> Examples:
    return part.select(torch.isin(part.y, torch.tensor(classes)).nonzero().flatten())


SCENARIOS: dict[str, Callable[..., Stream]] = {
    "class-incremental": class_incremental,
    "domain-incremental": domain_incremental,
    "from-folders": from_folders,
    "gaussian-schedule": gaussian_schedule,
}
