"""One run in its folder: opened, gone on with, finished."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from promptpool import __version__, distributed
from promptpool.allocator import keep_freed_memory
from promptpool.data.stream import class_counts
from promptpool.errors import UnfitError
from promptpool.experiments.build import Built, SharedCache, build, prefixed
from promptpool.experiments.config import Config, ConfigError
from promptpool.experiments.identity import differences, written
from promptpool.files import locked, write_whole
from promptpool.learners.base import trained_parameter_count
from promptpool.training.checkpoint import load_checkpoint, save_checkpoint, with_checkpoints
from promptpool.training.loop import Session, Step
from promptpool.training.run_folder import (
    CHECKPOINT,
    CONFIG,
    ENVIRONMENT,
    SCHEDULE,
    TIMES,
    is_run,
    read_run,
    read_times,
    write_json,
    write_records,
)

ROUNDING = ("promptpool", "python", "torch", "numpy", "machine", "threads", "device", "ranks", "revision")
STRETCHES = 50  # of a stream without boundaries, in the picture of its schedule


class BusyError(ConfigError):
    """Another process is at work in the folder."""


def is_finished(path: Path, config: Config) -> bool:
    """True if the folder holds this configuration's run, at its end; one of another configuration is an error."""
    if not is_run(path):
        return False
    if found := differences(config, path):
        raise ConfigError(f"{path}: holds the run of other values: {'; '.join(found)}")
    return (path / ENVIRONMENT).exists() and read_run(path).finished


def run(
    config: Config, path: Path, *, cache: SharedCache | None = None, seconds: float = 60.0
) -> Generator[Step, None, None]:
    """Build what a configuration means and take it to its end; yields after every step."""
    yield from go_on(build(config, cache), path, seconds=seconds)


def go_on(built: Built, path: Path, *, seconds: float = 60.0) -> Generator[Step, None, None]:
    """Take a run to its end, from the start or from where it stopped; yields after every step.

    Records are in the folder when the step that brings them is yielded. Several ranks may run one folder together;
    two runs may not.
    """
    with _alone(path):
        if is_finished(path, built.config):
            return
        keep_freed_memory()
        session = open_session(built, path)
        times = read_times(path)[: len(session.records)]
        begin = time.monotonic()
        try:
            for step in with_checkpoints(session, path / CHECKPOINT, seconds=seconds):
                if step.record is not None and distributed.rank() == 0:
                    times.append(round(time.monotonic() - begin, 2))
                    write_records(path, session.records)
                    write_json(path / TIMES, times)
                    begin = time.monotonic()
                if step.record is not None:
                    built.learner.keep_features()
                yield step
        except UnfitError as error:
            raise ConfigError(prefixed(str(error), built.config)) from error
        except GeneratorExit:  # the caller stops between two steps
            save_checkpoint(path / CHECKPOINT, session)
            built.learner.keep_features()
            raise


def open_session(built: Built, path: Path) -> Session:
    """The session of a run folder, where it stopped or at its start, with the folder's files in place."""
    session = Session(built.learner.to(device()), built.stream, built.plan)
    if (path / CHECKPOINT).exists():
        load_checkpoint(path / CHECKPOINT, session)
    if distributed.rank() == 0:
        write_whole(path / CONFIG, written(built.config, asdict(built.learner.view)).encode())
        write_json(path / ENVIRONMENT, _with_earlier(environment(built), path, going_on=session.step_count > 0))
        if not built.stream.boundaries:
            write_json(path / SCHEDULE, class_counts(built.stream, STRETCHES))
        if session.records:
            write_records(path, session.records)
    return session


def _with_earlier(present: dict[str, Any], path: Path, *, going_on: bool) -> dict[str, Any]:
    """The environment of a run, and before it those in which its earlier part was made, where they differ."""
    if not going_on or not (path / ENVIRONMENT).exists():
        return present
    before = read_run(path).environment
    part = {name: before.get(name) for name in ROUNDING}
    earlier = before.get("earlier", [])
    if part != {name: present[name] for name in ROUNDING}:
        earlier = [*earlier, part]
    return present | ({"earlier": earlier} if earlier else {})


def device() -> torch.device:
    """This process's GPU if there is one, NVIDIA's or Apple's, or else the CPU.

    CUDA_VISIBLE_DEVICES decides which of NVIDIA's, and an empty one means none of them.
    """
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    alone = "WORLD_SIZE" not in os.environ  # ranks cannot exchange tensors of mps
    return torch.device("mps" if alone and torch.backends.mps.is_available() else "cpu")


def environment(built: Built) -> dict[str, Any]:
    """What the numbers of a run depend on, beside its configuration."""
    learner, stream = built.learner, built.stream
    return {
        "promptpool": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "device": str(device()),
        "ranks": distributed.world(),
        "seed": built.config["seed"],
        "backbone": learner.backbone.origin,
        "stream": stream.fingerprint,
        "joins": stream.joins,
        "revision": _revision(),
        "class_names": list(stream.class_names),
        "experiences": len(stream.experiences),
        "images": [len(experience.train) for experience in stream.experiences],
        "skipped": [list(file) for file in stream.notes.skipped],
        "notes": list(stream.notes.texts),
        "trained_parameters": trained_parameter_count(learner, len(stream.class_names)),
    }


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Refuse to work in a folder in which another process is at work."""
    if distributed.rank() > 0:
        yield
        return
    path.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        try:
            held.enter_context(locked(path / ".lock"))
        except BlockingIOError as error:
            raise BusyError(f"{path}: another process is at work in this run") from error
        yield


def _revision() -> str | None:
    """The revision of the source this runs from, marked where files were changed; None outside a checkout."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *words]
        asked = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)  # noqa: S603
        return asked.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", __file__)  # or it may be installed in somebody else's checkout
        return git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None
