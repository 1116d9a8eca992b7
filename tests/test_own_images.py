"""A folder of one's own images, from the command line to the page."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from PIL import Image
from torch import Tensor
from typer.testing import CliRunner, Result

from image_files import KINDS, write_images
from promptpool.backbones.vit import ViT
from promptpool.cli import app
from promptpool.data.glyphs.sets import glyphs_validation
from promptpool.data.stream import Batch
from promptpool.experiments.build import build
from promptpool.experiments.config import ConfigError, load_config
from promptpool.experiments.runner import run
from promptpool.metrics import average_accuracy
from promptpool.training.run_folder import read_run
from small_runs import write_weights

CLASSES, EACH = 6, 12


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPOOL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PROMPTPOOL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")


@cache
def some_characters() -> Batch:
    return glyphs_validation(train_per_class=EACH, test_per_class=1).train.batch(slice(0, CLASSES * EACH))


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
    """Six characters in class folders, in five formats and many sizes, with a note among them."""
    characters = some_characters()
    for number, (image, label) in enumerate(zip(characters.x, characters.y.tolist(), strict=True)):
        folder = tmp_path / "drawn" / f"character {label + 1}"
        folder.mkdir(parents=True, exist_ok=True)
        suffix = list(KINDS)[number % len(KINDS)]
        picture = Image.fromarray(image.permute(1, 2, 0).numpy()).resize((60 + number % 7, 60 + number % 4))
        picture.save(folder / f"{number}{suffix}")
    return write_images(tmp_path / "drawn", ["character 1/about these.txt"])


@pytest.fixture
def quick(tmp_path: Path) -> list[str]:
    """Weights and a plan that take no time."""
    return [f"backbone.name={write_weights(tmp_path / 'vit.safetensors')}", "plan.epochs=2", "plan.least_steps=0"]


def typed(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_folder_of_images_is_learned(drawn: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = typed("run", "own", "plan.epochs=4", "--data", drawn, "--folder", folder)
    assert result.exit_code == 0, result.output
    assert "reading images: 73" in result.output
    assert "1 file skipped: character 1/about these.txt (not an image" in result.output
    found = read_run(folder)
    assert found.finished
    assert len(found.records) == 3
    assert average_accuracy(found.accuracy) > 2 / CLASSES
    assert found.config["view"]["size"] == 32
    assert found.environment["skipped"][0][0] == "character 1/about these.txt"
    assert found.environment["class_names"] == [f"character {number + 1}" for number in range(CLASSES)]
    again = typed("run", "own", "plan.epochs=4", "--data", drawn, "--folder", folder)
    assert again.exit_code == 0
    assert "is finished" in again.output
    assert "1 file skipped" in again.output


@pytest.mark.parametrize("more", [["--dry-run"], []])
def test_weights_that_know_drawn_characters_only_say_so_at_once(more: list[str], drawn: Path, tmp_path: Path) -> None:
    result = typed("run", "own-nearest-mean", "--data", drawn, "--folder", tmp_path / "run", *more)
    assert result.exit_code == 0, result.output
    first = result.output.splitlines()[0]
    assert first.startswith("note: the weights in the package know drawn characters only; for photographs add ")
    names = [word.partition("=") for word in first.split() if word.startswith("backbone.")]
    values = ["=".join((key, value.rstrip(","))) for key, _, value in names]
    for given in (values[:2], values[2:]):
        assert load_config("own", given)["backbone"]["name"] in given[0], "what it says can be typed"


def test_other_weights_and_other_data_need_no_such_words(drawn: Path, quick: list[str], tmp_path: Path) -> None:
    for words in (["own", *quick, "--data", str(drawn)], ["glyphs100-nearest-mean"]):
        result = typed("run", *words, "--dry-run", "--runs", tmp_path / "runs")
        assert result.exit_code == 0, result.output
        assert "drawn characters only" not in result.output


def test_a_test_crop_needs_pictures_that_are_not_squeezed(drawn: Path, quick: list[str]) -> None:
    values = [*quick, f"dataset.folder={drawn}", "view.test_crop=0.875"]
    with pytest.raises(ConfigError, match=r"^dataset\.fit = 'whole': .*dataset\.fit=centre or view\.test_crop=none"):
        load_config("own", values)
    built = build(load_config("own", [*values, "dataset.fit=centre"]))
    x = built.stream.tests[0].batch(slice(0, 2)).x
    assert x.shape == (2, 3, 37, 37), "of which the view looks at 32"
    assert built.learner.view.plain(x).shape == (2, 3, 32, 32)


def test_strictness_stops_with_the_file_named(drawn: Path, tmp_path: Path) -> None:
    result = typed("run", "own", "--data", drawn, "--strict", "--runs", tmp_path / "runs")
    assert result.exit_code == 2
    (line,) = result.stderr.strip().splitlines()
    assert "character 1/about these.txt: not an image" in line
    assert not (tmp_path / "runs").exists()


def test_a_run_on_a_folder_goes_on_where_it_stopped(drawn: Path, quick: list[str], tmp_path: Path) -> None:
    whole = typed("run", "own-l2p", *quick, "--data", drawn, "--folder", tmp_path / "whole")
    assert whole.exit_code == 0, whole.output
    config = load_config("own-l2p", [*quick, f"dataset.folder={drawn}"])
    steps = run(config, tmp_path / "parts", seconds=0)
    next(steps)
    assert [step.step for step, _ in zip(steps, range(6), strict=False)][-1] == 7
    steps.close()
    rest = typed("run", "own-l2p", *quick, "--data", drawn, "--folder", tmp_path / "parts")
    assert rest.exit_code == 0, rest.output
    assert "1 file skipped" in rest.output
    for name in ("records.jsonl", "environment.json"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_another_image_is_another_run(drawn: Path, quick: list[str], tmp_path: Path) -> None:
    config = load_config("own", [*quick, f"dataset.folder={drawn}"])
    next(run(config, tmp_path / "run", seconds=0))
    Image.new("RGB", (50, 50), "red").save(drawn / "character 2/red.png")
    result = typed("run", "own", *quick, "--data", drawn, "--folder", tmp_path / "run")
    assert result.exit_code == 2
    assert "belongs to a run with another stream" in result.stderr


def test_domains_have_a_page(quick: list[str], tmp_path: Path) -> None:
    files = [f"{domain}/{label}/{n}.png" for domain in ("ink", "oil", "chalk") for label in "abc" for n in range(5)]
    folder = write_images(tmp_path / "domains", files)
    result = typed("run", "own", *quick, "--data", folder, "--folder", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert "3 experiences, 3 classes" in result.output
    assert "forgetting" in result.output
    assert all(None not in record.correct for record in read_run(tmp_path / "run").records)
    page = typed("report", tmp_path / "run", "--out", tmp_path / "page")
    assert page.exit_code == 0, page.output
    assert (tmp_path / "page/report.html").exists()


def test_so_many_classes_per_task(drawn: Path, quick: list[str], tmp_path: Path) -> None:
    result = typed("run", "own", *quick, "scenario.classes_per_task=3", "--data", drawn, "--folder", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert "2 experiences, 6 classes" in result.output


def test_a_dry_run_names_what_would_be_skipped(drawn: Path, quick: list[str], tmp_path: Path) -> None:
    result = typed("run", "own", *quick, "--data", drawn, "--dry-run", "--runs", tmp_path / "runs")
    assert result.exit_code == 0, result.output
    assert "1 file skipped: character 1/about these.txt" in result.output
    assert "20, 20, 20" in result.output
    assert not (tmp_path / "runs").exists()


def test_images_are_as_large_as_the_backbone_has_them(drawn: Path, quick: list[str]) -> None:
    for size, given in ((32, []), (32, ["dataset.size=none"]), (48, ["dataset.size=48"])):
        built = build(load_config("own", [*quick, f"dataset.folder={drawn}", *given]))
        assert built.stream.tests[0].batch(slice(0, 1)).x.shape == (1, 3, size, size)
        assert [name for name, _ in built.stream.notes.skipped] == ["character 1/about these.txt"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["own"], "dataset.folder is missing: give --data FOLDER"),
        (["own", "--data", "nowhere"], "nowhere: no such file or folder"),
        (["own", "--data", "."], "holds no files; expected CLASS/image"),
        (["own", "dataset.held_out=2", "--data", "."], "dataset.held_out = 2: must be above 0 and below 1"),
        (["own", "dataset.fit=all", "--data", "images"], "dataset.fit = 'all': must be one of whole, centre"),
        (["own", "scenario.classes_per_task=9", "--data", "images"], "scenario.classes_per_task = 9: must lie between"),
        (["own", "scenario.name=class-incremental", "--data", "images"], "does not fit the data set own"),
        (["own", "dataset.size=-1", "--data", "images"], "dataset.size = -1: must be at least 1"),
        (["own", "dataset.size=0", "--data", "images"], "dataset.size = 0: must be at least 1, or none"),
        (["own", "scenario.classes_per_task=0", "--data", "images"], "scenario.classes_per_task = 0: must lie between"),
        (["own", "scenario.notes=none", "--data", "images"], "scenario.notes: no such key"),
        (["glyphs100-l2p", "--strict"], "--strict: the data set glyphs100 has no files"),
    ],
)
def test_mistakes_are_one_line(words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    if "images" in words:
        write_images(tmp_path / "empty/images", [f"{label}/{n}.png" for label in "abcd" for n in range(3)])
    result = typed("run", *words, "--runs", tmp_path / "runs")
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    assert said in line
    assert not (tmp_path / "runs").exists()


def test_data_of_published_sets_lie_where_told(tmp_path: Path) -> None:
    preset = tmp_path / "core50.toml"
    preset.write_text('[dataset]\nname = "core50"\n[scenario]\nname = "domain-incremental"\n[learner]\nname = "l2p"\n')
    (tmp_path / "elsewhere").mkdir()
    result = typed("run", preset, "--data", tmp_path / "elsewhere")
    assert result.exit_code == 2
    assert f"{tmp_path / 'elsewhere' / 'core50'}: CORe50 is not there" in result.stderr


def test_a_data_set_of_ones_own_fits_its_scenario_only(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", [f"{label}/{n}.png" for label in "abcd" for n in range(3)])
    config = load_config("own", [f"dataset.folder={folder}"])
    with pytest.raises(ConfigError, match="does not fit the data set own"):
        build({**config, "scenario": {"name": "domain-incremental"}})
    with pytest.raises(ConfigError, match="does not fit the data set glyphs100"):
        build({**config, "dataset": {"name": "glyphs100", "train_per_class": 2, "test_per_class": 1}})


def test_an_environment_says_when_nothing_was_skipped(quick: list[str], tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", [f"{label}/{n}.png" for label in "abcd" for n in range(3)])
    result = typed("run", "own", *quick, "learner.name=l2p", "--data", folder, "--folder", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "run/environment.json").read_text())["skipped"] == []
    assert "skipped" not in result.output


def test_a_folder_of_published_sets_must_be_there(tmp_path: Path) -> None:
    typed = ["run", "glyphs100-nearest-mean", "--data", str(tmp_path / "nowhere"), "--runs", str(tmp_path)]
    result = CliRunner().invoke(app, typed)
    assert result.exit_code == 2
    assert result.stderr == f"promptpool: --data {tmp_path / 'nowhere'}: no such folder\n"


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes every query and every embedding of images that is computed from now on."""
    passes: list[str] = []
    encode, embed = ViT.encode, ViT.embed

    def encoded(self: ViT, tokens: Tensor, rows: int | None = None, first: int = 0) -> Tensor:
        if rows == 1:
            passes.append("query")
        return encode(self, tokens, rows, first)

    def embedded(self: ViT, x: Tensor) -> Tensor:
        passes.append("embedding")
        return embed(self, x)

    monkeypatch.setattr(ViT, "encode", encoded)
    monkeypatch.setattr(ViT, "embed", embedded)
    monkeypatch.delenv("PROMPTPOOL_FEATURES_GB")
    return passes


