"""What a run will cost: measured from small pieces of it, or counted before anything is trained.

`estimate` takes steps of few images and multiplies; it answers within seconds whatever the backbone. `work` counts
passes of one image through the backbone, forward 1, forward and back 3, from the methods' equations; `seconds_per_pass`
measures what a pass takes here. Both are for a person who plans the day, no more.
"""

from __future__ import annotations

import copy
import sys
import time
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from promptpool.backbones.base import FeatureExtractor, Readout
from promptpool.backbones.chunks import CHUNK
from promptpool.backbones.features import memory_budget, row_bytes
from promptpool.backbones.token_store import token_budget
from promptpool.backbones.vit import ViT
from promptpool.data.stream import Examples, Stream, concatenate
from promptpool.experiments.build import Built
from promptpool.experiments.probing import Probe, have_room, kept_images, probe, seconds_of
from promptpool.experiments.runner import device
from promptpool.learners import LEARNERS
from promptpool.learners.adaptation import BATCH_SIZE, VALUES, epochs_on
from promptpool.learners.base import Learner, trained_parameter_count
from promptpool.learners.closed_form import ClosedForm
from promptpool.learners.prompted import PromptedLearner
from promptpool.learners.trial import LEAST_CLASSES
from promptpool.training.loop import Plan, Session

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
SLOW = 0.1  # seconds for an image, above which a transformer is measured by its blocks
ONCE = 2.0  # passes for the frozen features of each image, and for the records


class Estimate(NamedTuple):
    """Seconds and bytes for a whole run on this machine; `memory` is None where the system does not tell."""

    seconds: float
    memory: int | None
    steps: int
    trained_parameters: int
    compiling: float = 0.0  # of the seconds, those in which blocks are compiled


def estimate(built: Built) -> Estimate:
    """Measure a few small pieces of a run, then multiply; the learner is no use for a run afterwards.

    Steps and tests are timed with as few images as take half a second. Where even a pass of one image takes long, they
    are timed with a transformer of one block and with one of two, which differ by what every further block takes (and
    with as many more as a readout or checkpointing needs).
    """
    if isinstance(built.learner, ClosedForm) and built.learner.adapt != "none":
        return _with_prompts(built, built.learner)
    backbone, stream = built.learner.backbone, built.stream
    trained = trained_parameter_count(built.learner, len(stream.class_names))
    held = peak_memory()
    # Of the last block a few rows are computed, and less is held where it alone is computed a second time.
    least = built.learner.readout.blocks + backbone.checkpointing
    if isinstance(backbone, ViT) and backbone.depth > least + 1 and _is_slow(built, backbone):
        (one, stored), (two, _) = (probe(_on(built, _cut(backbone, depth))) for depth in (least, least + 1))
        found = _deeper(built, one, two, backbone.depth - least)
    else:
        found, stored = probe(built)
    session = Session(built.learner, stream, built.plan)
    asked = ([experience.train for experience in stream.experiences], stream.tests)
    computed = sum(
        _in_chunks(part) for parts, is_stored in zip(asked, stored, strict=True) if is_stored for part in parts
    )
    seconds = session.steps * found.step + tested_images(stream, built.plan) * found.test + computed * found.feature
    seconds += found.compiling
    working = 2 * trained * 4 + max(found.step_bytes, trained * 4 + found.test_bytes)  # moments of Adam, and gradients
    working += min(found.token_bytes * sum(len(part) for parts in asked for part in parts), token_budget())
    kept = sum(len(part) for parts, is_stored in zip(asked, stored, strict=True) if is_stored for part in parts)
    working += feature_bytes(built.learner, kept)
    memory = None if held is None else held + round(working)
    return Estimate(seconds, memory, session.steps, trained, found.compiling)


def feature_bytes(learner: Learner, images: int) -> int:
    """What the frozen features of so many images take in memory."""
    widths = [learner.readout.parts * learner.backbone.dim]
    if learner.readout != Readout():
        widths.append(learner.backbone.dim)  # f(x)[0], which a pass makes beside them
    return sum(min(row_bytes(width) * images, memory_budget()) for width in widths)


