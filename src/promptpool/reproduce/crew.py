"""Runs spread over processes of this machine.

Each worker takes a job, says how far it is, and takes the next. A worker that dies is replaced and its job goes on from
its checkpoint. A job that another invocation is at work on is put off. Workers stop at a step, with a checkpoint,
when they are told to or when whoever started them is gone.
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
from promptpool.reproduce.jobs import FEATURES, Job, News, carry_out, failure

DEATHS = 3  # of workers on one job, after which it is given up
PATIENCE = 1.0  # seconds between two looks at jobs that others have
STOPPING = 60.0  # seconds that a step may take to end
EVERY = 0.25  # seconds between two words of a worker


class Worker:
    """A process and the line to it."""

    def __init__(self, number: int, threads: int) -> None:
        self.number = number
        context = multiprocessing.get_context("spawn")
        self.line, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_work, args=(theirs, threads, number), daemon=True)
        self.process.start()
        theirs.close()

    def heard(self) -> News | None:
        """What it says; None when it is dead."""
        try:
            news: News = self.line.recv()
        except (EOFError, OSError):
            self.process.join()
            return None
        return news


def with_processes(jobs: Sequence[Job], *, workers: int, threads: int = 1) -> Generator[News, None, None]:
    """Carry out all jobs; yields what workers say."""
    waiting, deaths, put_off = deque(jobs), Counter[Path](), dict[Path, float]()
    idle = [Worker(number, threads) for number in range(min(workers, len(jobs)))]
    busy: dict[Any, tuple[Worker, Job]] = {}  # by line
    try:
        while waiting or busy:
            now = time.monotonic()
            for job in [job for job in waiting if put_off.get(job.folder, now) <= now][: len(idle)]:
                waiting.remove(job)
                worker = idle.pop()
                busy[worker.line] = worker, job
                with suppress(OSError):  # it died while it had nothing to do, as its line will tell
                    worker.line.send(job)
            for line in wait(list(busy), timeout=PATIENCE):
                worker, job = busy[line]
                news = worker.heard()
                if news is None:
                    deaths[job.folder] += 1
                    news = News(job, "died")
                    if deaths[job.folder] == DEATHS:
                        news = News(job, "failed", reason=f"the process at work on it died {DEATHS} times")
                    worker = Worker(worker.number, threads)
                if news.state != "runs":
                    del busy[line]
                    idle.append(worker)
                if news.state in ("busy", "died"):
                    put_off[job.folder] = time.monotonic() + PATIENCE
                    waiting.append(job)
                yield news
    finally:
        _stop([*idle, *(worker for worker, _ in busy.values())])


def _stop(workers: Sequence[Worker]) -> None:
    """Let all of them finish their steps; each leaves a checkpoint."""
    for worker in workers:
        worker.line.close()
    for worker in workers:
        worker.process.join(timeout=STOPPING)
        worker.process.kill()


def _work(line: Connection, threads: int, number: int) -> None:
    """The life of a worker; where there are GPUs, workers take them in turn."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who started it says when to stop
    torch.set_num_threads(threads)
    if torch.cuda.is_available():
        torch.cuda.set_device(number % torch.cuda.device_count())
    cache: SharedCache | None = None
    try:
        while True:
            job: Job = line.recv()
            cache = cache or SharedCache(job.folder.parent / FEATURES)
            line.send(_said(job, cache, line))
    except (EOFError, OSError):
        return


def _said(job: Job, cache: SharedCache, line: Connection) -> News:
    """The last word on a job."""
    told = 0.0
    try:
        with closing(carry_out(job, cache)) as shares:
            for share in shares:
                if line.poll():  # there is nothing to be heard but that the line is gone
                    raise EOFError
                if time.monotonic() - told > EVERY:
                    told = time.monotonic()
                    line.send(News(job, "runs", share))
    except (EOFError, BrokenPipeError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the other jobs go on
        return failure(job, error)
    return News(job, "done", 1.0)
