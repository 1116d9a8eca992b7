import math
from collections import Counter
from fractions import Fraction
from itertools import combinations

import pytest
import torch
from torch import Tensor

from promptpool.prompts import PromptPool, lowest

DIM = 8


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pool_of(keys: Tensor, *, prompt_length: int = 2, **values: object) -> PromptPool:
    pool = PromptPool(
        keys.shape[1],
        generator=generator(),
        pool_size=len(keys),
        prompt_length=prompt_length,
        **values,  # type: ignore[arg-type]
    )
    assert pool.learned_keys is not None
    pool.learned_keys.data.copy_(keys)
    return pool


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=generator(seed))


def slow_gamma(query: list[float], key: list[float]) -> float:
    """One minus the cosine of the angle between two vectors."""
    product = sum(a * b for a, b in zip(query, key, strict=True))
    return 1 - product / math.sqrt(sum(a * a for a in query)) / math.sqrt(sum(b * b for b in key))


def brute_force(gamma: list[float], count: int, frequency: list[float] | None = None) -> tuple[int, ...]:
    """Eqs. 3 and 4: of all subsets the one with the least sum, in exact arithmetic; the first of equal ones."""
    weights = [1.0] * len(gamma) if frequency is None else frequency
    scores = [Fraction(g) * Fraction(h) for g, h in zip(gamma, weights, strict=True)]
    return min(combinations(range(len(gamma)), count), key=lambda subset: sum(scores[i] for i in subset))


def subsets(indices: Tensor) -> list[tuple[int, ...]]:
    return [tuple(sorted(row)) for row in indices.tolist()]


def slow_vote(choices: list[list[int]], group: int, count: int) -> list[list[int]]:
    """In each group of consecutive images the prompts that most of them chose; the lower index of equal ones."""
    voted = []
    for begin in range(0, len(choices), group):
        members = choices[begin : begin + group]
        votes = Counter(index for member in members for index in member)
        winners = sorted(votes, key=lambda index: (-votes[index], index))[:count]
        voted += [winners for _ in members]
    return voted


@pytest.mark.parametrize(("size", "count"), [(1, 1), (5, 1), (6, 6), (7, 3), (10, 5), (12, 4)])
@pytest.mark.parametrize("training", [True, False])
def test_equation_3_is_the_least_of_all_subsets(size: int, count: int, training: bool) -> None:
    queries, keys = normal(9, DIM), normal(size, DIM, seed=1)
    pool = pool_of(keys, top_k=count).train(training)
    for query, chosen in zip(queries.tolist(), subsets(pool(queries).indices), strict=True):
        assert chosen == brute_force([slow_gamma(query, key) for key in keys.tolist()], count)


@pytest.mark.parametrize(("size", "count"), [(5, 1), (7, 3), (10, 5), (12, 4)])
def test_equation_4_is_the_least_of_all_subsets(size: int, count: int) -> None:
    queries, keys = normal(9, DIM), normal(size, DIM, seed=1)
    pool = pool_of(keys, top_k=count, diversify=True)
    pool.frequency.copy_(torch.rand(size, generator=generator(2)))
    frequency = pool.frequency.tolist()
    for query, chosen in zip(queries.tolist(), subsets(pool(queries).indices), strict=True):
        assert chosen == brute_force([slow_gamma(query, key) for key in keys.tolist()], count, frequency)


@pytest.mark.parametrize("count", [1, 2, 4, 7])
@pytest.mark.parametrize("frequency", [None, [0.25, 0, 0.25, 0.5, 0, 0, 0.5], [0, 0.5, 0, 0, 0, 0.5, 0]])
def test_ties_fall_to_the_first_subset(count: int, frequency: list[float] | None) -> None:
    levels = torch.tensor([0.0, 0.25, 0.5, 1.0, 2.0])  # sums and products of these are exact
    gamma = levels[torch.randint(0, len(levels), (40, 7), generator=generator())]
    pool = pool_of(normal(7, DIM), top_k=count, diversify=frequency is not None)
    pool.frequency.copy_(torch.tensor(frequency or [0.0] * 7))
    for row, chosen in zip(gamma.tolist(), subsets(pool.choose(gamma)), strict=True):
        assert chosen == brute_force(row, count, frequency)


