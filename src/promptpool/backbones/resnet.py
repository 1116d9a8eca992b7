"""The residual network of 18 layers (He et al., 2016), on which SupSup and DualNet are compared.

    y = relu(F(x, W) + x)        Eq. 1, F = bn2(conv2(relu(bn1(conv1(x)))))
    y = relu(F(x, W) + W_s x)    Eq. 2, where a stage halves the map and doubles the channels

What is particular here:
- It has no tokens and so no place for prompts: it is a `FeatureExtractor`, not a two-half `Backbone`.
- Parameters carry torchvision's names; there is no `fc`, a learner brings its own head.
- `stem="cifar"` keeps small images whole (3x3, stride 1, no pooling); `width=20` is the reduced network of
  Lopez-Paz and Ranzato (2017).
- Batch normalisation follows `train()` and `eval()`: in training, an image's features depend on its batch.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from promptpool.backbones.base import FeatureExtractor

STEMS = ("imagenet", "cifar")


class ResNet18(FeatureExtractor):
    """Four stages of two residual blocks with `width`, 2, 4 and 8 times `width` channels, then the mean."""

    image_size: int  # of one that was made for a size; without it any will do

    def __init__(self, *, width: int = 64, stem: str = "imagenet") -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"width = {width}: must be at least 1")
        if stem not in STEMS:
            raise ValueError(f"stem = {stem!r}: must be one of {', '.join(STEMS)}")
        self.width, self.stem = width, stem
        self.dim = 8 * width
        if stem == "imagenet":
            self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        else:
            self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = _stage(width, width, stride=1)
        self.layer2 = _stage(width, 2 * width, stride=2)
        self.layer3 = _stage(2 * width, 4 * width, stride=2)
        self.layer4 = _stage(4 * width, 8 * width, stride=2)

    def start(self, generator: torch.Generator) -> ResNet18:
        """Draw fresh weights, for training from nothing: Kaiming normal by fan-out, plain normalisation."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=generator)
            elif isinstance(module, nn.BatchNorm2d):
                module.reset_parameters()
        return self

    def features(self, x: Tensor) -> Tensor:
        return self.maps(x)[-1].mean(dim=(2, 3))  # [B, D]

    def maps(self, x: Tensor) -> list[Tensor]:
        """What each of the four stages makes of the inputs: [B, channels, H, W]."""
        if x.ndim != 4 or x.shape[1] != 3:
            raise ValueError(f"this ResNet reads [B, 3, H, W], not {[*x.shape]}")
        maps = F.relu(self.bn1(self.conv1(x)))
        if self.stem == "imagenet":
            maps = F.max_pool2d(maps, 3, stride=2, padding=1)
        made = []
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            maps = stage(maps)
            made.append(maps)
        return made


def resnet18(*, width: int = 64, stem: str = "cifar", image_size: int = 32, seed: int = 0) -> ResNet18:
    """A ResNet-18 with fresh weights; width 20 is the reduced network of the continual-learning literature."""
    if image_size < 1:
        raise ValueError(f"image_size = {image_size}: must be at least 1")
    model = ResNet18(width=width, stem=stem).start(torch.Generator().manual_seed(seed))
    model.image_size = image_size
    return model


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            projection = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        residual = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(residual + self.downsample(x))


def _stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(ResidualBlock(inputs, outputs, stride), ResidualBlock(outputs, outputs, 1))
