"""Questions that are answered on Ray Serve (`deployments.py`); HTTP, lessons and learning stay in this process.

What was read of a picture is kept for a while, for all classifiers that read alike: whoever asks two of them about one
picture has it looked at once.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import threading
import uuid
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import ray
import torch
from torch import nn

from promptpool.backbones.base import FeatureExtractor
from promptpool.classifier.classifier import ContinualClassifier
from promptpool.data.decoding import Pixels
from promptpool.learners.closed_form import ClosedForm
from promptpool.serve.answering import Wish, is_frozen, with_backbone
from promptpool.serve.batches import Answered, Room
from promptpool.serve.deployments import Packed, Parcel, Row
from promptpool.serve.limits import Limits
from promptpool.serve.version import Version

TRIES = 5  # for a question whose replicas die
PAUSE = 0.2  # seconds before it is asked again
ROWS = 2048  # pictures of which it is remembered what was read
Result = TypeVar("Result")


class Cluster:
    """The two deployments, and the way to them."""

    def __init__(self, encoder: Any, heads: Any) -> None:
        self.encoder, self.heads = encoder, heads
        self._numbers = itertools.count()
        self._backbones: dict[str, Parcel] = {}
        self._readers: dict[str, Parcel] = {}
        self._rows: dict[tuple[str, bytes], asyncio.Task[Row]] = {}  # for its thread alone
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="questions", daemon=True)
        self._thread.start()

    def answerer(self, version: Version, limits: Limits, note_size: Callable[[int], None]) -> RayAnswerer:
        return RayAnswerer(self, version, limits, note_size)

    def run(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begin something on the thread of questions."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def call(self, method: Any, *given: Any) -> Any:
        """What a replica answers; if it dies meanwhile, what another one does."""
        for _ in range(TRIES - 1):
            with suppress(ray.exceptions.RayActorError):
                return await method.remote(*given)
            await asyncio.sleep(PAUSE)
        return await method.remote(*given)

    async def row(self, reader: Parcel, picture: Pixels, note_size: Callable[[int], None]) -> npt.NDArray[np.float16]:
        """What is read of a picture, once for all who ask for the same."""
        key = reader.owner, hashlib.sha256(picture.tobytes()).digest()
        known = self._rows.pop(key, None)
        if known is None:
            known = asyncio.ensure_future(self.call(self.encoder.encode, reader, picture))
            known.add_done_callback(lambda done: self._note(key, done, note_size))
        self._rows[key] = known  # the latest
        while len(self._rows) > ROWS:
            del self._rows[next(iter(self._rows))]
        return (await asyncio.shield(known)).values

    def _note(self, key: tuple[str, bytes], done: asyncio.Task[Row], note_size: Callable[[int], None]) -> None:
        if done.cancelled() or done.exception() is not None:
            self._rows.pop(key, None)
        elif size := done.result().together:
            note_size(size)

    def packed(self, owner: str, classifier: ContinualClassifier) -> Parcel:
        """A version on its way to whoever answers from it."""
        backbone = None if is_frozen(classifier) else self._backbone(classifier.backbone)
        return self._put(owner, Packed(_light(with_backbone(classifier, nn.Identity())), backbone))

    def reader(self, classifier: ContinualClassifier) -> Parcel:
        """What reads pictures for this classifier, and for all others that read alike."""
        store = classifier.learner.frozen
        if store.fingerprint not in self._readers:
            content = Packed(with_backbone(store, nn.Identity()), self._backbone(classifier.backbone))
            self._readers[store.fingerprint] = self._put(store.fingerprint, content)
        return self._readers[store.fingerprint]

    def _backbone(self, backbone: FeatureExtractor) -> Parcel:
        name = f"{backbone.fingerprint()}-{backbone.image_size}"
        if name not in self._backbones:
            self._backbones[name] = self._put(name, backbone)
        return self._backbones[name]

    def _put(self, owner: str, content: Any) -> Parcel:
        return Parcel(owner, next(self._numbers), ray.put(content))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class RayAnswerer:
    """The `Answerer` of one classifier; a question is answered by the version that was there when it came."""

    def __init__(self, cluster: Cluster, version: Version, limits: Limits, note_size: Callable[[int], None]) -> None:
        self.cluster, self.note_size, self.room = cluster, note_size, Room(limits.queue)
        self.owner = uuid.uuid4().hex
        self._waiting: set[Future[Answered]] = set()
        self._guard = threading.Lock()
        self.install(version)

    @property
    def length(self) -> int:
        return self.room.length

    def ask(self, pictures: Sequence[Pixels], wishes: Sequence[Wish]) -> Future[Answered]:
        self.room.take(len(pictures))
        future = self.cluster.run(self._answered(*self._present, pictures, wishes))
        with self._guard:
            self._waiting.add(future)
        future.add_done_callback(lambda done: self._done(done, len(pictures)))
        return future

    def _done(self, future: Future[Answered], count: int) -> None:
        self.room.give(count)
        with self._guard:
            self._waiting.discard(future)

    async def _answered(
        self,
        number: int,
        version: Parcel,
        reader: Parcel | None,
        pictures: Sequence[Pixels],
        wishes: Sequence[Wish],
    ) -> Answered:
        cluster = self.cluster
        if reader is None:
            found = await cluster.call(cluster.encoder.answer, version, pictures, wishes)
            self.note_size(len(pictures))
        else:
            rows = await asyncio.gather(*(cluster.row(reader, picture, self.note_size) for picture in pictures))
            found = await cluster.call(cluster.heads.answer, version, rows, wishes)
        return Answered(number, found)

    def install(self, version: Version) -> None:
        """See `Answerer`; the version is where answers are made before the first of them asks for it."""
        parcel = self.cluster.packed(self.owner, version.classifier)
        reader = self.cluster.reader(version.classifier) if is_frozen(version.classifier) else None
        if reader is not None:
            self.cluster.run(self.cluster.call(self.cluster.heads.hold, parcel)).result()
        self._present = version.number, parcel, reader

    def close(self) -> None:
        with self._guard:
            waiting = set(self._waiting)
        wait(waiting)


def _light(classifier: ContinualClassifier) -> ContinualClassifier:
    """Without what is needed for learning alone, which is most of it."""
    learner = classifier.learner
    if isinstance(learner, ClosedForm):
        if learner.gaussian is not None:
            learner.distance(torch.zeros(1, len(learner.directions)))  # which keeps what it needs of the sums
        learner.regression = None
        learner.sums.gram = learner.projected.gram = torch.zeros(0, 0)
    return classifier