@pytest.mark.parametrize("size", [5, 10, 20])
@pytest.mark.parametrize("count", [1, 4])
def test_equal_keys_are_chosen_from_the_lowest(size: int, count: int) -> None:
    pool = pool_of(normal(1, 33).expand(size, -1), top_k=count)
    for images in (1, 3, 16):
        assert pool(normal(images, 33, seed=2)).indices.tolist() == [list(range(count))] * images
    pool = pool_of(normal(3, 33).repeat(2, 1), top_k=3)  # keys 3, 4, 5 equal 0, 1, 2
    for query, chosen in zip(normal(8, 33, seed=3).tolist(), subsets(pool(normal(8, 33, seed=3)).indices), strict=True):
        gamma = [slow_gamma(query, key) for key in normal(3, 33).tolist()] * 2
        assert chosen == brute_force(gamma, 3)


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("seed", range(5))
def test_a_rounding_of_the_last_bit_does_not_choose(count: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor whose matrix product rounds equal keys by their column."""
    pool = pool_of(normal(3, 33).repeat(3, 1), top_k=count)  # keys 0, 3, 6 are equal, and so on
    exact = pool.distances(normal(16, 33, seed=2))[:, :3].repeat(1, 3).detach()
    ulps = torch.randint(-1, 2, exact.shape, generator=generator(seed))
    noisy = torch.where(ulps > 0, exact.nextafter(torch.tensor(9.0)), exact)
    noisy = torch.where(ulps < 0, exact.nextafter(torch.tensor(-9.0)), noisy)
    monkeypatch.setattr(pool, "distances", lambda query: noisy)
    chosen = pool(normal(16, 33, seed=2)).indices
    for row, best in zip(chosen.tolist(), exact[:, :3].argsort(dim=1).tolist(), strict=True):
        assert row == [best[place // 3] + 3 * (place % 3) for place in range(count)]


def test_a_score_beyond_rounding_is_never_passed_over() -> None:
    scores = torch.tensor([[0.5, 0.5 - 2e-6, 0.5 - 1.5e-6, 0.4], [0.1, 0.1, 0.1, 0.1]])
    assert lowest(scores, torch.full((4,), 1e-6), 3).tolist() == [[3, 1, 2], [0, 1, 2]]


def test_a_score_that_is_no_number_is_chosen_last_and_none_twice() -> None:
    scores = torch.tensor([[0.3, torch.nan, 0.1, 0.2], [torch.nan] * 4])
    assert lowest(scores, torch.zeros(4), 4).tolist() == [[2, 3, 0, 1], [0, 1, 2, 3]]


@pytest.mark.parametrize("kind", ["apart", "close", "equal", "no number"])
@pytest.mark.parametrize("count", [1, 5])
def test_a_large_pool_chooses_as_one_search_after_the_other(count: int, kind: str) -> None:
    generator = torch.Generator().manual_seed(count)
    scores = torch.rand(7, 500, generator=generator)
    if kind == "close":  # many scores within rounding of each other, some chains of them
        scores = (scores * 40).round() / 40 + 3e-7 * torch.randint(4, scores.shape, generator=generator)
    if kind == "equal":
        scores = torch.ones_like(scores)
    if kind == "no number":
        scores[2:4] = torch.nan
        scores[4, ::2] = torch.nan
    rounding = 1e-6 * torch.rand(500, generator=generator)
    for row, found in zip(scores.nan_to_num(nan=torch.inf), lowest(scores, rounding, count).tolist(), strict=True):
        left, chosen = list(range(500)), list[int]()
        for _ in range(count):
            place = left[int(row[left].argmin())]
            chosen.append(next(other for other in left if row[other] <= row[place] + rounding[place]))
            left.remove(chosen[-1])
        assert found == chosen


def test_a_large_pool_has_nothing_for_no_images_and_can_be_exported() -> None:
    assert lowest(torch.empty(0, 500), torch.zeros(500), 5).shape == (0, 5)
    pool = PromptPool(8, generator=torch.Generator().manual_seed(0), pool_size=100, top_k=5).eval()
    query = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))

    class Choice(torch.nn.Module):
        def forward(self, query: Tensor) -> Tensor:
            return pool.choose(pool.distances(query))

    exported = torch.export.export(Choice(), (query,))
    assert torch.equal(exported.module()(query), Choice()(query))


def test_unused_prompts_win_even_over_a_key_that_equals_the_query() -> None:
    keys = normal(64, 768)  # for some of them 1 - cosine rounds below zero
    for used in range(32, 64):
        pool = pool_of(keys, top_k=1, prompt_length=1, diversify=True)
        pool.counts[used] = 1
        pool.end_task()
        assert pool(keys[used, None]).indices.tolist() == [[0]]


def test_equation_4_hands_out_disjoint_prompts() -> None:
    pool = PromptPool(DIM, generator=generator(), pool_size=20, top_k=4, diversify=True).train()
    used: list[set[int]] = []
    for task in range(5):
        centre = normal(1, DIM, seed=10 + task)
        chosen = set()
        for step in range(3):
            queries = centre + 1e-4 * normal(16, DIM, seed=100 * task + step)
            chosen |= set(pool(queries).indices.flatten().tolist())
        used.append(chosen)
        pool.end_task()
    assert [len(chosen) for chosen in used] == [4] * 5
    assert set().union(*used) == set(range(20))


def test_frequency_is_the_share_of_selections_before_the_task_and_frozen_within_it() -> None:
    pool = PromptPool(DIM, generator=generator(), pool_size=9, top_k=2, diversify=True, start=(-1.0, 1.0)).train()
    before: Counter[int] = Counter()
    for task in range(4):
        shares = [before[index] / max(1, before.total()) for index in range(9)]
        during: Counter[int] = Counter()
        for step in range(3):
            queries = normal(7, DIM, seed=10 * task + step)
            chosen = pool(queries).indices
            during.update(chosen.flatten().tolist())
            torch.testing.assert_close(pool.frequency, torch.tensor(shares))
            for query, subset in zip(queries.tolist(), subsets(chosen), strict=True):
                gamma = [slow_gamma(query, key) for key in pool.keys.tolist()]
                assert subset == brute_force(gamma, 2, pool.frequency.tolist() if task else None)
        before += during
        pool.end_task()
    assert pool.counts.tolist() == [before[index] for index in range(9)]


def test_the_first_task_uses_equation_3_also_after_a_task_without_selections() -> None:
    queries, keys = normal(9, DIM), normal(10, DIM, seed=1)
    pool = pool_of(keys, top_k=3, diversify=True)
    pool.end_task()
    assert pool.frequency.tolist() == [0] * 10
    assert torch.equal(pool(queries).indices, pool_of(keys, top_k=3)(queries).indices)


def test_at_test_equation_3_always_chooses() -> None:
    queries, keys = normal(9, DIM), normal(10, DIM, seed=1)
    plain, diverse = pool_of(keys, top_k=3), pool_of(keys, top_k=3, diversify=True)
    diverse.frequency.copy_(torch.rand(10, generator=generator()))
    assert not torch.equal(diverse(queries).indices, plain(queries).indices)
    assert torch.equal(diverse.eval()(queries).indices, plain.eval()(queries).indices)


def test_only_training_counts() -> None:
    pool = PromptPool(DIM, generator=generator(), start=(-1.0, 1.0))
    pool.eval()(normal(6, DIM))
    assert pool.counts.tolist() == [0] * 10
    chosen = pool.train()(normal(6, DIM)).indices.flatten().tolist()
    assert pool.counts.tolist() == [chosen.count(index) for index in range(10)]
    assert pool.counts.sum() == 6 * 5


@pytest.mark.parametrize(("size", "trained"), [(10, 46_080), (20, 92_160)])
def test_trained_parameters_are_the_papers(size: int, trained: int) -> None:
    pool = PromptPool(768, generator=generator(), pool_size=size, prompt_length=5)
    assert sum(parameter.numel() for parameter in pool.parameters()) == trained


def test_prompts_come_in_the_order_of_the_indices() -> None:
    pool = PromptPool(DIM, generator=generator(), pool_size=6, top_k=3, prompt_length=2, start=(-1.0, 1.0))
    chosen = pool(normal(5, DIM))
    assert chosen.prompts.shape == (5, 6, DIM)
    for image, indices in enumerate(chosen.indices.tolist()):
        for place, index in enumerate(indices):
            assert torch.equal(chosen.prompts[image, 2 * place : 2 * place + 2], pool.prompts[index])


@pytest.mark.parametrize("vote", [0, 3])
@pytest.mark.parametrize("diversify", [False, True])
def test_distance_is_of_each_image_to_its_own_keys(vote: int, diversify: bool) -> None:
    queries, keys = normal(7, DIM), normal(6, DIM, seed=1)
    pool = pool_of(keys, top_k=2, vote=vote, diversify=diversify)
    if diversify:
        pool.frequency.copy_(torch.rand(6, generator=generator()))
    chosen = pool(queries)
    assert chosen.distance.shape == (7,)
    for image, query in enumerate(queries.tolist()):
        expected = sum(slow_gamma(query, keys[index].tolist()) for index in chosen.indices[image].tolist())
        assert chosen.distance[image].item() == pytest.approx(expected, abs=1e-6)


def test_keys_learn_from_the_distance_alone() -> None:
    pool = PromptPool(DIM, generator=generator(), top_k=2, start=(-1.0, 1.0))
    chosen = pool(normal(3, DIM))
    (chosen.prompts.square().sum()).backward()
    assert pool.learned_keys is not None
    assert pool.learned_keys.grad is None
    assert pool.prompts.grad is not None
    pool.prompts.grad = None
    pool(normal(3, DIM)).distance.sum().backward()
    assert pool.prompts.grad is None


def test_the_gradient_of_a_key_is_that_of_its_own_queries() -> None:
    queries, keys = normal(5, DIM), normal(6, DIM, seed=1)
    pool = pool_of(keys, top_k=2)
    chosen = pool(queries)
    chosen.distance.sum().backward()
    expected = torch.zeros(6, DIM)
    for image, indices in enumerate(chosen.indices.tolist()):
        for index in indices:  # d(1 - q.k / |q||k|) / dk = (cos * k/|k| - q/|q|) / |k|
            query, key = queries[image] / queries[image].norm(), keys[index] / keys[index].norm()
            expected[index] += ((query @ key) * key - query) / keys[index].norm()
    assert pool.learned_keys is not None
    assert pool.learned_keys.grad is not None
    torch.testing.assert_close(pool.learned_keys.grad, expected)
    unchosen = sorted(set(range(6)) - set(chosen.indices.flatten().tolist()))
    assert torch.equal(pool.learned_keys.grad[unchosen], torch.zeros(len(unchosen), DIM))


def test_mean_keys_are_those_of_the_prompts_now() -> None:
    pool = PromptPool(DIM, generator=generator(), top_k=2, prompt_length=3, key="mean", start=(-1.0, 1.0))
    assert [name for name, _ in pool.named_parameters()] == ["prompts"]
    for _ in range(2):
        for prompt, key in zip(pool.prompts.detach(), pool.keys.detach(), strict=True):
            torch.testing.assert_close(key, (prompt[0] + prompt[1] + prompt[2]) / 3)
        pool.prompts.grad = None
        chosen = pool(normal(4, DIM))
        chosen.distance.sum().backward()
        gradient = pool.prompts.grad
        assert gradient is not None
        touched = [index for index in range(10) if gradient[index].any()]
        assert touched == sorted(set(chosen.indices.flatten().tolist()))
        assert torch.equal(gradient[:, 0], gradient[:, 2])  # each token has a third of the mean's gradient
        pool.prompts.data -= 0.5 * gradient


@pytest.mark.parametrize("images", [1, 4, 8, 11])
@pytest.mark.parametrize("group", [1, 4, 16])
@pytest.mark.parametrize("training", [True, False])
def test_vote_is_the_majority_of_each_group(images: int, group: int, training: bool) -> None:
    queries, keys = normal(images, DIM), normal(7, DIM, seed=1)
    alone = pool_of(keys, top_k=3).train(training)(queries).indices.tolist()
    voted = pool_of(keys, top_k=3, vote=group).train(training)(queries)
    expected = slow_vote(alone, group, 3)
    assert subsets(voted.indices) == [tuple(sorted(row)) for row in expected]
    assert voted.prompts.shape == (images, 6, DIM)


def test_a_tied_vote_falls_to_the_lower_index() -> None:
    gamma = torch.tensor([[1.0, 1, 1, 0, 0], [0, 1, 1, 0, 1], [1, 1, 0, 1, 0], [0, 0, 1, 1, 1], [1, 1, 1, 0, 0]])
    pool = pool_of(normal(5, DIM), top_k=2, vote=4)
    # The first four vote 2, 1, 1, 2, 2 times for prompts 0 to 4; the fifth is a group of its own.
    assert subsets(pool.choose(gamma)) == [(0, 3)] * 4 + [(3, 4)]


def test_without_a_vote_batch_mates_change_nothing() -> None:
    queries = normal(12, DIM)
    pool = PromptPool(DIM, generator=generator(), start=(-1.0, 1.0)).eval()
    together = pool(queries)
    shuffled = torch.randperm(12, generator=generator())
    assert torch.equal(pool(queries[shuffled]).indices, together.indices[shuffled])
    for image in range(12):
        alone = pool(queries[image, None])
        assert torch.equal(alone.indices[0], together.indices[image])
        torch.testing.assert_close(alone.distance[0], together.distance[image])


def test_a_single_prompt_is_everyones() -> None:
    pool = PromptPool(DIM, generator=generator(), pool_size=1, top_k=1, prompt_length=20)
    chosen = pool(normal(3, DIM))
    assert chosen.indices.tolist() == [[0]] * 3
    assert all(torch.equal(prompts, pool.prompts[0]) for prompts in chosen.prompts)
    assert torch.equal(pool(normal(3, DIM, seed=5)).prompts, chosen.prompts)


@pytest.mark.parametrize("start", [(0.0, 0.01), (-1.0, 1.0)])
def test_prompts_and_keys_start_uniform_from_the_generator(start: tuple[float, float]) -> None:
    low, high = start
    pools = [PromptPool(64, generator=generator(seed), start=start) for seed in (3, 3, 4)]
    for pool in pools:
        for parameter in pool.parameters():
            assert low <= parameter.min() < low + 0.05 * (high - low)
            assert high - 0.05 * (high - low) < parameter.max() <= high
            assert parameter.mean().item() == pytest.approx((low + high) / 2, abs=0.1 * (high - low))
    for first, same, other in zip(*(pool.parameters() for pool in pools), strict=True):
        assert torch.equal(first, same)
        assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("pool_size", 0),
        ("top_k", 0),
        ("top_k", 11),
        ("prompt_length", 0),
        ("start", (0.01, 0.0)),
        ("start", (0.0, 0.0)),
        ("key", "median"),
        ("vote", -1),
    ],
)
def test_bad_values_raise(keyword: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{keyword} = "):
        PromptPool(DIM, generator=generator(), **{keyword: value})  # type: ignore[arg-type]


TOKENS, QUERIES = normal(6, 5, DIM, seed=3) / 10, normal(6, DIM, seed=4)


def test_a_scaled_start_counts_in_units_of_the_tokens() -> None:
    plain = PromptPool(DIM, generator=generator(), start=(-1.0, 1.0))
    pool = PromptPool(DIM, generator=generator(), start=(-1.0, 1.0), start_from="scaled")
    assert pool.waits
    pool.begin(TOKENS, QUERIES, generator(1))
    assert not pool.waits
    unit = math.sqrt(sum(value**2 for value in TOKENS.flatten().tolist()) / TOKENS.numel())
    torch.testing.assert_close(pool(QUERIES).prompts, plain(QUERIES).prompts * unit)
    assert torch.equal(pool.keys, plain.keys)


@pytest.mark.parametrize("start_from", ["tokens", "plain-tokens"])
@pytest.mark.parametrize("pool_size", [3, 6, 15])
def test_a_start_from_tokens_is_tokens_of_an_image_and_its_query(pool_size: int, start_from: str) -> None:
    pool = PromptPool(DIM, generator=generator(), pool_size=pool_size, top_k=2, prompt_length=4, start_from=start_from)
    pool.begin(TOKENS, QUERIES, generator(1))
    assert float(pool.unit) == (1.0 if start_from == "plain-tokens" else pytest.approx(0.1, rel=0.3))
    torch.testing.assert_close(
        pool.select(QUERIES[:1]).prompts[0],
        (pool.unit * pool.prompts[pool.select(QUERIES[:1]).indices[0]]).flatten(0, 1),
    )
    images = []
    for prompt, key in zip(pool.prompts * pool.unit, pool.keys, strict=True):
        (image,) = (n for n, query in enumerate(QUERIES) if torch.equal(key, query))
        images.append(image)
        for token in prompt:
            assert any(torch.allclose(token, other) for other in TOKENS[image])
    uses = Counter(images)
    assert max(uses.values()) - min(uses.get(n, 0) for n in range(6)) <= 1, "no image is taken twice before all were"


@pytest.mark.parametrize("size", [0.1, 1.0])
def test_a_fitting_start_is_tokens_where_they_are_small(size: float) -> None:
    tokens = TOKENS / TOKENS.square().mean().sqrt() * size
    pools = [PromptPool(DIM, generator=generator(), start_from=kind) for kind in ("fitting", "scaled", "tokens")]
    for pool in pools:
        pool.begin(tokens, QUERIES, generator(1))
    fitting, scaled, from_tokens = (pool.prompts.detach() for pool in pools)
    assert torch.equal(fitting, from_tokens if size < 0.3 else scaled)
    assert not torch.equal(scaled, from_tokens)


def test_the_generator_decides_which_tokens() -> None:
    pools = [PromptPool(DIM, generator=generator(), start_from="tokens") for _ in range(3)]
    for pool, seed in zip(pools, (1, 1, 2), strict=True):
        pool.begin(TOKENS, QUERIES, generator(seed))
    assert torch.equal(pools[0].prompts, pools[1].prompts)
    assert not torch.equal(pools[0].prompts, pools[2].prompts)


def test_mean_keys_start_from_tokens_too() -> None:
    pool = PromptPool(DIM, generator=generator(), key="mean", start_from="tokens")
    pool.begin(TOKENS, QUERIES, generator(1))
    torch.testing.assert_close(pool.keys, pool.prompts.mean(dim=1))


def test_an_unknown_start_is_an_error() -> None:
    with pytest.raises(
        ValueError, match="start_from = 'noise': must be one of range, scaled, tokens, plain-tokens, fitting"
    ):
        PromptPool(DIM, generator=generator(), start_from="noise")
