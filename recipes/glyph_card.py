"""What the shipped weights are worth, and the card that says so: written from measurements only."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import Tensor, nn

from promptpool.backbones.vit import ViT
from promptpool.data.glyphs import glyph_five, glyph_styles, glyphs100
from promptpool.data.glyphs.characters import PRETRAINING, VALIDATION
from promptpool.data.glyphs.drawing import Images
from promptpool.data.glyphs.looks import plain_images
from promptpool.data.glyphs.shapes import tiles
from promptpool.data.stream import Examples, concatenate

HELD_OUT, VALIDATE = 4, 5  # the second number of an image's key; training has 0 and the package's sets 1 to 3
IMAGES_HELD_OUT = 5  # of each training character

CARD = """\
# vit_glyphs.safetensors

A small vision transformer for 32x32 images, pre-trained on drawn characters: in miniature, the part that
ImageNet-21k plays in the paper. Nothing was downloaded to make it. The recipe writes this card.

| | |
|---|---|
| model | ViT: {depth} blocks, width {dim}, {heads} heads, {patch_size}x{patch_size} patches |
| parameters | {parameters:,} |
| file | half precision, {megabytes:.1f} MB, timm's names; geometry and input range in the metadata |
| input | RGB, 0..255 mapped to [-1, 1] |
| data | {classes} characters: Armenian, Georgian, Hebrew, Arabic, N'Ko, Lao, Tifinagh, Canadian syllabics, and signs |
| drawn by | `promptpool.data.glyphs`: {images:,} images, none twice |
| classes shared with the package's sets | none, nor look-alikes, other cases, accents (tested) |
| recipe | {recipe} |
| command | `{command}` |
| seed | {seed} |
| cost | {hours:.2f} hours in the training loop, on two processor cores shared with other work |
| sha256 | `{sha256}` |

Measured by the recipe on the weights as shipped, at full difficulty, in per cent. Nearest class mean compares
directions of [class] features and is given 20 images per class (`glyph_styles`: 3 in each of 8 styles,
tested in three others).

| | accuracy |
|---|---|
| training characters, {held_out_images:,} held-out images, by the recipe's own head | {held_out:.1f} |
| nearest class mean, {validation_classes} validation characters | {validation:.1f} |
| nearest class mean, `glyphs100` | {glyphs100:.1f} |
| nearest class mean, `glyph_five` | {glyph_five:.1f} |
| nearest class mean, `glyph_styles` | {glyph_styles:.1f} |

The recipe's values were followed on the validation characters, and the difficulty of `glyphs100` was judged on
images of another seed than those measured here.
{note}"""


class Measured(NamedTuple):
    """Accuracies in per cent."""

    held_out: float
    validation: float
    glyphs100: float
    glyph_five: float
    glyph_styles: float


def model_input(images: Images) -> Tensor:
    return torch.from_numpy(images).float() / 127.5 - 1


@torch.no_grad()
def features(model: ViT, images: Tensor) -> Tensor:
    """The [class] features: [n, D]."""
    return torch.cat([model.encode(model.embed(part), rows=1)[:, 0] for part in torch.split(images, 500)])


def nearest_class_mean(train: Tensor, y: Tensor, test: Tensor, wanted: Tensor) -> float:
    """The share of `test` whose feature is closest in direction to the mean of its own class, in per cent."""
    train, test = F.normalize(train, dim=1), F.normalize(test, dim=1)
    means = F.normalize(torch.stack([train[y == label].mean(0) for label in torch.unique(y)]), dim=1)
    return 100 * float(((test @ means.T).argmax(1) == wanted).float().mean())


def on_held_out_images(model: ViT, head: nn.Module, seed: int) -> float:
    """Accuracy of the trained head on new images of the training characters."""
    images, labels = _some_of_each(PRETRAINING, seed, HELD_OUT, IMAGES_HELD_OUT)
    with torch.no_grad():
        return 100 * float((head(features(model, images)).argmax(1) == labels).float().mean())


def on_validation(model: ViT, seed: int) -> float:
    """Nearest class mean on the validation characters, 20 images of each to learn and 20 to test."""
    images, labels = _some_of_each(VALIDATION, seed, VALIDATE, 40)
    found, half = features(model, images), torch.arange(len(images)) % 40 < 20
    return nearest_class_mean(found[half], labels[half], found[~half], labels[~half])


def on_examples(model: ViT, train: Examples, test: Examples) -> float:
    """Nearest class mean on one of the package's sets."""
    learned, tested = train.batch(slice(None)), test.batch(slice(None))
    known, new = (features(model, model_input(batch.x.numpy())) for batch in (learned, tested))
    return nearest_class_mean(known, learned.y, new, tested.y)


def measure(model: ViT, head: nn.Module, seed: int) -> Measured:
    """All that the card reports."""
    hundred, five = (make(train_per_class=20, test_per_class=50) for make in (glyphs100, glyph_five))
    styles = glyph_styles(train_per_class=3, test_per_class=20)
    return Measured(
        on_held_out_images(model, head, seed),
        on_validation(model, seed),
        on_examples(model, hundred.train, hundred.test),
        on_examples(model, five.train, five.test),
        on_examples(model, concatenate(styles.domains), styles.test),
    )


def rounded(model: ViT) -> ViT:
    """The model as a reader of the file gets it: its weights rounded to half precision."""
    model.load_state_dict({name: value.half().float() for name, value in model.state_dict().items()})
    return model


def save_weights(model: ViT, path: Path) -> None:
    """Write the model in half precision; the same weights give the same bytes."""
    metadata = {
        "patch_size": str(model.patch_size),
        "norm_eps": "1e-6",
        "heads": str(model.heads),
        "mean": "0.5,0.5,0.5",
        "std": "0.5,0.5,0.5",
        "image_size": str(model.image_size),
    }
    half = {name: value.detach().half().contiguous() for name, value in model.state_dict().items()}
    path.write_bytes(_in_order(save(half, metadata=metadata)))


def _in_order(content: bytes) -> bytes:
    """A safetensors file with its header in a fixed order: the library writes metadata in any order."""
    size = int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8 : 8 + size]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[8 + size :]


def write_card(weights: Path, model: ViT, measured: Measured, **facts: object) -> None:
    """Put the card beside the weights; `facts` are what the recipe alone knows."""
    content = weights.read_bytes()
    shape = {name: getattr(model, name) for name in ("depth", "dim", "heads", "patch_size")}
    card = CARD.format(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        megabytes=len(content) / 1e6,
        sha256=hashlib.sha256(content).hexdigest(),
        classes=len(PRETRAINING),
        validation_classes=len(VALIDATION),
        held_out_images=IMAGES_HELD_OUT * len(PRETRAINING),
        **shape,
        **measured._asdict(),
        **facts,
    )
    (weights.parent / "README.md").write_text(card, encoding="utf-8")


def _some_of_each(characters: str, seed: int, part: int, each: int) -> tuple[Tensor, Tensor]:
    """`each` images of every character at full difficulty, the same whenever asked."""
    labels = np.repeat(np.arange(len(characters)), each)
    keys = [(seed, part, ord(character), i) for character in characters for i in range(each)]
    return model_input(plain_images(tiles(characters), labels, keys, 1.0)), torch.from_numpy(labels)
