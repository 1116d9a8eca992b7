"""The classifier behind the routes: versions, answers, lessons, jobs.

`Engine` is all that the routes know of it. `LocalEngine` does everything in this process:

    answers      gathered into batches, from the version that is present when a batch begins
    changes      one at a time on a thread of their own, on a copy: saved, then swapped in at one moment
    lessons      wait on disk; a job learns all that wait as one lesson

Who looks at pictures is an `Answerer`, so that an engine on several machines need replace no more than that.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from promptpool.classifier import files
from promptpool.classifier.classifier import ContinualClassifier
from promptpool.classifier.lessons import Lesson
from promptpool.classifier.pictures import normal
from promptpool.data.decoding import Pixels
from promptpool.errors import BadFileError
from promptpool.progress import heard_by
from promptpool.serve.answerer import LocalAnswerer, MakeAnswerer
from promptpool.serve.answering import Wish, copy_to_change
from promptpool.serve.batches import Answered
from promptpool.serve.facts import lesson_report
from promptpool.serve.jobs import Job, Jobs
from promptpool.serve.lessons import FOLDER, Lessons, Waiting, sync
from promptpool.serve.limits import Limits, RefusedError, conflict
from promptpool.serve.metrics import Metrics
from promptpool.serve.version import Version, version_in

BUSY = "a lesson is being learned: try again when it is done"
log = logging.getLogger("promptpool.serve")


class Engine(Protocol):
    """What the routes need; calls that change something raise `RefusedError` where they cannot."""

    folder: Path
    limits: Limits
    metrics: Metrics
    lessons: Lessons
    jobs: Jobs

    @property
    def ready(self) -> bool: ...

    @property
    def present(self) -> Version:
        """The version that answers now."""
        ...

    @property
    def queue(self) -> int:
        """How many pictures wait for an answer."""
        ...

    def ask(self, pictures: Sequence[Pixels], wishes: Sequence[Wish]) -> Future[Answered]: ...

    def learn(self) -> Job: ...

    def forget(self, label: str) -> int: ...

    def rename(self, old: str, new: str) -> int: ...

    def undo(self) -> int: ...

    def saved(self) -> threading.Lock:
        """Held by whoever reads the folder's files and wants them to be of one version."""
        ...

    def close(self) -> None: ...


class StoppedError(RuntimeError):
    """The server ends; what was being learned waits for its next start."""


