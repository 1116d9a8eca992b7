"""Online EWC: the running average, the penalty, and when the anchor is renewed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from promptpool.data.stream import Batch
from promptpool.learners.base import Learner
from promptpool.learners.ewc_online import OnlineEWC
from promptpool.learners.fisher import trained
from promptpool.learners.state import state
from promptpool.optim import Descent
from promptpool.training.checkpoint import learn
from promptpool.training.loop import Plan, Session
from slow_fisher import Flat, Tiny, flat, now, shaken, slow_fisher
from toys import SHORT, VIEW, toy_backbone, toy_examples, toy_schedule, toy_stream

EXAMPLES = toy_examples(6, 1)
ORDER = torch.randperm(36, generator=torch.Generator().manual_seed(0))
BATCHES = list(EXAMPLES.select(ORDER).batches(7))
TASK = toy_stream().experiences[0]


def tiny(**values: Any) -> OnlineEWC:
    learner = OnlineEWC(Tiny(), VIEW, **values)
    learner.add_classes(range(6))
    shaken(learner, seed=4)
    return learner.train()


def descent(learner: Learner) -> Descent:
    return Descent(learner.parameters(), optimiser="sgd", learning_rate=0.1, clip=None)


def mixed(rate: float, new: Flat, old: Flat) -> Flat:
    """rate * F_batch + (1 - rate) * F."""
    return {
        name: [rate * a + (1 - rate) * b for a, b in zip(values, old[name], strict=True)]
        for name, values in new.items()
    }


def close(found: Flat, expected: Flat) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name] == pytest.approx(values, rel=1e-8, abs=1e-13)


@pytest.mark.parametrize("rate", [0.2, 1.0])
@pytest.mark.parametrize("bounded", [True, False])
def test_every_step_is_that_of_the_equations(rate: float, bounded: bool) -> None:
    """F, the loss and its gradient at each of six steps, with a renewal after the third."""
    learner = tiny(rate=rate, strength=20.0, refresh=3, micro_batch=2)
    if bounded:
        learner.before(TASK)
    descend = descent(learner)
    running: Flat = {}
    star: tuple[Flat, Flat] | None = None
    for count, batch in enumerate(BATCHES, start=1):
        theta, new = now(learner), slow_fisher(learner, batch, range(6))
        running = mixed(rate, new, running) if running else new
        fit = F.cross_entropy(learner.logits(batch), batch.y)
        slope = dict(zip(trained(learner), torch.autograd.grad(fit, list(trained(learner).values())), strict=True))
        loss, moved = fit.item(), {name: value.flatten().tolist() for name, value in slope.items()}
        if star is not None:
            for name, centres in star[0].items():
                for i, (centre, weight) in enumerate(zip(centres, star[1][name], strict=True)):
                    loss += 20.0 / 2 * weight * (theta[name][i] - centre) ** 2
                    moved[name][i] += 20.0 * weight * (theta[name][i] - centre)
        found = learner.step(batch, descend)
        assert float(found) == pytest.approx(loss, rel=1e-9)  # type: ignore[arg-type]
        close(flat(learner.running), running)
        close(
            now(learner),
            {n: [a - 0.1 * b for a, b in zip(theta[n], moved[n], strict=True)] for n in theta},
        )
        if count == 3:
            if bounded:
                learner.after(TASK)
            star = now(learner), running


def test_boundaries_renew_the_anchor_and_nothing_else_does() -> None:
    learner, anchored = OnlineEWC(toy_backbone(), VIEW, refresh=2), []
    for step in Session(learner, toy_stream(), SHORT):
        anchored.append(bool(learner.anchor))
        if step.record is not None:
            for name, parameter in trained(learner).items():
                assert torch.equal(learner.anchor.centres[name], parameter)
                assert torch.equal(learner.anchor.weights[name], learner.running[name])
    first = anchored.index(True)
    assert first == len(anchored) // 3 - 1, "at the end of the first of three tasks"


@pytest.mark.parametrize("refresh", [1, 4, 1000])
def test_without_boundaries_the_steps_do(refresh: int) -> None:
    learner = OnlineEWC(toy_backbone(), VIEW, refresh=refresh)
    for step in Session(learner, toy_schedule(), Plan(epochs=1, batch_size=10, learning_rate=0.01)):
        renewed = bool(learner.anchor) and torch.equal(learner.anchor.centres["head.weight"], learner.head.weight)
        assert renewed == (step.step % refresh == 0)
    assert learner.steps == step.step == 12


def test_the_first_average_is_that_of_the_first_batch() -> None:
    learner = tiny(rate=0.01)
    expected = slow_fisher(learner, BATCHES[0], range(6))
    learner.observe(BATCHES[0])
    close(flat(learner.running), expected)


def test_fewer_examples_of_each_batch() -> None:
    learner, first = tiny(fisher_examples=3), BATCHES[0]
    learner.observe(first)
    close(flat(learner.running), slow_fisher(learner, Batch(first.x[:3], first.y[:3], first.ids[:3]), range(6)))
    more = tiny(fisher_examples=100)
    more.observe(first)
    close(flat(more.running), slow_fisher(more, first, range(6)))


def test_labels_may_be_drawn_from_the_model() -> None:
    own, drawn, again = tiny(), tiny(fisher="sampled"), tiny(fisher="sampled")
    for learner in (own, drawn, again):
        learner.observe(BATCHES[0])
    assert torch.equal(drawn.running["head.bias"], again.running["head.bias"])
    assert not torch.equal(own.running["head.bias"], drawn.running["head.bias"])


def test_new_rows_begin_without_fisher_information() -> None:
    learner = OnlineEWC(Tiny(), VIEW, loss_classes="seen", rate=0.25)
    learner.add_classes([0, 1])
    shaken(learner, seed=1)
    two, four = (EXAMPLES.select(EXAMPLES.y < count).batch(slice(None)) for count in (2, 4))
    old = slow_fisher(learner, two, range(2))
    learner.observe(two)
    learner.after(TASK)
    learner.add_classes([2, 3])
    shaken(learner, seed=2)
    new = slow_fisher(learner, four, range(4))
    learner.observe(four)
    for name, values in old.items():
        old[name] = values + [0.0] * (len(new[name]) - len(values))
    close(flat(learner.running), mixed(0.25, new, old))
    (pull,) = torch.autograd.grad(learner.anchor(trained(learner)), learner.head.weight)
    assert pull[:2].abs().min() > 0
    assert pull[2:].abs().max() == 0
    learner.after(TASK)
    assert learner.anchor.weights["head.weight"].shape == learner.head.weight.shape


def test_without_strength_it_is_fine_tuning() -> None:
    learner, plain = OnlineEWC(toy_backbone(), VIEW, strength=0.0), Learner(toy_backbone(), VIEW)
    for each in (learner, plain):
        list(learn(each, toy_stream(), SHORT))
    for name, value in state(plain)["weights"].items():
        torch.testing.assert_close(state(learner)["weights"][name], value, rtol=1e-6, atol=1e-7)


def test_frozen_weights_that_are_measured_are_not_held() -> None:
    learner = OnlineEWC(toy_backbone(), VIEW, train_backbone=False)
    list(learn(learner, toy_stream(), Plan(epochs=1, batch_size=10, clip_frozen=True)))
    assert set(learner.running) == set(learner.anchor.weights) == {"head.weight", "head.bias"}


@pytest.mark.parametrize(
    "values",
    [{"rate": 0.0}, {"rate": 1.5}, {"refresh": 0}, {"strength": -1.0}, {"fisher": "mean"}, {"micro_batch": 0}],
)
def test_impossible_values_raise(values: dict[str, Any]) -> None:
    name, value = next(iter(values.items()))
    with pytest.raises(ValueError, match=f"^{name} = {value!r}: must"):
        OnlineEWC(toy_backbone(), VIEW, **values)
