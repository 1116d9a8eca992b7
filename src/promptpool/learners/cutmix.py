"""CutMix (Yun et al., ICCV 2019): a box of each image comes from another, and so does its share of the label.

    x = M * x_A + (1 - M) * x_B,   y = lambda * y_A + (1 - lambda) * y_B        Eq. 1
    lambda ~ Uniform(0, 1); the box has the sides H * sqrt(1 - lambda), W * sqrt(1 - lambda) and a uniform centre

One box serves a batch; it is cut off at the border, and lambda is then the share that is left of x_A.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from promptpool import distributed


def cutmix(x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, float]:
    """The mixed images, the labels of the images the boxes came from, and the share of the images' own labels.

    Partners are drawn among the images of all ranks, so that any number of ranks mixes what one would.
    """
    share, *centre = torch.rand(3, generator=generator, dtype=torch.float64).tolist()
    everyone, labels = distributed.gather(x), distributed.gather(y)
    partner = torch.randperm(len(labels), generator=generator)[distributed.joined(len(y))].to(x.device)
    rows, columns = (_stretch(side, share, at) for side, at in zip(x.shape[-2:], centre, strict=True))
    mixed = x.clone()
    mixed[..., rows, columns] = everyone[partner][..., rows, columns]
    area = (rows.stop - rows.start) * (columns.stop - columns.start)
    return mixed, labels[partner], 1 - area / (x.shape[-2] * x.shape[-1])


def _stretch(side: int, share: float, centre: float) -> slice:
    """The box along one side, cut off at the border."""
    half, middle = int(side * math.sqrt(1 - share)) // 2, int(centre * side)
    return slice(max(middle - half, 0), min(middle + half, side))
