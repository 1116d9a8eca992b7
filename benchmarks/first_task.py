"""L2P's start and steps on real weights: the first ten classes of CIFAR-100, judged on held-out training images.

    python benchmarks/first_task.py FILE --images 25
    python benchmarks/first_task.py FILE --images 50 "l2p plan.learning_rate=0.01" "masked-linear"

Each line is a method with other values than those of the scale `small`. The head of the first task tells soon whether
prompts learn at all; whole streams are for `recommended.py`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from promptpool.experiments.build import SharedCache, build
from promptpool.experiments.config import load_config
from promptpool.training import learn

LINES = (
    "masked-linear",
    *(f"l2p plan.learning_rate={rate} learner.start_from=scaled" for rate in (0.001, 0.003, 0.01)),
    "l2p plan.learning_rate=0.003 learner.start_from=scaled learner.prompt_length=1",
    "l2p plan.learning_rate=0.01 learner.start_from=scaled learner.prompt_length=1",
    "l2p plan.learning_rate=0.003 learner.start_from=range",
    *(f"l2p plan.learning_rate={rate} learner.start_from=tokens" for rate in (0.003, 0.005, 0.01)),
    "l2p plan.learning_rate=0.01 learner.start_from=tokens learner.position=none",
    "l2p plan.learning_rate=0.01 learner.start_from=tokens learner.prompt_length=1",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights")
    parser.add_argument("lines", nargs="*", default=list(LINES))
    parser.add_argument("--images", type=int, default=25, help="training images per class")
    parser.add_argument("--image-size", type=int, default=112)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    cache = SharedCache(Path("runs/first-task/features"))
    for line in given.lines:
        method, *values = line.split()
        config = load_config(
            f"cifar100-{method}",
            [
                f"backbone.name={given.weights}",
                f"backbone.image_size={given.image_size}",
                f"dataset.train_per_class={given.images}",
                "dataset.test_per_class=none",
                "dataset.held_out=20",
                f"seed={given.seed}",
                *values,
            ],
            scale="small",
        )
        built, begin = build(config, cache), time.monotonic()
        record = next(iter(learn(built.learner, built.stream, built.plan)))
        built.learner.frozen.keep()
        accuracy = 100 * (record.correct[0] or 0) / record.total[0]
        print(f"{line}: {accuracy:.1f} ({time.monotonic() - begin:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
