"""Two processes started by torchrun, for tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
# Threads of gloo end a process so now and then on a busy machine, whatever it computes; nothing of ours says this.
CRASH = "terminate called without an active exception"
TRIES = 3


def torchrun(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """What two ranks of a command write to standard output; they are started again where gloo itself crashes."""
    for left in reversed(range(TRIES)):
        ended = subprocess.run(
            [*LAUNCH, *words], env=environment, capture_output=True, text=True, timeout=900, check=False
        )
        if ended.returncode == 0 or CRASH not in ended.stderr or not left:
            break
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout
