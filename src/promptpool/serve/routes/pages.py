"""The page, what machines look at, and the description of all routes."""

from __future__ import annotations

import html
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, Response

from promptpool.serve.limits import RefusedError
from promptpool.serve.models import Health, Ready
from promptpool.serve.routes.shared import TheEngine, errors

PAGE = Path(__file__).parent.parent / "page"
TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".ico": "image/x-icon",
    ".js": "text/javascript",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
router = APIRouter(tags=["look"])


@cache
def page_files() -> dict[str, Path]:
    """The files of the page by name: what is not among them does not exist."""
    found = {path.relative_to(PAGE).as_posix(): path for path in PAGE.rglob("*") if path.suffix in TYPES}
    return {name: path for name, path in found.items() if path.is_file()}


@router.get("/", include_in_schema=False)
def page() -> Response:
    path = page_files().get("index.html")
    if path is None:
        return HTMLResponse('<!doctype html><title>promptpool</title><p>See <a href="docs">what can be asked</a>.')
    return FileResponse(path, media_type="text/html")


@router.get("/static/{name:path}", include_in_schema=False)
def static(name: str) -> Response:
    path = page_files().get(name)
    if path is None:
        raise RefusedError(404, "there is no such file")
    return FileResponse(path, media_type=TYPES[path.suffix], headers={"Cache-Control": "no-cache"})


@router.get("/health", summary="Is the process alive?", responses=errors())
async def health() -> Health:
    return Health()


@router.get(
    "/ready",
    summary="Does it answer?",
    response_model=Ready,
    responses={503: {"model": Ready, "description": "Not at present."}, **errors()},
)
async def ready(engine: TheEngine) -> JSONResponse:
    if not engine.ready:
        return JSONResponse({"ready": False}, 503)
    return JSONResponse({"ready": True, "version": engine.present.number})


@router.get(
    "/metrics", summary="What was counted, for Prometheus", response_class=PlainTextResponse, responses=errors()
)
def metrics(engine: TheEngine) -> PlainTextResponse:
    present = engine.present
    gauges: dict[str, tuple[str, float]] = {
        "promptpool_queue_pictures": ("Pictures that wait for an answer.", engine.queue),
        "promptpool_waiting_pictures": ("Pictures that wait to be learned.", len(engine.lessons.waiting)),
        "promptpool_learning": ("1 while a lesson is learned.", int(engine.jobs.active is not None)),
        "promptpool_version": ("The version that answers.", present.number),
        "promptpool_classes": ("The classes that it knows.", len(present.classifier.labels)),
    }
    return PlainTextResponse(engine.metrics.text(gauges), media_type="text/plain; version=0.0.4")


@router.get("/docs", include_in_schema=False)
def docs(request: Request) -> HTMLResponse:
    """All routes on a page that loads nothing from elsewhere."""
    described: dict[str, Any] = request.app.openapi()
    return HTMLResponse("\n".join(_described(described)))


def _described(openapi: dict[str, Any]) -> Iterator[str]:
    title = html.escape(openapi["info"]["title"])
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="static/page.css"></head>'
    yield f"<body><main><h1>{title}</h1><p>{html.escape(openapi['info']['description'])}</p>"
    yield '<p>For programs: <a href="openapi.json">openapi.json</a>.</p>'
    for path, operations in openapi["paths"].items():
        for method, about in operations.items():
            yield f"<h2><code>{method.upper()} {html.escape(path)}</code></h2><p>{html.escape(about['summary'])}</p>"
            if "description" in about:
                yield f"<p>{html.escape(about['description'])}</p>"
            yield from _values(about)
    yield "</main></body></html>"


def _values(about: dict[str, Any]) -> Iterator[str]:
    """The parameters of a route, what goes in, and the statuses that come out."""
    yield "<ul>"
    for value in about.get("parameters", ()):
        needed = "needed" if value.get("required") else "optional"
        text = value.get("description", value["schema"].get("description", ""))
        yield f"<li><code>{html.escape(value['name'])}</code>, {value['in']}, {needed}. {html.escape(text)}</li>"
    for kind, content in about.get("requestBody", {}).get("content", {}).items():
        yield f"<li>body, {html.escape(kind)}: <code>{html.escape(_kind(content['schema']))}</code></li>"
    for status, answer in about["responses"].items():
        yield f"<li>{status}: {html.escape(answer['description'])}</li>"
    yield "</ul>"


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    return ", ".join(schema.get("properties", ())) or str(schema.get("type", "any"))
