"""How large the gradient of each part of a model is in the first step of a method that trains all of it.

    python benchmarks/gradients.py 5-datasets-ft-seq --scale small-dinov2 learner.train_embedding=true
    python benchmarks/gradients.py glyphs100-ft-seq

The norm of a step's gradient is clipped, so that a part with a large gradient decides how far the others go. The head
starts from a truncated normal here: from zeros nothing but the head has a gradient in the first step.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import torch

from promptpool.experiments.build import build
from promptpool.experiments.config import load_config
from promptpool.learners.base import Learner
from promptpool.training.loop import Session

EMBEDDING = ("patch_embed", "cls_token", "dist_token", "reg_token", "pos_embed")


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
    if second == "blocks":
        return f"block {rest[0]}"
    return {"norm": "last norm", **dict.fromkeys(EMBEDDING, "embedding")}.get(second, second)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("values", nargs="*")
    parser.add_argument("--scale")
    given = parser.parse_intermixed_args(arguments)
    built = build(load_config(given.run, given.values, scale=given.scale))
    learner, first = built.learner.train(), built.stream.experiences[0]
    session = Session(learner, built.stream, built.plan)
    session.begin(first)
    torch.nn.init.trunc_normal_(learner.head.weight, std=0.02, generator=torch.Generator().manual_seed(0))
    learner.loss(first.train.batch(session.order(first)[: built.plan.batch_size])).backward()
    found = norms(learner)
    whole = math.hypot(*found.values())
    for name, norm in found.items():
        print(f"{name:10} {norm:10.3f}  {100 * norm**2 / whole**2:5.1f} % of the squared norm")


if __name__ == "__main__":
    main()
