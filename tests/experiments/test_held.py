"""Bytes that are held at a time: counted for few images, and what many would hold."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from promptpool.experiments.held import Held, most_held
from promptpool.training.loop import Session
from toys import SHORT, toy_learner, toy_stream

ROW = 400  # bytes of a hundred numbers


def test_what_is_let_go_is_held_no_more() -> None:
    given = torch.ones(100)
    with Held() as held:
        first = given + 1
        first.mul_(2)
        first.view(10, 10).sum()  # the same memory, and one number for a moment
        second = given.add_(1)  # what was there before is not counted
        del first
        second = second * 2
    assert [moment.held for moment in held.moments] == [ROW, ROW, ROW, ROW + 4, ROW, ROW]
    assert held.moments[-1].operator == "aten.mul.Tensor"


def test_a_moment_that_is_the_largest_of_few_images_is_not_that_of_many() -> None:
    def take(images: int) -> None:
        rows = torch.ones(images, 100)
        del rows
        torch.ones(50, 100)  # whatever the images

    assert most_held(take, 2) == 50 * ROW
    assert most_held(take, 40) == 50 * ROW
    assert most_held(take, 300) == 300 * ROW


def test_operators_for_each_image_are_left_aside() -> None:
    kept: list[Tensor] = []

    def take(images: int) -> None:
        kept.clear()
        kept.extend(torch.full((1,), number) for number in range(images))
        rows = torch.ones(images, 100)
        rows.exp().sum()

    assert most_held(take, 1000) == pytest.approx(2 * 1000 * ROW, rel=0.05)


@pytest.mark.parametrize("name", ["l2p", "l2p-r", "ft-seq", "der++", "co2l", "supsup", "ewc-online", "ranpac"])
def test_a_step_of_many_images_holds_what_was_said(name: str) -> None:
    session = Session(toy_learner(name), toy_stream(tasks=2), SHORT)
    experience = session.stream.experiences[0]
    session.begin(experience)
    order = session.order(experience)

    def step(images: int) -> None:
        session.learn(experience, order[:images])

    for _ in range(3):
        step(12)
    expected = most_held(step, 12)
    with Held() as held:
        step(12)
    assert expected == pytest.approx(max(moment.held for moment in held.moments), rel=0.05)
