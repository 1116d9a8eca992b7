"""DualNet against a slow transcription: adaptation, loss and gradient, Look-ahead, soft labels."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from promptpool.backbones.resnet import resnet18
from promptpool.data.stream import Batch
from promptpool.learners.dualnet import DualNet
from promptpool.losses import barlow_twins
from promptpool.optim import Descent
from promptpool.training.checkpoint import learn
from promptpool.training.loop import Session
from toys import SHORT, VIEW, toy_backbone, toy_examples, toy_schedule, toy_stream


class Exact(DualNet):
    """DualNet in double precision."""

    def inputs(self, batch: Batch) -> Tensor:
        return super().inputs(batch).double()


def made(kind: type[DualNet] = DualNet, **values: Any) -> DualNet:
    given = {"capacity": 12, "projector": 6, "head_start": "truncated-normal", **values}
    return kind(resnet18(width=2, image_size=8).eval(), VIEW, **given)


def exact(classes: int = 4, **values: Any) -> DualNet:
    learner = made(Exact, **values).double()
    learner.add_classes(range(classes))
    with torch.no_grad():
        learner.head.weight.mul_(50)  # so that classes differ
    return learner.eval()


def batch_of(per_class: int = 2, seed: int = 1, classes: int = 4) -> Batch:
    return toy_examples(per_class, seed, classes=classes).batch(slice(None))


def next_sample(learner: DualNet, count: int) -> Batch:
    """What the memory will give next."""
    state = learner.generator.get_state()
    sample = learner.memory.sample(count)
    learner.generator.set_state(state)
    return sample


# The slow transcription.


def slow_layer(x: Tensor, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> Tensor:
    """relu(bn(conv(x))) of one image [C, H, W], a window at a time."""
    assert conv.bias is not None
    assert norm.running_mean is not None
    assert norm.running_var is not None
    channels, height, width = x.shape
    padded = x.new_zeros(channels, height + 2, width + 2)
    padded[:, 1:-1, 1:-1] = x
    out = x.new_zeros(len(conv.weight), height, width)
    for o in range(len(conv.weight)):
        for i in range(height):
            for j in range(width):
                value = (padded[:, i : i + 3, j : j + 3] * conv.weight[o]).sum() + conv.bias[o]
                value = (value - norm.running_mean[o]) / (norm.running_var[o] + 1e-5) ** 0.5
                out[o, i, j] = max(float(value * norm.weight[o] + norm.bias[o]), 0.0)
    return out


def slow_pool(x: Tensor, size: int) -> Tensor:
    step = x.shape[1] // size
    out = x.new_zeros(len(x), size, size)
    for i in range(size):
        for j in range(size):
            out[:, i, j] = x[:, i * step : (i + 1) * step, j * step : (j + 1) * step].amax(dim=(1, 2))
    return out


def slow_shares(logits: list[float]) -> list[float]:
    total = math.fsum(math.exp(z) for z in logits)
    return [math.exp(z) / total for z in logits]


def slow_loss(learner: DualNet, new: Batch, old: Batch) -> tuple[float, dict[int, list[float]]]:
    """The loss, and its derivative by each image's logits: first the new images, then the replayed ones."""
    with torch.no_grad():
        logits = [row.tolist() for batch in (new, old) for row in learner.logits(batch)]
    soft = dict(zip(learner.soft_ids.tolist(), learner.soft.tolist(), strict=True))
    loss, slopes, count, heat = 0.0, {}, len(new.y), learner.temperature
    for row, (z, y) in enumerate(zip(logits, [*new.y.tolist(), *old.y.tolist()], strict=True)):
        shares = slow_shares(z)
        loss -= math.log(shares[y]) / count
        slopes[row] = [(share - (c == y)) / count for c, share in enumerate(shares)]
        label = soft.get(int(old.ids[row - count])) if row >= count else None
        if label is not None:
            warm = slow_shares([value / heat for value in z])
            divergence = math.fsum(t * math.log(t / w) for t, w in zip(label, warm, strict=True))
            loss += learner.distil * divergence / count
            for c, (t, w) in enumerate(zip(label, warm, strict=True)):
                slopes[row][c] += learner.distil * (w - t) / heat / count
    return loss, slopes


