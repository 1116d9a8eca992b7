"""The models that benchmarks of a step are about, and an L2P learner with a batch for each."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from floor import Shape

from promptpool.backbones.vit import ViT
from promptpool.backbones.weights import load_backbone
from promptpool.data.sets import DATASETS
from promptpool.data.stream import Batch, Examples, examples
from promptpool.data.views import ImageView
from promptpool.learners.l2p import L2P

CLASSES = 10
TITLES = {"mini": "vit-glyphs", "tiny": "ViT-Ti/16", "small": "ViT-S/16", "base": "ViT-B/16"}
# Of random weights, at 224 pixels; "mini" is the shipped one.
SIZES: dict[str, dict[str, Any]] = {
    "mini": {},
    "tiny": {"dim": 192, "depth": 12, "heads": 3},
    "small": {"dim": 384, "depth": 12, "heads": 6},
    "base": {"dim": 768, "depth": 12, "heads": 12},
}


class Material(NamedTuple):
    """A learner with ten classes, as it is when a task begins, and images to learn."""

    learner: L2P
    images: Examples

    @property
    def batch(self) -> Batch:
        return self.images.batch(slice(None))


def backbone_of(size: str) -> ViT:
    if size == "mini":
        return load_backbone("vit-glyphs").eval()
    return ViT(**SIZES[size]).start(torch.Generator().manual_seed(0)).eval()


def material(size: str, batch: int, prompt_length: int = 5) -> Material:
    """The paper's L2P on a model of some size, and a batch: drawn characters, or noise of 32x32 for random weights."""
    backbone = backbone_of(size)
    if size == "mini":
        drawn = DATASETS["glyphs100"](train_per_class=-(-batch // CLASSES), test_per_class=1)[0]
        images = drawn.select((drawn.y < CLASSES).nonzero().flatten()[:batch])
    else:
        raw = torch.randint(0, 256, (batch, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        images = examples(raw, torch.arange(batch) % CLASSES)
    learner = L2P(
        backbone, ImageView(backbone.image_size, values=backbone.values or "unit"), prompt_length=prompt_length
    )
    learner.add_classes(range(CLASSES))
    return Material(learner, images)


def vit_of(learner: L2P) -> ViT:
    if not isinstance(learner.backbone, ViT):
        raise ValueError(f"backbone = {type(learner.backbone).__name__}: this is about a ViT")
    return learner.backbone


def shape_of(learner: L2P, batch: int) -> Shape:
    """What the floor of a learner's step depends on."""
    vit = vit_of(learner)
    return Shape(
        batch=batch,
        tokens=vit.pos_embed.shape[1],
        rows=learner.top_k * learner.prompt_length,
        dim=vit.dim,
        mlp_dim=vit.mlp_dim,
        depth=vit.depth,
        heads=vit.heads,
        classes=len(learner.head.bias),
        pool_size=learner.pool_size,
    )
