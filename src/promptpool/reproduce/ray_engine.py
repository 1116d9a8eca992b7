"""Runs spread over the machines of a Ray cluster, which must share the folder of the runs.

Ray starts a task again, on whatever machine is left, when the process or machine at work on it dies; the run then goes
on from its checkpoint. Without a cluster (RAY_ADDRESS), workers are processes of this machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Sequence
from typing import Any

from promptpool.experiments.build import SharedCache
from promptpool.reproduce.crew import DEATHS, PATIENCE
from promptpool.reproduce.jobs import FEATURES, Job, News, carry_out, failure, share_done

PASSED_ON = ("PROMPTPOOL_DATA", "PROMPTPOOL_CACHE")  # what workers must know of where things are


def with_ray(jobs: Sequence[Job], *, workers: int, threads: int = 1) -> Generator[News, None, None]:
    """Carry out all jobs; yields what is heard of them."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("--engine ray needs the extra: pip install 'promptpool[ray]'") from error
    known = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    cluster = os.environ.get("RAY_ADDRESS")
    sizes: dict[str, Any] = {} if cluster else {"num_cpus": workers * threads, "include_dashboard": False}
    ray.init(log_to_driver=False, runtime_env={"env_vars": known | {"OMP_NUM_THREADS": str(threads)}}, **sizes)
    gpus = 1 if ray.cluster_resources().get("GPU") else 0
    task = ray.remote(num_cpus=threads, num_gpus=gpus, max_retries=DEATHS, retry_exceptions=False)(_carried_out)
    pending = {task.remote(job, threads): job for job in jobs}
    try:
        while pending:
            done, _ = ray.wait(list(pending), timeout=PATIENCE)
            for reference in done:
                job = pending.pop(reference)
                news = _result(ray, reference, job)
                if news.state == "busy":
                    time.sleep(PATIENCE)
                    pending[task.remote(job, threads)] = job
                yield news
            for job in pending.values():
                if share := share_done(job):
                    yield News(job, "runs", share)
    finally:
        for reference in pending:
            ray.cancel(reference)
        ray.shutdown()


def _result(ray: Any, reference: Any, job: Job) -> News:
    try:
        news: News = ray.get(reference)
    except ray.exceptions.RayError as error:
        first = str(error).strip().splitlines()[-1]
        return News(job, "failed", reason=f"{type(error).__name__}: {first}")
    return news


def _carried_out(job: Job, threads: int) -> News:
    """A task: the run taken to its end, and how that went."""
    import torch

    torch.set_num_threads(threads)
    try:
        for _ in carry_out(job, SharedCache(job.folder.parent / FEATURES)):
            pass
    except Exception as error:  # noqa: BLE001 - whatever it is, the other jobs go on
        return failure(job, error)
    return News(job, "done", 1.0)
