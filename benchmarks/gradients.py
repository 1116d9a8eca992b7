"""How large the gradient of each part of a model is in the first step of a method that trains all of it.

    python benchmarks/gradients.py 5-datasets-ft-seq --scale small-dinov2
    python benchmarks/gradients.py glyphs100-ft-seq

The norm of a step's gradient is clipped, so a part with a large gradient leaves little to the others. The head starts
from a truncated normal here: from zeros nothing but the head has a gradient in the first step.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import torch

from promptpool.experiments.build import build
from promptpool.experiments.config import load_config
from promptpool.learners.base import Learner


def norms(learner: Learner) -> dict[str, float]:
    """The norm of the gradient of the embedding, of each block, of the last norm and of the head."""
    squares: dict[str, float] = {}
    for name, parameter in learner.named_parameters():
        if parameter.grad is not None:
            squares[part(name)] = squares.get(part(name), 0.0) + float(parameter.grad.square().sum())
    return {name: math.sqrt(square) for name, square in squares.items()}


def part(name: str) -> str:
    first, second, *rest = name.split(".")
    if first != "backbone":
        return first
    return f"block {rest[0]}" if second == "blocks" else "last norm" if second == "norm" else "embedding"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("values", nargs="*")
    parser.add_argument("--scale")
    given = parser.parse_intermixed_args(arguments)
    built = build(load_config(given.run, [*given.values, "learner.head_start=truncated-normal"], scale=given.scale))
    learner, first = built.learner.train(), built.stream.experiences[0]
    learner.grow(len(built.stream.class_names))
    learner.add_classes(first.classes)
    batch = first.train.batch(torch.arange(min(built.plan.batch_size, len(first.train))))
    learner.loss(batch).backward()
    found = norms(learner)
    whole = math.hypot(*found.values())
    for name, norm in found.items():
        print(f"{name:10} {norm:10.3f}  {100 * norm**2 / whole**2:5.1f} % of the squared norm")


if __name__ == "__main__":
    main()