def test_the_fast_net_adapts_each_map_of_the_slow_net() -> None:
    learner = exact()
    draws = torch.Generator().manual_seed(1)
    for module in learner.modules():
        if isinstance(module, nn.BatchNorm2d):
            for value in (module.weight, module.running_var):
                assert value is not None
                nn.init.uniform_(value, 0.5, 1.5, generator=draws)
            assert module.running_mean is not None
            nn.init.uniform_(module.running_mean, -0.2, 0.2, generator=draws)
    x = learner.inputs(batch_of(1))
    with torch.no_grad():
        maps, found = learner.backbone.maps(x), learner.adapted(x)
        for b in range(len(x)):
            adapted = x[b]
            for layer, slow in zip(learner.fast.layers, maps, strict=True):
                assert isinstance(layer, nn.Sequential)
                conv, norm = layer[0], layer[1]
                assert isinstance(conv, nn.Conv2d)
                assert isinstance(norm, nn.BatchNorm2d)
                adapted = slow[b] * slow_pool(slow_layer(adapted, conv, norm), slow.shape[-1])
            torch.testing.assert_close(found[b], adapted.mean(dim=(1, 2)))


@pytest.mark.parametrize("values", [{}, {"distil": 0.7, "temperature": 3.0}, {"distil": 0.0}])
def test_loss_and_gradient_are_those_of_a_loop(values: dict[str, Any]) -> None:
    learner, new = exact(**values), batch_of(2, seed=2)
    learner.memory.add(batch_of(3))
    learner.after(toy_stream().experiences[0])
    with torch.no_grad():
        learner.head.weight.add_(0.3 * torch.randn(4, 16, generator=torch.Generator().manual_seed(0)))
    learner.memory.add(batch_of(1, seed=3))  # some rows have no soft label
    old = next_sample(learner, len(new.y))
    loss = learner.loss(new)
    expected, slopes = slow_loss(learner, new, old)
    assert loss.item() == pytest.approx(expected, rel=1e-9)
    loss.backward()
    with torch.no_grad():
        features = torch.cat([learner.features(new), learner.features(old)])
    table = torch.tensor([slopes[row] for row in range(len(features))], dtype=torch.float64)
    torch.testing.assert_close(learner.head.weight.grad, table.T @ features)
    torch.testing.assert_close(learner.head.bias.grad, table.sum(dim=0))


def slow_training_loss(learner: DualNet, new: Batch, old: Batch) -> Tensor:
    """The loss in training, with the statistics of new and replayed images together, written out."""
    h = x = torch.cat([learner.inputs(new), learner.inputs(old)])
    for layer, slow in zip(learner.fast.layers, learner.backbone.maps(x), strict=True):
        conv, norm = dict(layer.named_children())["0"], dict(layer.named_children())["1"]
        assert isinstance(conv, nn.Conv2d)
        assert isinstance(norm, nn.BatchNorm2d)
        assert conv.bias is not None
        windows = nn.functional.unfold(h, 3, padding=1)  # [B, 9 C, H W]
        out = conv.weight.flatten(1) @ windows + conv.bias[:, None]
        mean = out.mean(dim=(0, 2), keepdim=True)
        out = (out - mean) / ((out - mean).square().mean(dim=(0, 2), keepdim=True) + 1e-5).sqrt()
        out = (out * norm.weight[:, None] + norm.bias[:, None]).clamp(min=0).unflatten(2, h.shape[2:])
        side = slow.shape[-1]
        step = out.shape[-1] // side
        h = slow * out.unflatten(3, (side, step)).unflatten(2, (side, step)).amax(dim=(3, 5))
    logits = h.mean(dim=(2, 3)) @ learner.head.weight.T + learner.head.bias
    losses = logits.exp().sum(dim=1).log() - logits[range(len(logits)), torch.cat([new.y, old.y]).tolist()]
    total, count = losses.sum() / len(new.y), len(new.y)
    soft = dict(zip(learner.soft_ids.tolist(), learner.soft, strict=True))
    for row, identity in enumerate(old.ids.tolist()):
        if identity in soft:
            warm = (logits[count + row] / learner.temperature).exp()
            label = soft[identity].double()
            total = total + learner.distil / count * (label * (label / (warm / warm.sum())).log()).sum()
    return total


def test_in_training_every_gradient_is_that_of_the_transcription() -> None:
    learner, new = exact(), batch_of(2, seed=2)
    learner.memory.add(batch_of(3))
    learner.after(toy_stream().experiences[0])
    learner.memory.add(batch_of(1, seed=3))
    learner.train()
    twin, old = copy.deepcopy(learner), next_sample(learner, len(new.y))
    loss, expected = learner.loss(new), slow_training_loss(twin, new, old)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    expected.backward()
    reached = 0
    for (name, parameter), other in zip(learner.named_parameters(), twin.parameters(), strict=True):
        assert (parameter.grad is None) == (other.grad is None) == name.startswith("projection."), name
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, other.grad, msg=name)
            reached += int(parameter.grad.abs().sum() > 0)
    assert reached > 40


