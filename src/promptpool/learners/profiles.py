"""The four named profiles of L2P: what the paper says, and what public code does instead.

A profile is only a set of values: keywords of `L2P`, of `ImageView`, of `Plan` and of `load_backbone`. Read in
google-research/l2p before (`google-v1`) and after (`google-v2`) its rewrite of July 2022 and in JH-LEE-KR/l2p-pytorch
(`pytorch-port`). Where the paper is silent, `paper` does what its authors' code does. docs/methods.md says how near
each comes to the code it names.

The three reproduction profiles choose prompts by a vote in groups of 16 images, at test too. If test images come task
by task, such a vote reveals the task to the model; a record says how large the groups were.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

from promptpool.checks import one_of


class Profile(NamedTuple):
    """Keywords by what they belong to."""

    learner: dict[str, Any]
    view: dict[str, Any]
    plan: dict[str, Any]
    backbone: dict[str, Any]


_RELEASED: dict[str, Any] = {"vote": 16}
_AUGMENTED: dict[str, Any] = {"values": "unit", "crop": (0.05, 1.0), "flip": True, "test_crop": 0.875}
_TESTED: dict[str, Any] = {"test_classes": "all"}
_GOOGLE: dict[str, Any] = {**_TESTED, "batch_size": 128, "learning_rate": 0.015, "clip_frozen": True, "drop_last": True}

PROFILES: dict[str, Profile] = {
    "paper": Profile(
        {"pool_size": 10, "top_k": 5, "prompt_length": 5, "pull": 0.5},
        {"values": "unit"},
        {"batch_size": 128, "learning_rate": 0.03},
        {},
    ),
    "google-v1": Profile(
        {
            **_RELEASED,
            "pool_size": 10,
            "top_k": 5,
            "prompt_length": 5,
            "pull": 0.1,
            "order": "class-first",
            "position": "class",
        },
        _AUGMENTED,
        _GOOGLE,
        {"gelu": "tanh"},
    ),
    "google-v2": Profile(
        {**_RELEASED, "pool_size": 10, "top_k": 4, "prompt_length": 10, "pull": 1.0},
        _AUGMENTED,
        _GOOGLE,
        {"gelu": "tanh"},
    ),
    "pytorch-port": Profile(
        {
            **_RELEASED,
            "pool_size": 10,
            "top_k": 5,
            "prompt_length": 5,
            "pull": 0.1,
            "start": (-1.0, 1.0),
            "order": "class-first",
            "position": "class",
            "head_start": "truncated-normal",
        },
        _AUGMENTED,
        {**_TESTED, "batch_size": 16, "learning_rate": 0.001875},
        {"gelu": "exact"},
    ),
}

# What a profile has otherwise on 5-datasets, the benchmark of unlike tasks: Eq. 4 in the paper, slots in the codes.
FIVE_DATASETS: dict[str, dict[str, Any]] = {
    "paper": {"pool_size": 20, "top_k": 4, "prompt_length": 5, "diversify": True},
    "google-v2": {"pool_size": 20, "top_k": 4, "prompt_length": 10, "pull": 0.5, "slots": True, "inherit": True},
    "pytorch-port": {"pool_size": 20, "top_k": 4, "prompt_length": 10, "pull": 0.5, "slots": True, "inherit": True},
}


def profile(name: str, *, benchmark: str = "cifar100") -> Profile:
    """The values of a profile on CIFAR-100 and what is like it, or on "5-datasets"."""
    one_of(PROFILES, profile=name)
    values = deepcopy(PROFILES[name])
    if benchmark == "cifar100":
        return values
    if benchmark != "5-datasets":
        raise ValueError(f"benchmark = {benchmark!r}: must be cifar100 or 5-datasets")
    if name not in FIVE_DATASETS:
        raise ValueError(f"profile = {name!r}: that code has no configuration for 5-datasets")
    return values._replace(learner={**values.learner, **FIVE_DATASETS[name]})
