import copy
import math

import pytest
import torch
from torch import Tensor, nn

from promptpool.optim import Descent

RATE = 0.1


def trained() -> list[nn.Parameter]:
    return [nn.Parameter(torch.tensor([1.0, -2.0, 3.0])), nn.Parameter(torch.tensor([[0.5], [4.0]]))]


def loss_of(parameters: list[nn.Parameter]) -> Tensor:
    """A loss whose gradient is 2 * p for the first parameter and 3 * p^2 for the second."""
    first, second = parameters
    return first.square().sum() + second.pow(3).sum()


def slow_gradients(values: list[list[float]]) -> list[list[float]]:
    return [[2 * p for p in values[0]], [3 * p * p for p in values[1]]]


def slow_norm(gradients: list[list[float]]) -> float:
    return math.sqrt(sum(g * g for gradient in gradients for g in gradient))


def slow_clip(gradients: list[list[float]], limit: float, norm: float) -> list[list[float]]:
    return [[g * min(1.0, limit / norm) for g in gradient] for gradient in gradients]


def slow_adam(steps: int, *, limit: float | None = None, weight: float = 1.0, decay: float = 0.0) -> list[list[float]]:
    """Kingma and Ba (2015), Algorithm 1, a number at a time; decay is added to the gradient after the clip."""
    values = [p.flatten().tolist() for p in trained()]
    first, second = ([[0.0] * len(v) for v in values] for _ in range(2))
    for t in range(1, steps + 1):
        gradients = [[weight * g for g in gradient] for gradient in slow_gradients(values)]
        if limit is not None:
            gradients = slow_clip(gradients, limit, slow_norm(gradients))
        for i, gradient in enumerate(gradients):
            for j, clipped in enumerate(gradient):
                g = clipped + decay * values[i][j]
                first[i][j] = 0.9 * first[i][j] + 0.1 * g
                second[i][j] = 0.999 * second[i][j] + 0.001 * g * g
                mean, variance = first[i][j] / (1 - 0.9**t), second[i][j] / (1 - 0.999**t)
                values[i][j] -= RATE * mean / (math.sqrt(variance) + 1e-8)
    return values


def slow_sgd(steps: int, *, momentum: float, decay: float, limit: float | None = None) -> list[list[float]]:
    values = [p.flatten().tolist() for p in trained()]
    speed = [[0.0] * len(v) for v in values]
    for _ in range(steps):
        gradients = slow_gradients(values)
        if limit is not None:
            gradients = slow_clip(gradients, limit, slow_norm(gradients))
        for i, gradient in enumerate(gradients):
            for j, g in enumerate(gradient):
                speed[i][j] = momentum * speed[i][j] + g + decay * values[i][j]
                values[i][j] -= RATE * speed[i][j]
    return values


def assert_values(parameters: list[nn.Parameter], expected: list[list[float]]) -> None:
    for parameter, values in zip(parameters, expected, strict=True):
        assert parameter.flatten().tolist() == pytest.approx(values, rel=1e-5)


@pytest.mark.parametrize("limit", [None, 1.0, 1000.0])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_two_steps_of_adam(limit: float | None, decay: float) -> None:
    parameters = trained()
    descend = Descent(parameters, learning_rate=RATE, clip=limit, weight_decay=decay)
    for step in (1, 2):
        descend(loss_of(parameters))
        assert_values(parameters, slow_adam(step, limit=limit, decay=decay))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("limit", [None, 1.0, 1000.0])
def test_two_steps_of_sgd(momentum: float, decay: float, limit: float | None) -> None:
    parameters = trained()
    descend = Descent(
        parameters, optimiser="sgd", learning_rate=RATE, momentum=momentum, weight_decay=decay, clip=limit
    )
    for step in (1, 2):
        descend(loss_of(parameters))
        assert_values(parameters, slow_sgd(step, momentum=momentum, decay=decay, limit=limit))


def test_the_papers_values_are_the_defaults() -> None:
    optimiser = Descent(trained()).optimiser
    assert isinstance(optimiser, torch.optim.Adam)
    values = optimiser.param_groups[0]
    assert (values["lr"], values["betas"], values["eps"], values["weight_decay"]) == (0.03, (0.9, 0.999), 1e-8, 0.0)
    assert Descent(trained()).clip == 1.0


@pytest.mark.parametrize("limit", [0.5, 5.0, 1000.0])
def test_gradients_are_clipped_to_one_norm_over_all(limit: float) -> None:
    parameters = trained()
    gradients = slow_gradients([p.flatten().tolist() for p in parameters])
    Descent(parameters, clip=limit)(loss_of(parameters))
    for parameter, expected in zip(parameters, slow_clip(gradients, limit, slow_norm(gradients)), strict=True):
        assert parameter.grad is not None
        assert parameter.grad.flatten().tolist() == pytest.approx(expected, rel=1e-5)


