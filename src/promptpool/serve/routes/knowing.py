"""What the classifier is and knows, and how that is changed back or taken along."""

from __future__ import annotations

import copy
import os
import re
import tempfile
import threading
import zipfile
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import FileResponse
from starlette.types import Receive, Scope, Send

from promptpool.classifier import files
from promptpool.classifier.pictures import checked_label
from promptpool.serve.engine import Engine
from promptpool.serve.facts import DRAWINGS, history
from promptpool.serve.limits import RefusedError, full
from promptpool.serve.models import (
    About,
    Classes,
    ConfusionOut,
    KnownClass,
    NewName,
    PromptCounts,
    VersionNumber,
    VersionOut,
    Versions,
)
from promptpool.serve.routes.shared import TheEngine, errors

Format = Annotated[Literal["zip", "onnx"], Query(alias="format")]
EXPORTING = threading.Lock()
THUMBNAIL = re.compile("[0-9a-f]{16}")
router = APIRouter(tags=["know"])


@router.get("/classifier", summary="What it is", responses=errors())
def about(engine: TheEngine) -> About:
    present = engine.present
    classifier, counts = present.classifier, present.classifier.prompt_counts()
    return About(
        name=engine.folder.resolve().name,
        version=present.number,
        method=classifier.method,
        backbone=_known_as(classifier.backbone_name),
        image_size=classifier.backbone.image_size,
        classes=len(classifier.labels),
        pictures=sum(present.facts.counts.values()),
        bytes=(engine.folder / files.MODEL).stat().st_size,
        drawings_only=classifier.knows_drawings_only,
        thumbnails=classifier.thumbnails,
        prompts=None if counts is None else len(counts),
        exact=present.facts.exact,
        note=DRAWINGS if classifier.knows_drawings_only else "",
    )


def _known_as(backbone: str) -> str:
    """A hub name as it is; of a file its name alone."""
    return Path(backbone).name if os.path.isabs(backbone) else backbone


@router.get("/classes", summary="The classes and how well each is known", responses=errors())
def classes(engine: TheEngine) -> Classes:
    present = engine.present
    counts, shares = present.facts.counts, present.facts.accuracies
    found = [
        KnownClass(name=label, pictures=counts[label], accuracy=shares.get(label))
        for label in present.classifier.labels
    ]
    return Classes(version=present.number, classes=found)


@router.delete("/classes/{name:path}", summary="Take a class out", responses=errors(404, 409, 422, 507))
def forget(name: str, engine: TheEngine) -> VersionNumber:
    """As if it had never been learned; only with an exact method."""
    return VersionNumber(version=engine.forget(name))


@router.post("/classes/{name:path}/rename", summary="Another name", responses=errors(400, 404, 409, 422, 507))
def rename(name: str, new: NewName, engine: TheEngine) -> VersionNumber:
    """If another class has that name the two become one, which only an exact method can do."""
    try:
        checked_label(new.to)
    except ValueError as error:
        raise RefusedError(422, str(error)) from error
    return VersionNumber(version=engine.rename(name, new.to))


@router.get("/confusion", summary="Which classes are taken for which", responses=errors())
def confusion(engine: TheEngine) -> ConfusionOut | None:
    """Of learned pictures, each as if it had not been learned; null where that cannot be known."""
    found = engine.present.facts.confusion
    return None if found is None else ConfusionOut(labels=found.labels, counts=found.counts)


@router.get("/prompts", summary="How often each prompt was chosen in training", responses=errors())
def prompts(engine: TheEngine) -> PromptCounts:
    counts = engine.present.classifier.prompt_counts()
    return PromptCounts(counts=None if counts is None else list(counts))


@router.get("/versions", summary="The versions that are kept", responses=errors())
def versions(engine: TheEngine) -> Versions:
    found = [VersionOut.model_validate(each) for each in history(engine.folder)]
    return Versions(present=engine.present.number, versions=found)


@router.post("/undo", summary="Go back to the version before", responses=errors(409, 507))
def undo(engine: TheEngine) -> VersionNumber:
    return VersionNumber(version=engine.undo())


@router.get(
    "/thumbnails/{identity}",
    summary="A learned picture, small",
    response_class=FileResponse,
    responses={200: {"content": {"image/jpeg": {}}, "description": "The picture."}, **errors(404, 422)},
)
def thumbnail(identity: str, engine: TheEngine) -> FileResponse:
    path = files.thumbnail_path(engine.folder, identity)
    if not THUMBNAIL.fullmatch(identity) or not path.is_file():
        raise RefusedError(404, f"{identity[:40]!r}: no such thumbnail is kept")
    return FileResponse(path, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})


@router.get(
    "/export",
    summary="Take it along",
    response_class=FileResponse,
    responses={
        200: {"content": {"application/zip": {}, "application/octet-stream": {}}, "description": "The file."},
        **errors(409, 422, 429, 501, 507),
    },
)
def export(engine: TheEngine, format_: Format = "zip") -> FileResponse:
    """A zip of the classifier's folder, without earlier versions and waiting pictures; or a model in ONNX."""
    descriptor, place = tempfile.mkstemp(suffix=f".{format_}")
    os.close(descriptor)
    path = Path(place)
    try:
        number = _packed(engine, path) if format_ == "zip" else _as_onnx(engine, path)
    except BaseException:
        path.unlink()
        raise
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", engine.folder.resolve().name).strip(".-") or "classifier"
    kind = "application/zip" if format_ == "zip" else "application/octet-stream"
    return PassingFile(path, filename=f"{name}-{number}.{format_}", media_type=kind)


class PassingFile(FileResponse):
    """A file that is gone once it was sent, or once nobody reads it any more."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            Path(self.path).unlink(missing_ok=True)


def _packed(engine: Engine, path: Path) -> int:
    """Write the zip; returns the version that is in it."""
    inside = re.sub(r"[\x00-\x1f/\\]", "-", engine.folder.resolve().name)
    with engine.saved(), zipfile.ZipFile(path, "w") as archive:
        for name in (files.MODEL, files.CONFIG, files.CARD):
            if (engine.folder / name).is_file():
                archive.write(engine.folder / name, f"{inside}/{name}")
        return engine.present.number


def _as_onnx(engine: Engine, path: Path) -> int:
    """Write the model in ONNX; returns its version.

    Who traces a model puts other parameters in place for a while, so this needs a whole copy, and one at a time.
    """
    if not EXPORTING.acquire(blocking=False):
        raise full("another ONNX file is being made", retry=5)
    try:
        present = engine.present
        copy.deepcopy(present.classifier).export_onnx(path)
    except ModuleNotFoundError as error:
        raise RefusedError(501, str(error)) from error
    except (RuntimeError, ValueError) as error:
        raise RefusedError(409, " ".join(str(error).split())) from error
    finally:
        EXPORTING.release()
    return present.number
