"""The JSON that goes in and out."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from promptpool.classifier.pictures import LONGEST

Label = Annotated[str, Field(min_length=1, max_length=LONGEST, description="The name of a class.", examples=["mug"])]
FileName = Annotated[str, Field(max_length=1000, description="What to call the picture; never a path here.")]
Base64 = Annotated[
    str,
    Field(description="The bytes of an image file in base64.", json_schema_extra={"contentEncoding": "base64"}),
]
Share = Annotated[float, Field(ge=0, le=1)]


class Given(BaseModel):
    """What a client sends; fields that are not known are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Error(BaseModel):
    """Every answer that is no success."""

    error: str = Field(description="One plain sentence.")


class AskedImage(Given):
    name: FileName = "picture"
    data: Base64


class AskedImages(Given):
    """Pictures to ask about."""

    images: list[AskedImage] = Field(min_length=1)


class Candidate(BaseModel):
    label: str
    confidence: Share


class Similar(BaseModel):
    """A learned picture that looks like the one that was asked about."""

    label: str
    thumbnail: str = Field(description="Where its small picture is, if thumbnails are kept.")


class PredictionOut(BaseModel):
    name: str
    label: str = Field(description='The class, or "unknown".')
    unknown: bool
    guess: str = Field(description='The best class, also where the label is "unknown".')
    confidence: Share
    top: list[Candidate]
    prompts: list[int] | None = Field(description="The prompts that were chosen, nearest first; null without prompts.")
    similar: list[Similar]
    error: str | None = Field(description="Why there is no answer: the file is no picture.")


class Predictions(BaseModel):
    version: int = Field(description="The version that answered, the same for all of these.")
    predictions: list[PredictionOut]


class TaughtPicture(Given):
    name: FileName = "picture"
    label: Label
    data: Base64


class TaughtPictures(Given):
    """Pictures to learn."""

    pictures: list[TaughtPicture] = Field(min_length=1)


class WaitingPicture(BaseModel):
    id: str
    name: str
    label: str


class RefusedPicture(BaseModel):
    name: str
    error: str


class Added(BaseModel):
    waiting: int = Field(description="How many pictures wait now.")
    added: list[WaitingPicture]
    refused: list[RefusedPicture]


class WaitingPictures(BaseModel):
    pictures: list[WaitingPicture]
    labels: dict[str, int] = Field(description="How many pictures of each label wait.")


class NewLabel(Given):
    label: Label


class NewName(Given):
    to: Label


class Removed(BaseModel):
    waiting: int


class Begun(BaseModel):
    job: str


class Suffered(BaseModel):
    label: str
    before: Share
    after: Share


class Doubtful(BaseModel):
    """A learned picture that looks more like another class than like its label."""

    picture: str
    label: str
    looks_like: str


class KnownAs(BaseModel):
    """A class with pictures that were learned as another one before."""

    label: str
    learned_as: str


class Report(BaseModel):
    """What a lesson did."""

    lesson: int = Field(description="0 if all of its pictures were known: then there is no new version.")
    version: int
    pictures: int
    new: list[str]
    known: list[str]
    held_out: int
    accuracy: Share | None = Field(description="Of the pictures that were held out of this lesson.")
    before: Share | None = Field(description="Of earlier pictures, before it; each as if it had not been learned.")
    after: Share | None
    suffered: list[Suffered] = Field(description="The classes that are known less well than before.")
    doubtful: list[Doubtful]
    duplicates: int
    known_as: list[KnownAs]
    skipped: list[RefusedPicture]
    seconds: float


class JobOut(BaseModel):
    id: str
    kind: str
    state: Literal["waiting", "running", "done", "failed"]
    what: str
    done: int
    total: int | None
    error: str | None
    report: Report | None


class JobList(BaseModel):
    jobs: list[JobOut] = Field(description="The last ones, newest first.")


class About(BaseModel):
    """What the classifier is."""

    name: str
    version: int
    method: str
    backbone: str
    image_size: int
    classes: int
    pictures: int
    bytes: int
    drawings_only: bool
    thumbnails: bool
    prompts: int | None
    exact: bool = Field(description="True if classes can be taken out and made one.")
    note: str


class KnownClass(BaseModel):
    name: str
    pictures: int
    accuracy: Share | None


class Classes(BaseModel):
    version: int
    classes: list[KnownClass]


class VersionNumber(BaseModel):
    version: int


class ConfusionOut(BaseModel):
    labels: list[str]
    counts: list[list[int]] = Field(description="A row for each class, a column for what its pictures are taken for.")


class PromptCounts(BaseModel):
    counts: list[int] | None


class VersionOut(BaseModel):
    version: int
    when: str
    what: str


class Versions(BaseModel):
    present: int
    versions: list[VersionOut] = Field(description="Those that are kept, newest first.")


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    ready: bool
    version: int | None = None
