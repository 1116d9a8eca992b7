import math

import pytest
import torch
from torch import Tensor, nn

from promptpool.backbones.base import Backbone, FeatureExtractor
from promptpool.backbones.resnet import ResidualBlock, ResNet18, resnet18


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small(stem: str = "cifar") -> ResNet18:
    """Narrow, in double precision, with every normalisation away from the identity."""
    torch.manual_seed(0)
    model = ResNet18(width=3, stem=stem).start(generator()).double()
    unsettle(model, generator(1))
    return model


def unsettle(model: nn.Module, draws: torch.Generator) -> None:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            nn.init.uniform_(module.weight, 0.5, 1.5, generator=draws)
            nn.init.uniform_(module.bias, -0.5, 0.5, generator=draws)
            nn.init.uniform_(module.running_mean, -0.5, 0.5, generator=draws)
            nn.init.uniform_(module.running_var, 0.5, 1.5, generator=draws)


# A slow transcription of the paper: sums over windows, one output pixel at a time.


def slow_convolution(x: Tensor, kernel: Tensor, stride: int) -> Tensor:
    side = kernel.shape[-1]
    border = side // 2
    high, wide = math.ceil(x.shape[2] / stride), math.ceil(x.shape[3] / stride)
    padded = x.new_zeros(x.shape[0], x.shape[1], x.shape[2] + 2 * border, x.shape[3] + 2 * border)
    padded[:, :, border : border + x.shape[2], border : border + x.shape[3]] = x
    out = x.new_zeros(x.shape[0], kernel.shape[0], high, wide)
    for i in range(high):
        for j in range(wide):
            window = padded[:, :, i * stride : i * stride + side, j * stride : j * stride + side]
            for channel in range(kernel.shape[0]):
                out[:, channel, i, j] = (window * kernel[channel]).sum(dim=(1, 2, 3))
    return out


def slow_norm(x: Tensor, weights: dict[str, Tensor], name: str, training: bool) -> Tensor:
    out = torch.empty_like(x)
    for channel in range(x.shape[1]):
        values = x[:, channel]
        mean, variance = weights[f"{name}.running_mean"][channel], weights[f"{name}.running_var"][channel]
        if training:
            mean = values.sum() / values.numel()
            variance = ((values - mean) ** 2).sum() / values.numel()
        normal = (values - mean) / (variance + 1e-5) ** 0.5
        out[:, channel] = weights[f"{name}.weight"][channel] * normal + weights[f"{name}.bias"][channel]
    return out


def slow_relu(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, torch.zeros_like(x))


def slow_block(x: Tensor, weights: dict[str, Tensor], name: str, stride: int, training: bool) -> Tensor:
    """Eq. 1, and Eq. 2 when the stride is 2."""
    hidden = slow_convolution(x, weights[f"{name}conv1.weight"], stride)
    hidden = slow_relu(slow_norm(hidden, weights, f"{name}bn1", training))
    residual = slow_convolution(hidden, weights[f"{name}conv2.weight"], 1)
    residual = slow_norm(residual, weights, f"{name}bn2", training)
    shortcut = x
    if stride == 2:
        shortcut = slow_convolution(x, weights[f"{name}downsample.0.weight"], 2)
        shortcut = slow_norm(shortcut, weights, f"{name}downsample.1", training)
    return slow_relu(residual + shortcut)


def slow_pool(x: Tensor) -> Tensor:
    out = x.new_zeros(x.shape[0], x.shape[1], math.ceil(x.shape[2] / 2), math.ceil(x.shape[3] / 2))
    for i in range(out.shape[2]):
        for j in range(out.shape[3]):
            window = x[:, :, max(0, 2 * i - 1) : 2 * i + 2, max(0, 2 * j - 1) : 2 * j + 2]
            out[:, :, i, j] = window.amax(dim=(2, 3))
    return out


