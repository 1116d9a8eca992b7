from collections import Counter

import pytest
import torch
from torch import Tensor

from promptpool.data.stream import Batch, Examples
from promptpool.memory import AT_ONCE, Memory, greedy, join, pick, turns


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(labels: list[int], first: int = 0, side: int = 1) -> Batch:
    """Examples with these labels, numbered from `first`; an input's pixels tell its number."""
    ids = torch.arange(first, first + len(labels))
    numbers = torch.stack([ids // 256 % 256, ids % 256, torch.tensor(labels, dtype=torch.long)], dim=1)
    x = numbers.to(torch.uint8)[:, :, None, None].repeat(1, 1, side, side)
    return Batch(x, torch.tensor(labels, dtype=torch.long), ids, extra={"logits": ids[:, None] * torch.ones(2)})


def filled(capacity: int, labels: list[int], *, step: int, seed: int = 0, policy: str = "reservoir") -> Memory:
    memory = Memory(capacity, generator=generator(seed), policy=policy)
    for begin in range(0, len(labels), step):
        memory.add(rows(labels[begin : begin + step], begin))
    return memory


def kept(memory: Memory) -> Batch:
    assert memory.rows is not None
    return memory.rows


def water_filling(offered: list[int], capacity: int) -> list[int]:
    """Rows per class, handed out one at a time to a class with fewest; the last round may leave some out."""
    given = [0] * len(offered)
    for _ in range(min(capacity, sum(offered))):
        hungry = [c for c in range(len(offered)) if given[c] < offered[c]]
        given[min(hungry, key=lambda c: given[c])] += 1
    return given


def assert_uniform(counts: list[int], trials: int, share: float) -> None:
    """Each count within four and a half deviations of its expectation, and their spread as chance has it."""
    expected, variance = trials * share, trials * share * (1 - share)
    assert all(abs(count - expected) < 4.5 * variance**0.5 for count in counts)
    spread = sum((count - expected) ** 2 for count in counts) / variance / len(counts)
    assert 0.3 < spread < 2.0


@pytest.mark.parametrize("step", [1, 5, 24])
def test_a_reservoir_keeps_each_example_equally_often(step: int) -> None:
    trials, examples, capacity = 300, 24, 6
    counts = torch.zeros(examples, dtype=torch.long)
    for seed in range(trials):
        memory = filled(capacity, [0] * examples, step=step, seed=seed)
        counts[kept(memory).ids] += 1
    assert counts.sum() == trials * capacity
    assert_uniform(counts.tolist(), trials, capacity / examples)


def test_a_reservoir_does_not_look_at_classes() -> None:
    labels = [0] * 30 + [1] * 10
    ones = [int(kept(filled(8, labels, step=5, seed=seed)).y.sum()) for seed in range(300)]
    assert sum(ones) / 300 == pytest.approx(8 * 10 / 40, abs=0.35)


@pytest.mark.parametrize("policy", ["reservoir", "balanced", "greedy"])
def test_capacity_is_filled_and_never_exceeded(policy: str) -> None:
    memory = Memory(10, generator=generator(), policy=policy)
    assert len(memory) == 0
    for begin in range(0, 40, 4):
        memory.add(rows([0, 1, 1, 2], begin))
        assert len(memory) == len(kept(memory).y) == min(10, begin + 4)
        assert len(set(kept(memory).ids.tolist())) == len(memory)


@pytest.mark.parametrize("policy", ["reservoir", "balanced", "greedy"])
def test_rows_are_the_bytes_that_were_added_with_their_extra(policy: str) -> None:
    labels = [number * 7 % 5 for number in range(300)]
    memory = filled(60, labels, step=11, policy=policy)
    for batch in (kept(memory), memory.sample(100)):
        assert batch.x.dtype == torch.uint8
        assert not batch.fresh
        for x, y, identity, logits in zip(batch.x, batch.y, batch.ids, batch.extra["logits"], strict=True):
            number = int(identity)
            assert x.flatten().tolist() == [number // 256, number % 256, labels[number]]
            assert int(y) == labels[number]
            assert logits.tolist() == [number, number]


@pytest.mark.parametrize("capacity", [1, 3, 10, 17, 100])
@pytest.mark.parametrize(
    "labels",
    [
        [0] * 12 + [1] * 12 + [2] * 12,
        [0] * 40 + [1] * 2 + [2] * 7 + [3],
        [3] * 2 + [0] * 9 + [2] * 20 + [0] * 9,
        [number % 4 for number in range(33)],
    ],
    ids=["in turn", "unequal", "again", "mixed"],
)
def test_balanced_counts_are_fair_at_every_moment(labels: list[int], capacity: int) -> None:
    memory = Memory(capacity, generator=generator(), policy="balanced")
    for begin in range(0, len(labels), 5):
        memory.add(rows(labels[begin : begin + 5], begin))
        offered = Counter(labels[: begin + 5])
        counts = Counter(kept(memory).y.tolist())
        expected = water_filling([offered[c] for c in range(4)], capacity)
        assert sorted(counts[c] for c in range(4)) == sorted(expected)
        for poorer in range(4):  # nobody is poorer by two unless they had no more to give
            if counts[poorer] < offered[poorer]:
                assert all(counts[richer] - counts[poorer] <= 1 for richer in range(4))


@pytest.mark.parametrize("step", [2, 6, 30])
def test_balanced_keeps_each_example_of_a_class_equally_often(step: int) -> None:
    trials = 400
    labels = [0] * 10 + [1] * 14 + [0] * 6  # class 0 returns after it was cut back
    counts = torch.zeros(30, dtype=torch.long)
    for seed in range(trials):
        counts[kept(filled(8, labels, step=step, seed=seed, policy="balanced")).ids] += 1
    of = torch.tensor(labels)
    assert_uniform(counts[of == 0].tolist(), trials, 4 / 16)
    assert_uniform(counts[of == 1].tolist(), trials, 4 / 14)


def test_a_sample_repeats_no_row_before_each_had_its_turn() -> None:
    memory = filled(7, [0] * 20, step=20)
    everything = set(kept(memory).ids.tolist())
    for count in (1, 5, 7, 9, 14, 30):
        drawn = memory.sample(count).ids.tolist()
        assert len(drawn) == count
        for begin in range(0, count, 7):
            turn = drawn[begin : begin + 7]
            assert len(set(turn)) == len(turn)
            assert set(turn) <= everything


def test_a_sample_draws_each_row_equally_often() -> None:
    memory = filled(12, [0] * 12, step=12)
    counts = Counter(number for _ in range(600) for number in memory.sample(4).ids.tolist())
    assert_uniform([counts[number] for number in range(12)], 600, 4 / 12)


def test_sampling_changes_nothing() -> None:
    memory = filled(7, [0, 1] * 10, step=4)
    before = kept(memory).ids.clone()
    memory.sample(5)
    assert torch.equal(kept(memory).ids, before)


@pytest.mark.parametrize("policy", ["reservoir", "balanced"])
def test_a_seed_decides_everything(policy: str) -> None:
    labels = [number % 3 for number in range(50)]
    first, same, other = (filled(9, labels, step=7, seed=seed, policy=policy) for seed in (0, 0, 1))
    assert torch.equal(kept(first).ids, kept(same).ids)
    assert torch.equal(first.sample(20).ids, same.sample(20).ids)
    assert not torch.equal(kept(first).ids, kept(other).ids)


def test_the_size_of_batches_does_not_matter() -> None:
    labels = [number % 3 for number in range(48)]
    first, second = kept(filled(9, labels, step=16)).ids, kept(filled(9, labels, step=48)).ids
    assert torch.equal(first.sort().values, second.sort().values)


@pytest.mark.parametrize("policy", ["reservoir", "balanced", "greedy"])
@pytest.mark.parametrize("before", [0, 40])
def test_a_restored_memory_goes_on_as_the_first_would(policy: str, before: int) -> None:
    first = filled(9, [number % 3 for number in range(before)], step=7, policy=policy)
    second = Memory(9, generator=generator(99), policy=policy)
    second.load_state_dict(first.state_dict())
    second.generator.set_state(first.generator.get_state())  # the owner's generator is the owner's to keep
    assert len(first) == len(second)
    for begin in (50, 60):
        for memory in (first, second):
            memory.add(rows([0, 1, 2, 3, 3], begin))
        pairs: list[tuple[Batch, Batch]] = [(kept(first), kept(second)), (first.sample(6), second.sample(6))]
        for one, other in pairs:
            columns = zip((one.x, one.y, one.ids), (other.x, other.y, other.ids), strict=True)
            assert all(torch.equal(a, b) for a, b in columns)
            assert torch.equal(one.extra["logits"], other.extra["logits"])


def test_inputs_of_another_shape_are_refused_and_change_nothing() -> None:
    memory = filled(9, [0, 1, 2], step=3)
    with pytest.raises(ValueError, match=r"\[3, 2, 2\] do not fit a memory of \[3, 1, 1\]"):
        memory.add(rows([0, 1], 3, side=2))
    assert len(memory) == len(kept(memory).y) == 3
    memory.add(rows([0, 1], 3))
    assert kept(memory).ids.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("keyword", "value"), [("capacity", 0), ("policy", "ring")])
def test_bad_values_raise(keyword: str, value: object) -> None:
    values = {"capacity": 5, "policy": "reservoir", keyword: value}
    with pytest.raises(ValueError, match=f"^{keyword} = "):
        Memory(**values, generator=generator())  # type: ignore[arg-type]


def test_an_empty_memory_has_nothing_to_replay() -> None:
    with pytest.raises(ValueError, match="empty memory"):
        Memory(5, generator=generator()).sample(1)


def test_five_thousand_small_images_take_less_than_20_megabytes() -> None:
    memory = Memory(5000, generator=generator())
    for begin in range(0, 6000, 1500):
        memory.add(rows([0] * 1500, begin, side=32)._replace(extra={}))
    found = kept(memory)
    held: list[Tensor] = [found.x, found.y, found.ids, memory.lots]
    assert len(memory) == 5000
    assert sum(tensor.untyped_storage().nbytes() for tensor in held) < 20e6


def test_a_memory_holds_no_view_of_the_batch_it_was_given() -> None:
    batch = rows([0, 1, 2])
    memory = Memory(5, generator=generator())
    memory.add(batch)
    batch.x.zero_()
    assert kept(memory).x[2].flatten().tolist() == [0, 2, 2]


def test_join_and_pick_keep_rows_together() -> None:
    first, second = rows([0, 1, 2]), rows([3, 4], 3)
    both = join(first, second._replace(fresh=False))
    assert both.fresh
    assert both.ids.tolist() == [0, 1, 2, 3, 4]
    chosen = pick(both, torch.tensor([4, 0, 4]))
    assert not chosen.fresh
    assert chosen.y.tolist() == [4, 0, 4]
    assert chosen.extra["logits"][:, 0].tolist() == [4, 0, 4]
    assert join(first, second._replace(extra={})).extra == {}


def test_all_examples_are_offered_once() -> None:
    count = 2 * AT_ONCE + 3
    every = rows([number % 3 for number in range(count)])
    x, y, ids = every.x, every.y, every.ids
    memory = Memory(count, generator=generator())
    memory.add_all(Examples(x, torch.arange(count), y, ids))
    assert sorted(kept(memory).ids.tolist()) == list(range(count))
    some = Memory(7, generator=generator())
    some.add_all(Examples(x, torch.arange(5), y[:5], ids[:5]))
    some.add_all(Examples(x, torch.arange(0), y[:0], ids[:0]))
    assert sorted(kept(some).ids.tolist()) == [0, 1, 2, 3, 4]


def test_turns_count_the_earlier_ones_of_a_class() -> None:
    assert turns(torch.tensor([4, 1, 4, 4, 1, 0])).tolist() == [0, 0, 1, 2, 1, 0]
    assert turns(torch.tensor([], dtype=torch.long)).tolist() == []


def slow_greedy(held: list[int], offered: list[int], lots: list[float], capacity: int) -> list[int]:
    """The greedy balancing sampler of Prabhu et al. (2020), with the count of each class taken anew each time."""
    labels, kept = [*held, *offered], list(range(len(held)))
    for row, lot in enumerate(lots, start=len(held)):
        count = Counter(labels[place] for place in kept)
        if labels[row] in count and count[labels[row]] >= capacity / len(count):
            continue
        if sum(count.values()) >= capacity:
            most = max(count.values())
            largest = min(label for label in count if count[label] == most)
            own = [place for place in kept if labels[place] == largest]
            kept.remove(own[int(lot * len(own))])
        kept.append(row)
    return sorted(kept)


@pytest.mark.parametrize("seed", range(20))
def test_greedy_is_the_balancing_sampler(seed: int) -> None:
    numbers = generator(seed)
    capacity, classes = 4 + seed, 1 + seed % 5
    held: list[int] = []
    for _ in range(4):
        offered = torch.randint(0, classes, (9,), generator=numbers).tolist()
        lots = torch.rand(9, generator=numbers, dtype=torch.float64)
        found = greedy(torch.tensor([*held, *offered], dtype=torch.long), lots, capacity).tolist()
        assert found == slow_greedy(held, offered, lots.tolist(), capacity)
        held = [[*held, *offered][row] for row in found]
    assert len(held) <= capacity


def test_greedy_takes_what_comes_first_and_makes_room_for_new_classes() -> None:
    memory = filled(12, [0] * 20, step=7, policy="greedy")
    assert sorted(kept(memory).ids.tolist()) == list(range(12))
    memory.add(rows([1] * 20, 20))
    assert Counter(kept(memory).y.tolist()) == {0: 6, 1: 6}
    memory.add(rows([2] * 20, 40))
    assert Counter(kept(memory).y.tolist()) == {0: 4, 1: 4, 2: 4}
    memory.add(rows([0, 1, 2] * 5, 60))
    assert max(kept(memory).ids.tolist()) < 60  # every class has its share


def test_who_leaves_a_greedy_memory_is_left_to_chance() -> None:
    left = Counter[int]()
    for seed in range(300):
        memory = filled(6, [0] * 6 + [1], step=7, seed=seed, policy="greedy")
        left.update(set(range(6)) - set(kept(memory).ids.tolist()))
    assert_uniform([left[row] for row in range(6)], 300, 1 / 6)


def test_an_extra_can_be_widened() -> None:
    memory = Memory(5, generator=generator())
    memory.widen("logits", 4, -1.0)  # nothing there yet
    memory.add(rows([0, 1]))
    memory.widen("logits", 1, -1.0)  # never narrower
    memory.widen("logits", 4, -1.0)
    assert kept(memory).extra["logits"].tolist() == [[0, 0, -1, -1], [1, 1, -1, -1]]
    memory.add(rows([2], 2)._replace(extra={"logits": torch.full((1, 4), 9.0)}))
    assert kept(memory).extra["logits"].tolist()[2] == [9] * 4
    again = Memory(5, generator=generator())
    again.load_state_dict(memory.state_dict())
    assert torch.equal(kept(again).extra["logits"], kept(memory).extra["logits"])


def test_room_is_made_for_what_comes_and_not_for_all_that_may() -> None:
    memory = filled(10**15, [0] * 20, step=6)
    assert len(memory) == 20
    assert memory._rows is not None
    assert len(memory._rows.y) < 40


def test_a_restored_memory_shares_nothing_with_the_state_it_came_from() -> None:
    first = filled(6, [0] * 20, step=5)
    state = first.state_dict()
    before = state["rows"]["x"].clone()
    second = Memory(6, generator=generator())
    second.load_state_dict(state)
    second.add(rows([0] * 20, 100))
    assert torch.equal(first.rows.x, before)
    assert not torch.equal(second.rows.x, before)
