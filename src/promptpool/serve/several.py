"""Several classifiers behind one address: each below its name, `/shop/` and `/garden/`, and a list of them at `/`.

Below its name a classifier has all of its routes and its page, behind a guard of its own.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from promptpool.errors import BadFileError
from promptpool.serve.app import guarded
from promptpool.serve.engine import Engine
from promptpool.serve.limits import Limits, RefusedError
from promptpool.serve.metrics import Metrics
from promptpool.serve.safety import Access, Guard, refused

NAME = re.compile(r"[A-Za-z0-9._~-]+")
TAKEN = ("health", "ready")


def names_of(folders: Sequence[Path]) -> dict[str, Path]:
    """Folders by the names that they have in addresses."""
    found: dict[str, Path] = {}
    for folder in folders:
        name = folder.resolve().name
        if not NAME.fullmatch(name) or name in TAKEN or not name.strip("."):
            raise BadFileError(
                f"{folder}: beside others a classifier is found by its name, which is of letters, digits and ._~- "
                f"and not {' or '.join(TAKEN)}"
            )
        if name in found:
            raise BadFileError(f"{folder}: {found[name]} has the same name, and classifiers are found by their names")
        found[name] = folder
    return found


class Several:
    """Passes a request on to the classifier that its address names."""

    def __init__(self, engines: Mapping[str, Engine], access: Access, *, threads: int | None = None) -> None:
        self.engines = engines
        self.apps = {name: guarded(engine, access, threads=threads) for name, engine in engines.items()}
        self.front = Guard(self._front, access, Limits(), Metrics())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            name, slash, rest = scope["path"].removeprefix("/").partition("/")
            if slash and name in self.apps:
                raw = scope.get("raw_path", b"").removeprefix(f"/{name}".encode())
                await self.apps[name]({**scope, "path": f"/{rest}", "raw_path": raw}, receive, send)
            else:
                await self.front(scope, receive, send)

    async def _front(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope["method"], scope["path"])(scope, receive, send)

    def _answer(self, method: str, path: str) -> Response:
        """What there is beside the classifiers."""
        name = path.removeprefix("/")
        if method not in ("GET", "HEAD"):
            return refused(RefusedError(404, f"ask a classifier, below {self._named()}"))
        if not name:
            return HTMLResponse(self._page())
        if name == "health":
            return JSONResponse({"status": "ok"})
        if name == "ready":
            ready = all(engine.ready for engine in self.engines.values())
            return JSONResponse({"ready": ready}, 200 if ready else 503)
        if name in self.apps:
            return RedirectResponse(f"{name}/")
        return refused(RefusedError(404, f"there is no such address: classifiers are below {self._named()}"))

    def _named(self) -> str:
        return ", ".join(f"/{name}/" for name in self.apps)

    def _page(self) -> str:
        links = "".join(f'<li><a href="{name}/">{name}</a></li>' for name in map(html.escape, self.apps))
        style = f'<link rel="stylesheet" href="{next(iter(self.apps))}/static/page.css">'
        head = (
            f'<meta charset="utf-8"><title>promptpool</title><meta name="viewport" content="width=device-width">{style}'
        )
        body = f"<main><h1>Classifiers</h1><ul>{links}</ul></main>"
        return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'
