"""What a run is: the same values find the same folder, also one of an earlier version; others are refused by name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from image_files import write_images
from promptpool import __version__
from promptpool.backbones.base import FeatureExtractor
from promptpool.cli import app
from promptpool.data.views import ImageView
from promptpool.experiments import identity
from promptpool.experiments.catalogue import pairs
from promptpool.experiments.config import Config, ConfigError, completed, load_config
from promptpool.experiments.identity import differences, essential, run_folder, upgraded, written
from promptpool.experiments.runner import is_finished, run
from promptpool.learners import LEARNERS
from promptpool.learners.nearest_mean import NearestMean
from promptpool.training.run_folder import read_run
from small_runs import preset as preset_fixture
from small_runs import write_weights

preset = preset_fixture
OLD = Path(__file__).parent / "old_runs"
SMALL = ["dataset.train_per_class=2", "dataset.test_per_class=1"]


class Later(NearestMean):
    """Nearest class mean as it will be once it has one more keyword, whose default changes nothing."""

    def __init__(
        self,
        backbone: FeatureExtractor,
        view: ImageView,
        *,
        distance: str = "cosine",
        readout_blocks: int = 1,
        readout_rows: str = "class",
        brand_new: int = 7,
        seed: int = 0,
    ) -> None:
        super().__init__(
            backbone, view, distance=distance, readout_blocks=readout_blocks, readout_rows=readout_rows, seed=seed
        )
        self.brand_new = brand_new


Later.__name__ = "NearestMean"


def test_only_values_that_differ_from_the_defaults_identify_a_run(preset: Path) -> None:
    plain = essential(load_config(str(preset)))
    assert plain["learner"] == {"name": "l2p"}
    assert plain["view"] == {}
    assert set(plain["plan"]) == {"epochs", "batch_size", "learning_rate"}
    spelled = load_config(str(preset), ["learner.top_k=5", "plan.clip=1.0", "scenario.joint=false"])
    assert essential(spelled) == plain


@pytest.mark.parametrize("name", ["glyphs100-l2p", "cifar100-bic", "5-datasets-l2p-google-v2", "own"])
def test_every_value_that_is_set_identifies_a_run(name: str, tmp_path: Path) -> None:
    config = load_config(name)
    changed = load_config(name, ["plan.learning_rate=0.0123"])
    assert run_folder(tmp_path, name, config) != run_folder(tmp_path, name, changed)
    assert run_folder(tmp_path, name, config) != run_folder(tmp_path, name, load_config(name, ["seed=1"]))


def test_what_identifies_a_run_says_all_of_it() -> None:
    for name in pairs():
        if name == "5-datasets-l2p-google-v1":  # that code has no such configuration
            continue
        config = {key: value for key, value in load_config(name).items() if key not in ("profile", "benchmark")}
        assert essential(completed(essential(config))) == essential(config)


def test_a_run_of_an_earlier_version_is_found_and_reported(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "runs")
    before = read_run(tmp_path / "runs/glyph-five-nearest-mean-47e75a70")
    config = load_config("glyph-five-nearest-mean", SMALL)
    assert run_folder(tmp_path / "runs", "glyph-five-nearest-mean", config) == before.path
    typed = ["run", "glyph-five-nearest-mean", *SMALL, "--runs", str(tmp_path / "runs")]
    result = CliRunner().invoke(app, typed, env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    assert "glyph-five-nearest-mean-47e75a70 is finished" in result.stdout
    assert read_run(before.path) == before
    page = CliRunner().invoke(app, ["report", str(before.path), "--out", str(tmp_path / "page")])
    assert page.exit_code == 0
    assert "22.0" in page.stdout


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("dataset.train_per_class=3", "dataset.train_per_class = 2 there, 3 here"),
        ("view.values=imagenet", 'view.values = [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]] there, "imagenet" here'),
        ("learner.distance=euclidean", 'learner.distance = "cosine" there, "euclidean" here'),
        ("seed=1", "seed = 0 there, 1 here"),
    ],
)
def test_a_run_of_an_earlier_version_with_other_values_is_another(override: str, said: str, tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "runs")
    folder = tmp_path / "runs/glyph-five-nearest-mean-47e75a70"
    config = load_config("glyph-five-nearest-mean", [*SMALL, override])
    assert run_folder(tmp_path / "runs", "glyph-five-nearest-mean", config) != folder
    with pytest.raises(ConfigError, match="holds the run of other values") as caught:
        is_finished(folder, config)
    assert said in str(caught.value)


def test_an_earlier_run_with_a_view_of_its_own_is_not_taken_for_the_backbones(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "runs")
    file = tmp_path / "runs/glyph-five-nearest-mean-47e75a70/config.toml"
    file.write_text(file.read_text().replace("values = [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]", 'values = "imagenet"'))
    config = load_config("glyph-five-nearest-mean", SMALL)
    assert differences(config, file.parent) == [
        'view.values = "imagenet" there, [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]] here',
    ]
    assert run_folder(tmp_path / "runs", "glyph-five-nearest-mean", config) != file.parent


def test_a_view_is_compared_whoever_decided_it(preset: Path, tmp_path: Path) -> None:
    plain, folder = load_config(str(preset), ["learner.name=nearest-mean"]), tmp_path / "run"
    for _ in run(plain, folder):
        pass
    assert is_finished(folder, plain)
    same = load_config(str(preset), ["learner.name=nearest-mean", "view.values=unit"])  # what the backbone has
    assert is_finished(folder, same)
    typed = ["run", str(preset), "learner.name=nearest-mean", "view.values=imagenet", "--folder", str(folder)]
    result = CliRunner().invoke(app, typed)
    assert result.exit_code == 2
    assert 'view.values = "unit" there, "imagenet" here' in result.stderr


def test_a_new_keyword_leaves_runs_where_they_are(
    preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, runs = ["learner.name=nearest-mean"], tmp_path / "runs"
    folder = run_folder(runs, "small", load_config(str(preset), asked))
    steps = run(load_config(str(preset), asked), folder)
    for _ in range(3):
        next(steps)
    steps.close()  # in the middle, with a checkpoint
    monkeypatch.setitem(LEARNERS, "nearest-mean", Later)
    config = load_config(str(preset), asked)
    assert config["learner"]["brand_new"] == 7
    assert run_folder(runs, "small", config) == folder
    for _ in run(config, folder):
        pass
    assert is_finished(folder, config)
    other = load_config(str(preset), [*asked, "learner.brand_new=8"])
    assert run_folder(runs, "small", other) != folder
    with pytest.raises(ConfigError, match=r"learner\.brand_new = 7 there, 8 here"):
        is_finished(folder, other)


def own(tmp_path: Path, *overrides: str) -> Config:
    folder = write_images(tmp_path / "images", [f"{label}/{n}.png" for label in "abcd" for n in range(3)])
    weights = write_weights(tmp_path / "vit.safetensors")
    values = [f"dataset.folder={folder}", f"backbone.name={weights}", "learner.name=nearest-mean", *overrides]
    return load_config("own", values)


def in_old_words(folder: Path, size: int) -> None:
    file = folder / "config.toml"
    text = file.read_text()
    for new, old in (
        ('\nsize = "none"\n', f"\nsize = {size}\n"),
        ('classes_per_task = "none"', "classes_per_task = 0"),
    ):
        assert text.count(new) == 1
        text = text.replace(new, old)
    file.write_text(text)


def test_a_run_on_ones_own_images_of_an_earlier_version_is_found_and_goes_on(tmp_path: Path) -> None:
    config, folder = own(tmp_path), tmp_path / "runs/own-0123abcd"
    steps = run(config, folder)
    next(steps)
    steps.close()
    in_old_words(folder, size=0)
    assert differences(config, folder) == []
    assert run_folder(tmp_path / "runs", "own", config) == folder
    for _ in run(config, folder):
        pass
    in_old_words(folder, size=0)
    assert is_finished(folder, config)
    other = own(tmp_path, "scenario.classes_per_task=1")
    assert differences(other, folder) == ['scenario.classes_per_task = "none" there, 1 here']


def test_images_of_the_size_that_was_the_default_are_another_run(tmp_path: Path) -> None:
    config = own(tmp_path)
    folder = run_folder(tmp_path / "runs", "own", config)
    next(run(config, folder))
    in_old_words(folder, size=224)
    assert differences(config, folder) == ['dataset.size = 224 there, "none" here']
    assert differences(own(tmp_path, "dataset.size=224"), folder) == []
    assert essential(config)["dataset"]["size"] is None, "a folder named without a size was one of 224"


def test_only_the_zeros_of_earlier_versions_are_put_in_new_words() -> None:
    raw = {
        "seed": 0,
        "dataset": {"name": "own", "size": 0, "seed": 0},
        "scenario": {"name": "from-folders", "classes_per_task": 0},
        "view": {"size": 0},
    }
    assert upgraded(raw) == {
        "seed": 0,
        "dataset": {"name": "own", "size": None, "seed": 0},
        "scenario": {"name": "from-folders", "classes_per_task": None},
        "view": {"size": 0},
    }
    for same in ({"dataset": {"name": "own", "size": 224}}, {"dataset": {"name": "cifar100", "held_out": 0}}, {}):
        assert upgraded(same) == same


def test_a_configuration_of_a_newer_version_is_refused(preset: Path) -> None:
    with pytest.raises(ConfigError, match="format = 99: is of a newer version"):
        load_config(str(preset), ["format=99"])


def test_a_runs_own_configuration_can_be_run_again(preset: Path, tmp_path: Path) -> None:
    config = load_config(str(preset), ["learner.name=nearest-mean"])
    for _ in run(config, tmp_path / "run"):
        pass
    assert load_config(str(tmp_path / "run/config.toml")) == config
    explicit = load_config(str(preset), ["learner.name=nearest-mean", "view.values=imagenet"])
    (tmp_path / "explicit.toml").write_text(written(explicit, {"size": 32, **explicit["view"]}))
    assert load_config(str(tmp_path / "explicit.toml")) == explicit


def test_a_run_of_another_format_is_another(preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(str(preset), ["learner.name=nearest-mean"])
    folder = run_folder(tmp_path, "small", config)
    for _ in run(config, folder):
        pass
    monkeypatch.setattr(identity, "FORMAT", 3)
    monkeypatch.setattr(identity, "SAME", (3,))
    assert run_folder(tmp_path, "small", config) != folder
    assert differences(config, folder) == ["format = 2 there, 3 here"]


def test_an_earlier_run_is_found_where_its_weights_are_not_at_hand(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "runs")
    folder = tmp_path / "runs/glyph-five-nearest-mean-47e75a70"
    file = folder / "config.toml"
    file.write_text(file.read_text().replace('name = "vit-glyphs"', 'name = "gone.npz"'))
    config = load_config("glyph-five-nearest-mean", [*SMALL, "backbone.name=gone.npz"])
    assert is_finished(folder, config)


def test_a_run_that_goes_on_elsewhere_says_so(preset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, folder = load_config(str(preset), ["learner.name=nearest-mean"]), tmp_path / "run"
    steps = run(config, folder, seconds=0)
    for _ in range(3):
        next(steps)
    steps.close()
    monkeypatch.setattr("promptpool.experiments.runner.__version__", "9.9")
    for _ in run(config, folder):
        pass
    found = read_run(folder).environment
    assert found["promptpool"] == "9.9"
    assert [each["promptpool"] for each in found["earlier"]] == [__version__]
