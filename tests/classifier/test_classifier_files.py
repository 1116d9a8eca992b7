"""A classifier on disk: the same again, and always the old version or the new one."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

from bad_classifiers import with_header
from image_files import write_images
from promptpool import ContinualClassifier
from promptpool.classifier import files
from promptpool.cli import app
from promptpool.errors import BadFileError
from promptpool.learners import adaptation, closed_form
from promptpool.learners.closed_form import ClosedForm
from promptpool.learners.state import state
from promptpool.learners.trial import Trial
from small_runs import write_weights
from toys import toy_examples

PICTURES = toy_examples(8, 1).batch(slice(None))
LABELS = [f"pattern {y}" for y in PICTURES.y.tolist()]
ASKED = toy_examples(5, 2).batch(slice(None)).x


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return write_weights(tmp_path / "vit.safetensors")


def taught(weights: Path, method: str = "closed-form") -> ContinualClassifier:
    values: dict[str, Any] = {"projections": 50} if method in ("closed-form", "ranpac") else {}
    if method == "prompts":
        method, values = "closed-form-prompts", {"adapt": "prompts"}
    classifier = ContinualClassifier(weights, method=method, **values)
    classifier.plan = replace(classifier.plan, least_steps=0)
    classifier.learn(PICTURES.x[:24], LABELS[:24])
    return classifier


@pytest.mark.parametrize("method", ["closed-form", "closed-form-prompts", "prompts", "l2p", "nearest-mean", "ranpac"])
def test_a_classifier_is_read_back_as_it_was(
    method: str, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adaptation, "LEAST_STEPS", 20)
    classifier = taught(weights, method)
    classifier.save(tmp_path / "shop")
    again = ContinualClassifier.load(tmp_path / "shop")
    again.plan = classifier.plan
    assert again.labels == classifier.labels
    assert again.lessons == classifier.lessons
    assert again.known.calibration == classifier.known.calibration
    for one, other in zip(classifier.predict(ASKED), again.predict(ASKED), strict=True):
        assert (one.label, one.guess) == (other.label, other.guess)
        assert one.confidence == pytest.approx(other.confidence, rel=1e-6)
    for each in (classifier, again):
        each.learn(PICTURES.x[24:], LABELS[24:])
    assert [a.guess for a in again.predict(ASKED)] == [a.guess for a in classifier.predict(ASKED)]


@pytest.mark.parametrize("trial", [Trial(0.2, 0.1), Trial()])
def test_what_was_decided_about_prompts_is_read_back(
    trial: Trial, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adaptation, "LEAST_STEPS", 20)
    monkeypatch.setattr(closed_form, "try_prompts", lambda *_, **__: trial)
    classifier = taught(weights, "closed-form-prompts")
    classifier.save(tmp_path / "shop")
    monkeypatch.undo()
    again = ContinualClassifier.load(tmp_path / "shop")
    assert again.learner.diagnostics([]) == classifier.learner.diagnostics([])
    assert again.learner.diagnostics([])["adapt"] == ("prompts" if trial.won else "none")
    assert [a.guess for a in again.predict(ASKED)] == [a.guess for a in classifier.predict(ASKED)]


def test_prompts_of_before_they_were_decided_on_are_still_read(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adaptation, "LEAST_STEPS", 20)
    classifier = taught(weights, "prompts")
    classifier.save(tmp_path / "shop")
    with_header(tmp_path / "shop", lambda header: header["values"].pop("adapt") and None)
    again = ContinualClassifier.load(tmp_path / "shop")
    assert again.values == {"adapt": "prompts"}
    assert [a.guess for a in again.predict(ASKED)] == [a.guess for a in classifier.predict(ASKED)]


@pytest.mark.parametrize("method", ["prompts", "closed-form-prompts"])
def test_sums_are_in_no_file_and_where_they_were_they_are_read(
    method: str, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adaptation, "LEAST_STEPS", 20)
    monkeypatch.setattr(closed_form, "try_prompts", lambda *_, **__: Trial(0.2, 0.1))
    classifier = taught(weights, method)
    assert isinstance(classifier.learner, ClosedForm)
    sums = classifier.learner.projected.gram.nbytes
    classifier.save(tmp_path / "shop")
    assert (tmp_path / "shop" / files.MODEL).stat().st_size < sums / 10
    monkeypatch.setattr(files, "_learned", lambda of: state(of.learner))
    classifier.save(tmp_path / "before")
    assert (tmp_path / "before" / files.MODEL).stat().st_size > sums
    for folder in (tmp_path / "shop", tmp_path / "before"):
        again = ContinualClassifier.load(folder)
        assert [a.guess for a in again.predict(ASKED)] == [a.guess for a in classifier.predict(ASKED)]


def test_prompts_of_another_learner_are_refused(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptation, "LEAST_STEPS", 20)
    classifier = taught(weights, "prompts")
    monkeypatch.setattr(files, "_weights_of_prompts", lambda learner: {"pool.keys": learner.pool.keys.detach()})
    classifier.save(tmp_path / "shop")
    monkeypatch.undo()
    with pytest.raises(BadFileError, match="the prompts are of another learner"):
        ContinualClassifier.load(tmp_path / "shop")


def test_the_card_and_the_config_say_what_it_is(weights: Path, tmp_path: Path) -> None:
    taught(weights).save(tmp_path / "shop")
    config = json.loads((tmp_path / "shop" / "config.json").read_text())
    assert config["labels"] == ["pattern 0", "pattern 1", "pattern 2"]
    assert config["backbone"]["origin"].startswith("sha256:")
    card = (tmp_path / "shop" / "README.md").read_text()
    assert "pattern 1" in card
    assert "ContinualClassifier.load" in card


def test_versions_are_kept_and_undone(weights: Path, tmp_path: Path) -> None:
    classifier, folder = taught(weights), tmp_path / "shop"
    classifier.save(folder)
    before = [answer.guess for answer in classifier.predict(ASKED)]
    classifier.learn(PICTURES.x[24:], LABELS[24:])
    classifier.save(folder)
    assert files.versions(folder) == [1, 2]
    assert files.undo(folder) == 1
    assert [answer.guess for answer in ContinualClassifier.load(folder).predict(ASKED)] == before
    with pytest.raises(BadFileError, match="no version before this one"):
        files.undo(folder)
    for _ in range(files.KEPT + 3):
        classifier.save(folder)
    assert len(files.versions(folder)) == files.KEPT


def test_another_backbone_is_refused_with_both_hashes(weights: Path, tmp_path: Path) -> None:
    taught(weights).save(tmp_path / "shop")
    other = tmp_path / "other.safetensors"
    with safe_open(weights, framework="pt") as file:
        metadata = file.metadata()
    save_file({name: value + 1 for name, value in load_file(weights).items()}, other, metadata=metadata)
    with pytest.raises(BadFileError, match=r"taught on another backbone: sha256:.*sha256:"):
        ContinualClassifier.load(tmp_path / "shop", backbone=other)
    moved = weights.rename(tmp_path / "moved.safetensors")
    assert ContinualClassifier.load(tmp_path / "shop", backbone=moved).labels


@pytest.mark.parametrize("size", [0, 10, 200, -1])
def test_a_damaged_file_is_refused(size: int, weights: Path, tmp_path: Path) -> None:
    taught(weights).save(tmp_path / "shop")
    path = tmp_path / "shop" / files.MODEL
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(BadFileError, match="damaged, or no classifier"):
        ContinualClassifier.load(tmp_path / "shop")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("labels", torch.full((24,), 9)),
        ("labels", torch.full((24,), -1)),
        ("labels", torch.zeros(24)),
        ("labels", torch.zeros(3, dtype=torch.long)),
        ("rows", torch.zeros(24, 3, dtype=torch.half)),
        ("rows", torch.full((24, 128), torch.nan, dtype=torch.half)),
    ],
)
def test_a_hostile_file_is_refused(name: str, value: torch.Tensor, weights: Path, tmp_path: Path) -> None:
    taught(weights).save(tmp_path / "shop")
    path, header = tmp_path / "shop" / files.MODEL, files.read_header(tmp_path / "shop")
    tensors = load_file(path)
    place = dict(dict(header["learner"]["dict"])["learned"]["dict"])[name]["tensor"]
    save_file(tensors | {place: value}, path, metadata={"promptpool": json.dumps(header)})
    with pytest.raises(BadFileError, match="damaged"):
        ContinualClassifier.load(tmp_path / "shop")


def test_a_later_format_says_so(weights: Path, tmp_path: Path) -> None:
    taught(weights).save(tmp_path / "shop")
    path, header = tmp_path / "shop" / files.MODEL, files.read_header(tmp_path / "shop")
    header["format"] = "promptpool-classifier-9"
    save_file(load_file(path), path, metadata={"promptpool": json.dumps(header)})
    with pytest.raises(BadFileError, match="later version of promptpool"):
        ContinualClassifier.load(tmp_path / "shop")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("values", "projections"), 10**12),
        (("backbone", "image_size"), 10**7),
        (("backbone", "origin"), None),
        (("version",), "one"),
        (("labels",), ["a", "a", "b"]),
        (("labels",), ["a", "\x1b[2J", "b"]),
        (("calibration", "temperature"), 0),
        (("lessons",), [{}]),
    ],
)
def test_a_header_that_cannot_be_is_refused(path: tuple[str, ...], value: Any, weights: Path, tmp_path: Path) -> None:
    taught(weights).save(tmp_path / "shop")
    file, header = tmp_path / "shop" / files.MODEL, files.read_header(tmp_path / "shop")
    place = header
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    save_file(load_file(file), file, metadata={"promptpool": json.dumps(header)})
    with pytest.raises(BadFileError, match="damaged"):
        ContinualClassifier.load(tmp_path / "shop")
    with pytest.raises(BadFileError, match="damaged"):
        files.undo(tmp_path / "shop")


def test_a_folder_of_other_things_is_not_written_to(weights: Path, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "README.md").write_text("mine")
    with pytest.raises(BadFileError, match="a folder with other things in it"):
        taught(weights).save(tmp_path / "project")
    assert (tmp_path / "project" / "README.md").read_text() == "mine"


def test_a_version_that_was_never_finished_is_no_version(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(28, f"No space left on device: {source.name}", str(target))

    classifier, folder = taught(weights), tmp_path / "shop"
    for _ in range(2):  # the first time there is no classifier yet
        monkeypatch.setattr(shutil, "copyfile", full)
        with pytest.raises(OSError, match="No space"):
            classifier.save(folder)
        monkeypatch.undo()
        classifier.save(folder)
    assert files.versions(folder) == [1, 2]
    assert files.undo(folder) == 1


def test_two_at_once_are_refused(weights: Path, tmp_path: Path) -> None:
    classifier = taught(weights)
    with files.alone(tmp_path / "shop"), pytest.raises(BadFileError, match="another process is at work"):
        classifier.save(tmp_path / "shop")


def test_a_full_disk_leaves_the_old_version(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier, folder = taught(weights), tmp_path / "shop"
    classifier.save(folder)
    before = (folder / files.MODEL).read_bytes()

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, f"No space left on device for {len(content)} bytes", str(path))

    classifier.learn(PICTURES.x[24:], LABELS[24:])
    monkeypatch.setattr(files, "write_whole", full)
    with pytest.raises(OSError, match=r"No space left.*0002\.safetensors"):
        classifier.save(folder)
    assert (folder / files.MODEL).read_bytes() == before


def typed(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_thumbnails_of_a_lesson_go_when_it_is_undone(weights: Path, tmp_path: Path) -> None:
    classifier = ContinualClassifier(weights, projections=50, thumbnails=True)
    classifier.learn(PICTURES.x[:16], LABELS[:16])
    classifier.save(tmp_path / "shop")
    first = sorted((tmp_path / "shop" / "thumbnails").iterdir())
    classifier.learn(PICTURES.x[16:24], LABELS[16:24])
    classifier.save(tmp_path / "shop")
    assert len(list((tmp_path / "shop" / "thumbnails").iterdir())) == 24
    files.undo(tmp_path / "shop")
    assert sorted((tmp_path / "shop" / "thumbnails").iterdir()) == first


def test_thumbnails_go_along_to_another_folder(weights: Path, tmp_path: Path) -> None:
    classifier = ContinualClassifier(weights, projections=50, thumbnails=True)
    classifier.learn(PICTURES.x[:16], LABELS[:16])
    classifier.save(tmp_path / "shop")
    names = sorted(path.name for path in (tmp_path / "shop" / "thumbnails").iterdir())
    classifier.save(tmp_path / "again")
    ContinualClassifier.load(tmp_path / "shop").save(tmp_path / "copy")
    for name in ("again", "copy"):
        assert sorted(path.name for path in (tmp_path / name / "thumbnails").iterdir()) == names


def test_a_folder_of_known_pictures_makes_no_version(weights: Path, tmp_path: Path) -> None:
    pictures = write_images(tmp_path / "pictures", [f"{name}/{n}.png" for name in "ab" for n in range(3)])
    assert typed("learn", tmp_path / "shop", pictures, "--backbone", weights).exit_code == 0
    again = typed("learn", tmp_path / "shop", pictures)
    assert (again.exit_code, "nothing new was learned" in again.output) == (0, True)
    assert "6 of pictures that it had already" in again.output
    assert files.versions(tmp_path / "shop") == [1]
    assert typed("rename", tmp_path / "shop", "a", "c d").exit_code == 0
    renamed = " ".join(typed("learn", tmp_path / "shop", pictures).output.split())
    assert "known: a has pictures that were learned as c d before" in renamed
    assert "makes one class of the two" in renamed
    assert ContinualClassifier.load(tmp_path / "shop").lessons[-1].known_as == (("a", "c d"),)


def test_thumbnails_of_both_go_into_a_merged_one(weights: Path, tmp_path: Path) -> None:
    for name in "ab":
        pictures = write_images(tmp_path / f"{name} pictures", [f"{name}/{n}.png" for n in range(3)])
        assert typed("learn", tmp_path / name, pictures, "--backbone", weights, "--thumbnails").exit_code == 0
    merged = typed("merge", tmp_path / "a", tmp_path / "b", "--into", tmp_path / "both")
    assert "knows 2 classes" in merged.output
    names = {path.name for each in "ab" for path in (tmp_path / each / "thumbnails").iterdir()}
    assert {path.name for path in (tmp_path / "both" / "thumbnails").iterdir()} == names


def test_the_commands_teach_and_ask(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where pages go
    shop, months = tmp_path / "shop", []
    for month, labels in (("january", "ab"), ("february", "bc")):
        names = [f"{label}/{n}.png" for label in labels for n in range(6)]
        months.append(write_images(tmp_path / month, names))
    result = typed("learn", shop, months[0], "--backbone", weights)
    assert result.exit_code == 0, result.output
    result = typed("learn", shop, months[1])
    assert result.exit_code == 0, result.output
    assert re.search("new classes +c\n", re.sub(" +\n", "\n", result.output))
    assert "shop knows 3 classes" in result.output
    lines = typed("predict", shop, months[0], "--csv").stdout.splitlines()
    assert lines[0] == "file,label,confidence,guess,error"
    assert len(lines) == 13
    answer = json.loads(typed("predict", shop, months[0] / "a" / "0.png", "--json", "--top", "2").stdout)
    assert len(answer["top"]) == 2
    for words in (("show", shop), ("history", shop), ("evaluate", shop, months[1], "--out", tmp_path / "page.html")):
        assert typed(*words).exit_code == 0
    assert "knows 2 classes: b, c" in typed("forget", shop, "a").output
    assert "knows 2 classes: b, dog" in typed("rename", shop, "c", "dog").output
    assert typed("undo", shop).output.strip().endswith("version 3 again: 2 lessons, 2 classes: b, c")
    assert "is the same classifier" in typed("merge", shop, shop, "--into", tmp_path / "both").stderr
    refused = typed("learn", shop, months[0], "--method", "l2p")
    assert refused.exit_code == 2
    assert "was made with closed-form" in refused.stderr
    assert typed("predict", tmp_path / "nothing", months[0]).exit_code == 2
    assert typed("forget", shop, "zebra").stderr.startswith("promptpool: 'zebra': no such class")
    assert typed("learn", months[0], months[1]).exit_code == 2  # a folder with other things in it


def test_pictures_of_a_test_folder_are_evaluated(weights: Path, tmp_path: Path) -> None:
    names = [f"{part}/{label}/{n}.png" for part in ("train", "test") for label in "ab" for n in range(3)]
    both = write_images(tmp_path / "both", [*names, "test/a/3.png"])
    assert "6 in" in typed("learn", tmp_path / "shop", both, "--backbone", weights).stdout
    told = typed("evaluate", tmp_path / "shop", both, "--out", tmp_path / "page.html").stdout
    assert "of 7 pictures are right" in told
