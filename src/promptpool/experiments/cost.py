"""What a run will cost: measured from a few of its steps, or counted before anything is trained.

`estimate` takes a few steps and multiplies. `work` counts passes of one image through the backbone, forward 1, forward
and back 3, from the methods' equations; `seconds_per_pass` measures what a pass takes here. Both are for a person who
plans the day, no more.
"""

from __future__ import annotations

import copy
import sys
import time
from typing import NamedTuple

import torch

from promptpool.backbones.vit import ViT
from promptpool.data.stream import Stream
from promptpool.experiments.build import Built
from promptpool.experiments.runner import device
from promptpool.learners.base import trained_parameter_count
from promptpool.training.loop import Session

# For each training image and epoch.
PASSES = {
    "bic": 16.0,
    "co2l": 16.0,
    "der++": 9.0,
    "dualnet": 30.0,
    "er": 6.0,
    "ewc": 3.5,
    "ewc-online": 7.0,
    "ft-seq": 3.0,
    "ft-seq-frozen": 0.0,
    "l2p": 3.0,
    "l2p-r": 6.0,
    "lwf": 4.0,
    "masked-linear": 0.0,
    "closed-form": 0.5,
    "nearest-mean": 0.0,
    "ranpac": 0.5,
    "supsup": 4.0,
}
ONCE = 2.0  # passes for the frozen features of each image, and for the records


class Estimate(NamedTuple):
    """Seconds and bytes for a whole run on this machine; `memory` is None where the system does not tell."""

    seconds: float
    memory: int | None
    steps: int
    trained_parameters: int


def estimate(built: Built, *, probes: int = 3) -> Estimate:
    """Take a few steps and test a few batches, then multiply; the learner is no use for a run afterwards.

    The first step of each example is timed apart from later ones, for which frozen features are already there.
    """
    session = Session(built.learner, built.stream, built.plan)
    fresh, known = _step_seconds(session, probes)
    per_image = _test_seconds(built)
    first = session.steps // session.epochs
    seconds = first * fresh + (session.steps - first) * known + _tested_images(built.stream) * per_image
    trained = trained_parameter_count(built.learner, len(built.stream.class_names))
    return Estimate(seconds, peak_memory(), session.steps, trained)


def _step_seconds(session: Session, probes: int) -> tuple[float, float]:
    """How long a step takes when its examples are new, and when they were seen before."""
    experience = session.stream.experiences[0]
    session.begin(experience)
    index = session.order(experience)[: session.plan.batch_size]
    seconds = []
    for _ in range(probes + 1):
        begin = time.perf_counter()
        session.learn(experience, index)
        seconds.append(time.perf_counter() - begin)
    return seconds[0], sorted(seconds[1:])[len(seconds[1:]) // 2]


@torch.no_grad()
def _test_seconds(built: Built) -> float:
    """How long a test image takes when its frozen feature is there."""
    built.learner.eval()
    batch = built.stream.tests[0].batch(slice(0, built.plan.test_batch_size)).to(built.learner.device)
    built.learner.logits(batch)
    begin = time.perf_counter()
    built.learner.logits(batch)
    return (time.perf_counter() - begin) / len(batch.y)


def _tested_images(stream: Stream) -> int:
    """How many test images all records of a stream count."""
    tested, seen = 0, set[int]()
    for experience in stream.experiences:
        seen.update(experience.classes)
        tested += sum(len(test) for test in stream.tests if not seen.isdisjoint(test.classes))
    return tested


def work(built: Built) -> float:
    """The passes of a run."""
    stream, values, backbone = built.stream, built.config["learner"], built.learner.backbone
    name, tested = values["name"], _tested_images(stream)
    images = sum(len(experience.train) for experience in stream.experiences)
    longer = 1.0
    if name in ("l2p", "l2p-r") and isinstance(backbone, ViT):  # prompts are further tokens
        longer += (
            int(values["top_k"]) * int(values["prompt_length"]) / (backbone.pos_embed.shape[1] + backbone.registers)
        )
    if name == "gdumb":
        count = len(stream.experiences)
        kept = sum(min(values["capacity"], images * number // count) for number in range(1, count + 1))
        return float(3 * values["epochs"] * kept + tested)
    inferred = len(stream.experiences) if name == "supsup" else 1
    frozen = name in ("ft-seq-frozen", "masked-linear", "nearest-mean", "ranpac", "closed-form")
    trained = PASSES.get(name, 3.0) * images * built.plan.epochs
    return longer * (trained + tested * inferred * (not frozen)) + ONCE * images


@torch.no_grad()
def seconds_per_pass(built: Built) -> float:
    """The time of one image's forward pass in one thread, on the device that runs will use."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        batch = built.stream.tests[0].batch(slice(0, 16))
        x = built.learner.view.plain(batch.x).to(device())
        backbone = copy.deepcopy(built.learner.backbone).to(device()).eval()
        taken = []
        for _ in range(4):
            begin = time.perf_counter()
            backbone.features(x).sum().item()  # item() waits for the device
            taken.append(time.perf_counter() - begin)
    finally:
        torch.set_num_threads(threads)
    return min(taken) / len(x)


def peak_memory() -> int | None:
    """The most memory this process has held, in bytes; None on Windows, which tells in another way."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
