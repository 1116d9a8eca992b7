"""A server on this machine that takes models as the Hugging Face hub does, and gives them out again by commit.

It speaks what the package huggingface_hub asks when a folder is uploaded: a model is made, its card is looked at, files
are sorted into small ones, which come with the commit, and large ones, which come before it to a storage of their own.
As there, a private model is hidden from all who have no token, and the storage gets none.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from local_hub import LARGE, TOKEN, Answer, Hub

READING = "hf_that_may_only_read"


class UploadHub(Hub):
    """Keeps a folder for each commit of a model."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.RequestHandlerClass = UploadAnswer
        self.heads: dict[str, dict[str, str]] = {}  # the commit of each revision, by model
        self.private: set[str] = set()
        self.stored: dict[str, bytes] = {}  # large files by their SHA-256
        self.messages: list[str] = []

    def commit(self, name: str, content: dict[str, bytes], message: str) -> str:
        """Add files to those of the latest commit."""
        before = self.heads[name].get("main")
        files = {} if before is None else {path.name: path.read_bytes() for path in self.at(name, before).iterdir()}
        files |= content
        commit = hashlib.sha1(repr((before, sorted(files.items()))).encode(), usedforsecurity=False).hexdigest()
        for path, each in files.items():
            target = self.at(name, commit) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(each)
        self.heads[name]["main"] = commit
        self.messages.append(message)
        return commit

    def at(self, name: str, commit: str) -> Path:
        return self.root / name / commit

    def described_at(self, name: str, commit: str) -> bytes:
        files = [self._file(path) for path in sorted(self.at(name, commit).iterdir())]
        said = {"id": name, "sha": commit, "private": name in self.private, "gated": self.gated, "siblings": files}
        return json.dumps(said).encode()


class UploadAnswer(Answer):
    server: UploadHub

    def do_GET(self) -> None:  # noqa: N802
        path = urlsplit(self.path).path
        self.server.asked.append(path)
        self.server.tokens[path] = self.headers["Authorization"]
        if self.server.plan:
            self.server.plan.pop(0)(self)
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", path):
            self.describe_at(found[1], unquote(found[2] or "main"))
        elif path.startswith(("/cdn/", "/api/resolve-cache/")):
            self.send(self.server.root / path.removeprefix("/cdn/").removeprefix("/api/resolve-cache/"))
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([0-9a-f]{40})/(.+)", path):
            self.redirect(f"{found[1]}/{found[2]}/{found[3]}")

    def describe_at(self, name: str, revision: str) -> None:
        hub = self.server
        hidden = name in hub.private and self.headers["Authorization"] != f"Bearer {TOKEN}"
        if hidden or name not in hub.heads:
            self.reply(401, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
            return
        commit = hub.heads[name].get(revision, revision)
        if not hub.at(name, commit).is_dir() and hub.heads[name]:
            self.reply(404, X_Error_Code="RevisionNotFound", X_Error_Message="Invalid rev id")
        else:
            hub.at(name, commit).mkdir(parents=True, exist_ok=True)
            self.reply(200, hub.described_at(name, commit))

    def do_POST(self) -> None:  # noqa: N802
        path, content = urlsplit(self.path).path, self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append(path)
        self.server.tokens[path] = self.headers["Authorization"]
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self.say({"error": "no"}, status=403 if self.headers["Authorization"] == f"Bearer {READING}" else 401)
        elif path == "/api/repos/create":
            self.create(json.loads(content))
        elif path == "/api/validate-yaml":
            self.say({"errors": [], "warnings": []})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/main", path):
            self.sort(json.loads(content)["files"])
        elif path.endswith(".git/info/lfs/objects/batch"):
            self.expect(json.loads(content)["objects"])
        elif path == "/verify":
            self.say({}, status=200 if json.loads(content)["oid"] in self.server.stored else 404)
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main", path):
            self.commit(found[1], [json.loads(line) for line in content.splitlines()])

    def do_PUT(self) -> None:  # noqa: N802
        path, content = urlsplit(self.path).path, self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append(path)
        self.server.tokens[path] = self.headers["Authorization"]
        assert path == f"/storage/{hashlib.sha256(content).hexdigest()}"
        self.server.stored[path.removeprefix("/storage/")] = content
        self.reply(200)

    def create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization'] or 'me'}/{asked['name']}"
        known = name in self.server.heads
        self.server.heads.setdefault(name, {})
        if not known and (asked.get("visibility") == "private" or asked.get("private")):
            self.server.private.add(name)
        self.say({"url": f"{self.server.endpoint}/{name}"}, status=409 if known else 200)

    def sort(self, files: list[dict[str, Any]]) -> None:
        modes = {file["path"]: "lfs" if file["path"].endswith(LARGE) else "regular" for file in files}
        self.say({"files": [{"path": path, "uploadMode": modes[path], "shouldIgnore": False} for path in modes]})

    def expect(self, objects: list[dict[str, Any]]) -> None:
        for each in objects:
            if each["oid"] not in self.server.stored:
                places = {"upload": f"/storage/{each['oid']}", "verify": "/verify"}
                each["actions"] = {what: {"href": f"{self.server.endpoint}{at}"} for what, at in places.items()}
        self.say({"transfer": "basic", "objects": objects})

    def commit(self, name: str, lines: list[dict[str, Any]]) -> None:
        content = {}
        for line in lines[1:]:
            value = line["value"]
            assert line["key"] in ("file", "lfsFile")
            large = line["key"] == "lfsFile"
            content[value["path"]] = self.server.stored[value["oid"]] if large else base64.b64decode(value["content"])
        commit = self.server.commit(name, content, lines[0]["value"]["summary"])
        self.say({"success": True, "commitOid": commit, "commitUrl": f"{self.server.endpoint}/{name}/commit/{commit}"})

    def say(self, answer: dict[str, Any], *, status: int = 200) -> None:
        self.reply(status, json.dumps(answer).encode(), Content_Type="application/json")


@contextmanager
def serving_uploads(root: Path) -> Iterator[UploadHub]:
    with UploadHub(root) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
