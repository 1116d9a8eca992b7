"""Weights that people type by name, and what is known of them without a look at their files.

Sizes, licences and origins are those of the models' cards; `megabytes` is what their tensors take in single precision.
Any other name of the hub works as well, if its architecture is one that `weights` reads.
"""

from __future__ import annotations

import difflib
from typing import NamedTuple


class Known(NamedTuple):
    origin: str
    good_for: str
    licence: str
    megabytes: int
    dim: int
    depth: int
    patch_size: int
    image_size: int
    registers: int = 0


KNOWN = {
    "timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k": Known(
        origin="ViT-Ti/16, supervised on ImageNet-21k, then ImageNet-1k (Steiner et al., 2022)",
        good_for="first tries on a CPU: the smallest of them, and of the kind that the L2P paper uses",
        licence="apache-2.0",
        megabytes=23,
        dim=192,
        depth=12,
        patch_size=16,
        image_size=224,
    ),
    "facebook/dinov2-small": Known(
        origin="ViT-S/14, self-supervised on 142 million images: DINOv2 (Oquab et al., 2023)",
        good_for="photographs of any kind on a CPU; quicker with backbone.image_size=112",
        licence="apache-2.0",
        megabytes=88,
        dim=384,
        depth=12,
        patch_size=14,
        image_size=224,
    ),
    "timm/vit_small_patch14_dinov2.lvd142m": Known(
        origin="the same weights as timm has them, for images of 518 pixels",
        good_for="the scale small-dinov2 of promptpool reproduce; quicker with backbone.image_size=112",
        licence="apache-2.0",
        megabytes=88,
        dim=384,
        depth=12,
        patch_size=14,
        image_size=518,
    ),
    "facebook/dinov2-with-registers-small": Known(
        origin="ViT-S/14, DINOv2 trained with four register tokens (Darcet et al., 2024)",
        good_for="the same where patches count too: registers keep artefacts out of them",
        licence="apache-2.0",
        megabytes=88,
        dim=384,
        depth=12,
        patch_size=14,
        image_size=224,
        registers=4,
    ),
    "google/vit-base-patch16-224-in21k": Known(
        origin="ViT-B/16, supervised on ImageNet-21k (Dosovitskiy et al., 2021)",
        good_for="the L2P paper's tables, which have this model; on a GPU",
        licence="apache-2.0",
        megabytes=346,
        dim=768,
        depth=12,
        patch_size=16,
        image_size=224,
    ),
}


def meant(name: str) -> str | None:
    """The known name that may have been meant: one that has this in it, or the most similar, with its owner or not."""
    by_end = {known.partition("/")[2].lower(): known for known in KNOWN}
    spelled = {known.lower(): known for known in KNOWN} | by_end
    name = name.lower()
    holding = [known for text, known in spelled.items() if name and name in text]
    close = difflib.get_close_matches(name, spelled, n=1, cutoff=0.6)
    return holding[0] if holding else spelled[close[0]] if close else None


def hint(name: str) -> str:
    """What may have been meant, as the end of an error; nothing if nothing is near."""
    near = meant(name)
    return f"; did you mean {near}?" if near not in (None, name) else ""
