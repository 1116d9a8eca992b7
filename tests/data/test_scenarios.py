from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
import torch

from promptpool.data.scenarios import (
    class_incremental,
    domain_incremental,
    from_arrays,
    from_folders,
    gaussian_schedule,
    joint,
)
from promptpool.data.stream import Examples, Notes, Stream, examples

NAMES = tuple("abcdefghij")
TRAIN, TEST = 60, 30  # examples of the ten classes below


def images(count: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, 4, 4), dtype=np.uint8)


def labelled(count: int, seed: int, classes: int = 10) -> Examples:
    """As many of each class, in no order."""
    labels = np.random.default_rng(seed).permutation(np.arange(count) % classes)
    return examples(images(count, seed), labels)


@pytest.fixture(scope="module", name="train")
def make_train() -> Examples:
    return labelled(TRAIN, seed=1)


@pytest.fixture(scope="module", name="test")
def make_test() -> Examples:
    return labelled(TEST, seed=2)


def all_ids(parts: Sequence[Examples]) -> list[int]:
    return [i for part in parts for i in part.ids.tolist()]


def name_of_each(part: Examples, names: Sequence[str]) -> dict[int, str]:
    """The class name of each example, by id."""
    return {i: names[label] for i, label in zip(part.ids.tolist(), part.y.tolist(), strict=True)}


def trains(stream: Stream) -> list[Examples]:
    return [experience.train for experience in stream.experiences]


