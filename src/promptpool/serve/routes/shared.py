"""What routes share: the engine behind them, and how their errors are described."""

from __future__ import annotations

from typing import Annotated, Any, cast

import anyio
from fastapi import Depends, Request

from promptpool.serve.engine import Engine
from promptpool.serve.models import Error

REASONS = {
    400: "The body is damaged.",
    401: "The token is missing or wrong.",
    403: "Another site asks, or a header is missing.",
    404: "There is no such thing.",
    408: "The body came too slowly.",
    409: "Not possible at present, or not with this classifier.",
    413: "Too large, or too many pictures.",
    415: "Neither a form nor JSON.",
    422: "A value is wrong.",
    429: "Too much at once; Retry-After says when to ask again.",
    500: "A mistake of the server; its log says more.",
    501: "A package for this is not installed.",
    503: "The server is starting or ending.",
    507: "The disk is full.",
}
ALWAYS = (401, 403, 500)


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route answers beside success."""
    return {status: {"model": Error, "description": REASONS[status]} for status in sorted({*ALWAYS, *statuses})}


def _engine(request: Request) -> Engine:
    return cast(Engine, request.app.state.engine)


def _threads(request: Request) -> anyio.CapacityLimiter:
    """The threads that decode pictures, which are as few as there are processors."""
    return cast(anyio.CapacityLimiter, request.app.state.threads)


TheEngine = Annotated[Engine, Depends(_engine)]
Threads = Annotated[anyio.CapacityLimiter, Depends(_threads)]


def body_of(model: str, form: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """How OpenAPI describes a body that is a form or JSON."""
    return {
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {"schema": {"type": "object", "properties": form, "required": required}},
                "application/json": {"schema": {"$ref": f"#/components/schemas/{model}"}},
            },
        }
    }
