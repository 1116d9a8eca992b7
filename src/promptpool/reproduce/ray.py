"""Runs spread over the machines of a Ray cluster, which must share the folder of the runs.

If a process or machine dies, Ray starts its task again on another one, and the run goes on from its checkpoint. Without
a cluster (RAY_ADDRESS), workers are processes of this machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Sequence
from typing import Any

from promptpool.experiments.build import SharedCache
from promptpool.reproduce.jobs import FEATURES, Job, JobStatus, carry_out, failure, share_done
from promptpool.reproduce.workers import DEATHS, PATIENCE

PASSED_ON = ("PROMPTPOOL_DATA", "PROMPTPOOL_CACHE")  # environment variables with the folders that workers need


def with_ray(jobs: Sequence[Job], *, workers: int, threads: int = 1) -> Generator[JobStatus, None, None]:
    """Carry out all jobs; yields how far they are."""
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
                status = _result(ray, reference, job)
                if status.state == "busy":
                    time.sleep(PATIENCE)
                    pending[task.remote(job, threads)] = job
                yield status
            for job in pending.values():
                if share := share_done(job):
                    yield JobStatus(job, "runs", share)
    finally:
        for reference in pending:
            ray.cancel(reference)
        ray.shutdown()


def _result(ray: Any, reference: Any, job: Job) -> JobStatus:
    try:
        status: JobStatus = ray.get(reference)
    except ray.exceptions.RayError as error:
        first = str(error).strip().splitlines()[-1]
        return JobStatus(job, "failed", reason=f"{type(error).__name__}: {first}")
    return status


def _carried_out(job: Job, threads: int) -> JobStatus:
    """The task of Ray: carry out a run; returns its final status."""
    import torch

    torch.set_num_threads(threads)
    try:
        for _ in carry_out(job, SharedCache(job.folder.parent / FEATURES)):
            pass
    except Exception as error:  # noqa: BLE001 - the other jobs go on in any case
        return failure(job, error)
    return JobStatus(job, "done", 1.0)
