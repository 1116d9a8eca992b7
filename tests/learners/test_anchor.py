"""Any number of quadratic penalties in one weight, one centre and one number."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from promptpool.learners.anchor import Anchor

SHAPES = {"first": (4, 3), "second": (5,)}


def drawn(seed: int, rows: int | None = None, positive: bool = False) -> dict[str, Tensor]:
    """A tensor for each name; some values are exactly zero where they are weights."""
    noise = torch.Generator().manual_seed(seed)
    found = {}
    for name, shape in SHAPES.items():
        size = shape if rows is None else (rows, *shape[1:])
        value = torch.randn(size, generator=noise, dtype=torch.float64)
        found[name] = value.clamp(min=0) * 3 if positive else value
    return found


def slow(
    theta: dict[str, Tensor], anchors: list[tuple[dict[str, Tensor], dict[str, Tensor]]]
) -> tuple[float, dict[str, list[float]]]:
    """The penalty and its gradient, one anchor after the other; an anchor knows nothing of rows that came later."""
    value, gradient = 0.0, {name: [0.0] * tensor.numel() for name, tensor in theta.items()}
    for centres, fishers in anchors:
        for name, tensor in theta.items():
            pairs = zip(centres[name].flatten().tolist(), fishers[name].flatten().tolist(), strict=True)
            for i, (centre, fisher) in enumerate(pairs):
                distance = tensor.flatten()[i].item() - centre
                value += fisher * distance**2 / 2
                gradient[name][i] += fisher * distance
    return value, gradient


@pytest.mark.parametrize("count", [1, 2, 5])
def test_many_anchors_are_their_sum(count: int) -> None:
    anchor, anchors = Anchor(), [(drawn(seed), drawn(seed + 50, positive=True)) for seed in range(count)]
    assert not anchor
    for centres, fishers in anchors:
        anchor.add(centres, fishers)
    assert anchor
    theta = {name: value.requires_grad_() for name, value in drawn(99).items()}
    penalty = anchor(theta)
    value, gradient = slow(theta, anchors)
    assert penalty.item() == pytest.approx(value, rel=1e-12)
    for name, found in zip(theta, torch.autograd.grad(penalty, list(theta.values())), strict=True):
        assert found.flatten().tolist() == pytest.approx(gradient[name], rel=1e-10, abs=1e-12)


def test_rows_that_grow_are_free_until_they_have_an_anchor() -> None:
    anchor = Anchor()
    anchors = [(drawn(rows, rows), drawn(rows + 50, rows, positive=True)) for rows in (2, 3, 6)]
    for centres, fishers in anchors:
        anchor.add(centres, fishers)
    theta = {name: value.requires_grad_() for name, value in drawn(9, rows=8).items()}
    penalty = anchor(theta)
    value, gradient = slow(theta, anchors)
    assert penalty.item() == pytest.approx(value, rel=1e-12)
    for name, found in zip(theta, torch.autograd.grad(penalty, list(theta.values())), strict=True):
        assert found.flatten().tolist() == pytest.approx(gradient[name], rel=1e-10, abs=1e-12)
        assert found[6:].abs().max() == 0


def test_anchors_without_weight_pull_nowhere() -> None:
    anchor, nothing = Anchor(), {name: torch.zeros(shape, dtype=torch.float64) for name, shape in SHAPES.items()}
    anchor.add(drawn(1), nothing)
    anchor.add(drawn(2), nothing)
    assert float(anchor(drawn(3))) == 0
    weights = drawn(54, positive=True)
    anchor.add(drawn(4), weights)
    assert float(anchor(drawn(4))) == 0
    alone = Anchor()
    alone.add(drawn(4), weights)
    assert float(anchor(drawn(3))) == float(alone(drawn(3)))


def test_near_anchors_are_told_apart_in_single_precision() -> None:
    """A sum of theta^2, theta and 1 would lose this difference to rounding."""
    anchor = Anchor()
    for centre in (10.0, 10.001):
        anchor.add({"a": torch.tensor([centre])}, {"a": torch.tensor([2.0])})
    found = float(anchor({"a": torch.tensor([10.0005])}))
    assert found == pytest.approx(2 * 0.0005**2, rel=0.01)


def test_a_moved_anchor_forgets_the_others() -> None:
    anchor, alone = Anchor(), Anchor()
    anchor.add(drawn(1), drawn(51, positive=True))
    anchor.add(drawn(2), drawn(52, positive=True))
    anchor.move(drawn(3), drawn(53, positive=True))
    alone.add(drawn(3), drawn(53, positive=True))
    assert float(anchor(drawn(9))) == pytest.approx(float(alone(drawn(9))), rel=1e-12)


def test_parameters_that_move_leave_the_anchor_where_it_is() -> None:
    for keep in (Anchor.add, Anchor.move):
        anchor, theta = Anchor(), drawn(1)
        keep(anchor, theta, drawn(51, positive=True))
        expected = float(anchor(drawn(9)))
        for value in theta.values():
            value += 1
        assert float(anchor(drawn(9))) == expected


def test_a_state_brings_it_back() -> None:
    anchor, again = Anchor(), Anchor()
    again.load_state_dict(anchor.state_dict())
    assert not again
    for seed in (1, 2):
        anchor.add(drawn(seed), drawn(seed + 50, positive=True))
    state = anchor.state_dict()
    again.load_state_dict(state)
    assert float(again(drawn(9))) == float(anchor(drawn(9)))
    with pytest.raises(ValueError, match="do not match"):
        again.load_state_dict({**state, "centres": {}})