@pytest.mark.parametrize(
    ("run", "what"),
    [
        ("own-l2p", "query"),  # it needs the tokens of images again
        ("own-closed-form", "embedding"),
        ("own-closed-form learner.adapt=prompts", "query"),  # prompts are learned again
    ],
)
def test_a_second_run_computes_no_query(
    drawn: Path, quick: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str, what: str
) -> None:
    passes = counted(monkeypatch)
    words: list[str | Path] = ["run", *run.split(), *quick, "--data", drawn]
    first = typed(*words, "--folder", tmp_path / "first")
    assert first.exit_code == 0, first.output
    assert what in passes
    passes.clear()
    assert typed(*words, "--folder", tmp_path / "again").exit_code == 0
    assert what not in passes, "all were in the cache"
    records = [(tmp_path / name / "records.jsonl").read_bytes() for name in ("first", "again")]
    assert records[0] == records[1]


@pytest.mark.parametrize("first", ["closed-form", "l2p"])
def test_methods_tried_one_after_another_look_at_images_once(
    drawn: Path, quick: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    passes = counted(monkeypatch)
    assert typed("run", f"own-{first}", *quick, "--data", drawn, "--folder", tmp_path / first).exit_code == 0
    passes.clear()
    for method in ("nearest-mean", "ranpac", "masked-linear", "ft-seq-frozen"):
        shown = typed("run", f"own-{method}", *quick, "--data", drawn, "--folder", tmp_path / method)
        assert shown.exit_code == 0, shown.output
    assert not passes
