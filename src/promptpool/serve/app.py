"""The application: routes, errors as sentences, and the guard before them."""

from __future__ import annotations

import errno
import logging
from typing import Any

import anyio
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from promptpool import __version__
from promptpool.data.workers import threads_here
from promptpool.serve.bodies import described
from promptpool.serve.engine import Engine
from promptpool.serve.limits import RefusedError
from promptpool.serve.models import AskedImages, TaughtPictures
from promptpool.serve.routes import asking, knowing, pages, teaching
from promptpool.serve.safety import Access, Guard, refused

ABOUT = "A classifier that answers, and goes on learning. Every error is {'error': 'one plain sentence'}."
WRONG = "something went wrong here; the server's log says what"
SENTENCES = {404: "there is no such address", 405: "this address has no such method"}
FULL = (errno.ENOSPC, errno.EDQUOT)
BODIES: tuple[type[BaseModel], ...] = (AskedImages, TaughtPictures)  # which routes read themselves
log = logging.getLogger("promptpool.serve")


def guarded(engine: Engine, access: Access | None = None, *, threads: int | None = None) -> Guard:
    """The application, safe to listen with."""
    return Guard(make_app(engine, threads=threads), access or Access(), engine.limits, engine.metrics)


def make_app(engine: Engine, *, threads: int | None = None) -> FastAPI:
    """The routes alone."""
    app = FastAPI(title="promptpool", version=__version__, description=ABOUT, docs_url=None, redoc_url=None)
    app.state.engine, app.state.threads = engine, anyio.CapacityLimiter(threads or threads_here())
    for part in (asking, teaching, knowing, pages):
        app.include_router(part.router)
    for kind in (RefusedError, RequestValidationError, HTTPException, ClientDisconnect, OSError, Exception):
        app.add_exception_handler(kind, _answer)
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            _with_bodies(plain())
        return plain()

    app.openapi = openapi  # type: ignore[method-assign]
    return app


def _with_bodies(schema: dict[str, Any]) -> None:
    """Add the models of bodies that routes read themselves."""
    known = schema.setdefault("components", {}).setdefault("schemas", {})
    for model in BODIES:
        found = model.model_json_schema(ref_template="#/components/schemas/{model}")
        known.update(found.pop("$defs", {}))
        known[model.__name__] = found


async def _answer(request: Request, error: Exception) -> JSONResponse:
    """An error as a sentence; nothing else of it leaves."""
    match error:
        case RefusedError():
            return refused(error)
        case RequestValidationError():
            status, sentence = described(error.errors())
            return JSONResponse({"error": sentence}, status)
        case HTTPException(status_code=status):
            sentence = SENTENCES.get(status, str(error.detail))
            return JSONResponse({"error": sentence}, status, dict(error.headers or {}))
        case ClientDisconnect():
            return JSONResponse({"error": "the client went away"}, 400)  # which nobody reads
        case OSError() if error.errno in FULL:
            return JSONResponse({"error": "the disk is full: nothing was changed"}, 507)
        case OSError():
            log.error("%s %s", request.method, request.url.path, exc_info=error)
    return JSONResponse({"error": WRONG}, 500)  # whoever runs this application logs what is left
