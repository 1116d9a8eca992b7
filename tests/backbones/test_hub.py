"""Hub names, against a server on this machine that answers as the hub does."""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from published import all_rows, images
from transformers import ViTConfig, ViTModel

from promptpool.backbones import weights
from promptpool.backbones.hub import fetch, is_hub_name
from promptpool.errors import BadFileError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Serves a folder as the model owner/tiny."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.folder = folder
        self.asked: set[str] = set()
        self.broken = False

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        self.server.asked.add(self.path)
        if self.server.broken:
            self.wfile.write(b"nonsense\r\n\r\n")
            self.close_connection = True
            return
        owner, _, name = self.path.partition("/resolve/main/")
        file = self.server.folder / name
        if owner != "/owner/tiny" or not file.is_file():
            missing = "EntryNotFound" if owner == "/owner/tiny" else "RepoNotFound"
            self.reply(404, b"", {"X-Error-Code": missing})
            return
        content = file.read_bytes()
        self.reply(200, content, {"ETag": f'"{hashlib.sha256(content).hexdigest()}"'})

    def reply(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for header, value in ({"X-Repo-Commit": COMMIT, "Content-Length": str(len(content))} | headers).items():
            self.send_header(header, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (tmp_path / "served").mkdir()
    with Hub(tmp_path / "served") as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_loads_a_model_by_its_hub_name(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ViTConfig(hidden_size=48, num_hidden_layers=1, num_attention_heads=3, image_size=32, patch_size=8)
    model = ViTModel(config).eval()
    model.save_pretrained(hub.folder)
    monkeypatch.setattr(weights, "fetch", partial(fetch, endpoint=hub.endpoint, cache=tmp_path / "cache"))
    loaded = weights.load_backbone("owner/tiny")
    with torch.no_grad():
        expected = model(images()).last_hidden_state
    torch.testing.assert_close(all_rows(loaded, images()), expected, atol=1e-5, rtol=0)


def test_fetches_what_describes_the_weights_and_nothing_that_runs(hub: Hub, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "pytorch_model.bin", "run_me.py"):
        (hub.folder / name).write_text(name)
    folder = fetch("owner/tiny", endpoint=hub.endpoint, cache=tmp_path / "cache")
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    asked = {Path(path).name for path in hub.asked}
    assert asked == {"config.json", "model.safetensors", "preprocessor_config.json"}


def test_what_was_fetched_is_there_without_a_network(hub: Hub, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (hub.folder / name).write_text(name)
    folder = fetch("owner/tiny", endpoint=hub.endpoint, cache=tmp_path / "cache")
    assert fetch("owner/tiny", endpoint="http://127.0.0.1:9", cache=tmp_path / "cache") == folder


def test_without_a_network_says_what_to_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(time, "sleep", lambda _: None)  # huggingface_hub tries again five times
    with pytest.raises(BadFileError) as caught:
        fetch("owner/tiny", endpoint="http://127.0.0.1:9", cache=tmp_path)
    assert str(caught.value) == (
        "owner/tiny: the hub cannot be reached; download config.json and model.safetensors from "
        "https://huggingface.co/owner/tiny into one folder and give that folder's path instead"
    )


def test_a_hub_that_answers_nonsense(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    hub.broken = True
    with pytest.raises(BadFileError, match=r"owner/tiny: the (download failed|hub cannot be reached).*; download "):
        fetch("owner/tiny", endpoint=hub.endpoint, cache=tmp_path / "cache")


def test_a_name_the_hub_does_not_have(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(BadFileError, match="owner/other: neither a path here nor a model that the hub lets you read"):
        fetch("owner/other", endpoint=hub.endpoint, cache=tmp_path / "cache")


def test_a_hub_model_without_safetensors(hub: Hub, tmp_path: Path) -> None:
    (hub.folder / "config.json").write_text("{}")
    with pytest.raises(BadFileError, match=r"does not have both config.json and model.safetensors"):
        fetch("owner/tiny", endpoint=hub.endpoint, cache=tmp_path / "cache")


def test_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModuleNotFoundError, match=r"owner/tiny: .* pip install 'promptpool\[hub\]'"):
        fetch("owner/tiny")


@pytest.mark.parametrize("name", ["google/vit-base-patch16-224-in21k", "a/b_c.d"])
def test_hub_names(name: str) -> None:
    assert is_hub_name(name)


@pytest.mark.parametrize("name", ["", "vit", "/a/b", "a/b/c", "../b", "a/../b", "a b/c", "a/", "~/b", "./b"])
def test_other_names(name: str) -> None:
    assert not is_hub_name(name)
