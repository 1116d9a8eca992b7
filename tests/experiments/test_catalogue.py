"""Benchmarks, methods and the configuration of a pair."""

from __future__ import annotations

import pytest

from promptpool.experiments.catalogue import benchmarks, guide, methods, pair, split
from promptpool.experiments.config import ConfigError, load_config
from promptpool.learners import LEARNERS
from promptpool.learners.profiles import PROFILES


@pytest.mark.parametrize(
    ("name", "benchmark", "method"),
    [
        ("cifar100-l2p", "cifar100", "l2p"),
        ("cifar100-gaussian-l2p-r", "cifar100-gaussian", "l2p-r"),
        ("glyphs100-gaussian", "glyphs100-gaussian", "l2p"),
        ("own", "own", "closed-form"),
        ("own-nearest-mean", "own", "nearest-mean"),
        ("5-datasets-der++", "5-datasets", "der++"),
    ],
)
def test_a_name_is_a_benchmark_and_a_method(name: str, benchmark: str, method: str) -> None:
    found = split(name)
    assert found is not None
    assert (found[0].name, found[1].name) == (benchmark, method)


@pytest.mark.parametrize("name", ["l2p", "cifar100-", "cifar10-l2p", "glyphs100-l2p-x", ""])
def test_other_names_are_none(name: str) -> None:
    assert split(name) is None


def test_every_learner_is_a_method_and_every_word_means_something() -> None:
    assert set(LEARNERS) <= set(methods())
    places = {*benchmarks(), *(family for each in benchmarks().values() for family in each.families)}
    for method in methods().values():
        assert set(method.on) <= places, method.name
        assert method.like is None or method.like in methods()
        assert method.memory in (None, "benchmark") or isinstance(method.memory, int)
    for benchmark in benchmarks().values():
        assert {*benchmark.instead, *benchmark.instead.values(), benchmark.method} <= set(methods())


def test_every_method_says_what_it_trains_and_when_to_choose_it() -> None:
    for method in methods().values():
        assert {*method.guide} == {"trains", "choose"}, method.name
        assert all(guide(method).values()), method.name
        assert len(guide(method)) == 3
    assert guide(methods()["l2p"])["old data"] == "none is kept"
    assert "memory" in guide(methods()["l2p-r-trained"])["old data"], "it is like l2p-r, which has one"
    assert guide(methods()["upper-bound"])["old data"] == "all data at once"


def test_the_last_word_is_the_methods_on_the_benchmark() -> None:
    assert load_config("glyph-five-l2p")["learner"]["pool_size"] == 20
    assert load_config("glyph-five-one-prompt")["learner"]["pool_size"] == 1
    assert load_config("glyph-five-one-prompt")["learner"]["prompt_length"] == 4
    assert load_config("glyphs100-l2p-r")["plan"]["learning_rate"] == 0.01
    assert load_config("5-datasets-no-diversity")["learner"]["diversify"] is False
    assert load_config("cifar100-l2p-google-v2")["profile"] == "google-v2"


def test_a_memory_is_the_benchmarks_or_the_methods_own() -> None:
    assert load_config("core50-er")["learner"]["capacity"] == 50 * 50
    assert load_config("cifar100-dualnet")["learner"]["capacity"] == 10 * 100
    assert load_config("own-er")["learner"]["capacity"] == 1000, "the learner's default where classes are not known"


def test_a_method_with_a_backbone_of_its_own_has_its_own_view() -> None:
    config = pair(benchmarks()["cifar100"], methods()["supsup"])
    assert config["backbone"] == {"name": "resnet18"}
    assert config["view"] == {"crop": [0.6, 1.0], "flip": True}


def test_a_method_may_go_by_another_on_a_stream_without_boundaries() -> None:
    assert load_config("glyphs100-gaussian-ewc")["learner"]["name"] == "ewc-online"


def test_scales_are_sizes_of_one_stream() -> None:
    mini, demo = load_config("glyphs100-l2p"), load_config("glyphs100-l2p", scale="demo")
    assert (mini["dataset"]["test_per_class"], demo["dataset"]["test_per_class"]) == (20, 10)
    assert mini | {"dataset": demo["dataset"]} == demo
    with pytest.raises(ConfigError, match="scale = 'paper': glyphs100 comes in mini, demo"):
        load_config("glyphs100-l2p", scale="paper")


def test_what_is_made_of_a_pair_changes_nothing_of_it() -> None:
    first = pair(benchmarks()["glyphs100"], methods()["l2p"])
    first["learner"]["top_k"] = 1
    first["dataset"]["seed"] = 5
    assert "top_k" not in pair(benchmarks()["glyphs100"], methods()["l2p"])["learner"]
    assert "seed" not in pair(benchmarks()["glyphs100"], methods()["l2p"])["dataset"]


def test_prompts_on_images_of_ones_own_fit_the_backbone_and_take_enough_steps() -> None:
    config = load_config("own-l2p", ["dataset.folder=pictures"])
    learner, plan = config["learner"], config["plan"]
    assert (learner["start_from"], learner["start"], learner["prompt_length"]) == ("fitting", (-1.0, 1.0), 1)
    assert (plan["least_steps"], plan["batch_size"], plan["learning_rate"]) == (200, 8, 0.001)


@pytest.mark.parametrize("benchmark", ["glyphs100", "cifar100"])
@pytest.mark.parametrize("name", ["google-v1", "google-v2", "pytorch-port"])
def test_a_profile_of_public_code_keeps_its_start_and_its_order(name: str, benchmark: str) -> None:
    learner = load_config(f"{benchmark}-l2p-{name}")["learner"]
    usual = {"start": (0.0, 0.01), "start_from": "range", "order": "prompts-first", "position": "none"}
    expected = usual | {key: value for key, value in PROFILES[name].learner.items() if key in usual}
    assert {key: learner[key] for key in usual} == expected