def slow_features(x: Tensor, weights: dict[str, Tensor], stem: str, training: bool) -> Tensor:
    maps = slow_convolution(x, weights["conv1.weight"], 2 if stem == "imagenet" else 1)
    maps = slow_relu(slow_norm(maps, weights, "bn1", training))
    if stem == "imagenet":
        maps = slow_pool(maps)
    for stage, stride in ((1, 1), (2, 2), (3, 2), (4, 2)):
        maps = slow_block(maps, weights, f"layer{stage}.0.", stride, training)
        maps = slow_block(maps, weights, f"layer{stage}.1.", 1, training)
    return maps.sum(dim=(2, 3)) / (maps.shape[2] * maps.shape[3])


def copied(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("inputs", "outputs", "stride"), [(4, 4, 1), (3, 6, 2)])
def test_a_block_is_the_papers_equation(inputs: int, outputs: int, stride: int, training: bool) -> None:
    torch.manual_seed(0)
    block = ResidualBlock(inputs, outputs, stride).double()
    unsettle(block, generator(1))
    x = torch.randn(2, inputs, 7, 6, generator=generator(2), dtype=torch.float64)
    weights = copied(block)
    with torch.no_grad():
        actual = block.train(training)(x)
    torch.testing.assert_close(actual, slow_block(x, weights, "", stride, training))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("stem", "size"), [("cifar", 9), ("imagenet", 33)])
def test_the_network_is_the_papers(stem: str, size: int, training: bool) -> None:
    model = small(stem)
    x = torch.randn(2, 3, size, size, generator=generator(2), dtype=torch.float64)
    weights = copied(model)
    with torch.no_grad():
        actual = model.train(training).features(x)
    torch.testing.assert_close(actual, slow_features(x, weights, stem, training))


@pytest.mark.parametrize("size", [32, 224])
@pytest.mark.parametrize("width", [20, 64])
@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
def test_shapes(stem: str, width: int, size: int) -> None:
    model = ResNet18(width=width, stem=stem).eval()
    with torch.inference_mode():
        features = model.features(torch.zeros(1, 3, size, size))
    assert model.dim == 8 * width
    assert features.shape == (1, model.dim)


@pytest.mark.parametrize(("stem", "sides"), [("cifar", (32, 16, 8, 4)), ("imagenet", (8, 4, 2, 1))])
def test_stages_halve_the_map(stem: str, sides: tuple[int, ...]) -> None:
    model = ResNet18(width=2, stem=stem).eval()
    seen: list[int] = []
    for stage in (model.layer1, model.layer2, model.layer3, model.layer4):
        stage.register_forward_hook(lambda _stage, _inputs, maps: seen.append(maps.shape[-1]))
    model.features(torch.zeros(1, 3, 32, 32))
    assert tuple(seen) == sides


def parameters_by_hand(width: int, stem: str) -> int:
    """Per convolution inputs * outputs * side^2, per normalisation 2 * channels; no biases, no head."""
    count = 3 * width * (49 if stem == "imagenet" else 9) + 2 * width
    count += 4 * (9 * width * width + 2 * width)
    for channels in (2 * width, 4 * width, 8 * width):
        half = channels // 2
        first = 9 * half * channels + 9 * channels * channels + 2 * 2 * channels
        projection = half * channels + 2 * channels
        second = 2 * (9 * channels * channels + 2 * channels)
        count += first + projection + second
    return count


@pytest.mark.parametrize(
    ("width", "stem", "expected"),
    [
        # Summed up, the stages have 2724 w^2 + 148 w parameters, the stems 29 w and 149 w.
        (64, "cifar", 11_168_832),  # 11,157,504 + 9,472 + 1,856
        (64, "imagenet", 11_176_512),  # 11,157,504 + 9,472 + 9,536
        (20, "cifar", 1_093_140),  # 1,089,600 + 2,960 + 580
        (20, "imagenet", 1_095_540),  # 1,089,600 + 2,960 + 2,980
    ],
)
def test_parameter_counts(width: int, stem: str, expected: int) -> None:
    model = ResNet18(width=width, stem=stem)
    assert parameters_by_hand(width, stem) == expected
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_names_are_torchvisions() -> None:
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    expected = {"conv1.weight"} | {f"bn1.{name}" for name in norm}
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            here = f"layer{stage}.{block}"
            expected |= {f"{here}.conv1.weight", f"{here}.conv2.weight"}
            expected |= {f"{here}.bn{k}.{name}" for k in (1, 2) for name in norm}
    for stage in (2, 3, 4):
        expected |= {f"layer{stage}.0.downsample.0.weight"}
        expected |= {f"layer{stage}.0.downsample.1.{name}" for name in norm}
    assert len(expected) == 120  # torchvision's 122 without fc.weight and fc.bias
    assert set(ResNet18(width=2).state_dict()) == expected


