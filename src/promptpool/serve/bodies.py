"""Pictures out of requests: multipart forms or JSON, within the limits."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import anyio
from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from promptpool.data.decoding import Pixels, decode
from promptpool.data.images import printable
from promptpool.errors import BadFileError
from promptpool.serve.limits import Limits, RefusedError
from promptpool.serve.models import AskedImages, TaughtPictures

LONGEST_NAME = 200
LONGEST_FIELD = 10**6  # bytes of the labels of a form
Model = TypeVar("Model", bound=BaseModel)


class Sent(NamedTuple):
    """A file that a client sent."""

    name: str
    content: bytes
    label: str = ""


class Decoded(NamedTuple):
    """Its pixels, or why there are none."""

    pixels: Pixels | None
    error: str = ""


async def asked_pictures(request: Request, limits: Limits) -> list[Sent]:
    """The files of a question."""
    if _kind(request) == "application/json":
        model = await _json(request, AskedImages)
        _check_count(len(model.images), limits)
        return [Sent(_shown(each.name), _bytes(each.data, f"images.{n}")) for n, each in enumerate(model.images)]
    async with _form(request, limits) as form:
        _check_fields(form, {"files"})
        return await _files(form, limits)


async def taught_pictures(request: Request, limits: Limits) -> list[Sent]:
    """The files of a lesson, each with its label."""
    if _kind(request) == "application/json":
        model = await _json(request, TaughtPictures)
        _check_count(len(model.pictures), limits)
        return [
            Sent(_shown(each.name), _bytes(each.data, f"pictures.{number}"), each.label)
            for number, each in enumerate(model.pictures)
        ]
    async with _form(request, limits) as form:
        _check_fields(form, {"files", "label", "labels"})
        files = await _files(form, limits)
        labels = _labels(form, len(files))
    return [file._replace(label=label) for file, label in zip(files, labels, strict=True)]


async def decoded(files: Sequence[Sent], size: int, limits: Limits, threads: anyio.CapacityLimiter) -> list[Decoded]:
    """The pictures of files, in squares of `size` pixels."""
    found: list[Decoded] = [Decoded(None)] * len(files)

    async def one(place: int) -> None:
        found[place] = await anyio.to_thread.run_sync(_decoded, files[place], size, limits, limiter=threads)

    async with anyio.create_task_group() as group:
        for place in range(len(files)):
            group.start_soon(one, place)
    return found


def _decoded(file: Sent, size: int, limits: Limits) -> Decoded:
    if len(file.content) > limits.picture:
        return Decoded(None, f"more than {limits.picture:,} bytes")
    try:
        return Decoded(decode(file.content, file.name, size, most_pixels=limits.pixels))
    except BadFileError as error:
        return Decoded(None, str(error).removeprefix(f"{file.name}: "))


def _kind(request: Request) -> str:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/json", "multipart/form-data"):
        raise RefusedError(415, f"content type {printable(kind)[:60]!r}: send multipart/form-data or application/json")
    return kind


async def _json(request: Request, model: type[Model]) -> Model:
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        status, sentence = described(error.errors(include_url=False, include_context=False, include_input=False))
        raise RefusedError(status, sentence) from error


def described(errors: Sequence[Any]) -> tuple[int, str]:
    """The status and the sentence for what pydantic found wrong."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return 400, "the body is no JSON"
    parts = first["loc"][1:] if first["loc"][:1] in (("body",), ("query",), ("path",)) else first["loc"]
    place = ".".join(printable(str(part))[:60] for part in parts)
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return 422, f"{place or 'the body'}: {printable(str(first['msg']))}{more}"


@asynccontextmanager
async def _form(request: Request, limits: Limits) -> AsyncIterator[FormData]:
    try:
        form = await request.form(max_files=limits.files, max_fields=16, max_part_size=LONGEST_FIELD)
    except HTTPException as error:
        if error.detail.startswith("Too many files"):
            raise RefusedError(413, f"more than {limits.files} pictures in one request, which is the most") from error
        raise
    try:
        yield form
    finally:
        await form.close()


def _check_fields(form: FormData, allowed: set[str]) -> None:
    for name in form:
        if name not in allowed:
            raise RefusedError(422, f"field {printable(name)[:60]!r}: must be one of {', '.join(sorted(allowed))}")


async def _files(form: FormData, limits: Limits) -> list[Sent]:
    files = form.getlist("files")
    if not files:
        raise RefusedError(422, "files: at least one picture is needed")
    _check_count(len(files), limits)
    found = []
    for each in files:
        if not isinstance(each, UploadFile):
            raise RefusedError(422, "files: send each picture as a file with a name")
        found.append(Sent(_shown(each.filename or "picture"), await each.read()))
    return found


def _labels(form: FormData, count: int) -> list[str]:
    """A label for each of the files: one for all, or a JSON list of them."""
    one, many = form.getlist("label"), form.getlist("labels")
    if len(one) + len(many) != 1:
        raise RefusedError(422, "label, labels: give one of them, once")
    if one:
        labels: Any = one * count
    else:
        try:
            labels = json.loads(many[0]) if isinstance(many[0], str) else None
        except (ValueError, RecursionError) as error:
            raise RefusedError(422, "labels: must be a JSON list of texts") from error
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise RefusedError(422, "labels: must be a JSON list of texts" if many else "label: must be text, not a file")
    if len(labels) != count:
        raise RefusedError(422, f"{len(labels)} labels and {count} files do not match")
    return labels


def _check_count(count: int, limits: Limits) -> None:
    if count > limits.files:
        raise RefusedError(413, f"{count} pictures in one request: at most {limits.files} can be")


def _bytes(data: str, where: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RefusedError(422, f"{where}.data: is not base64") from error


def _shown(name: str) -> str:
    """A name as it is shown: its last part, as browsers send whole paths of folders."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return printable(last)[:LONGEST_NAME] or "picture"
