"""Runs spread over processes of this machine.

Each worker takes a job, reports how far it is, and takes the next. A worker that dies is replaced, and its job goes on
from its checkpoint. A job whose run is locked by another process is put off. Workers stop after a step, with a
checkpoint, when they are asked to or when the parent process is gone.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import Counter, deque
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from promptpool.experiments.build import SharedCache
from promptpool.reproduce.jobs import FEATURES, Job, JobStatus, carry_out, failure

DEATHS = 3  # of workers on one job, after which it fails
PATIENCE = 1.0  # seconds until a job that was put off is tried again
STOPPING = 60.0  # seconds that a worker has to finish its step
EVERY = 0.25  # seconds between two reports of a worker


class Worker:
    """A process and the pipe to it."""

    def __init__(self, number: int, threads: int) -> None:
        self.number = number
        context = multiprocessing.get_context("spawn")
        self.pipe, other_end = context.Pipe()
        self.process: BaseProcess = context.Process(target=_work, args=(other_end, threads, number), daemon=True)
        self.process.start()
        other_end.close()

    def receive(self) -> JobStatus | None:
        """Its next report; None if it is dead."""
        try:
            status: JobStatus = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            return None
        return status


def with_processes(jobs: Sequence[Job], *, workers: int, threads: int = 1) -> Generator[JobStatus, None, None]:
    """Carry out all jobs; yields the reports of the workers."""
    waiting, deaths, put_off = deque(jobs), Counter[Path](), dict[Path, float]()
    idle = [Worker(number, threads) for number in range(min(workers, len(jobs)))]
    busy: dict[Any, tuple[Worker, Job]] = {}  # by pipe
    try:
        while waiting or busy:
            now = time.monotonic()
            for job in [job for job in waiting if put_off.get(job.folder, now) <= now][: len(idle)]:
                waiting.remove(job)
                worker = idle.pop()
                busy[worker.pipe] = worker, job
                with suppress(OSError):  # it died while it was idle, as the next receive will show
                    worker.pipe.send(job)
            for pipe in wait(list(busy), timeout=PATIENCE):
                worker, job = busy[pipe]
                status = worker.receive()
                if status is None:
                    deaths[job.folder] += 1
                    status = JobStatus(job, "died")
                    if deaths[job.folder] == DEATHS:
                        status = JobStatus(job, "failed", reason=f"the process at work on it died {DEATHS} times")
                    worker = Worker(worker.number, threads)
                if status.state != "runs":
                    del busy[pipe]
                    idle.append(worker)
                if status.state in ("busy", "died"):
                    put_off[job.folder] = time.monotonic() + PATIENCE
                    waiting.append(job)
                yield status
    finally:
        _stop([*idle, *(worker for worker, _ in busy.values())])


def _stop(workers: Sequence[Worker]) -> None:
    """Let each finish its step and leave a checkpoint."""
    for worker in workers:
        worker.pipe.close()
    for worker in workers:
        worker.process.join(timeout=STOPPING)
        worker.process.kill()


def _work(pipe: Connection, threads: int, number: int) -> None:
    """The main loop of a worker process; GPUs are given out in turn."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process decides when to stop
    torch.set_num_threads(threads)
    if torch.cuda.is_available():
        torch.cuda.set_device(number % torch.cuda.device_count())
    cache: SharedCache | None = None
    try:
        while True:
            job: Job = pipe.recv()
            cache = cache or SharedCache(job.folder.parent / FEATURES)
            pipe.send(_carried_out(job, cache, pipe))
    except (EOFError, OSError):
        return


def _carried_out(job: Job, cache: SharedCache, pipe: Connection) -> JobStatus:
    """Carry out a job, with reports on the way; returns its final status."""
    reported = 0.0
    try:
        with closing(carry_out(job, cache)) as shares:
            for share in shares:
                if pipe.poll():  # nothing is ever sent here, so the pipe was closed
                    raise EOFError
                if time.monotonic() - reported > EVERY:
                    reported = time.monotonic()
                    pipe.send(JobStatus(job, "runs", share))
    except (EOFError, BrokenPipeError):
        raise
    except Exception as error:  # noqa: BLE001 - the other jobs go on in any case
        return failure(job, error)
    return JobStatus(job, "done", 1.0)