def _with_prompts(built: Built, learner: ClosedForm) -> Estimate:
    """That of a closed form without prompts, of the L2P that learns them, and of reading every image with them.

    It is the most that "auto" takes: a trial that is lost ends without prompts, and some are not held at all.
    """
    plain = estimate(_as(built, {**built.config["learner"], "adapt": "none"}))
    taught = _taught_with_prompts(built.stream, learner.adapt)
    if not taught:
        return plain
    first, parts = built.stream.experiences[0], [experience.train for experience in built.stream.experiences]
    stream = replace(built.stream, experiences=(first,), tests=(concatenate([*parts, *built.stream.tests]),))
    plan = replace(built.plan, batch_size=BATCH_SIZE, epochs=-(-taught // len(first.train)), least_steps=0)
    values = {"name": "l2p", **VALUES, "loss_classes": "seen", "seed": learner.seed}
    prompts = estimate(_as(built, values)._replace(stream=stream, plan=plan))
    memory = None
    if plain.memory is not None and prompts.memory is not None:
        everything = sum(map(len, parts)) + sum(map(len, built.stream.tests))
        memory = max(plain.memory + feature_bytes(learner, everything), prompts.memory)  # read with prompts, too
    return plain._replace(
        seconds=plain.seconds + prompts.seconds, memory=memory, compiling=plain.compiling + prompts.compiling
    )


def _taught_with_prompts(stream: Stream, adapt: str) -> int:
    """How many images a closed form shows its prompts: the first task, and in a trial each half of it before."""
    first = stream.experiences[0]
    if not stream.boundaries or (adapt == "auto" and len(first.classes) < LEAST_CLASSES):
        return 0
    whole, half = len(first.train), -(-len(first.train) // 2)
    trial = 2 * half * epochs_on(half) if adapt == "auto" else 0
    return whole * epochs_on(whole) + trial


def _deeper(built: Built, one: Probe, two: Probe, blocks: int) -> Probe:
    """What a transformer takes with so many blocks more than the first, if a second makes this difference.

    Steps and tests begin at the block at which prompts enter. Where tokens are not kept, those before it take what they
    take for a feature.
    """
    block = Probe(*(max(b - a, 0.0) for a, b in zip(one, two, strict=True)))
    found = Probe(*(a + blocks * more for a, more in zip(one, block, strict=True)))
    # Blocks are passed one after the other, and one code is that of all.
    found = found._replace(test_bytes=two.test_bytes, compiling=one.compiling + two.compiling)
    enter = built.learner.enter if isinstance(built.learner, PromptedLearner) else 0
    trained, tested = kept_images(built)
    step = 0.0 if have_room(trained, found.token_bytes) else block.feature * built.plan.batch_size
    test = 0.0 if have_room(tested, found.token_bytes) else block.feature
    return found._replace(
        step=found.step - enter * (block.step - step),
        test=found.test - enter * (block.test - test),
        step_bytes=found.step_bytes - enter * block.step_bytes,
    )


def _in_chunks(examples: Examples) -> int:
    """The passes that frozen features take: each has its place in a chunk, and other places may stay free."""
    return CHUNK * int(torch.bincount(examples.ids % CHUNK).max())


def _is_slow(built: Built, backbone: ViT) -> bool:
    """True if one image takes so long that a step of the whole transformer is no way to find out."""
    shallow = _cut(backbone, 2).to(device())
    x = built.learner.view.plain(built.stream.tests[0].batch(slice(0, 1)).x.to(device()))
    with torch.no_grad():
        taken = min(seconds_of(lambda count: shallow.features(x[:count]).sum().item(), 1) for _ in range(2))
    return taken * backbone.depth / 2 > SLOW


def _cut(backbone: ViT, depth: int) -> ViT:
    """A transformer of the same sizes with fewer blocks, and with weights of no meaning."""
    vit = ViT(
        image_size=backbone.image_size,
        patch_size=backbone.patch_size,
        dim=backbone.dim,
        depth=depth,
        heads=backbone.heads,
        mlp_dim=backbone.mlp_dim,
        layer_scale=backbone.layer_scale,
        distilled=backbone.distilled,
        registers=backbone.registers,
        norm_eps=backbone.norm_eps,
        gelu=backbone.gelu,
        precision=backbone.precision,
        products=backbone.products,
    )
    vit.compute(compiled=backbone.compiled, checkpointing=backbone.checkpointing)
    return vit.eval()


def _on(built: Built, backbone: FeatureExtractor) -> Built:
    """The same run on another backbone."""
    name, values = built.config["learner"]["name"], {k: v for k, v in built.config["learner"].items() if k != "name"}
    if "enter" in values:
        values["enter"] = 0  # which `_deeper` makes good for
    return built._replace(learner=LEARNERS[name](backbone, built.learner.view, **values))


def _as(built: Built, values: dict[str, Any]) -> Built:
    """The same run with another learner, of these values."""
    return _on(built._replace(config={**built.config, "learner": values}), built.learner.backbone)


def tested_images(stream: Stream, plan: Plan) -> int:
    """How many test images all records of a stream count."""
    if plan.test_after == "last":
        return sum(map(len, stream.tests))
    tested, seen = 0, set[int]()
    for experience in stream.experiences:
        seen.update(experience.classes)
        tested += sum(len(test) for test in stream.tests if not seen.isdisjoint(test.classes))
    return tested


def work(built: Built) -> float:
    """The passes of a run."""
    stream, values, backbone = built.stream, built.config["learner"], built.learner.backbone
    name, tested = values["name"], tested_images(stream, built.plan)
    plan, sizes = built.plan, [len(experience.train) for experience in stream.experiences]
    images, longer = sum(sizes), 1.0
    if name in ("l2p", "l2p-r") and isinstance(backbone, ViT):  # prompts are further tokens
        longer += (
            int(values["top_k"]) * int(values["prompt_length"]) / (backbone.pos_embed.shape[1] + backbone.registers)
        )
        longer *= 1 - int(values["enter"]) / backbone.depth  # the blocks before are passed once
    if name == "gdumb":
        count = len(stream.experiences)
        kept = sum(min(values["capacity"], images * number // count) for number in range(1, count + 1))
        return float(3 * values["epochs"] * kept + tested)
    inferred = len(stream.experiences) if name == "supsup" else 1
    frozen = name in ("ft-seq-frozen", "masked-linear", "nearest-mean", "ranpac", "closed-form")
    trained = PASSES.get(name, 3.0) * sum(max(size * plan.epochs, plan.least_steps * plan.batch_size) for size in sizes)
    if name == "closed-form" and values["adapt"] != "none":  # at most: a trial may be lost, or not be held
        trained += 3.0 * _taught_with_prompts(stream, values["adapt"]) + ONCE * images
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