@pytest.mark.parametrize("seed", [None, 0, 5])
@pytest.mark.parametrize("tasks", [1, 2, 3, 5, 7, 10])
def test_tasks_share_classes_out(train: Examples, test: Examples, tasks: int, seed: int | None) -> None:
    stream = class_incremental(train, test, NAMES, tasks=tasks, seed=seed)
    assert len(stream.experiences) == len(stream.tests) == tasks
    assert [experience.index for experience in stream.experiences] == list(range(tasks))
    met = [label for experience in stream.experiences for label in experience.classes]
    assert met == list(range(10))  # disjoint, complete, and numbered as they appear
    sizes = [len(experience.classes) for experience in stream.experiences]
    assert sizes == [10 // tasks + (t < 10 % tasks) for t in range(tasks)]
    for experience, judged in zip(stream.experiences, stream.tests, strict=True):
        assert experience.train.classes == judged.classes == experience.classes
    assert stream.boundaries
    assert stream.task_tests


@pytest.mark.parametrize("seed", [None, 5])
def test_every_example_is_in_one_task(train: Examples, test: Examples, seed: int | None) -> None:
    stream = class_incremental(train, test, NAMES, tasks=3, seed=seed)
    assert Counter(all_ids(trains(stream))) == Counter(train.ids.tolist())
    assert Counter(all_ids(stream.tests)) == Counter(test.ids.tolist())


@pytest.mark.parametrize("seed", [None, 0, 5])
def test_names_follow_their_examples(train: Examples, test: Examples, seed: int | None) -> None:
    stream = class_incremental(train, test, NAMES, tasks=3, seed=seed)
    known = name_of_each(train, NAMES) | name_of_each(test, NAMES)
    for part in (*trains(stream), *stream.tests):
        assert name_of_each(part, stream.class_names).items() <= known.items()
    assert stream.class_names == tuple(NAMES[label] for label in stream.class_order)


def test_without_a_seed_labels_keep_their_order(train: Examples, test: Examples) -> None:
    stream = class_incremental(train, test, NAMES, tasks=5)
    assert stream.class_order == tuple(range(10))
    assert stream.class_names == NAMES
    assert [experience.classes for experience in stream.experiences] == [
        (0, 1),
        (2, 3),
        (4, 5),
        (6, 7),
        (8, 9),
    ]


def test_one_permutation_per_run(train: Examples, test: Examples) -> None:
    """Trap 5: a class order permuted again for every task, unseeded."""
    torch.manual_seed(0)
    stream = class_incremental(train, test, NAMES, tasks=5, seed=3)
    torch.manual_seed(1)
    again = class_incremental(train, test, NAMES, tasks=5, seed=3)
    assert sorted(stream.class_order) == list(range(10))
    assert stream.class_order == again.class_order
    assert stream.fingerprint == again.fingerprint
    assert class_incremental(train, test, NAMES, tasks=2, seed=3).class_order == stream.class_order
    assert class_incremental(train, test, NAMES, tasks=5, seed=4).class_order != stream.class_order
    given = class_incremental(train, test, NAMES, tasks=5, class_order=stream.class_order)
    assert given.fingerprint == stream.fingerprint


def test_the_global_generator_is_left_alone(train: Examples, test: Examples) -> None:
    before = torch.get_rng_state()
    class_incremental(train, test, NAMES, tasks=5, seed=3)
    gaussian_schedule(train, test, NAMES, seed=3)
    assert torch.equal(before, torch.get_rng_state())


def test_a_given_order_is_followed(train: Examples, test: Examples) -> None:
    order = (9, 0, 8, 1, 7, 2, 6, 3, 5, 4)
    stream = class_incremental(train, test, NAMES, tasks=2, class_order=order)
    assert stream.class_order == order
    assert stream.class_names == tuple("jaibhcgdfe")
    assert set(stream.experiences[0].train.ids.tolist()) == {
        i for i, label in zip(train.ids.tolist(), train.y.tolist(), strict=True) if label in (9, 0, 8, 1, 7)
    }


def test_inputs_are_not_changed(train: Examples, test: Examples) -> None:
    before = train.y.clone(), test.y.clone()
    class_incremental(train, test, NAMES, tasks=5, seed=3)
    assert torch.equal(train.y, before[0])
    assert torch.equal(test.y, before[1])


@pytest.mark.parametrize("tasks", [0, -1, 11])
def test_bad_numbers_of_tasks_are_named(train: Examples, test: Examples, tasks: int) -> None:
    with pytest.raises(ValueError, match=f"tasks = {tasks}: .*10"):
        class_incremental(train, test, NAMES, tasks=tasks)


@pytest.mark.parametrize("order", [range(9), range(11), [0] * 10, range(1, 11), []])
def test_bad_orders_are_refused(train: Examples, test: Examples, order: Sequence[int]) -> None:
    with pytest.raises(ValueError, match="class_order must name each"):
        class_incremental(train, test, NAMES, tasks=2, class_order=order)


def test_a_seed_and_an_order_are_refused(train: Examples, test: Examples) -> None:
    with pytest.raises(ValueError, match="not both"):
        class_incremental(train, test, NAMES, tasks=2, seed=0, class_order=range(10))


def test_a_task_without_test_examples_is_refused(train: Examples) -> None:
    with pytest.raises(ValueError, match="at least one example"):
        class_incremental(train, labelled(10, seed=2, classes=5), NAMES, tasks=10)


def test_a_label_without_a_name_is_named(test: Examples) -> None:
    with pytest.raises(ValueError, match="labels lie between"):
        class_incremental(labelled(22, seed=1, classes=11), test, NAMES, tasks=2)


def test_a_negative_label_is_refused(test: Examples) -> None:
    with pytest.raises(ValueError, match="labels lie between"):
        class_incremental(examples(images(11), [*range(10), -1]), test, NAMES, tasks=2)


def test_notes_of_the_data_go_on_with_the_stream(train: Examples, test: Examples) -> None:
    notes = Notes((("a/notes.txt", "not an image"),), ("something to know",))
    for stream in (
        class_incremental(train, test, NAMES, notes, tasks=2),
        domain_incremental([train], test, NAMES, notes),
        gaussian_schedule(train, test, NAMES, notes, seed=0),
        from_folders([train], [test], NAMES, (), notes),
    ):
        assert stream.notes == notes
        assert joint(stream).notes == notes


def test_domains_arrive_as_given(test: Examples) -> None:
    domains = [labelled(20, seed=seed) for seed in (3, 4)] + [labelled(6, seed=5, classes=3)]
    stream = domain_incremental(domains, test, NAMES)
    assert [experience.index for experience in stream.experiences] == [0, 1, 2]
    assert [part.ids.tolist() for part in trains(stream)] == [domain.ids.tolist() for domain in domains]
    assert [experience.classes for experience in stream.experiences] == [tuple(range(10))] * 2 + [(0, 1, 2)]
    assert stream.tests == (test,)
    assert stream.class_names == NAMES
    assert stream.boundaries
    assert not stream.task_tests


def test_domains_are_needed(test: Examples) -> None:
    with pytest.raises(ValueError, match="at least one experience"):
        domain_incremental([], test, NAMES)


@pytest.mark.parametrize("windows", [1, 4, 7, TRAIN])
def test_a_schedule_shows_every_example_exactly_once(train: Examples, test: Examples, windows: int) -> None:
    """Trap 4: 500 passes, and a loss masked by the episode's labels."""
    stream = gaussian_schedule(train, test, NAMES, seed=0, windows=windows)
    assert Counter(all_ids(trains(stream))) == Counter(train.ids.tolist())
    known = name_of_each(train, NAMES)
    assert all(name_of_each(part, NAMES).items() <= known.items() for part in trains(stream))
    assert not stream.boundaries
    assert not stream.task_tests
    assert stream.tests == (test,)


def test_windows_cut_the_same_schedule(train: Examples, test: Examples) -> None:
    whole = gaussian_schedule(train, test, NAMES, seed=0)
    cut = gaussian_schedule(train, test, NAMES, seed=0, windows=7)
    assert all_ids(trains(cut)) == all_ids(trains(whole))
    sizes = [len(part) for part in trains(cut)]
    assert sum(sizes) == TRAIN
    assert max(sizes) - min(sizes) <= 1
    assert [experience.index for experience in cut.experiences] == list(range(7))
    assert all(experience.classes == experience.train.classes for experience in cut.experiences)


def test_a_narrow_schedule_is_the_order_of_classes(train: Examples, test: Examples) -> None:
    stream = gaussian_schedule(train, test, NAMES, seed=0, width=1e-6)
    assert stream.experiences[0].train.y.tolist() == sorted(train.y.tolist())


def test_a_wide_schedule_is_no_order_at_all(test: Examples) -> None:
    many = labelled(4000, seed=1)
    arrived = gaussian_schedule(many, test, NAMES, seed=0, width=1e6).experiences[0].train.y.double()
    place = torch.arange(4000, dtype=torch.float64)
    correlation = torch.corrcoef(torch.stack([arrived, place]))[0, 1]
    assert abs(correlation.item()) < 0.07  # four deviations of chance, 1 / sqrt(4000)


def test_classes_come_and_go_in_order(test: Examples) -> None:
    many = labelled(4000, seed=1)
    arrived = gaussian_schedule(many, test, NAMES, seed=0, width=2.0).experiences[0].train.y
    places = [(arrived == label).nonzero().flatten().double() for label in range(10)]
    means = [place.mean().item() for place in places]
    assert means == sorted(means)
    # Neighbours overlap: class c is not over when class c + 1 begins
    assert all(before.max() > after.min() for before, after in pairwise(places))


def test_arrival_times_are_gaussian_around_the_class(test: Examples) -> None:
    """Of two classes d apart, the later one comes first with chance Phi(-d / (width * sqrt 2))."""
    width = 3.0
    arrived = gaussian_schedule(labelled(20_000, seed=1), test, NAMES, seed=0, width=width).experiences[0].train.y
    places = [(arrived == label).nonzero().flatten() for label in range(10)]
    for distance in (1, 4, 9):
        earlier = torch.searchsorted(places[distance], places[0]).double().mean() / len(places[distance])
        chance = torch.special.ndtr(torch.tensor(-distance / (width * 2**0.5), dtype=torch.float64))
        assert earlier.item() == pytest.approx(chance.item(), abs=0.03)


def test_the_seed_decides_the_schedule(train: Examples, test: Examples) -> None:
    first, again, other = (gaussian_schedule(train, test, NAMES, seed=seed) for seed in (0, 0, 1))
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != other.fingerprint


def test_bad_schedules_are_named(train: Examples, test: Examples) -> None:
    for width in (0.0, -1.0):
        with pytest.raises(ValueError, match=f"width = {width}"):
            gaussian_schedule(train, test, NAMES, seed=0, width=width)
    for windows in (0, TRAIN + 1):
        with pytest.raises(ValueError, match=f"windows = {windows}: .*{TRAIN}"):
            gaussian_schedule(train, test, NAMES, seed=0, windows=windows)


def test_joint_has_everything_at_once(train: Examples, test: Examples) -> None:
    stream = class_incremental(train, test, NAMES, tasks=3, seed=0)
    whole = joint(stream)
    assert len(whole.experiences) == 1
    assert whole.experiences[0].classes == tuple(range(10))
    assert Counter(all_ids(trains(whole))) == Counter(train.ids.tolist())
    known = name_of_each(train, NAMES)
    assert name_of_each(whole.experiences[0].train, whole.class_names) == known
    assert whole.tests == stream.tests
    assert whole.class_names == stream.class_names
    assert whole.class_order == stream.class_order
    assert not whole.task_tests


def test_joint_over_several_sources(test: Examples) -> None:
    domains = [labelled(20, seed=seed) for seed in (3, 4)]
    whole = joint(domain_incremental(domains, test, NAMES)).experiences[0].train
    expected = torch.cat([domain.batch(slice(None)).x for domain in domains])
    assert torch.equal(whole.batch(slice(None)).x, expected)


def test_joint_frees_a_schedule_of_its_order(train: Examples, test: Examples) -> None:
    assert joint(gaussian_schedule(train, test, NAMES, seed=0, windows=3)).boundaries


def test_arrays_with_words_for_labels() -> None:
    first, second = images(3, seed=1), images(2, seed=2)
    stream = from_arrays([(first, ["dog", "cat", "dog"]), (second, ["emu", "cat"])], [(first, ["cat", "dog", "emu"])])
    assert stream.class_names == ("dog", "cat", "emu")
    assert [part.y.tolist() for part in trains(stream)] == [[0, 1, 0], [2, 1]]
    assert stream.tests[0].y.tolist() == [1, 0, 2]
    assert [experience.classes for experience in stream.experiences] == [(0, 1), (1, 2)]
    assert torch.equal(stream.experiences[1].train.batch(slice(None)).x[:, 0], torch.from_numpy(second))
    assert not stream.task_tests


def test_arrays_with_numbers_for_labels() -> None:
    x = images(3)
    stream = from_arrays([(x, np.array([7, 3, 7])), (x, [5, 5, 3])], [(x, [3, 7, 7]), (x, [5, 5, 5])])
    assert stream.class_names == ("7", "3", "5")
    assert [part.y.tolist() for part in trains(stream)] == [[0, 1, 0], [2, 2, 1]]
    assert [part.y.tolist() for part in stream.tests] == [[1, 0, 0], [2, 2, 2]]


def test_arrays_with_a_test_set_per_experience() -> None:
    x = images(2)
    matched = from_arrays([(x, [0, 1]), (x, [2, 3])], [(x, [1, 0]), (x, [2, 2])])
    crossed = from_arrays([(x, [0, 1]), (x, [2, 3])], [(x, [2, 3]), (x, [0, 1])])
    assert matched.task_tests
    assert not crossed.task_tests


def test_arrays_that_do_not_fit_are_refused() -> None:
    x = images(3)
    with pytest.raises(ValueError, match="3 inputs need as many labels"):
        from_arrays([(x, ["a", "b"])], [(x, ["a", "b", "a"])])
    with pytest.raises(ValueError, match="at least one experience and one test set"):
        from_arrays([], [(x, [0, 1, 2])])
    with pytest.raises(ValueError, match="at least one experience and one test set"):
        from_arrays([(x, [0, 1, 2])], [])


def test_arrays_keep_their_labels_as_names_in_order_of_appearance() -> None:
    x = images(2)
    stream = from_arrays([(x, [7, 3])], [(x, [7, 3])])
    assert stream.class_names == ("7", "3")
    assert stream.class_order == ()
