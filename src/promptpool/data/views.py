"""A view turns raw uint8 inputs into what a backbone reads.

Every geometric change (resize, crop, flip) is one pair of small matrices per image, rows @ image @ columns:
resampling with a triangle filter that widens when it shrinks, as image libraries do it. One product serves a
whole batch, and images of any size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from promptpool import distributed

Range = tuple[tuple[float, ...], tuple[float, ...]]  # mean and deviation of inputs in [0, 1], per channel

RANGES: dict[str, Range] = {
    "unit": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "symmetric": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
WHOLE = (0.0, 0.0, 1.0, 1.0)  # the box that is all of the image


@dataclass(frozen=True)
class ImageView:
    """Resize to a square, and for training a random crop and flip; grey becomes RGB.

    `crop` is the range of the crop's share of the image's area, or None for the whole image; its shape is drawn
    between 3:4 and 4:3 (Szegedy et al., 2015). `values` is a name in RANGES or a mean and a deviation.
    `test_crop` is the side of the central square that is looked at, as a share of the image's shorter side, or None for
    all of the image, squeezed; 0.875 is "shorter side to 256, central 224". Without `crop` training looks there too.
    """

    size: int
    values: str | Range = "unit"
    crop: tuple[float, float] | None = None
    flip: bool = False
    test_crop: float | None = None

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size = {self.size}: must be at least 1")
        if isinstance(self.values, str) and self.values not in RANGES:
            raise ValueError(f"values = {self.values!r}: must be one of {', '.join(RANGES)} or a mean and a deviation")
        if not isinstance(self.values, str):
            mean, deviation = self.values
            if len(mean) != 3 or len(deviation) != 3 or min(deviation) <= 0:
                raise ValueError(
                    f"values = {self.values}: must be a mean and a deviation above 0 for each of 3 channels"
                )
        if self.crop is not None and not 0 < self.crop[0] <= self.crop[1] <= 1:
            raise ValueError(f"crop = {self.crop}: must be two shares of the area with 0 < least <= most <= 1")
        if self.test_crop is not None and not 0 < self.test_crop <= 1:
            raise ValueError(
                f"test_crop = {self.test_crop}: must be above 0 and at most 1, or None for all of the image"
            )

    @property
    def fixed(self) -> bool:
        """True if training and testing see the same."""
        return self.crop is None and not self.flip

    def plain(self, x: Tensor) -> Tensor:
        """The view used for testing, and for queries: [B, 3, size, size]."""
        return self.scaled(resample(x, self._box(x), torch.zeros(1, dtype=torch.bool), self.size))

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """The view used for training, new at every call: [B, 3, size, size]."""
        if self.fixed:
            return self.plain(x)
        draws = distributed.uniform(len(x), 5, generator).double()
        boxes = self._box(x).expand(len(x), 4)
        if self.crop is not None:
            boxes = _crops(draws[:, :4], self.crop, x.shape[-2] / x.shape[-1])
        flipped = draws[:, 4] < 0.5 if self.flip else torch.zeros(len(x), dtype=torch.bool)
        return self.scaled(resample(x, boxes, flipped, self.size))

    def _box(self, x: Tensor) -> Tensor:
        """Where to look unless a crop is drawn: all of the image, or its central square: [1, 4]."""
        height = width = 1.0
        if self.test_crop is not None:
            side = self.test_crop * min(x.shape[-2:])
            height, width = side / x.shape[-2], side / x.shape[-1]
        return torch.tensor([[(1 - height) / 2, (1 - width) / 2, height, width]], dtype=torch.float64)

    def scaled(self, images: Tensor) -> Tensor:
        """Pixels of 0 to 255 as the backbone reads them, in floats: [B, 3, H, W]."""
        mean, deviation = RANGES[self.values] if isinstance(self.values, str) else self.values
        images = images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images
        shape = (1, -1, 1, 1)
        return (images / 255 - images.new_tensor(mean).view(shape)) / images.new_tensor(deviation).view(shape)


def resample(x: Tensor, boxes: Tensor, flipped: Tensor, size: int) -> Tensor:
    """Each image's box at `size` x `size`, mirrored where told: float [B, C, size, size].

    As if the image were resized whole and then cut: pixels just outside a box count at its border. `boxes` holds
    top, left, height and width as shares of the image: [B, 4], or [1, 4] for one box for all.
    """
    if x.dtype != torch.uint8:
        raise ValueError(f"raw inputs are uint8 in 0..255, not {str(x.dtype).removeprefix('torch.')}")
    if x.shape[-2:] == (size, size) and not flipped.any() and bool((boxes == boxes.new_tensor(WHOLE)).all()):
        return x.float()  # what the products below would give
    rows = _weights(boxes[:, 0], boxes[:, 2], x.shape[-2], size)
    columns = _weights(boxes[:, 1], boxes[:, 3], x.shape[-1], size)
    columns = torch.where(flipped[:, None, None], columns.flip(1), columns)
    rows, columns = rows.to(x.device), columns.to(x.device)
    return rows[:, None] @ x.float() @ columns.transpose(1, 2)[:, None]


def _weights(begin: Tensor, extent: Tensor, source: int, size: int) -> Tensor:
    """How much source pixel s gives to target pixel t: [B, size, source], each row summing to 1."""
    scale = extent * source / size  # [B] source pixels per target pixel
    targets = torch.arange(size, dtype=torch.float64) + 0.5
    centres = begin[:, None] * source + targets * scale[:, None]  # [B, size]
    support = scale.clamp(min=1.0)[:, None, None]
    offset = torch.arange(source, dtype=torch.float64) + 0.5 - centres[:, :, None]
    weights = (1 - offset.abs() / support).clamp(min=0)
    return (weights / weights.sum(dim=2, keepdim=True)).float()


def _crops(draws: Tensor, area: tuple[float, float], tall: float) -> Tensor:
    """Boxes placed evenly, with an area share in `area` and a shape between 3:4 and 4:3; `tall` is H / W.

    The shape is drawn among those that fit; where the image is so long that none does, the box is smaller.
    """
    share = area[0] + draws[:, 0] * (area[1] - area[0])
    narrowest = (share / tall).clamp(3 / 4, 4 / 3).log()  # width over height, in pixels
    widest = (1 / (share * tall)).clamp(3 / 4, 4 / 3).log()
    shape = torch.lerp(narrowest, widest, draws[:, 1]).exp()
    height, width = (share / (shape * tall)).sqrt(), (share * shape * tall).sqrt()
    too_long = torch.maximum(height, width).clamp(min=1)
    height, width = height / too_long, width / too_long
    return torch.stack([draws[:, 2] * (1 - height), draws[:, 3] * (1 - width), height, width], dim=1)
