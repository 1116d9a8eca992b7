"""A teacher stays as it was taken, survives a checkpoint, and shares what cannot change."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from promptpool.data.views import ImageView
from promptpool.learners.base import Learner
from promptpool.learners.teacher import Teacher, taught
from toys import RANDOM_VIEW, VIEW, toy_backbone, toy_examples


def learner(train_backbone: bool = True, view: ImageView = VIEW) -> Learner:
    made = Learner(toy_backbone(), view, train_backbone=train_backbone, head_start="truncated-normal")
    made.add_classes([0, 1])
    return made


def test_a_teacher_stays_as_it_was_taken() -> None:
    taught = learner()
    teacher = Teacher(taught, "backbone", "head")
    assert not teacher
    teacher.take()
    assert teacher
    before = {name: value.clone() for name, value in taught.head.state_dict().items()}
    with torch.no_grad():
        for parameter in taught.parameters():
            parameter.add_(1)
    assert all(torch.equal(teacher["head"].state_dict()[name], value) for name, value in before.items())
    assert teacher["backbone"] is not taught.backbone
    assert not any(p.requires_grad for name in ("backbone", "head") for p in teacher[name].parameters())
    assert all(p.requires_grad for p in taught.parameters())


def test_a_teacher_is_no_part_of_the_learner() -> None:
    taught = learner()
    names = set(taught.state_dict())
    teacher = Teacher(taught, "backbone", "head")
    taught.__dict__["teacher"] = teacher
    teacher.take()
    assert set(taught.state_dict()) == names


def test_a_frozen_backbone_is_shared_and_not_written() -> None:
    taught = learner(train_backbone=False)
    teacher = Teacher(taught, "backbone", "head")
    teacher.take()
    assert teacher["backbone"] is taught.backbone
    assert set(teacher.state_dict()) == {"head"}


def test_a_teacher_comes_back_from_its_state_with_the_rows_it_had() -> None:
    taught = learner()
    teacher = Teacher(taught, "backbone", "head")
    teacher.take()
    state = teacher.state_dict()
    other = learner()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    other.add_classes([2, 3])  # its head has grown since
    again = Teacher(other, "backbone", "head")
    again.load_state_dict(state)
    for name in ("backbone", "head"):
        for key, value in state[name].items():
            assert torch.equal(again[name].state_dict()[key], value)
    again.load_state_dict({})
    assert not again


def on(part: nn.Module) -> set[tuple[torch.device, torch.dtype]]:
    return {(value.device, value.dtype) for value in part.state_dict().values()}


@pytest.mark.parametrize("moved", ["after it was taken", "after it came back", "before it came back"])
def test_a_teacher_goes_where_its_learner_goes(moved: str) -> None:
    taught, other = learner(), learner()
    teacher, again = Teacher(taught, "backbone", "head"), Teacher(other, "backbone", "head")
    teacher.take()
    if moved == "after it was taken":
        taught.to(torch.float64)  # as any device, but there on every machine
    elif moved == "after it came back":
        again.load_state_dict(teacher.state_dict())
        taught, teacher = other.to(torch.float64), again
    else:
        other.to(torch.float64)
        again.load_state_dict(teacher.state_dict())
        taught, teacher = other, again
    for name in ("backbone", "head"):
        assert on(teacher[name]) == on(taught.get_submodule(name)) == {(taught.device, torch.float64)}
    again.load_state_dict(teacher.state_dict())
    assert on(again["head"]) == {(other.device, other.head.weight.dtype)}


@pytest.mark.parametrize("train_backbone", [True, False])
def test_learner_and_teacher_see_one_view(train_backbone: bool) -> None:
    pupil = learner(train_backbone, RANDOM_VIEW)
    teacher = Teacher(pupil, "backbone", "head")
    teacher.take()
    some = toy_examples(3, 1)
    state = pupil.train().generator.get_state()
    own, theirs = taught(pupil, teacher, some.batch(slice(0, 10)), some.batch(slice(10, 18)))
    assert own.requires_grad == train_backbone
    assert not theirs.requires_grad
    torch.testing.assert_close(own, theirs, rtol=1e-4, atol=1e-5)  # they are the same model still
    pupil.generator.set_state(state)
    views = [pupil.inputs(some.batch(rows)) for rows in (slice(0, 10), slice(10, 18))]
    torch.testing.assert_close(own, pupil.backbone.features(torch.cat(views)), rtol=1e-4, atol=1e-5)
