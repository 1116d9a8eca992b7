"""Pre-train the small ViT that comes with the package, on characters that none of its sets has.

    OMP_WAIT_POLICY=passive python recipes/pretrain_glyphs.py --steps 7200

What is particular here:
- Every step draws new images; none is seen twice.
- Difficulty rises from clean prints to the full range: a ViT that meets everything at once stays at chance.
- Half-way to full difficulty a quarter of each batch turns to one of the eight styles that `glyph_styles`
  trains on, never one that it tests.
- A cosine head: features whose directions separate classes are what nearest class mean and prompt keys use.
- Killed, it goes on from its checkpoint. The rate is constant until the last 30 %: up to there, a smaller
  `--steps` still gives the run that it would have given from the start.
- At the end it writes the weights and their card into the package.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from glyph_card import (
    measure,
    model_input,
    on_held_out_images,
    on_validation,
    rounded,
    save_weights,
    write_card,
)
from torch import Tensor, nn

from promptpool.backbones.vit import ViT
from promptpool.data.glyphs.characters import PRETRAINING
from promptpool.data.glyphs.drawing import in_chunks
from promptpool.data.glyphs.looks import plain_images
from promptpool.data.glyphs.sets import STYLES_TO_TEST
from promptpool.data.glyphs.shapes import Tiles, tiles
from promptpool.data.glyphs.styles import STYLES, styled

TRAIN = 0  # the second number of an image's key
BATCH, STYLED, RATE, DECAY, WARMUP, SMOOTHING = 128, 32, 1e-3, 0.05, 300, 0.1
EASY, FULL = 300, 1500  # the steps at which difficulty starts to rise and has risen
COOLDOWN = 0.3  # the share of the steps in which the rate falls to nothing


class CosineHead(nn.Module):
    """Logits are scaled cosines between a feature and one direction per class."""

    def __init__(self, dim: int, classes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.directions = nn.Parameter(torch.randn(classes, dim, generator=generator))
        self.scale = nn.Parameter(torch.tensor(10.0))

    def forward(self, features: Tensor) -> Tensor:
        cosines = F.normalize(features, dim=1) @ F.normalize(self.directions, dim=1).T
        return self.scale * cosines


def training_batch(drawn: Tiles, seed: int, step: int) -> tuple[Tensor, Tensor]:
    """The images and labels of one step, drawn at a level up to the one that the step has reached."""
    numbers = np.random.Generator(np.random.PCG64((seed, TRAIN, step)))
    labels = numbers.integers(len(drawn.first), size=BATCH)
    reached = min(1.0, max(0.0, (step - EASY) / (FULL - EASY)))
    level = reached * float(numbers.uniform(0.5, 1.0))
    style = STYLES[numbers.choice([name for name in STYLES if name not in STYLES_TO_TEST])]
    keys = [(seed, TRAIN, step, i) for i in range(BATCH)]
    some = STYLED if reached > 0.5 else 0
    in_style = in_chunks(labels[:some], keys[:some], partial(styled, style, drawn))
    images = plain_images(drawn, labels[some:], keys[some:], level)
    return model_input(np.concatenate([in_style, images])), torch.from_numpy(labels)


def rate_at(step: int, steps: int) -> float:
    """The learning rate: a warm-up, a constant, and half a cosine."""
    left = (steps - step) / (COOLDOWN * steps)
    return RATE * min((step + 1) / WARMUP, 0.5 - 0.5 * math.cos(math.pi * min(left, 1.0)))


def pretrain(steps: int, seed: int, checkpoint: Path) -> tuple[ViT, CosineHead, float]:
    """The trained model, its head, and the hours it took."""
    generator = torch.Generator().manual_seed(seed)
    model = ViT(image_size=32, patch_size=8, dim=192, depth=6, heads=6).start(generator)
    head = CosineHead(192, len(PRETRAINING), generator)
    parameters = [*model.parameters(), *head.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=RATE, weight_decay=DECAY)
    parts: dict[str, nn.Module | torch.optim.Optimizer] = {
        "model": model,
        "head": head,
        "optimiser": optimiser,
    }
    done, spent = 0, 0.0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        done, spent = saved["done"], saved["spent"]
    drawn = tiles(PRETRAINING)
    right = 0
    for step in range(done, steps):
        begun = time.monotonic()
        optimiser.param_groups[0]["lr"] = rate_at(step, steps)
        images, labels = training_batch(drawn, seed, step)
        logits = head(model.encode(model.embed(images), rows=1)[:, 0])
        loss = F.cross_entropy(logits, labels, label_smoothing=SMOOTHING)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        right += int((logits.argmax(1) == labels).sum())
        spent += (time.monotonic() - begun) / 3600
        if (step + 1) % 100 == 0:
            print(f"{step + 1}/{steps}, {spent:.2f} h: {right / BATCH:.0f} % of the last batches", flush=True)
            right = 0
        if (step + 1) % 500 == 0 or step + 1 == steps:
            _save({name: part.state_dict() for name, part in parts.items()}, step + 1, spent, checkpoint)
            held, new = on_held_out_images(model, head, seed), on_validation(model, seed)
            print(f"held-out images {held:.1f} %, nearest class mean on new characters {new:.1f} %", flush=True)
    return model, head, spent


def _save(states: dict[str, object], done: int, spent: float, checkpoint: Path) -> None:
    beside = checkpoint.with_suffix(".part")
    torch.save({**states, "done": done, "spent": spent}, beside)
    os.replace(beside, checkpoint)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=7200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", type=Path, default=Path("pretraining.pt"))
    parser.add_argument("--assets", type=Path, default=Path("src/promptpool/backbones/assets"))
    parser.add_argument("--note", default="", help="what else the card should say of this run")
    given = parser.parse_args()
    model, head, hours = pretrain(given.steps, given.seed, given.checkpoint)
    model = rounded(model)
    given.assets.mkdir(parents=True, exist_ok=True)
    weights = given.assets / "vit_glyphs.safetensors"
    save_weights(model, weights)
    measured = measure(model, head, given.seed)
    recipe = (
        f"AdamW {RATE:g}, decay {DECAY:g}, batches of {BATCH}, {given.steps:,} steps, {WARMUP} of them warm-up, "
        f"the last {COOLDOWN:.0%} a cosine to 0; label smoothing {SMOOTHING:g}; cosine head; from clean to full "
        f"difficulty between steps {EASY} and {FULL}; {STYLED} of each batch in a training style from half-way on"
    )
    command = f"python recipes/pretrain_glyphs.py --steps {given.steps} --seed {given.seed}"
    write_card(
        weights,
        model,
        measured,
        images=BATCH * given.steps,
        recipe=recipe,
        command=command,
        seed=given.seed,
        hours=hours,
        note=given.note and f"\n{given.note}\n",
    )
    print(measured)


if __name__ == "__main__":
    main()
