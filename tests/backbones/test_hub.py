"""Hub names, against a server on this machine that answers as the hub does, with files in the layouts it has."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from huggingface_hub import HfApi
from safetensors.torch import load_file

import promptpool.backbones.hub as module
from local_hub import COMMIT, TOKEN, Answer, Hub, serving_hub
from promptpool.backbones import weights
from promptpool.backbones.hub import fetch, find, is_hub_name, licence, look_up
from promptpool.backbones.known import KNOWN, meant
from promptpool.backbones.positions import resize_positions
from promptpool.backbones.vit import ViT
from promptpool.data import downloads
from promptpool.errors import BadFileError
from promptpool.files import weights_folder
from promptpool.progress import heard_by
from published import (
    all_rows,
    images,
    random_vit,
    tensors_of,
    transformers_names,
    write_timm_folder,
    write_transformers,
)


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, folder in {"PROMPTPOOL_WEIGHTS": "weights", "HF_HUB_CACHE": "cache"}.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(downloads, "PAUSES", (0.0,))
    monkeypatch.setattr(downloads, "TIMEOUT", 20.0)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving_hub(tmp_path / "served") as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


def tiny(hub: Hub, name: str = "owner/tiny") -> ViT:
    """Publish a small DINOv2 with registers."""
    vit = random_vit(layer_scale=True, registers=4)
    write_transformers(hub.model(name), vit)
    return vit


def refused(name: str) -> str:
    with pytest.raises(BadFileError) as caught:
        fetch(name)
    message = str(caught.value)
    assert "\n" not in message
    return message


DINO = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALVES = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
TIMM = ((0.5, 0.4, 0.3), (0.5, 0.25, 0.5))
MODELS: dict[str, tuple[ViT, object, int]] = {
    "timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k": (random_vit(dim=64, heads=1), TIMM, 32),
    "timm/vit_small_patch14_dinov2.lvd142m": (random_vit(dim=64, heads=1, layer_scale=True), TIMM, 32),
    "facebook/dinov2-small": (random_vit(layer_scale=True), DINO, 24),
    "facebook/dinov2-with-registers-small": (random_vit(layer_scale=True, registers=4), DINO, 24),
    "google/vit-base-patch16-224-in21k": (random_vit(), HALVES, 32),
}


@pytest.mark.parametrize("name", KNOWN)
def test_every_name_that_people_type(name: str, hub: Hub) -> None:
    vit, values, side = MODELS[name]
    if name.startswith("timm/"):
        write_timm_folder(hub.model(name), tensors_of(vit))
    else:
        write_transformers(hub.model(name), vit, crop=24)
    loaded = weights.load_backbone(name)
    assert (loaded.values, loaded.image_size, loaded.registers) == (values, side, vit.registers)
    whole = weights.load_backbone(name, image_size=32)
    assert torch.equal(all_rows(whole, images()), all_rows(vit, images()))
    antialias = not name.endswith("dinov2-small")  # as transformers resizes positions for each, and timm always
    assert torch.equal(loaded.pos_embed, resize_positions(vit.pos_embed, side // 8, antialias=antialias))
    described = weights.describe(weights_folder() / name)
    assert (described.dim, described.image_size, described.values) == (vit.dim, side, values)
    assert described.norm.weight.is_meta


def test_names_in_the_files_are_those_of_transformers(hub: Hub) -> None:
    """The transcription that these tests publish has the names that transformers itself writes."""
    from transformers import Dinov2WithRegistersConfig, Dinov2WithRegistersModel, ViTConfig, ViTModel

    sizes = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3, "image_size": 32, "patch_size": 8}
    theirs = Dinov2WithRegistersModel(Dinov2WithRegistersConfig(**sizes))
    theirs.save_pretrained(hub.model("owner/dinov2"))
    written = load_file(hub.model("owner/dinov2") / "model.safetensors")
    assert transformers_names(random_vit(layer_scale=True, registers=4)).keys() == written.keys()
    ViTModel(ViTConfig(**sizes)).save_pretrained(hub.model("owner/vit"))
    written = load_file(hub.model("owner/vit") / "model.safetensors")
    assert transformers_names(random_vit()).keys() == written.keys() - {"pooler.dense.weight"}


def test_the_server_answers_as_the_package_of_the_hub_expects(hub: Hub) -> None:
    tiny(hub)
    hub.gated = "auto"
    info = HfApi(endpoint=hub.endpoint, token=False).model_info("owner/tiny", files_metadata=True)
    offer = look_up("owner/tiny")
    assert (info.sha, info.gated) == (offer.commit, "auto")
    assert info.card_data is not None
    assert info.card_data["license"] == offer.licence
    theirs = {file.rfilename: file for file in info.siblings or ()}
    for file in offer.files:
        listed = theirs[file.name]
        assert (listed.size, listed.blob_id) == (file.size, file.blob or listed.blob_id)
        assert (listed.lfs.sha256 if listed.lfs else "") == file.sha256


def test_fetches_what_describes_the_weights_and_nothing_that_runs(hub: Hub) -> None:
    tiny(hub)
    for name in ("pytorch_model.bin", "run_me.py", "README.md"):
        (hub.model("owner/tiny") / name).write_text(name)
    folder = fetch("owner/tiny")
    assert folder == weights_folder() / "owner/tiny"
    got = ["config.json", "model.safetensors", "origin.json", "preprocessor_config.json"]
    assert sorted(path.name for path in folder.iterdir()) == got
    assert not [path for path in hub.asked if path.endswith((".bin", ".py", ".md"))]
    origin = json.loads((folder / "origin.json").read_text())
    assert origin == {
        "name": "owner/tiny",
        "home": "https://huggingface.co/owner/tiny",
        "licence": "apache-2.0",
        "commit": COMMIT,
    }


def test_what_was_fetched_is_there_without_a_network(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny(hub)
    folder, asked = fetch("owner/tiny"), len(hub.asked)
    assert fetch("owner/tiny") == folder == find("owner/tiny")
    assert len(hub.asked) == asked
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert fetch("owner/tiny") == folder


def test_a_download_that_breaks_off_goes_on(hub: Hub) -> None:
    tiny(hub)
    file = hub.model("owner/tiny") / "model.safetensors"
    plain = Answer.do_GET

    def breaking(answer: Answer) -> None:
        answer.send(file, share=0.5)

    def until_the_weights(answer: Answer) -> None:
        if answer.path.startswith("/cdn/") and not hub.ranges:
            hub.plan = [breaking]
        plain(answer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Answer, "do_GET", until_the_weights)
        patch.setattr(downloads, "PAUSES", ())
        with pytest.raises(BadFileError, match="bytes are kept, and the same command goes on from there"):
            fetch("owner/tiny")
    kept = (weights_folder() / "owner/tiny/model.safetensors.part").stat().st_size
    assert kept == file.stat().st_size // 2
    assert find("owner/tiny") is None
    heard: list[tuple[str, int, int | None]] = []
    with heard_by(lambda *said: heard.append(said)):
        folder = fetch("owner/tiny")
    assert set(hub.ranges) == {f"bytes={kept}-"}
    assert ("model.safetensors", kept, file.stat().st_size) in heard
    assert (folder / "model.safetensors").read_bytes() == file.read_bytes()
    assert f"/api/models/owner/tiny/revision/{COMMIT}" in hub.asked


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_bytes_that_are_not_the_published_ones(name: str, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny(hub)
    described = hub.described("owner/tiny")
    file = hub.model("owner/tiny") / name
    file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes()))
    monkeypatch.setattr(hub, "described", lambda _: described)
    assert f"owner/tiny: {name} cannot be downloaded" in refused("owner/tiny")
    assert not (weights_folder() / "owner/tiny" / name).exists()
    assert find("owner/tiny") is None


def test_without_a_network_says_what_to_put_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert refused("owner/tiny") == (
        "owner/tiny: the hub cannot be reached (Connection refused); download config.json, model.safetensors and, if "
        "there is one, preprocessor_config.json from https://huggingface.co/owner/tiny/tree/main into "
        f"{tmp_path / 'weights/owner/tiny'}"
    )
    folder = tmp_path / "weights/owner/tiny"
    folder.mkdir(parents=True)
    vit = random_vit(layer_scale=True)
    write_transformers(folder, vit)  # as it says
    assert torch.equal(all_rows(weights.load_backbone("owner/tiny"), images()), all_rows(vit, images()))


def test_a_network_that_does_not_know_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setenv("NO_PROXY", "*")
    assert "facebook/dinov2-smal: the hub cannot be reached (Name" in refused("facebook/dinov2-smal")
    assert refused("facebook/dinov2-smal").endswith("; did you mean facebook/dinov2-small?")


def nonsense(answer: Answer) -> None:
    answer.wfile.write(b"nonsense\r\n\r\n")


def answering(content: bytes) -> Callable[[Answer], None]:
    return lambda answer: answer.reply(200, content)


@pytest.mark.parametrize(
    "behaviour",
    [
        nonsense,
        answering(b"<html/>"),
        answering(b"[]"),
        answering(b"{}"),
        answering(b'{"sha": 5, "siblings": []}'),
        answering(b'{"sha": "../..", "siblings": [{"rfilename": "config.json"}, {"rfilename": "model.safetensors"}]}'),
        answering(b"[" * 100_000),
        lambda answer: answer.reply(503),
        lambda answer: answer.reply(500),
    ],
)
def test_a_hub_that_answers_nonsense(behaviour: Callable[[Answer], None], hub: Hub) -> None:
    tiny(hub)
    hub.plan = [behaviour] * 2
    assert refused("owner/tiny").startswith("owner/tiny: ")
    assert not (weights_folder() / "owner/tiny").exists()


def test_a_hub_that_is_busy_once_is_asked_again(hub: Hub) -> None:
    tiny(hub)
    hub.plan = [lambda answer: answer.reply(503)]
    assert fetch("owner/tiny").is_dir()


def test_an_answer_without_end_is_not_read(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny(hub)
    monkeypatch.setattr(module, "LONGEST", 100)
    assert "answers with more than 100 bytes" in refused("owner/tiny")


@pytest.mark.usefixtures("hub")
def test_a_name_the_hub_does_not_have() -> None:
    said = "neither a path here nor a model that the hub lets you read"
    assert refused("owner/other") == f"owner/other: {said}"
    assert refused("facebook/dinov2_small") == f"facebook/dinov2_small: {said}; did you mean facebook/dinov2-small?"


def test_a_model_without_safetensors(hub: Hub) -> None:
    folder = hub.model("owner/tiny")
    for name in ("config.json", "pytorch_model.bin"):
        (folder / name).write_text("{}")
    assert refused("owner/tiny") == (
        "owner/tiny: this model has no model.safetensors: only safetensors are fetched, and it has pytorch_model.bin"
    )
    (folder / "model.safetensors.index.json").write_text("{}")
    assert "its weights are split over several files" in refused("owner/tiny")
    for path in folder.iterdir():
        path.unlink()
    assert "has no config.json and no model.safetensors: it is no ViT" in refused("owner/tiny")


def test_a_gated_model(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny(hub)
    hub.gated = "manual"
    consent = "give it at https://huggingface.co/owner/tiny and set HF_TOKEN to a token of yours"
    assert refused("owner/tiny").startswith(f"owner/tiny: its owner asks for consent; {consent}")
    hub.plan = [lambda answer: answer.reply(401, X_Error_Code="GatedRepo")]  # as it answered before 2024
    assert refused("owner/tiny").startswith(f"owner/tiny: its owner asks for consent; {consent}")
    monkeypatch.setenv("HF_TOKEN", "hf_of_another")
    assert "answers 403: Forbidden" in refused("owner/tiny")
    assert consent in refused("owner/tiny")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert fetch("owner/tiny").is_dir()


def test_a_token_stays_with_the_host_it_is_for(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny(hub)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    fetch("owner/tiny")
    bearer = f"Bearer {TOKEN}"
    assert hub.tokens[f"/owner/tiny/resolve/{COMMIT}/model.safetensors"] == bearer
    assert hub.tokens["/api/resolve-cache/owner/tiny/config.json"] == bearer
    assert hub.tokens["/cdn/owner/tiny/model.safetensors"] is None


def test_what_cannot_be_read_is_refused_before_its_weights_are_fetched(hub: Hub) -> None:
    tiny(hub)
    config = hub.model("owner/tiny") / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"use_swiglu_ffn": True}))
    assert "use_swiglu_ffn = True: a gated MLP (SwiGLU)" in refused("owner/tiny")
    assert not [path for path in hub.asked if path.endswith("model.safetensors")]


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ({"license": "cc-by-nc-4.0"}, "cc-by-nc-4.0"),
        ({"license": ["mit", "apache-2.0"]}, "mit, apache-2.0"),
        ({"license": "other", "license_name": "own-terms", "license_link": "https://terms"}, "own-terms https://terms"),
        ({"license": "other"}, "other"),
        ({"license": "mit\x1b[31m\n"}, "mit [31m"),
        ({}, "not stated"),
    ],
)
def test_the_licence_that_the_card_names(card: dict[str, object], expected: str, hub: Hub) -> None:
    tiny(hub)
    hub.card = card
    assert look_up("owner/tiny").licence == expected
    fetch("owner/tiny")
    assert licence("owner/tiny") == expected


def cached(tmp_path: Path, name: str) -> Path:
    """An empty snapshot, as huggingface_hub lays it out."""
    model = tmp_path / f"cache/models--{name.replace('/', '--')}"
    (model / "refs").mkdir(parents=True)
    (model / "refs/main").write_text(COMMIT)
    (model / "snapshots" / COMMIT).mkdir(parents=True)
    return model / "snapshots" / COMMIT


def test_what_hugging_face_has_cached_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    snapshot, vit = cached(tmp_path, "owner/tiny"), random_vit(layer_scale=True)
    write_transformers(tmp_path, vit)
    for name in ("config.json", "model.safetensors", "preprocessor_config.json"):
        os.symlink(tmp_path / name, snapshot / name)
    assert fetch("owner/tiny") == snapshot
    assert torch.equal(all_rows(weights.load_backbone("owner/tiny"), images()), all_rows(vit, images()))
    timm = cached(tmp_path, "timm/tiny")
    write_timm_folder(timm, tensors_of(random_vit(dim=64, heads=1)))
    assert fetch("timm/tiny") == timm


def test_a_cached_model_whose_preprocessor_was_not_asked_for_does_not_do(hub: Hub, tmp_path: Path) -> None:
    tiny(hub)
    snapshot = cached(tmp_path, "owner/tiny")
    write_transformers(snapshot, random_vit(layer_scale=True))
    (snapshot / "preprocessor_config.json").unlink()
    assert fetch("owner/tiny") == weights_folder() / "owner/tiny"
    (tmp_path / "weights/owner/tiny/config.json").unlink()
    asked_for = snapshot.parents[1] / ".no_exist" / COMMIT / "preprocessor_config.json"
    asked_for.parent.mkdir(parents=True)
    asked_for.touch()
    assert find("owner/tiny") == snapshot


def test_no_further_package_is_needed(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    tiny(hub)
    assert weights.load_backbone("owner/tiny").registers == 4


@pytest.mark.parametrize("name", ["google/vit-base-patch16-224-in21k", "a/b_c.d"])
def test_hub_names(name: str) -> None:
    assert is_hub_name(name)


@pytest.mark.parametrize("name", ["", "vit", "/a/b", "a/b/c", "../b", "a/../b", "a b/c", "a/", "~/b", "./b"])
def test_other_names(name: str) -> None:
    assert not is_hub_name(name)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("dinov2-small", "facebook/dinov2-small"),
        ("facebook/dinov2-smal", "facebook/dinov2-small"),
        ("Facebook/DINOv2-Small", "facebook/dinov2-small"),
        ("dinov2-with-registers", "facebook/dinov2-with-registers-small"),
        ("vit_tiny_patch16_224", "timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k"),
        ("vit-base-patch16-224", "google/vit-base-patch16-224-in21k"),
        ("weights of mine", None),
        ("", None),
    ],
)
def test_a_name_that_may_have_been_meant(typed: str, expected: str | None) -> None:
    assert meant(typed) == expected


def test_a_known_name_without_its_owner_is_suggested() -> None:
    with pytest.raises(
        BadFileError, match=r"dinov2-small: there is no such file; .*did you mean facebook/dinov2-small\?"
    ):
        weights.load_backbone("dinov2-small")
