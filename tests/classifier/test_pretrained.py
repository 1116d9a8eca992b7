"""Classifiers on the Hugging Face hub, against a server on this machine that takes and gives them as the hub does."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.repocard import metadata_load

from local_hub import TOKEN
from local_hub_uploads import READING, UploadHub, serving_uploads
from promptpool import ContinualClassifier
from promptpool.classifier import files
from promptpool.data import downloads
from promptpool.errors import BadFileError
from published import random_vit, write_transformers
from small_runs import write_weights
from toys import toy_examples

PICTURES = toy_examples(8, 1).batch(slice(None))
LABELS = [f"pattern {y}" for y in PICTURES.y.tolist()]
ASKED = toy_examples(5, 2).batch(slice(None)).x
NAME = "owner/shop"
# Of huggingface_hub, which calls its HTTP library by an old keyword.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPOOL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(downloads, "PAUSES", (0.0,))
    monkeypatch.setattr(downloads, "TIMEOUT", 20.0)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[UploadHub]:
    with serving_uploads(tmp_path / "served") as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_weights(tmp_path_factory.mktemp("weights") / "vit.safetensors")


@pytest.fixture
def taught(weights: Path) -> ContinualClassifier:
    classifier = ContinualClassifier(weights, projections=50)
    classifier.learn(PICTURES.x[:24], LABELS[:24])
    return classifier


def answers(classifier: ContinualClassifier) -> list[str]:
    return [answer.guess for answer in classifier.predict(ASKED)]


def refused(call: Callable[..., Any], *given: Any, **values: Any) -> str:
    with pytest.raises(BadFileError) as caught:
        call(*given, **values)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def publish(hub: UploadHub, name: str, folder: Path) -> str:
    hub.heads.setdefault(name, {})
    return hub.commit(name, {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}, "by hand")


def test_what_is_pushed_is_fetched_and_answers_alike(
    taught: ContinualClassifier, weights: Path, hub: UploadHub, tmp_path: Path
) -> None:
    address = taught.push_to_hub(NAME, token=TOKEN, commit_message="january")
    commit = hub.heads[NAME]["main"]
    assert address == f"{hub.endpoint}/{NAME}/commit/{commit}"
    assert hub.messages == ["january"]
    assert sorted(path.name for path in hub.at(NAME, commit).iterdir()) == [files.CARD, files.CONFIG, files.MODEL]
    assert len(hub.stored) == 1
    assert hub.tokens[f"/storage/{next(iter(hub.stored))}"] is None
    hub.asked.clear()
    again = ContinualClassifier.from_pretrained(NAME, backbone=weights)
    assert again.lessons == taught.lessons
    for one, other in zip(taught.predict(ASKED), again.predict(ASKED), strict=True):
        assert (one.label, one.guess) == (other.label, other.guess)
        assert one.confidence == pytest.approx(other.confidence, rel=1e-6)
    assert not [path for path in hub.asked if path.endswith(".md")]
    assert files.is_classifier(tmp_path / "cache/classifiers" / NAME / commit)


def test_a_folder_is_what_save_and_load_have(taught: ContinualClassifier, tmp_path: Path) -> None:
    taught.save_pretrained(tmp_path / "shop")
    for folder in (tmp_path / "shop", str(tmp_path / "shop")):
        assert answers(ContinualClassifier.from_pretrained(folder)) == answers(taught)
    with pytest.raises(ValueError, match=r"revision = 'main': .*shop is a folder, and has none"):
        ContinualClassifier.from_pretrained(tmp_path / "shop", revision="main")
    for name in ("nowhere", "a/b/c", tmp_path / "nowhere"):
        assert refused(ContinualClassifier.from_pretrained, name) == (
            f"{name}: neither a folder here nor a hub name such as owner/name"
        )


def test_nothing_of_this_machine_is_pushed(taught: ContinualClassifier, weights: Path, hub: UploadHub) -> None:
    taught.new_thumbnails[5] = b"picture"
    taught.push_to_hub(NAME, token=TOKEN, licence="cc-by-4.0")
    folder = hub.at(NAME, hub.heads[NAME]["main"])
    for path in folder.iterdir():
        assert str(weights.parent).encode() not in path.read_bytes()
    assert json.loads((folder / files.CONFIG).read_text())["backbone"]["name"] == weights.name
    assert taught.backbone_name == str(weights)
    assert taught.new_thumbnails == {5: b"picture"}, "still to be saved"
    assert not [path for path in folder.rglob("*") if path.suffix == ".jpg"]
    card = metadata_load(folder / files.CARD)
    assert card == {"library_name": "promptpool", "license": "cc-by-4.0", "pipeline_tag": "image-classification"}
    assert f'ContinualClassifier.from_pretrained("{NAME}")' in (folder / files.CARD).read_text()
    assert "--backbone FILE" in refused(ContinualClassifier.from_pretrained, NAME)


def test_a_backbone_of_the_hub_is_fetched_too(hub: UploadHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny").mkdir()
    write_transformers(tmp_path / "tiny", random_vit(layer_scale=True))
    publish(hub, "owner/tiny", tmp_path / "tiny")
    classifier = ContinualClassifier("owner/tiny", projections=50)
    classifier.learn(PICTURES.x, LABELS)
    classifier.push_to_hub(NAME, token=TOKEN)
    card = metadata_load(hub.at(NAME, hub.heads[NAME]["main"]) / files.CARD)
    assert card is not None
    assert card["base_model"] == "owner/tiny"
    monkeypatch.setenv("PROMPTPOOL_CACHE", str(tmp_path / "elsewhere"))
    assert answers(ContinualClassifier.from_pretrained(NAME)) == answers(classifier)


def test_every_push_is_a_commit_that_stays(taught: ContinualClassifier, weights: Path, hub: UploadHub) -> None:
    taught.push_to_hub(NAME, token=TOKEN)
    first, before = hub.heads[NAME]["main"], answers(taught)
    hub.heads[NAME]["refs/pr/1"] = first
    taught.learn(PICTURES.x[24:], LABELS[24:])
    taught.push_to_hub(NAME, token=TOKEN)
    assert answers(ContinualClassifier.from_pretrained(NAME, backbone=weights)) == answers(taught) != before
    for revision in (first, "refs/pr/1"):
        earlier = ContinualClassifier.from_pretrained(NAME, revision=revision, backbone=weights)
        assert answers(earlier) == before
    said = refused(ContinualClassifier.from_pretrained, NAME, revision="../x")
    assert said == "revision = '../x': owner/shop has no such branch, tag or commit"


def test_what_was_fetched_is_there_without_a_network(
    taught: ContinualClassifier, weights: Path, hub: UploadHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    taught.push_to_hub(NAME, token=TOKEN)
    commit = hub.heads[NAME]["main"]
    ContinualClassifier.from_pretrained(NAME, backbone=weights)
    hub.asked.clear()
    ContinualClassifier.from_pretrained(NAME, revision=commit, backbone=weights)
    assert hub.asked == [], "a commit does not change"
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert answers(ContinualClassifier.from_pretrained(NAME, backbone=weights)) == answers(taught)
    said = refused(ContinualClassifier.from_pretrained, "owner/other")
    assert said == "owner/other: the hub cannot be reached (Connection refused), and no earlier copy is here"


def test_a_private_one_needs_a_token(
    taught: ContinualClassifier, weights: Path, hub: UploadHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    taught.push_to_hub(NAME, private=True, token=TOKEN)
    assert hub.private == {NAME}
    assert "a private one needs token= or HF_TOKEN" in refused(ContinualClassifier.from_pretrained, NAME)
    assert ContinualClassifier.from_pretrained(NAME, token=TOKEN, backbone=weights).labels == taught.labels
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert ContinualClassifier.from_pretrained(NAME, backbone=weights).labels == taught.labels
    taught.push_to_hub("open")
    assert set(hub.heads) == {NAME, "me/open"}
    asked = len(hub.stored)
    taught.learn(PICTURES.x[24:], LABELS[24:])
    said = refused(taught.push_to_hub, "me/open", private=True)
    assert said.startswith("me/open: private = True: is public already, and stays so")
    assert len(hub.stored) == asked


def test_a_push_that_fails_says_why(
    taught: ContinualClassifier, hub: UploadHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refused(taught.push_to_hub, NAME)
    assert said == "owner/shop: pushing needs a token that may write: token=, HF_TOKEN, or hf auth login"
    for token in ("hf_of_nobody", READING):
        assert "does not let this token write there" in refused(taught.push_to_hub, NAME, token=token)
    assert hub.heads == {}
    for name in ("", "a/b/c", "../b", "a b/c"):
        with pytest.raises(ValueError, match="must read owner/name"):
            taught.push_to_hub(name, token=TOKEN)
    with pytest.raises(ValueError, match="must be as the hub writes it"):
        taught.push_to_hub(NAME, token=TOKEN, licence="mit\nbase_model: x")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert refused(taught.push_to_hub, NAME, token=TOKEN).startswith("owner/shop: cannot be pushed (")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModuleNotFoundError, match=r"push_to_hub needs the extra: pip install 'promptpool\[hub\]'"):
        taught.push_to_hub(NAME, token=TOKEN)


def test_fetching_needs_no_further_package(
    taught: ContinualClassifier, weights: Path, hub: UploadHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taught.save(tmp_path / "shop")
    publish(hub, NAME, tmp_path / "shop")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert ContinualClassifier.from_pretrained(NAME, backbone=weights).labels == taught.labels


@pytest.mark.parametrize("config", ['{"model_type": "dinov2"}', "[]", "{", '{"format": 5}', "[" * 100_000])
def test_another_kind_of_model_is_refused_before_its_weights(config: str, hub: UploadHub, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / files.CONFIG).write_text(config)
    (tmp_path / "other" / files.MODEL).write_bytes(b"weights")
    publish(hub, NAME, tmp_path / "other")
    said = refused(ContinualClassifier.from_pretrained, NAME)
    assert said.startswith("owner/shop: no classifier of ours, by its config.json; if it is a backbone, teach it")
    assert not [path for path in hub.asked if path.endswith(files.MODEL)]


def test_what_is_no_classifier_at_all(hub: UploadHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / files.CONFIG).write_text("{}")
    publish(hub, NAME, tmp_path / "other")
    said = "owner/shop: no classifier of ours (it needs config.json and model.safetensors)"
    assert refused(ContinualClassifier.from_pretrained, NAME) == said
    (tmp_path / "other" / files.MODEL).write_bytes(b"weights")
    publish(hub, NAME, tmp_path / "other")
    monkeypatch.setattr("promptpool.backbones.hub.LONGEST", 1000)
    (tmp_path / "other" / files.CONFIG).write_text(" " * 1001)
    publish(hub, NAME, tmp_path / "other")
    said = "owner/shop: config.json must have at most 1,000 bytes"
    assert refused(ContinualClassifier.from_pretrained, NAME) == said


NONSENSE = [
    b"<html/>",
    b"[]",
    b"{}",
    b'{"sha": 5, "siblings": []}',
    b'{"sha": "../..", "siblings": []}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("content", NONSENSE)
def test_a_hub_that_answers_nonsense(content: bytes, hub: UploadHub, tmp_path: Path) -> None:
    hub.plan = [lambda answer: answer.reply(200, content)]
    said = refused(ContinualClassifier.from_pretrained, NAME)
    assert said == "owner/shop: the hub does not answer well (no description of a model)"
    assert not (tmp_path / "cache").exists()


def test_bytes_that_are_not_the_published_ones(
    taught: ContinualClassifier, hub: UploadHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    taught.push_to_hub(NAME, token=TOKEN)
    commit = hub.heads[NAME]["main"]
    described, file = hub.described_at(NAME, commit), hub.at(NAME, commit) / files.MODEL
    file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes()))
    monkeypatch.setattr(hub, "described_at", lambda *_: described)
    assert "owner/shop: model.safetensors cannot be downloaded" in refused(ContinualClassifier.from_pretrained, NAME)


def test_a_damaged_or_hostile_classifier_is_refused(
    taught: ContinualClassifier, weights: Path, hub: UploadHub, tmp_path: Path
) -> None:
    taught.save(tmp_path / "shop")
    content = (tmp_path / "shop" / files.MODEL).read_bytes()
    size, wrong = b'\\"image_size\\": 32', b'\\"image_size\\": -2'
    assert size in content
    for message, changed in (
        ("damaged, or no classifier of ours", content[:-1]),
        ("its checksum is another", content.replace(size, wrong)),
        ("its checksum is another", content.replace(b"closed-form", b"closed-worm")),
    ):
        (tmp_path / "shop" / files.MODEL).write_bytes(changed)
        publish(hub, NAME, tmp_path / "shop")
        assert message in refused(ContinualClassifier.from_pretrained, NAME, backbone=weights)
