"""Configurations: every value is checked before anything runs, and every complaint is one line that helps."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from promptpool.backbones.resnet import ResNet18
from promptpool.cli import app
from promptpool.experiments.build import SharedCache, build
from promptpool.experiments.catalogue import benchmarks, methods
from promptpool.experiments.config import ConfigError, complete, load_config, to_toml
from promptpool.learners.l2p import L2P
from small_runs import preset as preset_fixture

preset = preset_fixture

# What is typed, and what the one line must say.
MISTAKES = [
    ("learner.topk=4", ["learner.topk", "top_k"]),
    ("learner.top_k=12", ["learner.top_k = 12", "pool_size = 10"]),
    ("learner.top_k=0", ["learner.top_k = 0", "between 1 and"]),
    ("learner.top_k=four", ["learner.top_k = 'four'", "whole number"]),
    ("learner.top_k=2.5", ["learner.top_k = 2.5", "whole number"]),
    ("learner.top_k=true", ["learner.top_k = True", "whole number"]),
    ("learner.pool_size=0", ["learner.pool_size = 0", "at least 1"]),
    ("learner.prompt_length=-1", ["learner.prompt_length = -1", "at least 1"]),
    ("learner.pull=-0.5", ["learner.pull = -0.5", "0 or more"]),
    ("learner.pull=much", ["learner.pull = 'much'", "number"]),
    ("learner.start=[0.01, 0.0]", ["learner.start", "lower first"]),
    ("learner.start=0.01", ["learner.start = 0.01", "[a number, a number]"]),
    ("learner.start=[0, 1, 2]", ["learner.start", "[a number, a number]"]),
    ("learner.key=fixed", ["learner.key = 'fixed'", "learned, mean"]),
    ("learner.vote=16", ["learner.vote = 16", "google-v1"]),
    ("learner.order=last", ["learner.order = 'last'", "prompts-first"]),
    ("learner.position=all", ["learner.position = 'all'", "none, class"]),
    ("learner.capacity=-1", ["learner.capacity = -1", "0 (no memory)"]),
    ("learner.replay_classes=current", ["learner.replay_classes", "seen, all"]),
    ("learner.loss_classes=past", ["learner.loss_classes = 'past'", "current, seen, all"]),
    ("learner.head_start=ones", ["head_start = 'ones'", "zeros"]),
    ("learner.diversify=1", ["learner.diversify = 1", "true or false"]),
    ("learner.name=l2pp", ["learner.name = 'l2pp'", "l2p"]),
    ("learner.name=7", ["learner.name = 7", "text"]),
    ("learner=l2p", ["learner = 'l2p'", "table"]),
    ("dataset.name=glyph100", ["dataset.name = 'glyph100'", "glyphs100"]),
    ("dataset.images=4", ["dataset.images", "train_per_class"]),
    ("dataset.train_per_class=0", ["dataset.train_per_class = 0", "at least 1"]),
    ("scenario.tasks=51", ["scenario.tasks = 51", "number of classes, 50"]),
    ("scenario.tasks=0", ["scenario.tasks = 0", "between 1 and"]),
    ("scenario.name=task-incremental", ["scenario.name", "class-incremental"]),
    ("scenario.name=domain-incremental", ["scenario.name", "does not fit"]),
    ("scenario.class_order=[0, 1]", ["scenario.class_order", "each of the classes"]),
    ("scenario.joint=yes", ["scenario.joint = 'yes'", "true or false"]),
    ("view.size=33", ["image_size = 32", "33"]),
    ("view.size=0", ["view.size = 0", "at least 1"]),
    ("view.values=percent", ["view.values = 'percent'", "unit"]),
    ("view.crop=[0.5, 0.1]", ["view.crop", "least <= most"]),
    ("backbone.name=nowhere.npz", ["nowhere.npz", "no such file"]),
    ("backbone.size=224", ["backbone.size", "image_size"]),
    ("backbone.image_size=30", ["image_size = 30", "patch_size = 16"]),
    ("plan.epochs=0", ["plan.epochs = 0", "at least 1"]),
    ("plan.epochs=many", ["plan.epochs = 'many'", "whole number"]),
    ("plan.learning_rate=0", ["plan.learning_rate = 0", "above 0"]),
    ("plan.lr=0.1", ["plan.lr", "no such key"]),
    ("plan.optimiser=adamw", ["plan.optimiser = 'adamw'", "adam, sgd"]),
    ("plan.clip=-1", ["plan.clip = -1", "above 0"]),
    ("plan.batch_size=0", ["plan.batch_size = 0", "at least 1"]),
    ("profile=googel-v2", ["profile = 'googel-v2'", "google-v1"]),
    ("benchmark=5-datasets", ["benchmark", "profile"]),
    ("optimiser.name=adam", ["optimiser", "no such key"]),
    ("seed=one", ["seed = 'one'", "whole number"]),
    ("learner.top_k", ["learner.top_k", "key=value"]),
    ("seed.x=1", ["seed"]),
    ("seed=-1", ["seed = -1", "between 0"]),
    ("plan.seed=-1", ["plan.seed = -1", "between 0"]),
    ("seed=99999999999999999999999", ["seed = 99999999999999999999999", "between 0"]),
    ("backbone=3", ["backbone = 3", "table"]),
    ("plan=x", ["plan = 'x'", "table"]),
    ("learner.pull=nan", ["learner.pull = nan", "0 or more"]),
    ("plan.clip=nan", ["plan.clip = nan", "above 0"]),
    ("plan.momentum=0.9", ["plan.momentum = 0.9", "adam"]),
    ("backbone.heads=0", ["backbone.heads = 0", "at least 1"]),
    ("backbone.gelu=quick", ["backbone.gelu = 'quick'", "exact, tanh"]),
]


@pytest.mark.parametrize(("typed", "said"), MISTAKES, ids=[typed for typed, _ in MISTAKES])
def test_a_mistake_is_one_line_and_exit_code_2(typed: str, said: list[str], preset: Path) -> None:
    result = CliRunner().invoke(app, ["run", str(preset), typed, "--runs", str(preset.parent / "runs")])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("promptpool: ")
    for part in said:
        assert part in line
    assert not (preset.parent / "runs").exists()


@pytest.mark.parametrize("name", ["PROMPTPOOL_FEATURES_GB", "PROMPTPOOL_MEMORY_GB", "PROMPTPOOL_TOKENS_GB"])
def test_a_budget_that_is_no_number_is_refused_before_anything_is_computed(
    name: str, preset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "much")
    for more in ([], ["--dry-run"]):
        result = CliRunner().invoke(app, ["run", str(preset), "--runs", str(preset.parent / "runs"), *more])
        assert result.exit_code == 2, result.output
        (line,) = result.stderr.strip().splitlines()
        assert line == f"promptpool: {name} = 'much': must be a number, the most gigabytes to keep"
    assert not (preset.parent / "runs").exists()


def test_a_memory_smaller_than_the_classes_is_refused(preset: Path) -> None:
    typed = ["run", str(preset), "learner.name=l2p-r", "learner.capacity=49"]
    result = CliRunner().invoke(app, typed)
    assert result.exit_code == 2
    assert "learner.capacity = 49" in result.stderr
    assert "50" in result.stderr


def test_an_unknown_preset_names_the_nearest() -> None:
    result = CliRunner().invoke(app, ["run", "glyphs100-l2"])
    assert result.exit_code == 2
    assert "glyphs100-l2p" in result.stderr


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("[learner\n")
    result = CliRunner().invoke(app, ["run", str(tmp_path / "broken.toml")])
    assert result.exit_code == 2
    assert "broken.toml: not TOML" in result.stderr


@pytest.mark.parametrize("benchmark", benchmarks())
@pytest.mark.parametrize("method", methods())
def test_every_pair_is_complete_and_survives_being_written(benchmark: str, method: str, tmp_path: Path) -> None:
    if (benchmark, method) == ("5-datasets", "l2p-google-v1"):
        with pytest.raises(ConfigError, match="that code has no configuration for 5-datasets"):
            load_config(f"{benchmark}-{method}")
        return
    config = load_config(f"{benchmark}-{method}")
    (tmp_path / "again.toml").write_text(to_toml(config))
    assert load_config(str(tmp_path / "again.toml")) == config


def test_values_are_set_by_table_and_key(preset: Path) -> None:
    config = load_config(str(preset), ["learner.top_k=4", "learner.start=[-1, 1]", "plan.clip=none", "seed=3"])
    assert config["learner"]["top_k"] == 4
    assert config["learner"]["start"] == (-1, 1)
    assert config["plan"]["clip"] is None
    assert config["learner"]["seed"] == config["plan"]["seed"] == 3


def test_the_backbone_decides_the_view_unless_told(preset: Path) -> None:
    view = build(load_config(str(preset))).learner.view
    assert (view.size, view.values, view.crop, view.flip) == (32, "unit", None, False)
    assert build(load_config(str(preset), ["view.values=symmetric"])).learner.view.values == "symmetric"


def test_l2p_that_trains_its_backbone_shares_the_frozen_features(preset: Path) -> None:
    cache = SharedCache()
    learners = [
        build(load_config(str(preset), [f"learner.train_backbone={v}"]), cache).learner for v in ("true", "false")
    ]
    trained, frozen = (learner for learner in learners if isinstance(learner, L2P))
    assert trained.frozen is frozen.frozen
    assert trained.original is frozen.backbone is not trained.backbone
    learner = build(load_config(str(preset), ["learner.name=ft-seq"]), cache).learner
    assert not hasattr(learner, "frozen")


def test_co2l_with_a_frozen_backbone_is_refused_in_one_line(preset: Path) -> None:
    typed = ["run", str(preset), "learner.name=co2l", "view.flip=true", "learner.train_backbone=false"]
    result = CliRunner().invoke(app, typed)
    assert result.exit_code == 2
    assert result.stderr.startswith("promptpool: learner.train_backbone = False: must be True for Co2L")


def test_gelu_is_the_files_or_what_is_typed(preset: Path) -> None:
    assert load_config(str(preset))["backbone"]["gelu"] is None
    assert load_config(str(preset), ["backbone.gelu=none"])["backbone"]["gelu"] is None
    built = [build(load_config(str(preset), [f"backbone.gelu={gelu}"])).learner for gelu in ("none", "exact", "tanh")]
    silent, exact, tanh = (learner.backbone.fingerprint() for learner in built)
    assert silent == exact != tanh


def test_a_profile_lies_beneath_the_tables(preset: Path) -> None:
    config = load_config(str(preset), ["profile=google-v2", "learner.top_k=3"])
    assert (config["learner"]["vote"], config["learner"]["prompt_length"]) == (16, 10)
    assert config["learner"]["top_k"] == 3
    assert config["plan"]["learning_rate"] == 0.01  # the preset's own
    assert config["plan"]["clip_frozen"]
    assert config["view"]["flip"]
    assert config["backbone"]["gelu"] == "tanh"
    assert load_config(str(preset), ["profile=google-v2", "backbone.gelu=exact"])["backbone"]["gelu"] == "exact"
    assert "gelu" not in load_config(str(preset), ["profile=google-v2", "backbone.name=resnet18"])["backbone"]


def test_profiles_are_listed_as_one_types_them() -> None:
    result = CliRunner().invoke(app, ["list", "profiles"], env={"COLUMNS": "1000"})
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("google-v2")]
    values = line.split(maxsplit=1)[1]
    for typed in ("learner.top_k=4", "view.test_crop=0.875", "view.crop=[0.05, 1.0]", "plan.drop_last=true"):
        assert typed in values
    assert 'backbone.gelu="tanh"' in values


def test_a_whole_configuration_is_its_own_completion(preset: Path) -> None:
    config = load_config(str(preset))
    assert complete(config) == config


def test_a_network_with_fresh_weights_is_named_with_its_keywords(preset: Path) -> None:
    typed = ["learner.name=ft-seq", "backbone.name=resnet18", "backbone.width=4", "seed=3"]
    config = load_config(str(preset), typed)
    assert config["backbone"] == {"name": "resnet18", "width": 4, "stem": "cifar", "image_size": 32, "seed": 3}
    assert complete(config) == config
    built = build(config)
    assert isinstance(built.learner.backbone, ResNet18)
    assert built.learner.view.size == 32
    again = build(load_config(str(preset), [*typed, "backbone.seed=4"]))
    assert again.learner.backbone.fingerprint() != built.learner.backbone.fingerprint()
    assert "seed" not in load_config(str(preset))["backbone"], "weights from a file have none"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("backbone.heads=2", ["backbone.heads", "no such key"]),
        ("backbone.width=0", ["backbone.width = 0", "at least 1"]),
        ("backbone.width=wide", ["backbone.width = 'wide'", "whole number"]),
        ("backbone.stem=tiny", ["backbone.stem = 'tiny'", "imagenet, cifar"]),
        ("backbone.image_size=0", ["backbone.image_size = 0", "at least 1"]),
        ("backbone.seed=-1", ["backbone.seed = -1", "between 0"]),
        ("learner.name=l2p", ["ResNet18", "no tokens"]),
    ],
)
def test_a_mistake_in_a_network_with_fresh_weights(typed: str, said: list[str], preset: Path) -> None:
    given = ["run", str(preset), "learner.name=ft-seq", "backbone.name=resnet18", typed]
    result = CliRunner().invoke(app, [*given, "--runs", str(preset.parent / "runs")])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    for part in said:
        assert part in line


def test_networks_with_fresh_weights_are_listed() -> None:
    assert "resnet18" in CliRunner().invoke(app, ["list"]).stdout


def test_another_name_leaves_the_old_ones_values_behind() -> None:
    config = load_config("glyphs100-l2p", ["learner.name=der++", "learner.alpha=2"])
    assert config["learner"]["alpha"] == 2
    assert "prompt_length" not in config["learner"]
    smooth = load_config("glyphs100-er", ["scenario.name=gaussian-schedule", "plan.epochs=1"])
    assert smooth["learner"]["capacity"] == 1000, "what both know stays"
    assert "tasks" not in smooth["scenario"]
    assert "width" not in load_config("glyphs100-supsup", ["backbone.name=vit-glyphs"])["backbone"]
    with pytest.raises(ConfigError, match=r"learner\.prompt_length: no such key"):
        load_config("glyphs100-l2p", ["learner.name=er", "learner.prompt_length=2"])
    with pytest.raises(ConfigError, match=r"learner\.name = 'ear'"):
        load_config("glyphs100-l2p", ["learner.name=ear"])


@pytest.mark.parametrize("typed", ["glyphs100-derpp", "glyphs100-der"])
def test_a_method_with_pluses_is_found_by_what_one_types(typed: str) -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'glyphs100-der\+\+'"):
        load_config(typed)
