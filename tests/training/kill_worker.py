"""Runs learners over the toy stream, once undisturbed and once in processes that are killed until one of them ends.

    python kill_worker.py FOLDER SEED KILLS LEARNER...

Leaves the runs in FOLDER/LEARNER/undisturbed and FOLDER/LEARNER/disturbed. Children are forked before any work and
after every import, so that a life costs no start-up and is not spent on it. Prints, as JSON, how many were killed of
each learner; null for one that failed, whose error is on standard error.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import torch
import torch._dynamo  # the first optimiser imports it, which takes longer than a life

from promptpool.files import write_whole
from promptpool.training.checkpoint import learn
from toys import SHORT, THREADS, toy_learner, toy_stream


def run(name: str, folder: Path) -> None:
    """One life: go on from the checkpoint, write the records after each experience."""
    lines: list[str] = []
    for record in learn(toy_learner(name), toy_stream(), SHORT, checkpoint=folder / "checkpoint", seconds=0):
        lines.append(record.to_json() + "\n")
        write_whole(folder / "records.jsonl", "".join(lines).encode())


def child(name: str, folder: Path) -> int:
    """The id of a process that lives one life."""
    process = os.fork()
    if process:
        return process
    try:
        run(name, folder)
    except BaseException:  # noqa: BLE001 - whatever it is, the child must not go on as its parent
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def lives(name: str, folder: Path, moments: random.Random, kills: int) -> int | None:
    """How many were killed before one ended; None if that one failed."""
    folder.mkdir(parents=True)
    killed = 0
    while True:
        process = child(name, folder)
        if killed < kills:
            time.sleep(moments.uniform(0, 0.3))
            os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        if os.WIFEXITED(status):
            return None if os.WEXITSTATUS(status) else killed
        killed += 1


def main() -> None:
    folder, seed, kills, names = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    torch.set_num_threads(THREADS)
    killed: dict[str, int | None] = {}
    for name in names:
        moments = random.Random(seed)  # noqa: S311
        if lives(name, folder / name / "undisturbed", moments, 0) is None:
            killed[name] = None
        else:
            killed[name] = lives(name, folder / name / "disturbed", moments, kills)
    json.dump(killed, sys.stdout)


if __name__ == "__main__":
    main()