def test_measured_parameters_count_in_the_norm_and_never_move() -> None:
    parameters, frozen = trained(), nn.Parameter(torch.tensor([3.0, 4.0]), requires_grad=False)
    gradients = slow_gradients([p.flatten().tolist() for p in parameters])
    norm = slow_norm([*gradients, [1.5, 2.0]])  # of frozen.square().sum() / 4
    descend = Descent(parameters, optimiser="sgd", learning_rate=RATE, momentum=0.9, clip=1.0, measured=[frozen])
    for step in (1, 2):
        with descend.measuring():
            descend(loss_of(parameters) + frozen.square().sum() / 4)
        assert not frozen.requires_grad
        assert frozen.tolist() == [3.0, 4.0]
        assert frozen.grad is None
        if step == 1:
            for parameter, expected in zip(parameters, slow_clip(gradients, 1.0, norm), strict=True):
                assert parameter.grad is not None
                assert parameter.grad.flatten().tolist() == pytest.approx(expected, rel=1e-5)
    assert descend.optimiser is not None
    assert all(p is not frozen for group in descend.optimiser.param_groups for p in group["params"])
    assert frozen not in descend.optimiser.state


def test_measured_parameters_change_nothing_without_a_clip() -> None:
    parameters, frozen = trained(), nn.Parameter(torch.tensor([3.0, 4.0]), requires_grad=False)
    Descent(parameters, learning_rate=RATE, clip=None, measured=[frozen])(loss_of(parameters) + frozen.sum())
    assert_values(parameters, slow_adam(1))


@pytest.mark.parametrize("limit", [None, 1.0, 60.0])
def test_weight_scales_the_gradient_before_the_clip_and_not_the_loss(limit: float | None) -> None:
    parameters = trained()
    descend = Descent(parameters, learning_rate=RATE, clip=limit)
    descend.weight = 1.5
    gradients = [[1.5 * g for g in row] for row in slow_gradients([p.flatten().tolist() for p in parameters])]
    before = loss_of(parameters)
    loss = descend(before)
    assert loss == before
    assert not loss.requires_grad
    assert_values(parameters, slow_adam(1, limit=limit, weight=1.5))
    clipped = gradients if limit is None else slow_clip(gradients, limit, slow_norm(gradients))
    for parameter, expected in zip(parameters, clipped, strict=True):
        assert parameter.grad is not None
        assert parameter.grad.flatten().tolist() == pytest.approx(expected, rel=1e-5)


def test_gradients_do_not_add_up_over_steps() -> None:
    parameters = trained()
    descend = Descent(parameters, optimiser="sgd", learning_rate=RATE, clip=None)
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 100.0)
    descend(loss_of(parameters))
    assert_values(parameters, slow_sgd(1, momentum=0.0, decay=0.0))


def test_a_parameter_outside_the_loss_stays_where_it_is() -> None:
    parameters, other = trained(), nn.Parameter(torch.tensor([1.0]))
    Descent([*parameters, other], learning_rate=RATE, clip=None)(loss_of(parameters))
    assert other.tolist() == [1.0]
    assert_values(parameters, slow_adam(1))


def test_without_parameters_a_call_raises() -> None:
    descend = Descent([])
    assert descend.state_dict() == {}
    descend.load_state_dict({})
    with pytest.raises(ValueError, match="without trained parameters"):
        descend(torch.tensor(1.0))


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_a_restored_descent_goes_on_as_the_first_would(optimiser: str) -> None:
    first, second = trained(), trained()
    one = Descent(first, optimiser=optimiser, learning_rate=0.01, momentum=0.9)
    for _ in range(3):
        one(loss_of(first))
    two = Descent(second, optimiser=optimiser, learning_rate=0.01, momentum=0.9)
    two.load_state_dict(copy.deepcopy(one.state_dict()))
    for source, target in zip(first, second, strict=True):
        target.data.copy_(source.data)
    for _ in range(2):
        one(loss_of(first))
        two(loss_of(second))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_steps_can_go_on_at_another_learning_rate() -> None:
    parameters = trained()
    descend = Descent(parameters, optimiser="sgd", learning_rate=0.01, momentum=0.9, clip=None)
    value, velocity = parameters[0].tolist(), [0.0] * 3
    for rate in (0.01, 0.03):
        descend.set_learning_rate(rate)
        descend(loss_of(parameters))
        velocity = [0.9 * v + 2 * p for v, p in zip(velocity, value, strict=True)]
        value = [p - rate * v for p, v in zip(value, velocity, strict=True)]
    assert parameters[0].tolist() == pytest.approx(value)
    Descent([]).set_learning_rate(0.1)


def test_an_unknown_optimiser_raises() -> None:
    with pytest.raises(ValueError, match=r"^optimiser = 'lion'"):
        Descent(trained(), optimiser="lion")
