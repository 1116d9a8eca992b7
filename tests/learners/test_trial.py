"""The trial that decides whether prompts are worth having: who is judged by what, and when nothing is tried."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from promptpool.data.stream import Examples, examples
from promptpool.learners import adaptation, trial
from promptpool.learners.adaptation import learn_prompts, prompted_learner
from promptpool.learners.closed_form import ClosedForm
from promptpool.learners.trial import Trial, compared, halves, right, try_prompts
from promptpool.progress import heard_by, report
from promptpool.prompts import PromptPool
from toys import VIEW, toy_backbone, toy_examples

CLASSES = 7
SOME = toy_examples(5, 1, CLASSES)


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptation, "EPOCHS", 1)
    monkeypatch.setattr(adaptation, "LEAST_STEPS", 10)


def closed_form(pool: PromptPool | None) -> ClosedForm:
    adapt = "none" if pool is None else "prompts"
    learner = ClosedForm(toy_backbone(dim=16), VIEW, projections=20, keep="features", adapt=adapt).eval()
    if pool is not None:
        learner.read_with(pool)
    return learner


def untrained(some: Examples, what: str) -> PromptPool:
    report(what, len(some))
    learner = prompted_learner(toy_backbone(dim=16), VIEW, 0)
    learner.pool.unit.fill_(float(len(some)))
    return learner.pool


def noisy(per_class: int, seed: int = 1) -> Examples:
    """Patterns under so much noise that some are taken for others."""
    some = toy_examples(per_class, seed, CLASSES)
    x = some.source[some.rows].float()
    loud = torch.Generator().manual_seed(seed)
    x = (0.3 * x + 90 + 45 * torch.randn(x.shape, generator=loud)).clamp(0, 255)
    return examples(x.to(torch.uint8), some.y)


def test_the_gain_and_its_standard_error() -> None:
    change = torch.tensor([1.0, 0.0, 0.0, -1.0, 1.0, 0.0], dtype=torch.float64)
    variance = (2 * (5 / 6) ** 2 + 3 * (1 / 6) ** 2 + (7 / 6) ** 2) / 5
    found = compared(change)
    assert found == pytest.approx((1 / 6, math.sqrt(variance / 6)))
    assert not found.won
    assert compared(torch.tensor([1.0, 1.0, 0.0, 0.0])).won
    assert not Trial().won


def test_halves_hold_every_class_once() -> None:
    classes = torch.tensor([3, 5, 8, 9, 11])
    first, second = halves(classes, 0)
    assert (len(first), len(second)) == (2, 3)
    assert sorted([*first.tolist(), *second.tolist()]) == classes.tolist()
    assert torch.equal(first, halves(classes, 0)[0])
    assert len({tuple(sorted(halves(classes, seed)[0].tolist())) for seed in range(9)}) > 1


def test_no_image_is_judged_by_prompts_that_were_learned_on_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed form that is right on just the classes of its prompts gains nothing; the reverse gains everything."""
    taught: list[tuple[int, ...]] = []

    def learned(some: Examples, what: str) -> PromptPool:
        taught.append(some.classes)
        return untrained(some, what)

    def tried(own_are_right: bool) -> Trial | None:
        taught.clear()

        def answers(learner: ClosedForm, some: Examples) -> Tensor:
            if learner.prompted is None:
                return torch.zeros(len(some), dtype=torch.bool)
            return torch.isin(some.y, torch.tensor(taught[-1])) == own_are_right

        monkeypatch.setattr(trial, "right", answers)
        return try_prompts(SOME, learned=learned, reading_with=closed_form, seed=0)

    assert tried(own_are_right=True) == (0.0, 0.0)
    assert tried(own_are_right=False) == (1.0, 0.0)
    assert sorted(label for classes in taught for label in classes) == list(range(CLASSES))


def test_steps_of_a_trial_are_told() -> None:
    heard: list[tuple[str, int, int | None]] = []
    with heard_by(lambda *told: heard.append(told)):
        try_prompts(noisy(6), learned=learned_on, reading_with=closed_form, seed=4)
    steps = adaptation.LEAST_STEPS
    for name in ("trying prompts, 1 of 2", "trying prompts, 2 of 2"):
        told = [(done, total) for what, done, total in heard if what == name]
        assert len(told) >= steps
        assert told == [(done, len(told)) for done in range(1, len(told) + 1)]
    assert len({what for what, _, _ in heard}) == 2


def test_right_is_leave_one_out() -> None:
    some = noisy(6)
    found = right(closed_form(None), some)
    assert 0.2 < found.double().mean() < 0.95
    for left in range(0, len(some), 5):
        others = some.select(torch.arange(len(some)) != left)
        learner = closed_form(None)
        learner.add_rows(learner.read(others.batch(slice(None))), others.y, others.ids)
        one = learner.logits(some.batch(slice(left, left + 1)))
        assert bool(one.argmax() == some.y[left]) == bool(found[left])


def test_the_trial_follows_its_equation() -> None:
    some = noisy(6)
    found = try_prompts(some, learned=learned_on, reading_with=closed_form, seed=4)
    plain, change = closed_form(None), []
    scores = scored(plain, some)
    for half in halves(torch.arange(CLASSES), 4):
        own = torch.isin(some.y, half)
        prompted = scored(closed_form(learned_on(some.select(own))), some)
        for image in (~own).nonzero().flatten().tolist():
            label = int(some.y[image])
            change.append(int(prompted[image].argmax() == label) - int(scores[image].argmax() == label))
    mean = sum(change) / len(change)
    error = math.sqrt(sum((each - mean) ** 2 for each in change) / (len(change) - 1) / len(change))
    assert found == pytest.approx((mean, error))
    assert error > 0


def learned_on(some: Examples, what: str = "") -> PromptPool:
    learner = prompted_learner(toy_backbone(dim=16), VIEW, 0)
    learn_prompts(learner, some, what)
    return learner.pool


def scored(learner: ClosedForm, some: Examples) -> Tensor:
    rows = learner.read(some.batch(slice(None)))
    learner.add_rows(rows, some.y, some.ids)
    return learner.leave_one_out(rows, some.y)


@pytest.mark.parametrize(
    ("few", "expected"),
    [
        (SOME.select(SOME.y == 0), None),  # one class
        (SOME.select(SOME.y < 3), None),  # not two classes in each half
        (toy_examples(1, 1, CLASSES), None),  # no class is known without the one image of it
        (SOME, Trial()),  # all are right as they are
    ],
)
def test_where_nothing_can_be_found_out_nothing_is_learned(few: Examples, expected: Trial | None) -> None:
    def learned(some: Examples, what: str) -> PromptPool:
        raise AssertionError(f"{what}: prompts were learned on {len(some)} images")

    assert try_prompts(few, learned=learned, reading_with=closed_form, seed=0) == expected


def test_classes_of_one_image_are_left_out() -> None:
    """They cannot be judged, and the others can."""
    some = noisy(6)
    single = some.select((some.y > 0) | (torch.arange(len(some)) == 0))
    rest = some.select(some.y > 0)
    found = try_prompts(single, learned=untrained, reading_with=closed_form, seed=0)
    assert found == try_prompts(rest, learned=untrained, reading_with=closed_form, seed=0)
