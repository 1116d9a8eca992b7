"""Runs a learner over the toy stream in child processes that are killed again and again until one ends.

    python kill_worker.py LEARNER FOLDER SEED KILLS

Children are forked before any work, so that a life costs no start-up. Prints how many were killed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from promptpool.files import write_whole
from promptpool.training.checkpoint import learn
from toys import SHORT, THREADS, toy_learner, toy_stream


def run(name: str, folder: Path) -> None:
    """One life: go on from the checkpoint, write the records after each experience."""
    lines: list[str] = []
    for record in learn(toy_learner(name), toy_stream(), SHORT, checkpoint=folder / "checkpoint", seconds=0):
        lines.append(record.to_json() + "\n")
        write_whole(folder / "records.jsonl", "".join(lines).encode())


def main() -> None:
    name, folder, seed, kills = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(THREADS)
    moments = random.Random(seed)  # noqa: S311
    killed = 0
    while True:
        child = os.fork()
        if child == 0:
            run(name, folder)
            os._exit(0)
        if killed < kills:
            time.sleep(moments.uniform(0, 0.3))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            print(killed)  # noqa: T201
            sys.exit(os.WEXITSTATUS(status))
        killed += 1


if __name__ == "__main__":
    main()
