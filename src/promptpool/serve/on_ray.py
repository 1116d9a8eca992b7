"""Ray and Ray Serve, begun and ended: on this machine, or on the cluster that RAY_ADDRESS names.

On this machine Ray listens on 127.0.0.1 alone, wants a token of its own from whoever connects, has no dashboard and
tells nobody that it runs. The HTTP proxies of Ray Serve are never started: clients come through `app.guarded`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from promptpool.serve.answerer import MakeAnswerer
from promptpool.serve.limits import Limits

IN_FLIGHT = 4 * Limits.batch  # questions that a replica has at once, so that the next batch is there in time
ALONE = {
    "RAY_AUTH_MODE": "token",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on every system: its node is 127.0.0.1, and nothing listens elsewhere
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # somebody waits for an answer; by default others on the machine go first
}


@contextmanager
def on_ray(folders: Sequence[Path], *, replicas: int, threads: int) -> Iterator[MakeAnswerer]:
    """What makes answerers for the classifiers in these folders, as long as this lasts.

    There are so many replicas of the encoder, each of so many threads.
    """
    cluster = os.environ.get("RAY_ADDRESS", "").removeprefix("local")
    if not cluster and "ray" not in sys.modules:  # which reads them when it is imported
        for name, value in ALONE.items():
            os.environ.setdefault(name, value)
    try:
        import ray
        from ray import serve

        from promptpool.serve.deployments import Encoder, Heads
        from promptpool.serve.ray_answerer import Cluster
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("--engine ray needs Ray Serve: pip install 'promptpool[ray,serve]'") from error
    own = {"address": "local", "num_cpus": replicas * threads + 1, "include_dashboard": False}  # and no other's
    values: dict[str, Any] = {} if cluster else own
    ray.init(log_to_driver=False, logging_level=logging.WARNING, **values)
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    names = _names(folders)
    try:
        serve.start(proxy_location="Disabled", logging_config={"log_level": "WARNING", "enable_access_log": False})
        encoder = _run(serve, names[0], Encoder, (threads,), replicas=replicas, threads=threads)
        found = Cluster(encoder, _run(serve, names[1], Heads, (), replicas=1, threads=1))
        try:
            yield found.answerer
        finally:
            found.close()
    finally:
        try:
            for name in names:  # what others have on a cluster goes on
                serve.delete(name)
        finally:
            ray.shutdown()


def _names(folders: Sequence[Path]) -> tuple[str, str]:
    """Of our applications on a cluster: the same after a restart, so that what a killed server left is replaced."""
    text = "\n".join([platform.node(), *sorted(str(folder.resolve()) for folder in folders)])
    name = f"promptpool-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return f"{name}-encoder", f"{name}-heads"


def _run(serve: Any, name: str, kind: type, given: tuple[Any, ...], *, replicas: int, threads: int) -> Any:
    """Begin a deployment, as an application without a route; returns the way to it."""
    deployment = serve.deployment(
        kind,
        num_replicas=replicas,
        max_ongoing_requests=IN_FLIGHT,
        ray_actor_options={"num_cpus": threads, "runtime_env": {"env_vars": {"OMP_NUM_THREADS": str(threads)}}},
    )
    return serve.run(deployment.bind(*given), name=name, route_prefix=None)
