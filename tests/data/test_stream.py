import dataclasses

import numpy as np
import numpy.typing as npt
import pytest
import torch

from promptpool.data.stream import Batch, Examples, Experience, Joined, Notes, Stream, concatenate, examples

Images = npt.NDArray[np.uint8]


def images(count: int, *shape: int, seed: int = 0) -> Images:
    return np.random.default_rng(seed).integers(0, 256, (count, *(shape or (4, 5))), dtype=np.uint8)


def some(count: int = 6, seed: int = 0) -> Examples:
    return examples(images(count, seed=seed), np.arange(count) % 3)


class Decoded:
    """A source that makes its rows when asked: row r is an image full of r."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: torch.Tensor, /) -> torch.Tensor:
        return index.to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 4, 5)


def stream(
    trains: list[Examples],
    tests: list[Examples],
    names: tuple[str, ...] = ("a", "b", "c"),
    boundaries: bool = True,
) -> Stream:
    experiences = tuple(Experience(t, part, part.classes) for t, part in enumerate(trains))
    return Stream(experiences, tuple(tests), names, boundaries=boundaries)


def test_equal_arrays_have_equal_ids() -> None:
    x = images(6)
    first, again = examples(x, [0] * 6), examples(x.copy(), [1] * 6)
    assert torch.equal(first.ids, again.ids)
    assert first.ids.dtype == torch.int64
    assert (first.ids >= 0).all()


def test_ids_are_the_same_in_every_process() -> None:
    # sha256sum of "[2, 1, 4, 5]" and the bytes 0..39 begins with these 16 digits
    x = np.arange(40, dtype=np.uint8).reshape(2, 4, 5)
    first = 0x5490B707C6F83D9C >> 2
    assert examples(x, [0, 0]).ids.tolist() == [first, first + 1]


def test_ids_differ_within_an_array_even_for_equal_rows() -> None:
    assert len(set(examples(np.zeros((5, 4, 4), np.uint8), [0] * 5).ids.tolist())) == 5


def test_a_changed_pixel_changes_every_id() -> None:
    x = images(6)
    other = x.copy()
    other[5, 3, 4] ^= 1
    assert not set(examples(x, [0] * 6).ids.tolist()) & set(examples(other, [0] * 6).ids.tolist())


def test_the_shape_belongs_to_the_content() -> None:
    flat = np.zeros(400, np.uint8)
    first, second = examples(flat.reshape(4, 10, 10), [0] * 4), examples(flat.reshape(4, 5, 20), [0] * 4)
    assert not set(first.ids.tolist()) & set(second.ids.tolist())


def test_selecting_and_relabelling_keep_ids() -> None:
    part = some()
    index = torch.tensor([4, 0, 4])
    chosen = part.select(index).relabel(torch.tensor([7, 8, 9]))
    assert torch.equal(chosen.ids, part.ids[index])
    assert chosen.y.tolist() == [8, 7, 8]
    assert part.y.tolist() == [0, 1, 2, 0, 1, 2]
    assert torch.equal(chosen.batch(slice(None)).x, part.batch(index).x)


@pytest.mark.parametrize(
    ("shape", "stored"),
    [
        ((4, 5), (1, 4, 5)),
        ((4, 5, 1), (1, 4, 5)),
        ((4, 5, 3), (3, 4, 5)),
        ((1, 4, 5), (1, 4, 5)),
        ((3, 4, 5), (3, 4, 5)),
        ((3, 32, 3), (3, 32, 3)),
        ((224, 200, 3), (3, 224, 200)),
    ],
)
def test_layouts(shape: tuple[int, ...], stored: tuple[int, ...]) -> None:
    x = images(2, *shape)
    batch = examples(x, [0, 1]).batch(slice(None))
    assert batch.x.shape == (2, *stored)
    assert batch.x.dtype == torch.uint8
    as_given = batch.x.numpy()
    if shape[-1] in (1, 3) and stored[-2:] == shape[:2]:
        as_given = as_given.transpose(0, 2, 3, 1)
    assert np.array_equal(as_given.reshape(x.shape), x)


def test_one_image_has_one_id_in_any_layout() -> None:
    x = images(2, 4, 5, 3)
    assert torch.equal(examples(x, [0, 1]).ids, examples(x.transpose(0, 3, 1, 2), [0, 1]).ids)
    grey = images(2, 4, 5)
    assert torch.equal(examples(grey, [0, 1]).ids, examples(grey[:, None], [0, 1]).ids)
    assert torch.equal(examples(grey, [0, 1]).ids, examples(torch.from_numpy(grey), torch.tensor([0, 1])).ids)


@pytest.mark.parametrize("shape", [(2,), (2, 4), (2, 4, 5, 2), (2, 2, 4, 5), (2, 4, 5, 4), (2, 1, 3, 4, 5)])
def test_other_layouts_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"raw inputs are \[n, H, W\].*not \[2"):
        examples(np.zeros(shape, np.uint8), [0, 1])


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_only_bytes_are_accepted(dtype: npt.DTypeLike) -> None:
    with pytest.raises(ValueError, match="raw inputs are uint8"):
        examples(torch.from_numpy(np.zeros((2, 4, 5), dtype)), [0, 1])


@pytest.mark.parametrize("labels", [[0], [0, 1, 2], [[0, 1]], [[0], [1]]])
def test_labels_must_match(labels: npt.ArrayLike) -> None:
    with pytest.raises(ValueError, match="2 inputs need as many labels"):
        examples(images(2), labels)


def test_parts_of_unequal_length_are_refused() -> None:
    part = some()
    with pytest.raises(ValueError, match="6 rows, 5 labels and 6 ids"):
        Examples(part.source, part.rows, part.y[:5], part.ids)


def test_classes_are_those_present() -> None:
    assert examples(images(4), [5, 2, 5, 0]).classes == (0, 2, 5)


@pytest.mark.parametrize("size", [1, 4, 5, 6, 100])
def test_batches_cover_everything_once_in_order(size: int) -> None:
    part = some(11).select(torch.randperm(11, generator=torch.Generator().manual_seed(0)))
    found = list(part.batches(size))
    assert [len(batch.y) for batch in found[:-1]] == [size] * (len(found) - 1)
    assert torch.equal(torch.cat([batch.ids for batch in found]), part.ids)
    assert torch.equal(torch.cat([batch.y for batch in found]), part.y)
    assert torch.equal(torch.cat([batch.x for batch in found]), part.source[part.rows])


def test_a_batch_moves_with_all_it_holds() -> None:
    batch = some().batch(torch.tensor([1, 3]), fresh=False)._replace(extra={"logits": torch.ones(2, 3)})
    moved = batch.to(torch.device("meta"))
    assert {moved.x.device.type, moved.y.device.type, moved.ids.device.type} == {"meta"}
    assert moved.extra["logits"].device.type == "meta"
    assert not moved.fresh
    assert batch.extra["logits"].device.type == "cpu"


def test_batches_do_not_share_what_a_memory_adds() -> None:
    first, second = (Batch(torch.zeros(1), torch.zeros(1), torch.zeros(1)) for _ in range(2))
    assert first.extra == second.extra == {}
    assert second._replace(extra={"logits": torch.ones(1)}).extra
    assert first.extra == {}


def test_concatenating_one_source_keeps_it() -> None:
    part = some()
    whole = concatenate([part.select(torch.tensor([5, 1])), part.select(torch.tensor([0]))])
    assert whole.source is part.source
    assert torch.equal(whole.ids, part.ids[[5, 1, 0]])
    assert torch.equal(whole.batch(slice(None)).x, part.batch(torch.tensor([5, 1, 0])).x)


def test_concatenating_sources_keeps_every_example() -> None:
    first, second, third = some(4, seed=0), some(3, seed=1), some(5, seed=2)
    parts = [first.select(torch.tensor([3, 0])), second, third.select(torch.tensor([4, 4, 1])), first]
    whole = concatenate(parts)
    expected = [part.batch(slice(None)) for part in parts]
    shuffled = torch.randperm(len(whole), generator=torch.Generator().manual_seed(0))
    actual = whole.batch(shuffled)
    assert torch.equal(actual.x, torch.cat([batch.x for batch in expected])[shuffled])
    assert torch.equal(actual.y, torch.cat([batch.y for batch in expected])[shuffled])
    assert torch.equal(actual.ids, torch.cat([batch.ids for batch in expected])[shuffled])


def test_concatenating_twice() -> None:
    parts = [some(3, seed=seed) for seed in range(4)]
    left = concatenate([concatenate(parts[:2]), concatenate(parts[2:])])
    flat = concatenate(parts)
    assert torch.equal(left.batch(slice(None)).x, flat.batch(slice(None)).x)
    assert torch.equal(left.ids, flat.ids)


def test_nothing_to_concatenate() -> None:
    with pytest.raises(ValueError, match="nothing to join"):
        concatenate([])


def test_joined_sources_count_on() -> None:
    first, second = some(3, seed=0), some(2, seed=1)
    empty = first.select(slice(0, 0)).batch(slice(None)).x
    joined = Joined((first.source, empty, second.source, Decoded(4)))
    assert len(joined) == 9
    got = joined[torch.tensor([8, 3, 0, 4, 2, 3])]
    rows = [Decoded(4)[torch.tensor([3])], second.source[torch.tensor([0])], first.source[torch.tensor([0])]]
    rows += [
        second.source[torch.tensor([1])],
        first.source[torch.tensor([2])],
        second.source[torch.tensor([0])],
    ]
    assert torch.equal(got, torch.cat(rows))
    assert joined[torch.tensor([], dtype=torch.long)].shape == (0, 1, 4, 5)


@pytest.mark.parametrize("row", [-1, 5, 50])
def test_joined_sources_have_no_other_rows(row: int) -> None:
    joined = Joined((some(3, seed=0).source, some(2, seed=1).source))
    with pytest.raises(IndexError):
        joined[torch.tensor([0, row])]


def test_joined_sources_of_two_shapes_do_not_mix_in_a_batch() -> None:
    whole = concatenate([examples(images(2, 4, 5), [0, 1]), examples(images(2, 6, 5), [0, 1])])
    assert whole.batch(torch.tensor([2, 3])).x.shape == (2, 1, 6, 5)
    with pytest.raises(ValueError, match=r"\[1, 6, 5\] and \[1, 4, 5\] do not fit"):
        whole.batch(torch.tensor([1, 2]))


def test_a_stream_needs_data() -> None:
    with pytest.raises(ValueError, match="at least one experience and one test set"):
        stream([], [some()])
    with pytest.raises(ValueError, match="at least one experience and one test set"):
        stream([some()], [])
    empty = some().select(slice(0, 0))
    for trains, tests in (([some(), empty], [some()]), ([some()], [some(), empty])):
        with pytest.raises(ValueError, match="at least one example"):
            stream(trains, tests)


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_must_have_a_name(label: int) -> None:
    wrong = examples(images(2), [0, label])
    for trains, tests in (([some(), wrong], [some()]), ([some()], [some(), wrong])):
        with pytest.raises(ValueError, match="labels lie between 0 and 2"):
            stream(trains, tests)


def test_streams_are_frozen() -> None:
    made = stream([some()], [some()])
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.boundaries = False  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.experiences[0].index = 3  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.tests[0].y = torch.zeros(6)  # type: ignore[misc]


def test_equal_streams_have_equal_fingerprints() -> None:
    assert stream([some()], [some(seed=1)]).fingerprint == stream([some()], [some(seed=1)]).fingerprint


def test_the_fingerprint_knows_what_was_changed() -> None:
    train, test = some(), some(seed=1)
    touched = images(6)
    touched[2, 1, 1] ^= 1
    second = some(seed=2)
    streams = [
        stream([train], [test]),
        stream([train.select(torch.tensor([1, 0, 2, 3, 4, 5]))], [test]),
        stream([train.relabel(torch.tensor([1, 0, 2]))], [test]),
        stream([examples(touched, train.y)], [test]),
        stream([train.select(slice(0, 3)), train.select(slice(3, 6))], [test]),
        stream([train], [test.select(slice(0, 5))]),
        stream([train], [test.relabel(torch.tensor([1, 0, 2]))]),
        stream([train], [test, test]),
        stream([test], [train]),
        stream([train], [test], names=("a", "b", "d")),
        stream([train], [test], names=("b", "a", "c")),
        stream([train], [test], boundaries=False),
        stream([train, second], [test]),
        stream([second, train], [test]),
    ]
    assert len({made.fingerprint for made in streams}) == len(streams)


def test_notes_are_no_part_of_the_fingerprint() -> None:
    plain = stream([some()], [some(seed=1)])
    noted = dataclasses.replace(plain, notes=Notes((("a.txt", "not an image"),), ("something",)))
    assert noted.fingerprint == plain.fingerprint


def test_the_fingerprint_tells_training_from_test() -> None:
    first, second, third = some(), some(seed=1), some(seed=2)
    assert stream([first, second], [third]).fingerprint != stream([first], [second, third]).fingerprint


def test_the_fingerprint_knows_the_classes_of_an_experience() -> None:
    part = some()
    narrow = Stream((Experience(0, part, (0, 1, 2)),), (part,), ("a", "b", "c", "d"))
    wide = Stream((Experience(0, part, (0, 1, 2, 3)),), (part,), ("a", "b", "c", "d"))
    assert narrow.fingerprint != wide.fingerprint


def test_a_later_change_of_the_array_does_not_reach_the_examples() -> None:
    x = images(2)
    part = examples(x, [0, 1])
    x[:] = 0
    assert part.batch(slice(None)).x.any()


def test_an_array_that_cannot_be_written_is_accepted() -> None:
    x = np.frombuffer(bytes(40), dtype=np.uint8).reshape(2, 4, 5)
    torch.set_warn_always(True)  # not only the first time in a process
    try:
        assert len(examples(x, [0, 1])) == 2
    finally:
        torch.set_warn_always(False)


def test_labels_that_are_no_integers_are_refused() -> None:
    with pytest.raises(ValueError, match="label"):
        examples(images(2), [0.7, 1.2])