def test_the_loss_reaches_the_slow_net_and_not_the_projector() -> None:
    learner = exact()
    learner.loss(batch_of()).backward()
    assert all(parameter.grad is not None for parameter in learner.backbone.parameters())
    assert all(parameter.grad is not None for parameter in learner.fast.parameters())
    assert all(parameter.grad is None for parameter in learner.projection.parameters())


def test_without_memory_the_loss_is_that_of_the_batch() -> None:
    learner, batch = exact(), batch_of()
    logits = [row.tolist() for row in learner.logits(batch)]
    expected = -sum(math.log(slow_shares(z)[y]) for z, y in zip(logits, batch.y.tolist(), strict=True)) / len(logits)
    assert learner.loss(batch).item() == pytest.approx(expected)


@pytest.mark.parametrize(("loss_classes", "new", "replayed"), [("all", 6, 6), ("seen", 4, 4), ("current", 2, 4)])
def test_which_classes_the_loss_sees(loss_classes: str, new: int, replayed: int) -> None:
    learner = exact(classes=2, loss_classes=loss_classes)
    learner.add_classes((2, 3))
    if loss_classes == "all":
        learner.grow(6)
    with torch.no_grad():
        learner.head.weight.zero_()  # every class is as likely
    batch = batch_of(2)
    now = Batch(batch.x[4:], batch.y[4:], batch.ids[4:])
    assert learner.loss(now).item() == pytest.approx(math.log(new))
    learner.memory.add(batch)
    assert learner.loss(now).item() == pytest.approx(math.log(new) + math.log(replayed))


@pytest.mark.parametrize("with_memory", [False, True])
def test_look_ahead_keeps_part_of_the_way_of_plain_descent(with_memory: bool) -> None:
    learner, batch = exact(slow_steps=3, slow_rate=0.05, lookahead=0.3), batch_of(4)
    view = learner.slow_view
    learner.slow_view = lambda x, generator: view(x, generator).double()  # type: ignore[assignment]
    if with_memory:
        learner.memory.add(batch_of(3, seed=4))
    twin = copy.deepcopy(learner).train()
    twin.memory.generator = twin.generator
    before = {name: value.clone() for name, value in twin.state_dict().items()}
    for _ in range(3):
        x = batch.x
        if with_memory:
            x = torch.cat([x, twin.memory.sample(len(x)).x])
        views = [twin.slow_view(x, twin.generator) for _ in range(2)]
        loss = barlow_twins(*(twin.projection(twin.backbone.features(view)) for view in views), redundancy=2e-3)
        slow = [*twin.backbone.parameters(), *twin.projection.parameters()]
        for parameter, gradient in zip(slow, torch.autograd.grad(loss, slow), strict=True):
            parameter.data -= 0.05 * gradient
    learner.train().look_ahead(batch, 1.0)
    moved = 0
    for name, value in learner.state_dict().items():
        after = twin.state_dict()[name]
        if value.is_floating_point():
            torch.testing.assert_close(value, before[name] + 0.3 * (after - before[name]))
            moved += not torch.equal(value, before[name])
        if name.startswith(("fast", "head")):
            assert torch.equal(value, before[name]), "the fast net does not move"
    assert moved > 20


def test_the_slow_net_sees_two_views_of_its_own() -> None:
    learner, batch = made(), batch_of(4)
    learner.add_classes(range(4))
    learner.train()
    assert learner.view.fixed
    assert not learner.slow_view.fixed
    first, second = learner.slow_loss(batch), learner.slow_loss(batch)
    assert first.item() != second.item()


def test_soft_labels_are_those_of_the_end_of_a_task() -> None:
    learner = exact(temperature=3.0)
    first = batch_of(2)
    learner.memory.add(first)
    learner.train()
    learner.after(toy_stream().experiences[0])
    assert learner.training
    learner.eval()
    rows = learner.memory.rows
    expected = {
        int(i): slow_shares([v / 3 for v in z.tolist()]) for i, z in zip(rows.ids, learner.logits(rows), strict=True)
    }
    assert learner.soft_ids.tolist() == sorted(expected)
    for i, label in zip(learner.soft_ids.tolist(), learner.soft.tolist(), strict=True):
        assert label == pytest.approx(expected[i])
    kept = dict(zip(learner.soft_ids.tolist(), learner.soft.tolist(), strict=True))
    with torch.no_grad():
        learner.head.weight.neg_()
    learner.memory.add(batch_of(8, seed=6))  # more than it holds: some rows leave
    learner.after(toy_stream().experiences[1])
    now = dict(zip(learner.soft_ids.tolist(), learner.soft.tolist(), strict=True))
    assert sorted(now) == sorted(learner.memory.rows.ids.tolist())
    assert 0 < len(now.keys() & kept.keys()) < len(kept)
    assert all(now[i] == kept[i] for i in now.keys() & kept.keys()), "an old label stays as it was"


