"""What a review chooses, against slow loops written from the definitions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from promptpool.classifier import review
from promptpool.classifier.review import first_of_copies, groups, margins, reach, to_label, wrong_labels


def clusters(count: int, each: int, spread: float = 0.05) -> tuple[Tensor, Tensor]:
    """Rows around `count` directions, and the cluster of each; neighbours are of different clusters."""
    dice = torch.Generator().manual_seed(0)
    centres = 3 * torch.randn(count, 12, generator=dice)
    own = torch.arange(count).repeat(each)
    return centres[own] + spread * torch.randn(len(own), 12, generator=dice), own


def apart(one: Tensor, other: Tensor) -> float:
    return 1 - float(torch.cosine_similarity(one, other, dim=0))


def test_margins_by_hand() -> None:
    shares = torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.8, 0.1], [1 / 3, 1 / 3, 1 / 3]])
    assert margins(shares).tolist() == pytest.approx([0.2, 0.7, 0])
    assert margins(torch.tensor([[1.0], [1.0]])).tolist() == [1, 1]


def test_the_reach_is_the_mean_distance_within_classes() -> None:
    rows, labels = clusters(3, 5, 1.0)
    rows, labels = torch.cat([rows, torch.ones(1, 12)]), torch.cat([labels, torch.tensor([7])])  # alone in its class
    means = []
    for label in range(3):
        own = rows[labels == label]
        pairs = [apart(own[i], own[j]) for i in range(5) for j in range(i)]
        means.append(sum(pairs) / len(pairs))
    assert reach(rows, labels) == pytest.approx(sum(means) / 3, rel=1e-4)
    assert reach(rows[-1:], labels[-1:]) is None
    assert reach(rows[:0], labels[:0]) is None


def test_the_choice_is_greedy() -> None:
    rows, _ = clusters(6, 5, 1.5)
    doubt = torch.rand(len(rows), generator=torch.Generator().manual_seed(1))
    r, chosen = 0.4, list[int]()
    for _ in range(12):
        worth = {
            i: float(doubt[i]) * min([1.0, *(apart(rows[i], rows[j]) / r for j in chosen)])
            for i in range(len(rows))
            if i not in chosen
        }
        chosen.append(max(worth, key=worth.__getitem__))
    assert to_label(doubt, rows, r, 12) == chosen


def test_near_copies_come_after_all_that_is_different() -> None:
    rows, own = clusters(4, 20, 0.01)
    doubt = torch.linspace(1, 0.8, len(rows))
    doubt[own == 0] += 1  # twenty pictures of one thing are the most doubtful
    found = to_label(doubt, rows, 0.5, 8)
    assert sorted(own[found[:4]].tolist()) == [0, 1, 2, 3]
    assert own[to_label(doubt, None, None, 8)].tolist() == [0] * 8, "by doubt alone, where nothing can be compared"


def test_no_more_are_chosen_than_there_are() -> None:
    rows, _ = clusters(2, 2)
    assert sorted(to_label(torch.ones(4), rows, 0.5, 100)) == [0, 1, 2, 3]
    assert to_label(torch.ones(0), rows[:0], 0.5, 100) == []


def test_groups_are_joined_as_average_linkage_says() -> None:
    rows, _ = clusters(5, 6, 1.2)
    r, found = 0.35, [[i] for i in range(len(rows))]
    while True:
        distances = {
            (a, b): sum(apart(rows[i], rows[j]) for i in found[a] for j in found[b]) / (len(found[a]) * len(found[b]))
            for a in range(len(found))
            for b in range(a)
        }
        best = min(distances, key=distances.__getitem__)
        if distances[best] > r:
            break
        found[best[1]] += found.pop(best[0])
    assert 3 < len(found) < len(rows)
    assert groups(rows, r) == sorted((sorted(group) for group in found), key=lambda each: (-len(each), each[0]))


def test_groups_are_the_clusters_large_ones_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, own = clusters(3, 8)
    rows, own = rows[own.argsort()][4:], own.sort().values[4:]  # the first has four, the others eight
    found = groups(rows, 0.3)
    assert [len(group) for group in found] == [8, 8, 4]
    assert all(len(set(own[group].tolist())) == 1 for group in found)
    monkeypatch.setattr(review, "MOST_JOINED", 7)  # the others join the group that is nearest
    assert groups(rows, 0.3) == found
    lonely = torch.cat([rows, -rows[:1]])
    assert groups(lonely, 0.3)[-1] == [20]
    assert groups(rows[:0], 0.3) == []


def test_copies_count_once() -> None:
    assert first_of_copies(torch.tensor([5, 7, 5, 7, 9])).tolist() == [True, True, False, False, True]


def test_wrong_labels_as_confident_learning_says() -> None:
    dice = torch.Generator().manual_seed(3)
    labels = torch.arange(4).repeat(10)
    scores = torch.randn(40, 5, generator=dice)  # of the fifth class there is no picture
    scores[torch.arange(40), labels] += 2
    shares = scores.softmax(dim=1).double()
    own = [float(shares[i, labels[i]]) for i in range(40)]
    usual = [sum(own[i] for i in range(40) if labels[i] == c) / 10 for c in range(4)] + [sum(own) / 40]
    expected = []
    for i in range(40):
        others = [c for c in range(5) if c != labels[i] and shares[i, c] >= usual[c] and shares[i, c] > own[i]]
        if others:
            best = max(others, key=lambda c: float(shares[i, c]))
            expected.append((float(shares[i, best]) - own[i], i, best))
    assert expected
    assert wrong_labels(shares, labels) == [(i, c) for _, i, c in sorted(expected, reverse=True)]


def test_one_class_or_no_picture_has_no_wrong_label() -> None:
    assert wrong_labels(torch.ones(3, 1), torch.zeros(3, dtype=torch.long)) == []
    assert wrong_labels(torch.ones(0, 3), torch.zeros(0, dtype=torch.long)) == []
