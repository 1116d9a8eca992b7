"""Work that takes longer than a request, and how far it is."""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, replace
from typing import Any, Literal

State = Literal["waiting", "running", "done", "failed"]


@dataclass(frozen=True)
class Job:
    """A lesson on its way to a version."""

    id: str
    kind: str = "learn"
    state: State = "waiting"
    what: str = ""  # what is being done at present
    done: int = 0
    total: int | None = None
    error: str | None = None
    report: dict[str, Any] | None = None

    @property
    def over(self) -> bool:
        return self.state in ("done", "failed")


class Jobs:
    """The last jobs, newest first; for any thread."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._guard = threading.Lock()
        self._jobs: dict[str, Job] = {}

    def begin(self) -> Job:
        job = Job(uuid.uuid4().hex)
        with self._guard:
            self._jobs[job.id] = job
            for old in [each.id for each in self._jobs.values() if each.over][: max(len(self._jobs) - self.most, 0)]:
                del self._jobs[old]
        return job

    def drop(self, identity: str) -> None:
        """A job that never began."""
        with self._guard:
            self._jobs.pop(identity, None)

    def change(self, identity: str, **values: Any) -> None:
        with self._guard:
            self._jobs[identity] = replace(self._jobs[identity], **values)

    def find(self, identity: str) -> Job | None:
        with self._guard:
            return self._jobs.get(identity)

    def all(self) -> list[Job]:
        with self._guard:
            return list(self._jobs.values())[::-1]

    @property
    def active(self) -> Job | None:
        return next((job for job in self.all() if not job.over), None)
