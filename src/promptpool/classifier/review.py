"""Which pictures a person should look at: pure functions of confidences and features.

To label first. A picture says much if the classifier hesitates and nothing like it was asked for already:

    u_i = 1 - (p_1 - p_2)                     p_1, p_2 its two best confidences (margin sampling, Scheffer et al., 2001)
    choose the i with the largest u_i min(1, d_i / r), again and again

d_i is the distance of i to the nearest one that was chosen. Core-sets (Sener and Savarese, 2018) take the largest d_i
alone, which lists outliers; here it only takes weight from look-alikes, as gradients of one direction do in BADGE (Ash
et al., 2020). r is the mean distance of two learned pictures of one class, so that beyond it all are different enough.

What looks new. Pictures that the classifier answers with "unknown" are joined, the two nearest groups first, while the
mean distance between two groups is at most r (agglomerative clustering, average linkage).

Labels that look wrong. As in confident learning (Northcutt et al., 2021): a picture is of another class j if its p_j is
at least as large as that of pictures labelled j is on average, and larger than that of its own label. The larger the
difference, the earlier it is listed.

Distances are 1 - cosine of the features that the closed form reads.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

CANDIDATES = 20  # times as many as are wanted are compared with each other: the least certain ones
MOST_JOINED = 2000  # pictures that are compared each with each; others join the group that is nearest


def margins(shares: Tensor) -> Tensor:
    """The best confidence less the second best: [n]; of one class alone, its confidence."""
    best = F.pad(shares, (0, 1)).topk(2, dim=1).values
    return best[:, 0] - best[:, 1]


def reach(rows: Tensor, labels: Tensor) -> float | None:
    """r, the mean distance of two pictures of one class over the classes; None where no class has two.

    The mean over pairs of a class follows from the sum of its rows of length 1: (n - |sum|^2 / n) / (n - 1).
    """
    found = []
    for label in labels.unique().tolist():
        own = _directions(rows[labels == label])
        if len(own) > 1:
            found.append((len(own) - float(own.sum(dim=0).square().sum()) / len(own)) / (len(own) - 1))
    return max(sum(found) / len(found), 1e-6) if found else None


def first_of_copies(ids: Tensor) -> Tensor:
    """True for a picture unless one before it has the same content: [n]."""
    first: dict[int, int] = {}
    for place, identity in enumerate(ids.tolist()):
        first.setdefault(identity, place)
    found = torch.zeros(len(ids), dtype=torch.bool)
    found[list(first.values())] = True
    return found


def to_label(doubt: Tensor, rows: Tensor | None, r: float | None, most: int) -> list[int]:
    """The places of pictures to label first, the first first; by doubt alone where they cannot be compared."""
    order = doubt.argsort(descending=True, stable=True)
    if rows is None or r is None:
        return order[:most].tolist()
    order = order[: CANDIDATES * most]
    own, directions = doubt[order].double(), _directions(rows[order])
    apart = torch.full_like(own, torch.inf)
    chosen: list[int] = []
    for _ in range(min(most, len(order))):
        worth = own * (apart / r).clamp(max=1)
        worth[chosen] = -1
        chosen.append(int(worth.argmax()))
        apart = torch.minimum(apart, (1 - directions @ directions[chosen[-1]]).clamp(min=0).double())
    return order[chosen].tolist()


def groups(rows: Tensor, r: float) -> list[list[int]]:
    """Look-alikes, as places among the rows: large groups first, and single pictures last."""
    directions = _directions(rows)
    step = -(-len(rows) // MOST_JOINED)
    compared = list(range(0, len(rows), max(step, 1)))
    found = [
        [compared[place] for place in group] for group in _joined(1 - directions[compared] @ directions[compared].T, r)
    ]
    rest = sorted(set(range(len(rows))) - set(compared))
    if rest:
        means = torch.stack([directions[group].mean(dim=0) for group in found])
        apart, nearest = (1 - directions[rest] @ means.T).min(dim=1)
        for place, distance, group in zip(rest, apart.tolist(), nearest.tolist(), strict=True):
            found[group].append(place) if distance <= r else found.append([place])
    return sorted((sorted(group) for group in found), key=lambda group: (-len(group), group[0]))


def _joined(apart: Tensor, r: float) -> list[list[int]]:
    """Average linkage of distances [n, n], up to r."""
    apart = apart.clone().fill_diagonal_(torch.inf)
    members: dict[int, list[int]] = {place: [place] for place in range(len(apart))}
    while len(members) > 1:
        one, other = divmod(int(apart.argmin()), len(apart))
        if apart[one, other] > r:
            break
        sizes = len(members[one]), len(members[other])
        mean = (sizes[0] * apart[one] + sizes[1] * apart[other]) / sum(sizes)
        apart[one], apart[:, one] = mean, mean
        apart[one, one] = torch.inf
        apart[other], apart[:, other] = torch.inf, torch.inf
        members[one] += members.pop(other)
    return list(members.values())


def wrong_labels(shares: Tensor, labels: Tensor) -> list[tuple[int, int]]:
    """Places of pictures whose labels look wrong, the likeliest first, and the class that each looks like."""
    if shares.shape[1] < 2 or len(labels) == 0:
        return []
    own = shares.gather(1, labels[:, None])[:, 0]
    usual = torch.full((shares.shape[1],), float(own.mean()), dtype=shares.dtype)
    for label in labels.unique().tolist():
        usual[label] = own[labels == label].mean()
    others = shares.scatter(1, labels[:, None], -1.0)
    best, other = others.masked_fill(others < usual, -1.0).max(dim=1)
    gain = best - own
    order = gain.argsort(descending=True, stable=True)
    return [(place, int(other[place])) for place in order.tolist() if gain[place] > 0]


def _directions(rows: Tensor) -> Tensor:
    """Rows of length 1, in single precision: [n, d]."""
    return F.normalize(rows.float(), dim=1)
