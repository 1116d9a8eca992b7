"""The loop, the plan and the evaluation at their edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from promptpool.backbones.features import FrozenFeatures
from promptpool.backbones.resnet import ResNet18
from promptpool.data.scenarios import from_arrays
from promptpool.data.stream import Batch, Examples, Experience
from promptpool.data.views import ImageView
from promptpool.learners import LEARNERS
from promptpool.learners.base import Learner
from promptpool.optim import Descent
from promptpool.training import Plan, Session, learn
from toys import SHORT, VIEW, toy_backbone, toy_examples, toy_learner, toy_schedule, toy_stream


@pytest.mark.parametrize(
    "values",
    [
        {"epochs": 0},
        {"epochs": 1.5},
        {"batch_size": 0},
        {"test_batch_size": 0},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"learning_rate": float("inf")},
        {"momentum": 5.0},
        {"weight_decay": -1.0},
        {"clip": 0.0},
        {"optimiser": "adamw"},
    ],
)
def test_a_plan_that_cannot_be_meant_names_its_value(values: dict[str, Any]) -> None:
    ((name, value),) = values.items()
    with pytest.raises(ValueError, match=f"{name} = {value!r}"):
        Plan(**values)


def test_a_test_set_of_unknown_classes_waits(tmp_path: object) -> None:
    del tmp_path
    x = np.zeros((4, 8, 8, 3), dtype=np.uint8)
    first, second = (x, ["a", "b", "a", "b"]), (x + 200, ["c", "d", "c", "d"])
    stream = from_arrays([first, second], [first, second, (x + 9, ["a", "c", "a", "c"])])
    records = list(learn(toy_learner("l2p"), stream, Plan(epochs=1, batch_size=2, task_given=True)))
    assert records[0].correct[1] is None
    assert records[0].correct[2] is not None, "half of its classes are known"
    assert None not in records[1].correct


def test_every_example_of_every_epoch_is_shown_once_in_an_order_of_its_own() -> None:
    shown: list[list[int]] = []

    class Listener(Learner):
        def step(self, batch: Batch, descend: Descent) -> torch.Tensor | None:
            shown.append(batch.ids.tolist())
            assert batch.fresh == (len(shown) <= 4)
            return super().step(batch, descend)

    stream = toy_stream(tasks=1)
    list(learn(Listener(toy_backbone(), VIEW, train_backbone=False), stream, Plan(epochs=2, batch_size=30)))
    first, second = [i for ids in shown[:4] for i in ids], [i for ids in shown[4:] for i in ids]
    assert sorted(first) == sorted(second) == sorted(stream.experiences[0].train.ids.tolist())
    assert first != second


def test_the_optimiser_is_new_for_each_task_and_one_for_a_schedule() -> None:
    for stream, new in ((toy_stream(), 3), (toy_schedule(), 1)):
        learner = toy_learner("l2p", loss_classes="seen")
        session = Session(learner, stream, Plan(epochs=1, batch_size=10))
        optimisers = []
        for _ in session:
            if session.descend is not None and session.descend not in optimisers:
                optimisers.append(session.descend)
        assert len(optimisers) == new


def test_a_schedule_tells_a_learner_nothing_of_its_windows() -> None:
    class Told(Learner):
        def before(self, experience: Experience) -> None:
            raise AssertionError(f"told of window {experience.index}")

        after = before

    learner = Told(toy_backbone(), VIEW, train_backbone=False, loss_classes="seen")
    seen = [len(learner.seen) for _ in Session(learner, toy_schedule(), Plan(epochs=1, batch_size=10))]
    assert seen == sorted(seen)
    assert seen[0] < 6 == seen[-1], "classes are met when their first label arrives"
    with pytest.raises(ValueError, match="epochs = 5"):
        Session(toy_learner("l2p", loss_classes="seen"), toy_schedule(), Plan())


def test_a_learner_that_trains_its_backbone_has_no_frozen_features() -> None:
    backbone = toy_backbone()
    learner = Learner(backbone, VIEW)
    assert not hasattr(learner, "frozen")
    with pytest.raises(ValueError, match="no frozen features"):
        learner.frozen = FrozenFeatures(backbone, VIEW)


def test_batch_statistics_of_a_frozen_network_stay() -> None:
    network = ResNet18(width=4, stem="cifar").start(torch.Generator().manual_seed(0))
    before = network.bn1.running_mean.clone() if network.bn1.running_mean is not None else None
    learner = Learner(network, ImageView(8), train_backbone=False)
    batch = toy_examples(2, 1).batch(slice(None))
    alone = learner.frozen(batch.__class__(batch.x[:1], batch.y[:1], batch.ids[:1]))
    list(learn(learner, toy_stream(), SHORT))
    assert before is not None
    assert network.bn1.running_mean is not None
    assert torch.equal(network.bn1.running_mean, before)
    assert torch.equal(learner.frozen(batch)[:1], alone)


def test_prompts_need_tokens() -> None:
    with pytest.raises(ValueError, match="backbone = ResNet18"):
        LEARNERS["l2p"](ResNet18(width=4), ImageView(8))


def test_a_fingerprint_knows_weights_and_sizes() -> None:
    backbone = toy_backbone()
    same = toy_backbone()
    assert backbone.fingerprint() == same.fingerprint()
    same.heads = 4
    assert backbone.fingerprint() != same.fingerprint()
    backbone.origin = "sha256:of a file"
    before = backbone.fingerprint()
    with torch.no_grad():
        backbone.norm.weight[0] += 1
    assert backbone.fingerprint() != before
    assert backbone.bfloat16().fingerprint() != before


def test_a_record_says_which_weights_and_which_classes() -> None:
    record = next(iter(learn(toy_learner("l2p"), toy_stream(), SHORT)))
    assert (record.facts["backbone"], record.facts["loss_classes"]) == ("random", "current")
    record = next(iter(learn(toy_learner("nearest-mean"), toy_stream(), SHORT)))
    assert record.facts["loss_classes"] is None


def test_training_examples_are_trained_on_and_before_evaluation_comes_before_the_tests() -> None:
    class Half(Learner):
        judged = 0
        told_of: ClassVar[list[tuple[int, ...]]] = []

        def training_examples(self, experience: Experience) -> Examples:
            return experience.train.select(slice(0, len(experience.train) // 2))

        def before_evaluation(self) -> None:
            assert not self.told_of
            self.judged += 1

        def task_logits(self, batch: Batch, classes: Sequence[int]) -> Tensor:
            self.told_of.append(tuple(classes))
            wrong = self.logits(batch)
            wrong[:] = 0
            wrong[:, classes[0]] = 1
            return wrong

    stream = toy_stream()
    learner = Half(toy_backbone(), VIEW)
    plan = Plan(epochs=2, batch_size=5, task_given=True)
    session = Session(learner, stream, plan)
    assert session.steps == sum(2 * -(-(len(e.train) // 2) // 5) for e in stream.experiences)
    steps = 0
    for step in session:
        steps = step.step
        if step.record is not None:
            learner.told_of.clear()
    assert steps == session.steps
    assert learner.judged == len(stream.experiences)
    first = [int((test.y == test.classes[0]).sum()) for test in stream.tests]
    assert session.records[-1].correct_given_task == tuple(first)


class Noting(Learner):
    """Notes the size of every batch, and whether the task was ever given."""

    def __init__(self) -> None:
        super().__init__(toy_backbone(), VIEW, train_backbone=False)
        self.sizes: list[int] = []
        self.given = 0

    def step(self, batch: Batch, descend: Descent) -> Tensor | None:
        self.sizes.append(len(batch.y))
        return super().step(batch, descend)

    def task_logits(self, batch: Batch, classes: Sequence[int]) -> Tensor | None:
        self.given += 1
        return super().task_logits(batch, classes)


def test_a_last_batch_that_is_not_full_can_be_dropped() -> None:
    stream = toy_stream()  # 32 images a task
    for dropped, expected in ((False, [10, 10, 10, 2]), (True, [10, 10, 10])):
        learner = Noting()
        session = Session(learner, stream, Plan(epochs=2, batch_size=10, learning_rate=0.01, drop_last=dropped))
        steps = [step.step for step in session]
        assert learner.sizes == expected * 6
        assert session.steps == steps[-1] == len(expected) * 6
    with pytest.raises(
        ValueError, match="batch_size = 33: experience 0 has 32 examples, of which drop_last leaves none"
    ):
        Session(Noting(), stream, Plan(batch_size=33, drop_last=True))
    assert 5 * (5000 // 128) == 195, "the steps of the released code for a task of Split CIFAR-100"


def test_the_classes_to_predict_among_can_be_all_of_them() -> None:
    plan = Plan(epochs=1, batch_size=16, learning_rate=0.01, test_classes="all")
    learner = toy_learner("l2p", head_start="truncated-normal")
    session = Session(learner, toy_stream(), plan)
    assert len(learner.head.bias) == 6, "every row is there before the first task"
    untrained = learner.head.weight.detach().clone()
    for step in session:
        if step.record is None:
            continue
        seen = list(learner.seen)
        unseen = [c for c in range(6) if c not in seen]
        assert torch.equal(learner.head.weight[unseen], untrained[unseen])
        for number, test in enumerate(session.stream.tests[: step.experience + 1]):
            with torch.no_grad():
                scores = [learner.logits(image)[0].tolist() for image in test.batches(1)]
            right = sum(max(range(6), key=row.__getitem__) == y for row, y in zip(scores, test.y.tolist(), strict=True))
            assert step.record.correct[number] == right
        assert step.record.facts["test_classes"] == "all"
    plain = list(learn(toy_learner("l2p"), toy_stream(), SHORT))
    assert "test_classes" not in plain[0].facts
    with pytest.raises(ValueError, match="test_classes = 'some': must be one of seen, all"):
        Plan(test_classes="some")


def test_the_task_is_given_only_where_that_is_asked_for() -> None:
    for asked in (False, True):
        learner = Noting()
        plan = Plan(epochs=1, batch_size=16, learning_rate=0.01, test_batch_size=14, task_given=asked)
        records = list(learn(learner, toy_stream(), plan))
        assert learner.given == (6 if asked else 0)
        assert (records[-1].correct_given_task is not None) is asked


def test_l2p_goes_through_its_tests_once(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = toy_learner("l2p")
    choices, asked = 0, learner.pool.choose  # type: ignore[union-attr]

    def choose(gamma: Tensor) -> Tensor:
        nonlocal choices
        choices += 0 if learner.training else len(gamma)
        return asked(gamma)  # type: ignore[no-any-return, operator]

    monkeypatch.setattr(learner.pool, "choose", choose)
    records = list(learn(learner, toy_stream(), SHORT))
    assert choices == 14 * (1 + 2 + 3)
    assert [sum(map(sum, record.facts["chosen_in_tests"])) for record in records] == [14 * 5, 28 * 5, 42 * 5]


def test_a_step_looks_at_no_other_experience() -> None:
    asked: set[int] = set()

    class Listener(Learner):
        def training_examples(self, experience: Experience) -> Examples:
            asked.add(experience.index)
            return super().training_examples(experience)

    learner = Listener(toy_backbone(), VIEW, train_backbone=False)
    for step in Session(learner, toy_stream(tasks=3), SHORT):
        if step.step > 1 and step.record is None:
            assert asked == {step.experience}
        asked.clear()


def test_an_experience_gets_epochs_until_it_has_had_the_least_steps() -> None:
    stream = toy_stream(tasks=3, per_class=16)  # 32 images each
    session = Session(toy_learner("masked-linear"), stream, Plan(epochs=2, batch_size=10, least_steps=9))
    steps = list(session)
    assert session.steps == len(steps) == 3 * 3 * 4
    assert [step.epoch for step in steps[:12]] == [0] * 4 + [1] * 4 + [2] * 4
    assert steps[11].record is not None
    assert (
        Session(toy_learner("masked-linear"), stream, Plan(epochs=2, batch_size=10, least_steps=3)).steps == 3 * 2 * 4
    )
    with pytest.raises(ValueError, match="least_steps = -1: must be at least 0"):
        Plan(least_steps=-1)
    with pytest.raises(ValueError, match="least_steps = 5: a stream without boundaries shows each batch once"):
        Session(toy_learner("ft-seq"), toy_schedule(), Plan(epochs=1, batch_size=10, least_steps=5))


def test_classes_of_another_stream_are_not_taken_for_those_that_were_learned() -> None:
    x = np.random.default_rng(0).integers(0, 256, (8, 8, 8, 3), dtype=np.uint8)
    january = from_arrays([(x, ["mug"] * 4 + ["cup"] * 4)], [(x, ["mug"] * 4 + ["cup"] * 4)])
    march = from_arrays([(x, ["fork"] * 4 + ["spoon"] * 4)], [(x, ["fork"] * 4 + ["spoon"] * 4)])
    learner = toy_learner("nearest-mean")
    list(learn(learner, january, Plan(epochs=1)))
    list(learn(learner, january, Plan(epochs=1)))  # the same classes go on
    with pytest.raises(ValueError, match="has learned the classes mug, cup, and the stream's are fork, spoon"):
        list(learn(learner, march, Plan(epochs=1)))


def test_before_its_test_a_run_has_no_accuracy_with_the_task_given() -> None:
    plan = Plan(epochs=1, batch_size=16, learning_rate=0.01, task_given=True, test_after="last")
    records = list(learn(toy_learner("l2p"), toy_stream(), plan))
    assert [record.accuracy_given_task is None for record in records] == [True, True, False]
    with pytest.raises(ValueError, match="test_after = 'never': must be one of each, last"):
        Plan(test_after="never")