class LocalEngine:
    """See the module. It holds the classifier's folder as long as it lives; raises `BadFileError` if another does."""

    def __init__(
        self,
        folder: Path,
        *,
        backbone: str | None = None,
        limits: Limits | None = None,
        make_answerer: MakeAnswerer = LocalAnswerer,
    ) -> None:
        self.folder, self.backbone, self.limits = folder, backbone, limits or Limits()
        self.metrics = Metrics()
        self._held = ExitStack()
        self._held.enter_context(files.alone(folder))
        try:
            classifier = files.load(folder, backbone=backbone)
            learned = {lesson.source for lesson in classifier.lessons if lesson.source}
            self.lessons = Lessons(folder / FOLDER, self.limits, learned)
        except BaseException:
            self._held.close()
            raise
        self.jobs = Jobs(self.limits.jobs)
        self._version = version_in(folder, classifier)
        self._saved = threading.Lock()
        self._changing = threading.Lock()  # held from the first look at the present version until the new one is there
        self._stopping = False
        self._changes = ThreadPoolExecutor(1, thread_name_prefix="changes")
        self._answerer = make_answerer(self._version, self.limits, self.metrics.batch_sizes.observe)

    @property
    def ready(self) -> bool:
        return not self._stopping

    @property
    def present(self) -> Version:
        return self._version

    @property
    def queue(self) -> int:
        return self._answerer.length

    def saved(self) -> threading.Lock:
        return self._saved

    def ask(self, pictures: Sequence[Pixels], wishes: Sequence[Wish]) -> Future[Answered]:
        if not self._version.classifier.labels:
            raise conflict("nothing was learned yet: teach it first")
        return self._answerer.ask(pictures, wishes)

    def learn(self) -> Job:
        """Begin to learn all that wait as one lesson."""
        if not self._changing.acquire(blocking=False):
            raise conflict(BUSY, retry=5)
        job = self.jobs.begin()
        try:
            table, taken = self.lessons.take(job.id)
            future = self._changes.submit(self._learn, job.id, table, taken)
        except BaseException:
            self.lessons.put_back(job.id)
            self.jobs.drop(job.id)
            self._changing.release()
            raise
        future.add_done_callback(lambda ended: self._ended(job.id, ended))
        return job

    def _learn(self, job: str, table: Path, taken: Sequence[Waiting]) -> dict[str, Any]:
        def listener(what: str, done: int, total: int | None) -> None:
            if self._stopping:
                raise StoppedError("the server was stopped; the pictures wait for its next start")
            self.jobs.change(job, what=what, done=done, total=total)

        self.jobs.change(job, state="running", what="learning")
        classifier = copy_to_change(self._version.classifier)
        with heard_by(listener):
            lesson = _named(classifier.learn(table, progress=files.progress_folder(self.folder)), job, taken)
        if lesson.number:
            classifier.known.lessons[-1] = lesson
            self._install(classifier)
        self.lessons.learned(job)
        return lesson_report(lesson, self._version.number)

    def _ended(self, job: str, ended: Future[dict[str, Any]]) -> None:
        error = ended.exception()
        try:
            if error is None:
                self.jobs.change(job, state="done", report=ended.result())
                return
            if not isinstance(error, BadFileError | OSError | ValueError | StoppedError):
                log.error("a lesson failed", exc_info=error)
            if self._is_saved(job):
                self.lessons.learned(job)
            else:
                self.lessons.put_back(job)
            self.jobs.change(job, state="failed", error=plain(error, self.folder))
        finally:
            self._changing.release()

    def _is_saved(self, job: str) -> bool:
        """True if the lesson of a job is in the version on disk, whatever happened then."""
        with suppress(BadFileError):
            return any(lesson.get("source") == job for lesson in files.read_header(self.folder)["lessons"])
        return False

    def forget(self, label: str) -> int:
        """Take a class out; returns the new version."""
        return self._changed(lambda classifier: classifier.forget(label), label)

    def rename(self, old: str, new: str) -> int:
        """Give a class another name, or make one of two; returns the new version."""
        return self._changed(lambda classifier: classifier.rename(old, new), old)

    def undo(self) -> int:
        """Go back to the version before; returns its number."""
        if not self._changing.acquire(blocking=False):
            raise conflict(BUSY, retry=5)
        try:
            if not any(number < self._version.number for number in files.versions(self.folder)):
                raise conflict("there is no version before this one")
            with self._saved:
                self._write(lambda: files.undo(self.folder))
                self._swap(files.load(self.folder, backbone=self.backbone))
        finally:
            self._changing.release()
        return self._version.number

    def _changed(self, change: Callable[[ContinualClassifier], None], label: str) -> int:
        if not self._changing.acquire(blocking=False):
            raise conflict(BUSY, retry=5)
        try:
            present = self._version.classifier
            if normal(label) not in present.labels:
                raise RefusedError(404, f"{label[:200]!r}: no such class")
            classifier = copy_to_change(present)
            try:
                change(classifier)
            except ValueError as error:
                raise conflict(str(error)) from error
            return self._install(classifier).number
        finally:
            self._changing.release()

    def _install(self, classifier: ContinualClassifier) -> Version:
        """Save a classifier, and answer from it: from here on for those who ask, on disk before that."""
        with self._saved:
            self._write(lambda: files.save(classifier, self.folder))
            return self._swap(classifier)

    def _swap(self, classifier: ContinualClassifier) -> Version:
        """Answer from a classifier that is on disk."""
        version = version_in(self.folder, classifier)
        self._answerer.install(version)
        self._version = version
        return version

    def _write(self, change: Callable[[], object]) -> None:
        """Change what is on disk; an error means that nothing came of it."""
        try:
            change()
        except OSError:
            for left in (self.folder / files.VERSIONS).glob(".*.partial"):  # so that a full disk is less so
                left.unlink(missing_ok=True)
            if int(files.read_header(self.folder)["version"]) == self._version.number:
                raise
            log.warning("%s: the model is saved, but not all that describes it", self.folder)
        sync(self.folder)

    def close(self) -> None:
        """End after what is being answered; a lesson under way is given up, and its pictures go on waiting."""
        self._stopping = True
        self._answerer.close()
        self._changes.shutdown()
        self._held.close()


def _named(lesson: Lesson, job: str, taken: Sequence[Waiting]) -> Lesson:
    """A lesson that calls pictures as those who sent them do."""
    names = {each.file: each.name for each in taken}
    return replace(
        lesson,
        source=job,
        doubtful=tuple((names.get(name, name), own, other) for name, own, other in lesson.doubtful),
        near=tuple((names.get(name, name), names.get(other, other)) for name, other in lesson.near),
        skipped=tuple((names.get(name, name), reason) for name, reason in lesson.skipped),
    )


def plain(error: BaseException, folder: Path) -> str:
    """An error as a sentence that names no path of this machine."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    if isinstance(error, ValueError | StoppedError):
        return " ".join(str(error).replace(f"{folder}{'/'}", "").replace(str(folder), folder.name).split())
    return "something went wrong; the server's log says what"