@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
def test_gradient_reaches_every_parameter(stem: str) -> None:
    model = small(stem).train()
    x = torch.randn(3, 3, 33, 33, generator=generator(2), dtype=torch.float64)
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(model.features(x).square().sum(), parameters)
    unreached = [name for name, gradient in zip(names, gradients, strict=True) if not gradient.any()]
    assert unreached == []


def test_start_is_decided_by_the_seed() -> None:
    torch.manual_seed(0)
    first = ResNet18(width=4).start(generator(7)).state_dict()
    torch.manual_seed(1)
    twin = ResNet18(width=4)
    unsettle(twin, generator(3))
    before = torch.get_rng_state()
    same = twin.start(generator(7)).state_dict()
    assert torch.equal(before, torch.get_rng_state())
    other = ResNet18(width=4).start(generator(8)).state_dict()
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["conv1.weight"], other["conv1.weight"])


def test_start_is_kaiming_by_fan_out() -> None:
    model = ResNet18().start(generator())
    for name, value in model.state_dict().items():
        if value.ndim == 4 and value.numel() > 10_000:
            fan_out = value.shape[0] * value.shape[2] * value.shape[3]
            assert value.std().item() == pytest.approx(math.sqrt(2 / fan_out), rel=0.05), name
            assert abs(value.mean().item()) < 0.05 * math.sqrt(2 / fan_out), name


def test_in_evaluation_an_image_stands_alone() -> None:
    model = small().eval()
    x = torch.randn(4, 3, 8, 8, generator=generator(2), dtype=torch.float64)
    before = copied(model)
    with torch.no_grad():
        alone = torch.cat([model.features(image[None]) for image in x])
        torch.testing.assert_close(model.features(x), alone)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_it_extracts_features_but_offers_no_tokens() -> None:
    model = ResNet18(width=2)
    assert isinstance(model, FeatureExtractor)
    assert not isinstance(model, Backbone)
    assert model.origin == "random"


def test_bad_values_are_named() -> None:
    with pytest.raises(ValueError, match="width = 0"):
        ResNet18(width=0)
    with pytest.raises(ValueError, match=r"stem = 'tiny'.*imagenet, cifar"):
        ResNet18(stem="tiny")
    model = ResNet18(width=2)
    with pytest.raises(ValueError, match=r"\[B, 3, H, W\], not \[1, 1, 32, 32\]"):
        model.features(torch.zeros(1, 1, 32, 32))
    with pytest.raises(ValueError, match=r"not \[3, 32, 32\]"):
        model.features(torch.zeros(3, 32, 32))


def test_one_with_fresh_weights_is_made_by_its_seed() -> None:
    model = resnet18(width=3, stem="imagenet", image_size=64, seed=5)
    assert (model.width, model.stem, model.image_size, model.origin) == (3, "imagenet", 64, "random")
    assert model.fingerprint() == resnet18(width=3, stem="imagenet", image_size=64, seed=5).fingerprint()
    assert model.fingerprint() != resnet18(width=3, stem="imagenet", image_size=64, seed=6).fingerprint()
    expected = ResNet18(width=3, stem="imagenet").start(generator(5))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), expected.parameters(), strict=True))
    with pytest.raises(ValueError, match=r"^image_size = 0"):
        resnet18(image_size=0)


def test_features_are_the_mean_of_the_last_map() -> None:
    model = small().eval()
    x = torch.randn(2, 3, 16, 16, generator=generator(2), dtype=torch.float64)
    with torch.no_grad():
        maps = model.maps(x)
        assert [[*m.shape[1:]] for m in maps] == [[3, 16, 16], [6, 8, 8], [12, 4, 4], [24, 2, 2]]
        torch.testing.assert_close(model.features(x), maps[-1].mean(dim=(2, 3)))
