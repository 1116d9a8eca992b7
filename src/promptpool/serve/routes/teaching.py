"""Pictures that wait, and the jobs that learn them."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import asdict
from typing import Any

import anyio
from fastapi import APIRouter, Request, Response
from PIL import Image

from promptpool.classifier.pictures import checked_label
from promptpool.data.decoding import decode
from promptpool.errors import BadFileError
from promptpool.serve.bodies import Sent, decoded, taught_pictures
from promptpool.serve.engine import Engine
from promptpool.serve.jobs import Job
from promptpool.serve.lessons import LEARNED_NOW, Waiting
from promptpool.serve.limits import RefusedError
from promptpool.serve.models import (
    Added,
    Begun,
    JobList,
    JobOut,
    NewLabel,
    RefusedPicture,
    Removed,
    WaitingPicture,
    WaitingPictures,
)
from promptpool.serve.routes.asking import FILES
from promptpool.serve.routes.shared import TheEngine, Threads, body_of, errors

SMALL = 160  # pixels of a side
FORM: dict[str, Any] = {
    "files": FILES,
    "label": {"type": "string", "description": "The label of all of them."},
    "labels": {"type": "string", "description": "Or a JSON list, a label for each file."},
}
router = APIRouter(tags=["teach"])


@router.post(
    "/lessons",
    status_code=201,
    summary="Add pictures to the next lesson",
    responses={200: {"model": Added, "description": "None was added."}, **errors(400, 408, 413, 415, 422, 429, 507)},
    openapi_extra=body_of("TaughtPictures", FORM, ["files"]),
)
async def add(request: Request, response: Response, engine: TheEngine, threads: Threads) -> Added:
    """They are on disk when the answer comes, and wait until `POST /learn`. Those refused say why."""
    files = await taught_pictures(request, engine.limits)
    size = engine.present.classifier.backbone.image_size
    found = await decoded(files, size, engine.limits, threads)
    reasons = [each.error or _wrong_label(file) for file, each in zip(files, found, strict=True)]
    refused = [
        RefusedPicture(name=file.name, error=why) for file, why in zip(files, reasons, strict=True) if why is not None
    ]
    good = [(file.name, file.label, file.content) for file, why in zip(files, reasons, strict=True) if why is None]
    added, busy = await anyio.to_thread.run_sync(engine.lessons.add, good)
    waiting = await anyio.to_thread.run_sync(lambda: len(engine.lessons.waiting))  # others may be at the disk
    refused += [RefusedPicture(name=name, error=LEARNED_NOW) for name in busy]
    response.status_code = 201 if added else 200
    return Added(waiting=waiting, added=[_shown(each) for each in added], refused=refused)


def _wrong_label(file: Sent) -> str | None:
    """Why a label cannot be one."""
    try:
        checked_label(file.label)
    except ValueError as error:
        return str(error)
    return None


def _shown(each: Waiting) -> WaitingPicture:
    return WaitingPicture(id=each.id, name=each.name, label=each.label)


@router.get("/lessons", summary="The pictures that wait", responses=errors())
def waiting(engine: TheEngine) -> WaitingPictures:
    found = engine.lessons.waiting
    labels = Counter(each.label for each in found)
    return WaitingPictures(pictures=[_shown(each) for each in found], labels=dict(labels))


@router.get(
    "/lessons/{identity}/picture",
    summary="A waiting picture, small",
    response_class=Response,
    responses={200: {"content": {"image/jpeg": {}}, "description": "The picture."}, **errors(404, 422)},
)
async def picture(identity: str, engine: TheEngine, threads: Threads) -> Response:
    content = await anyio.to_thread.run_sync(_small, engine, identity, limiter=threads)
    return Response(content, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})


def _small(engine: Engine, identity: str) -> bytes:
    content, name = engine.lessons.content(identity), engine.lessons.find(identity).file
    try:
        pixels = decode(content, name, SMALL, "centre", engine.limits.pixels)
    except BadFileError as error:
        raise RefusedError(404, "the picture is damaged") from error
    file = io.BytesIO()
    Image.fromarray(pixels.transpose(1, 2, 0)).save(file, "JPEG", quality=85)
    return file.getvalue()


@router.patch("/lessons/{identity}", summary="Another label", responses=errors(400, 404, 409, 422, 507))
def relabel(identity: str, new: NewLabel, engine: TheEngine) -> WaitingPicture:
    try:
        return _shown(engine.lessons.relabel(identity, new.label))
    except ValueError as error:
        raise RefusedError(422, str(error)) from error


@router.delete("/lessons/{identity}", summary="Take a waiting picture away", responses=errors(404, 409, 422))
def remove(identity: str, engine: TheEngine) -> Removed:
    engine.lessons.remove(identity)
    return Removed(waiting=len(engine.lessons.waiting))


@router.delete("/lessons", summary="Take all waiting pictures away", responses=errors())
def clear(engine: TheEngine) -> Removed:
    engine.lessons.clear()
    return Removed(waiting=len(engine.lessons.waiting))


@router.post("/learn", status_code=202, summary="Learn all that wait as one lesson", responses=errors(409, 507))
def learn(engine: TheEngine) -> Begun:
    """Answers go on from the version before until the new one is saved."""
    return Begun(job=engine.learn().id)


@router.get("/jobs", summary="The last jobs", responses=errors())
def jobs(engine: TheEngine) -> JobList:
    return JobList(jobs=[_told(job) for job in engine.jobs.all()])


@router.get("/jobs/{identity}", summary="How far a job is", responses=errors(404, 422))
def job(identity: str, engine: TheEngine) -> JobOut:
    found = engine.jobs.find(identity)
    if found is None:
        raise RefusedError(404, f"{identity[:40]!r}: no such job; jobs of before the last start are forgotten")
    return _told(found)


def _told(job: Job) -> JobOut:
    return JobOut.model_validate(asdict(job))
