"""Answers about pictures."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from promptpool.classifier.answers import Prediction
from promptpool.classifier.files import thumbnail_path
from promptpool.classifier.pictures import UNKNOWN
from promptpool.serve.answering import Wish
from promptpool.serve.bodies import asked_pictures, decoded
from promptpool.serve.models import Candidate, PredictionOut, Predictions, Similar
from promptpool.serve.routes.shared import TheEngine, Threads, body_of, errors

FILES = {"type": "array", "items": {"type": "string", "format": "binary"}, "description": "One picture or several."}
FORM: dict[str, Any] = {"files": FILES}
router = APIRouter(tags=["ask"])


@router.post(
    "/predict",
    summary="What is in these pictures?",
    responses=errors(400, 408, 409, 413, 415, 422, 429),
    openapi_extra=body_of("AskedImages", FORM, ["files"]),
)
async def predict(
    request: Request,
    engine: TheEngine,
    threads: Threads,
    top: Annotated[int, Query(ge=1, le=1000, description="How many classes to name.")] = 5,
    sure: Annotated[
        float | None,
        Query(gt=0, le=1, allow_inf_nan=False, description="Answer only where so large a share of answers is right."),
    ] = None,
) -> Predictions:
    """All pictures of a request are answered by one version; one that is no picture has an `error` instead."""
    files = await asked_pictures(request, engine.limits)
    found = await decoded(files, engine.present.classifier.backbone.image_size, engine.limits, threads)
    pictures = [each.pixels for each in found if each.pixels is not None]
    wishes = [Wish(file.name, top, sure) for file, each in zip(files, found, strict=True) if each.pixels is not None]
    version, answers = engine.present.number, iter(list[Prediction]())
    if pictures:
        answered = await asyncio.wrap_future(engine.ask(pictures, wishes))
        version, answers = answered.version, iter(answered.answers)
    told = [
        _refused(file.name, each.error) if each.pixels is None else _told(next(answers), engine.folder)
        for file, each in zip(files, found, strict=True)
    ]
    _count(engine, told)
    return Predictions(version=version, predictions=told)


def _told(found: Prediction, folder: Path) -> PredictionOut:
    kept = [each for each in found.similar if thumbnail_path(folder, each[0]).is_file()]  # undo brings none back
    return PredictionOut(
        name=found.name,
        label=found.label,
        unknown=found.label == UNKNOWN,
        guess=found.guess,
        confidence=found.confidence,
        top=[Candidate(label=label, confidence=share) for label, share in found.top],
        prompts=None if found.prompts is None else list(found.prompts),
        similar=[Similar(label=label, thumbnail=f"/thumbnails/{identity}") for identity, label in kept],
        error=None,
    )


def _refused(name: str, error: str) -> PredictionOut:
    return PredictionOut(
        name=name, label=UNKNOWN, unknown=True, guess="", confidence=0.0, top=[], prompts=None, similar=[], error=error
    )


def _count(engine: TheEngine, told: Sequence[PredictionOut]) -> None:
    failed = sum(each.error is not None for each in told)
    unknown = sum(each.unknown for each in told) - failed
    engine.metrics.note_answers(len(told) - unknown - failed, unknown, failed)