def test_a_soft_label_gives_nothing_to_classes_that_came_later() -> None:
    learner = exact(classes=2, loss_classes="seen")
    learner.memory.add(batch_of(3, classes=2))
    learner.after(toy_stream().experiences[0])
    learner.add_classes((2, 3))
    assert learner.soft.shape == (6, 4)
    assert not learner.soft[:, 2:].any()
    assert math.isfinite(learner.loss(batch_of(2)).item())


def test_a_stream_without_boundaries_has_no_soft_labels() -> None:
    learner = made()
    learner.check(toy_schedule())
    learner.add_classes(range(4))
    learner.memory.add(batch_of())
    assert learner.divergence(torch.zeros(8, 4), learner.memory.sample(8)).item() == 0


def test_a_frozen_slow_net_stays() -> None:
    backbone = resnet18(width=2, image_size=8).eval()
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    learner = DualNet(backbone, VIEW, capacity=12, train_backbone=False)
    fast = learner.fast.state_dict()["layers.0.0.weight"].clone()
    list(learn(learner, toy_stream(), SHORT))
    assert learner.backbone is backbone
    assert all(torch.equal(backbone.state_dict()[name], value) for name, value in before.items())
    assert not torch.equal(learner.fast.state_dict()["layers.0.0.weight"], fast)


CHANGES: list[dict[str, Any]] = [
    {"fast_steps": 1},
    {"slow_steps": 1},
    {"slow_rounds": 0},
    {"slow_rate": 0.01},
    {"lookahead": 0.9},
    {"redundancy": 0.5},
    {"projector": 7},
    {"slow_crop": (0.9, 1.0)},
    {"slow_flip": False},
    {"distil": 0.0},
    {"temperature": 8.0},
    {"capacity": 5},
    {"policy": "balanced"},
    {"seed": 1},
]


def weights_after(learner: DualNet) -> Tensor:
    """The slow net and the head after a task, an end, and a batch of the next."""
    stream = toy_stream(per_class=8)
    for step in Session(learner, stream, SHORT):
        if step.step == 6:
            break
    return torch.cat([learner.backbone.conv1.weight.flatten(), learner.head.weight.flatten()]).detach()


@pytest.fixture(scope="module")
def plain() -> Tensor:
    return weights_after(made())


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_every_value_does_something(change: dict[str, Any], plain: Tensor) -> None:
    assert not torch.equal(weights_after(made(**change)), plain)


def test_steps_are_counted() -> None:
    learner, calls = made(fast_steps=3, slow_steps=2, slow_rounds=4), []
    learner.add_classes(range(4))
    descend = Descent(learner.parameters(), optimiser="sgd", learning_rate=0.1)
    learner.loss = lambda batch: calls.append("fast") or DualNet.loss(learner, batch)  # type: ignore[method-assign, func-returns-value]
    learner.slow_loss = lambda batch: calls.append("slow") or DualNet.slow_loss(learner, batch)  # type: ignore[method-assign, func-returns-value]
    learner.train().step(batch_of(), descend)
    assert calls == ["slow"] * 8 + ["fast"] * 3
    assert len(learner.memory) == 8
    learner.step(batch_of(1)._replace(fresh=False), descend)
    assert len(learner.memory) == 8


def test_values_that_cannot_be_meant() -> None:
    for values, said in (
        ({"capacity": 0}, "capacity = 0: must"),
        ({"fast_steps": 0}, "fast_steps = 0: must"),
        ({"slow_steps": 0}, "slow_steps = 0: must"),
        ({"slow_rounds": -1}, "slow_rounds = -1: must"),
        ({"projector": 0}, "projector = 0: must"),
        ({"distil": -1.0}, "distil = -1.0: must"),
        ({"redundancy": math.nan}, "redundancy = nan: must"),
        ({"temperature": 0.0}, "temperature = 0.0: must"),
        ({"slow_rate": 0.0}, "slow_rate = 0.0: must"),
        ({"lookahead": 0.0}, "lookahead = 0.0: must"),
        ({"lookahead": 1.1}, "lookahead = 1.1: must"),
        ({"policy": "fifo"}, "policy = 'fifo': must"),
        ({"slow_crop": (0.5, 0.1)}, r"slow_crop = \(0.5, 0.1\): must"),
    ):
        with pytest.raises(ValueError, match=f"^{said}"):
            made(**values)


def test_a_transformer_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^backbone = ViT: .*resnet18"):
        DualNet(toy_backbone(), VIEW)
