"""What a dry run measures: small pieces, whatever the backbone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from promptpool.backbones.vit import ViT
from promptpool.cli.display import in_words
from promptpool.experiments import cost, probing
from promptpool.experiments.build import Built, build
from promptpool.experiments.config import load_config
from promptpool.learners import closed_form
from promptpool.training.loop import Session
from small_runs import deep
from small_runs import preset as preset_fixture

preset = preset_fixture


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.2, "less than a second"),
        (1.2, "about 1 second"),
        (40, "about 40 seconds"),
        (180, "about 3 minutes"),
        (7800, "about 2 h 10 min"),
        (200_000, "about 2 days"),
    ],
)
def test_times_are_said_in_words(seconds: float, said: str) -> None:
    assert in_words(seconds) == said


def test_a_slow_step_is_measured_with_few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def clock(per_image: float) -> Callable[..., float]:
        def measure(take: Callable[[int], object], count: int) -> float:
            take(count)
            return per_image * count

        return measure

    monkeypatch.setattr(probing, "seconds_of", clock(10.0))
    assert probing.grown(taken.append, 128) == pytest.approx(1280)
    assert taken == [2]
    taken.clear()
    monkeypatch.setattr(probing, "seconds_of", clock(0.5))
    assert probing.grown(taken.append, 128) == pytest.approx(64)
    assert taken == [2, 2]
    taken.clear()
    monkeypatch.setattr(probing, "seconds_of", clock(0.1))
    assert probing.grown(taken.append, 128) == pytest.approx(12.8)
    assert taken == [2, 2, 4, 8]
    taken.clear()
    monkeypatch.setattr(probing, "seconds_of", clock(0.001))
    assert probing.grown(taken.append, 5) == pytest.approx(0.005)
    assert taken == [2, 2, 4, 5, 5]


def test_a_slow_transformer_is_measured_by_two_of_its_blocks(preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    depths, encode = set(), ViT.encode

    def noted(self: ViT, tokens: Tensor, rows: int | None = None, first: int = 0) -> Tensor:
        depths.add(self.depth)
        return encode(self, tokens, rows, first)

    monkeypatch.setattr(ViT, "encode", noted)
    monkeypatch.setattr(cost, "SLOW", 0.0)
    found = cost.estimate(deep(preset))
    assert depths == {1, 2}
    assert found.seconds > 0
    assert found.steps == 20
    depths.clear()
    monkeypatch.setattr(cost, "SLOW", 1e9)
    whole = cost.estimate(deep(preset))
    assert depths == {2, 12}, "two blocks to see that it is quick"
    assert (whole.steps, whole.trained_parameters) == (found.steps, found.trained_parameters)


def test_seconds_are_those_of_steps_tests_and_features(preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five tasks of ten classes, three images of each to train on and two to test on, two epochs."""
    probe = probing.Probe(step=1.0, test=100.0, feature=10_000.0, step_bytes=0.0, test_bytes=0.0)
    monkeypatch.setattr(cost, "probe", lambda built: (probe, (True, False)))
    built = build(load_config(str(preset)))
    tests = 20 + 40 + 60 + 80 + 100
    places = [Counter(identity % 8 for identity in each.train.ids.tolist()) for each in built.stream.experiences]
    features = 8 * sum(max(place.values()) for place in places)
    assert 150 <= features < 2 * 150
    assert cost.estimate(built).seconds == pytest.approx(20 + 100 * tests + 10_000 * features)
    once = built._replace(plan=replace(built.plan, test_after="last"))
    assert cost.estimate(once).seconds == pytest.approx(20 + 100 * 100 + 10_000 * features)


def test_blocks_are_added_up(preset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probes = {1: probing.Probe(1.0, 0.0, 0.0, 5.0, 7.0), 2: probing.Probe(3.0, 0.0, 0.0, 9.0, 7.0)}
    monkeypatch.setattr(cost, "probe", lambda built: (probes[built.learner.backbone.depth], (False, False)))
    monkeypatch.setattr(cost, "SLOW", 0.0)
    assert cost.estimate(deep(preset)).seconds == pytest.approx(20 * (1 + 11 * 2))


@pytest.mark.parametrize(("adapt", "images"), [("none", 0), ("prompts", 30 * 75), ("auto", 30 * 75 + 2 * 15 * 150)])
def test_prompts_are_counted_and_not_learned(
    adapt: str, images: int, preset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least 300 steps on the 30 images of the first task, in four batches, and in a trial on each half of them."""

    def probe(built: Built) -> tuple[probing.Probe, tuple[bool, bool]]:
        prompted = built.config["learner"]["name"] == "l2p"
        return probing.Probe(1000.0 * prompted, 1.0 * prompted, 0.0, 0.0, 0.0), (False, False)

    values = ["learner.name=closed-form", "learner.projections=20", f"learner.adapt={adapt}"]
    built = build(load_config(str(preset), values))
    steps, everything = 4 * images // 30, 5 * (30 + 20)
    with monkeypatch.context() as pretended:
        pretended.setattr(cost, "probe", probe)
        found = cost.estimate(built)
    assert found.seconds == pytest.approx(1000 * steps + everything * (adapt != "none"))
    monkeypatch.setattr(closed_form, "learn_prompts", None)
    assert cost.estimate(built).seconds > 0
    assert cost.work(built) >= 3 * images


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        ([], (True, True)),
        (["learner.name=nearest-mean"], (True, True)),
        (["learner.name=masked-linear", "view.flip=true"], (False, True)),
        (["learner.name=ft-seq"], (False, False)),
        (["learner.name=er", "learner.capacity=20"], (False, False)),
        (["learner.name=ewc-online", "learner.micro_batch=4"], (False, False)),
    ],
)
def test_features_are_counted_where_they_are_read(values: list[str], stored: tuple[bool, bool], preset: Path) -> None:
    probe, found = probing.probe(build(load_config(str(preset), values)))
    assert found == stored
    assert probe.step > 0
    assert probe.test > 0
    assert (probe.feature > 0) is any(stored)
    assert probe.test_bytes > 0


def test_a_method_with_a_memory_is_measured_with_something_to_replay(
    preset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, learn = [], Session.learn

    def noted(self: Session, *arguments: Any) -> float | None:
        assert self.learner.memory is not None
        sizes.append(len(self.learner.memory))
        return learn(self, *arguments)

    monkeypatch.setattr(Session, "learn", noted)
    probing.probe(build(load_config(str(preset), ["learner.name=er", "learner.capacity=20"])))
    assert sizes[0] == 0
    assert min(sizes[1:]) >= 2
