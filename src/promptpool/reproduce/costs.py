"""An estimate of what a run costs before it begins, in passes of one image through the backbone.

A forward pass counts 1, forward and backward 3. The counts follow from the methods' equations; the time of a pass is
measured on this machine.
"""

from __future__ import annotations

import copy
import time

import torch

from promptpool.backbones.vit import ViT
from promptpool.experiments.build import Built
from promptpool.experiments.runner import device

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
    "nearest-mean": 0.0,
    "ranpac": 0.5,
    "supsup": 4.0,
}
ONCE = 2.0  # passes for the frozen features of each image, and for the records


def work(built: Built) -> float:
    """The passes of a run."""
    stream, plan = built.stream, built.plan
    name = built.config["learner"]["name"]
    images = sum(len(experience.train) for experience in stream.experiences)
    tested = [len(test) for test in stream.tests]
    seen, judged = set[int](), 0
    for experience in stream.experiences:
        seen.update(experience.classes)
        judged += sum(n for n, test in zip(tested, stream.tests, strict=True) if not seen.isdisjoint(test.classes))
    longer = 1.0
    backbone, values = built.learner.backbone, built.config["learner"]
    if name in ("l2p", "l2p-r") and isinstance(backbone, ViT):  # prompts are further tokens
        longer += int(values["top_k"]) * int(values["prompt_length"]) / backbone.pos_embed.shape[1]
    if name == "gdumb":
        capacity, epochs = built.config["learner"]["capacity"], built.config["learner"]["epochs"]
        kept = [min(capacity, images * (t + 1) // len(stream.experiences)) for t in range(len(stream.experiences))]
        return float(3 * epochs * sum(kept) + judged)
    inferred = len(stream.experiences) if name == "supsup" else 1
    frozen = name in ("ft-seq-frozen", "masked-linear", "nearest-mean", "ranpac")
    return longer * (PASSES.get(name, 3.0) * images * plan.epochs + judged * inferred * (not frozen)) + ONCE * images


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
