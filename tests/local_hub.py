"""A server on this machine that answers as the Hugging Face hub does: what a model is, and its files.

As there, a large file is sent from another address than the one that is asked, and a small one after a redirection on
the same host; only tokens that are asked for see a gated model's files. Answers that `plan` holds come first.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_of_a_test"  # noqa: S105
LARGE = (".safetensors", ".bin")


class Hub(ThreadingHTTPServer):
    """Serves the folders owner/name of a root as models."""

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.root = root
        self.card: dict[str, Any] = {"license": "apache-2.0"}
        self.gated: bool | str = False
        self.plan: list[Callable[[Answer], None]] = []
        self.asked: list[str] = []
        self.tokens: dict[str, str | None] = {}  # by the path that was asked for
        self.ranges: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def elsewhere(self) -> str:
        """The same server under another name."""
        return f"http://localhost:{self.server_port}"

    def model(self, name: str) -> Path:
        folder = self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def described(self, name: str) -> bytes:
        folder = self.root / name
        files = [self._file(path) for path in sorted(folder.iterdir())]
        tags = ["vision", *(f"license:{self.card[key]}" for key in ("license",) if key in self.card)]
        said = {"id": name, "sha": COMMIT, "gated": self.gated, "cardData": self.card, "tags": tags, "siblings": files}
        return json.dumps(said).encode()

    @staticmethod
    def _file(path: Path) -> dict[str, Any]:
        content = path.read_bytes()
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        said: dict[str, Any] = {"rfilename": path.name, "size": len(content), "blobId": blob}
        if path.suffix in LARGE:
            sha256 = hashlib.sha256(content).hexdigest()
            said["lfs"] = {"size": len(content), "sha256": sha256, "pointerSize": 134}
        return said

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is what some tests are about."""


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        self.server.asked.append(path)
        self.server.tokens[path] = self.headers["Authorization"]
        if self.headers["Range"]:
            self.server.ranges.append(self.headers["Range"])
        if self.server.plan:
            self.server.plan.pop(0)(self)
        elif path.startswith("/api/models/"):
            self.describe(path.removeprefix("/api/models/").removesuffix(f"/revision/{COMMIT}"))
        elif path.startswith(("/cdn/", "/api/resolve-cache/")):
            self.send(self.server.root / path.removeprefix("/cdn/").removeprefix("/api/resolve-cache/"))
        else:
            name, _, file = path.removeprefix("/").partition(f"/resolve/{COMMIT}/")
            self.redirect(f"{name}/{file}")

    def describe(self, name: str) -> None:
        if not (self.server.root / name).is_dir():
            self.reply(401, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
        elif self.path.lower().endswith("?blobs=true"):
            self.reply(200, self.server.described(name))

    def redirect(self, file: str) -> None:
        if self.server.gated and self.headers["Authorization"] != f"Bearer {TOKEN}":
            self.reply(403 if self.headers["Authorization"] else 401, X_Error_Code="GatedRepo")
        elif not (self.server.root / file).is_file():
            self.reply(404, X_Error_Code="EntryNotFound")
        elif file.endswith(LARGE):
            self.reply(302, Location=f"{self.server.elsewhere}/cdn/{file}")
        else:
            self.reply(307, Location=f"/api/resolve-cache/{file}")

    def send(self, file: Path, *, share: float = 1.0) -> None:
        content = file.read_bytes()
        start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        headers = {"Content_Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
        rest = content[start:]
        self.reply(206 if start else 200, rest[: int(share * len(rest))], length=len(rest), **headers)

    def reply(self, status: int, content: bytes = b"", *, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@contextmanager
def serving_hub(root: Path) -> Iterator[Hub]:
    with Hub(root) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
