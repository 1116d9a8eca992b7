"""SupSup against a slow transcription: loss, gradient, the entropy's slopes, every way to infer, and what is kept."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from promptpool.backbones.base import FeatureExtractor
from promptpool.backbones.resnet import resnet18
from promptpool.data.scenarios import class_incremental
from promptpool.data.stream import Batch
from promptpool.data.views import ImageView
from promptpool.learners.masks import best, pack
from promptpool.learners.state import state
from promptpool.learners.supsup import SupSup
from promptpool.training.checkpoint import learn, load_checkpoint, save_checkpoint
from promptpool.training.evaluation import predict
from promptpool.training.loop import Plan, Session
from toys import (
    CLASSES,
    SHORT,
    VIEW,
    names,
    refusal,
    toy_backbone,
    toy_domains,
    toy_examples,
    toy_schedule,
    toy_stream,
)


class Tiny(FeatureExtractor):
    """One convolution, normalised, and one layer with a bias on the mean."""

    dim = 5

    def __init__(self) -> None:
        super().__init__()
        draws = torch.Generator().manual_seed(5)
        self.conv, self.bn, self.fc = nn.Conv2d(3, 4, 1, bias=False), nn.BatchNorm2d(4), nn.Linear(4, 5)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1, 1, generator=draws)

    def features(self, x: Tensor) -> Tensor:
        return self.fc(self.bn(self.conv(x)).relu().mean(dim=(2, 3)))  # type: ignore[no-any-return]


SMALL = ImageView(2)


def batch_of(classes: int = 2, per_class: int = 3, first: int = 0) -> Batch:
    return toy_examples(per_class, 1, classes=classes).relabel(torch.arange(classes) + first).batch(slice(None))


class Exact(SupSup):
    """SupSup in double precision."""

    def inputs(self, batch: Batch) -> Tensor:
        return super().inputs(batch).double()


def tiny(tasks: int = 1, **values: Any) -> SupSup:
    """A learner on a tiny network with this many tasks, all but the last over, each with moments of its own."""
    learner = Exact(Tiny(), SMALL, **{"outputs": 3, **values}).double()
    draws = torch.Generator().manual_seed(9)
    for task in range(tasks):
        stream = class_incremental(toy_examples(2, 1), toy_examples(2, 2), names(), tasks=3)
        experience = stream.experiences[task % 3]
        learner.add_classes(experience.classes)
        learner.before(experience)
        for _, norm in learner._norms():
            assert norm.running_mean is not None
            assert norm.running_var is not None
            nn.init.uniform_(norm.running_mean, -0.3, 0.3, generator=draws)
            nn.init.uniform_(norm.running_var, 0.5, 1.5, generator=draws)
        if task < tasks - 1:
            learner.after(experience)
    return learner


# The slow transcription: one image, one channel at a time.


def slow_outputs(pixels: Tensor, net: dict[str, Tensor], statistics: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """The output neurons of one image [3, H, W]; statistics are mean and deviation of each channel."""
    means = []
    for channel in range(4):
        mean, deviation = statistics[channel]
        total = pixels.new_zeros(())
        for i in range(pixels.shape[1]):
            for j in range(pixels.shape[2]):
                value = sum(net["conv"][channel, c, 0, 0] * pixels[c, i, j] for c in range(3))
                normal = (value - mean) / deviation * net["scale"][channel] + net["shift"][channel]
                total = total + (normal if normal > 0 else 0 * normal)
        means.append(total / (pixels.shape[1] * pixels.shape[2]))
    hidden = [sum(net["fc"][d, c] * means[c] for c in range(4)) + net["bias"][d] for d in range(5)]
    outputs = len(net["output"])
    return [torch.stack([net["output"][o, d] * hidden[d] for d in range(5)]).sum() for o in range(outputs)]


def slow_batch_statistics(x: Tensor, kernel: Tensor) -> list[tuple[Tensor, Tensor]]:
    found = []
    for channel in range(4):
        values = [
            sum(kernel[channel, c, 0, 0] * x[b, c, i, j] for c in range(3))
            for b in range(len(x))
            for i in range(x.shape[2])
            for j in range(x.shape[3])
        ]
        mean = torch.as_tensor(sum(values) / len(values))
        found.append((mean, torch.as_tensor(sum((v - mean) ** 2 for v in values) / len(values) + 1e-5) ** 0.5))
    return found


def slow_cross_entropy(outputs: list[Tensor], label: int) -> Tensor:
    return torch.log(sum(torch.exp(z) for z in outputs)) - outputs[label]  # type: ignore[arg-type]


def slow_entropy(outputs: list[Tensor]) -> Tensor:
    total = sum(torch.exp(z) for z in outputs)
    return -sum(torch.exp(z) / total * torch.log(torch.exp(z) / total) for z in outputs)  # type: ignore[return-value]


LAYERS = ("conv", "fc", "output")


def shared_of(learner: SupSup) -> dict[str, Tensor]:
    """Scale, shift and bias, which tasks share."""
    base = learner.base
    return {"scale": base["bn.weight"], "shift": base["bn.bias"], "bias": base["fc.bias"]}


def weights_of(learner: SupSup) -> list[Tensor]:
    return [learner.base[name].detach() for name in ("conv.weight", "fc.weight", "output")]


def slow_mask(scores: Tensor, density: float) -> Tensor:
    """1 for the share of a layer's weights that have the largest |s|."""
    sizes = [abs(score) for score in scores.flatten().tolist()]
    kept = sorted(range(len(sizes)), key=lambda place: -sizes[place])[: round(density * len(sizes))]
    return torch.tensor([float(place in kept) for place in range(len(sizes))], dtype=torch.float64).view(scores.shape)


def mask_of(learner: SupSup, task: int) -> list[Tensor]:
    """The mask of a task, bit by bit."""
    if task == len(learner.masks):
        return [slow_mask(scores, learner.density) for scores in learner.scores]
    bits = [byte >> place & 1 for byte in learner.masks[task].tolist() for place in range(8)]
    masks = []
    for scores in learner.scores:
        taken, bits = bits[: scores.numel()], bits[scores.numel() :]
        masks.append(torch.tensor(taken, dtype=torch.float64).view(scores.shape))
    return masks


def moments_of(learner: SupSup, task: int) -> tuple[Tensor, Tensor]:
    if task < len(learner.moments):
        return learner.moments[task][:4], learner.moments[task][4:]
    ((_, norm),) = learner._norms()
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return norm.running_mean, (norm.running_var + 1e-5) ** 0.5


def slow_slopes(learner: SupSup, pixels: Tensor, tasks: list[int]) -> list[float]:
    """dH/da_i at a_i = 1 / k for one image, with the tasks given in superposition."""
    a = torch.full((len(tasks),), 1 / len(tasks), dtype=torch.float64, requires_grad=True)
    masks, moments = [mask_of(learner, task) for task in tasks], [moments_of(learner, task) for task in tasks]
    net = shared_of(learner)
    for place, (name, weight) in enumerate(zip(LAYERS, weights_of(learner), strict=True)):
        net[name] = weight * sum(a[i] * masks[i][place] for i in range(len(tasks)))
    mixed = [
        (
            sum(a[i] * moments[i][0][c] for i in range(len(tasks))),
            sum(a[i] * moments[i][1][c] for i in range(len(tasks))),
        )
        for c in range(4)
    ]
    (gradient,) = torch.autograd.grad(slow_entropy(slow_outputs(pixels, net, mixed)), a)  # type: ignore[arg-type]
    return gradient.tolist()


def slow_own(learner: SupSup, pixels: Tensor, task: int) -> list[Tensor]:
    """The output neurons of one image under the mask of one task."""
    net = shared_of(learner)
    for name, weight, mask in zip(LAYERS, weights_of(learner), mask_of(learner, task), strict=True):
        net[name] = weight * mask
    return slow_outputs(pixels, net, list(zip(*moments_of(learner, task), strict=True)))


def slow_task(learner: SupSup, pixels: Tensor) -> int:
    """The least entropy of one mask at a time, or Algorithms 1 and 2, for one image."""
    tasks = list(range(len(learner.tasks)))
    if learner.inference == "each":
        return min(tasks, key=lambda task: float(slow_entropy(slow_own(learner, pixels, task))))
    while len(tasks) > 1:
        slopes = slow_slopes(learner, pixels, tasks)
        if learner.inference == "one-shot":
            return slopes.index(min(slopes))
        middle = statistics.median(slopes)
        tasks = [task for task, slope in zip(tasks, slopes, strict=True) if not slope >= middle]
    return tasks[0]


@pytest.mark.parametrize("weights", ["random", "pretrained"])
@pytest.mark.parametrize("density", [0.3, 0.5])
def test_loss_and_gradient_are_those_of_a_loop(weights: str, density: float) -> None:
    learner, batch = tiny(weights=weights, density=density).train(), batch_of()
    x = learner.inputs(batch)
    net, effective = shared_of(learner), []
    for name, weight, mask in zip(LAYERS, weights_of(learner), mask_of(learner, 0), strict=True):
        net[name] = (weight * mask).requires_grad_()
        effective.append(net[name])
    found = slow_batch_statistics(x, net["conv"])
    expected = sum(slow_cross_entropy(slow_outputs(x[b], net, found), int(batch.y[b])) for b in range(len(x))) / len(x)
    loss = learner.loss(batch)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    gradients = torch.autograd.grad(expected, effective)  # type: ignore[arg-type]
    for scores, weight, gradient in zip(learner.scores, weights_of(learner), gradients, strict=True):
        torch.testing.assert_close(scores.grad, gradient * weight * scores.detach().sign())
    assert not any(p.grad is not None for p in learner.backbone.parameters())


def test_labels_are_counted_within_the_task() -> None:
    learner = tiny(tasks=2).train()
    loss = learner.loss(batch_of(first=2))
    learner.tasks[-1] = (0, 1)
    assert torch.equal(learner.loss(batch_of(first=0)), loss)


@pytest.mark.parametrize("weights", ["random", "pretrained"])
@pytest.mark.parametrize("tasks", [2, 3, 5])
def test_slopes_are_those_of_one_image_at_a_time(tasks: int, weights: str) -> None:
    learner = tiny(tasks=tasks, weights=weights).eval()
    x = learner.inputs(batch_of(per_class=2))
    found = learner.slopes(x, torch.ones(len(x), tasks, dtype=torch.bool))
    for row, pixels in zip(found.tolist(), x, strict=True):
        assert row == pytest.approx(slow_slopes(learner, pixels, list(range(tasks))), rel=1e-6, abs=1e-9)


def test_slopes_of_what_is_left_to_each_image() -> None:
    learner = tiny(tasks=4).eval()
    x = learner.inputs(batch_of(per_class=2))
    left = torch.tensor([[1, 1, 0, 0], [0, 1, 0, 1], [1, 1, 0, 0], [1, 0, 1, 1]]).bool()
    for row, mixture, pixels in zip(learner.slopes(x, left).tolist(), left, x, strict=True):
        tasks = mixture.nonzero().flatten().tolist()
        assert [row[task] for task in tasks] == pytest.approx(slow_slopes(learner, pixels, tasks), rel=1e-6, abs=1e-9)
        assert all(row[task] == math.inf for task in range(4) if task not in tasks)


@pytest.mark.parametrize("inference", ["each", "one-shot", "binary"])
@pytest.mark.parametrize("tasks", [1, 2, 3, 4, 6])
def test_the_inferred_task_is_that_of_the_algorithm(inference: str, tasks: int) -> None:
    learner = tiny(tasks=tasks, inference=inference).eval()
    x = learner.inputs(batch_of(per_class=3))
    assert learner.infer(x).tolist() == [slow_task(learner, pixels) for pixels in x]


def test_the_ways_to_infer_differ() -> None:
    x = tiny().inputs(batch_of(per_class=8))
    found = {tuple(tiny(tasks=6, inference=way).eval().infer(x).tolist()) for way in ("each", "one-shot", "binary")}
    assert len(found) == 3


def test_scores_are_the_outputs_of_the_inferred_task_at_its_classes() -> None:
    learner, batch = tiny(tasks=3).eval(), batch_of()
    x, scores = learner.inputs(batch), learner.logits(batch)
    for row, pixels, task in zip(scores.tolist(), x, learner.infer(x).tolist(), strict=True):
        outputs, own = slow_own(learner, pixels, task), learner.tasks[task]
        assert [row[c] for c in own] == pytest.approx([float(z) for z in outputs[:2]])
        assert all(row[c] < -1e30 for c in range(CLASSES) if c not in own)


def test_statistics_are_those_of_the_tasks_images_under_its_final_mask() -> None:
    learner = tiny(tasks=1).train()
    experience = class_incremental(toy_examples(2, 1), toy_examples(2, 2), names(), tasks=3).experiences[0]
    kernel = weights_of(learner)[0] * mask_of(learner, 0)[0]
    x = learner.inputs(experience.train.batch(slice(None)))
    values = len(x) * x.shape[2] * x.shape[3]
    learner.after(experience)
    assert learner.training
    for channel, (mean, deviation) in enumerate(slow_batch_statistics(x, kernel)):
        variance = (float(deviation) ** 2 - 1e-5) * values / (values - 1)  # as torch notes it
        assert learner.moments[0][channel].item() == pytest.approx(float(mean))
        assert learner.moments[0][4 + channel].item() == pytest.approx((variance + 1e-5) ** 0.5)
    assert vars(learner.backbone.get_submodule("bn"))["momentum"] == 0.1


def test_statistics_do_not_hang_on_the_order_in_which_images_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("promptpool.learners.supsup.STATISTICS_BATCH", 8)
    train = toy_examples(30, 1, classes=2)  # one class after the other
    moments = []
    for order in (torch.arange(60), torch.arange(60).view(2, 30).T.flatten(), torch.arange(60).flip(0)):
        learner = tiny(tasks=1).train()
        learner._settle(train.select(order))
        moments.append(learner._own()[1])
    whole = tiny(tasks=1).train()
    monkeypatch.setattr("promptpool.learners.supsup.STATISTICS_BATCH", 60)
    whole._settle(train)
    for found in moments:
        torch.testing.assert_close(found, whole._own()[1], rtol=0.1, atol=0.02)


def test_a_task_that_is_told_uses_its_own_mask() -> None:
    learner, batch = tiny(tasks=3).eval(), batch_of()
    for task, classes in enumerate(learner.tasks):
        scores = learner.task_logits(batch, classes)
        assert scores is not None
        expected = learner.run(learner.inputs(batch), learner._ready(learner.subnetwork(task)))
        torch.testing.assert_close(scores[:, list(classes)], expected[:, :2])
    assert learner.task_logits(batch, (0, 2)) is None, "classes of two tasks tell no task"


def test_what_is_kept_of_a_task_is_a_bit_per_weight() -> None:
    learner, stream = SupSup(toy_backbone(), VIEW), toy_stream()
    sizes = [scores.numel() for scores in learner.scores]
    for step in Session(learner, stream, SHORT):
        if step.record is not None:
            expected = pack(best(scores, 0.5) for scores in learner.scores)
            assert torch.equal(learner.masks[-1], expected), "the last scores decide"
    assert [mask.nbytes for mask in learner.masks] == [-(-sum(sizes) // 8)] * 3
    assert learner.tasks == [experience.classes for experience in stream.experiences]
    assert not any(name.startswith("fixed") for name in state(learner)["weights"]), "a seed makes them again"


def test_nothing_is_forgotten_when_the_task_is_given() -> None:
    learner, stream = SupSup(resnet18(width=4, image_size=8).eval(), VIEW), toy_stream()
    first = None
    for step in Session(learner, stream, SHORT):
        if step.record is not None:
            scores = learner.eval().task_logits(stream.tests[0].batch(slice(None)), stream.experiences[0].classes)
            assert scores is not None
            own = scores[:, list(stream.experiences[0].classes)]
            first = own if first is None else first
            assert torch.equal(own, first)


@pytest.mark.parametrize("weights", ["random", "pretrained"])
@pytest.mark.parametrize("on", ["resnet", "vit"])
def test_it_learns_on_both_kinds_of_backbone(on: str, weights: str) -> None:
    backbone = resnet18(width=4, image_size=8).eval() if on == "resnet" else toy_backbone()
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    learner, stream = SupSup(backbone, VIEW, weights=weights), toy_stream()
    plan = Plan(epochs=12, batch_size=16, learning_rate=0.01, test_batch_size=42, task_given=True)
    records = list(learn(learner, stream, plan))
    given = records[-1].correct_given_task
    assert given is not None
    assert sum(count or 0 for count in given) > 0.8 * 42
    assert all(torch.equal(backbone.state_dict()[name], value) for name, value in before.items())
    some = stream.tests[1].select(slice(0, 3))
    for inference in ("each", "one-shot", "binary"):
        learner.inference = inference
        alone = torch.cat([predict(learner, image) for image in some.batches(1)])
        assert torch.equal(predict(learner, some.batch(slice(None))), alone)


def test_it_goes_on_from_a_state_on_a_resnet(tmp_path: Path) -> None:
    def session() -> Session:
        return Session(SupSup(resnet18(width=2, image_size=8).eval(), VIEW), toy_stream(), SHORT)

    undisturbed, first, second = session(), session(), session()
    list(undisturbed)
    for step in first:
        if step.step == 11:  # in the second task
            break
    save_checkpoint(tmp_path / "checkpoint", first)
    load_checkpoint(tmp_path / "checkpoint", second)
    list(second)
    assert [r.to_json() for r in second.records] == [r.to_json() for r in undisturbed.records]
    ours, theirs = second.learner, undisturbed.learner
    assert isinstance(ours, SupSup)
    assert isinstance(theirs, SupSup)
    for name in ("masks", "moments"):
        assert all(torch.equal(a, b) for a, b in zip(getattr(ours, name), getattr(theirs, name), strict=True))


def test_pretrained_weights_are_the_backbones_and_random_ones_are_the_seeds() -> None:
    backbone = toy_backbone()
    pretrained, own = SupSup(backbone, VIEW, weights="pretrained").base, dict(backbone.named_parameters())
    assert all(pretrained[name] is value for name, value in own.items())
    one, same, other = (SupSup(backbone, VIEW, seed=seed).base for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    weight = "blocks.0.attn.qkv.weight"
    assert not torch.equal(one[weight], other[weight])
    assert not torch.equal(one[weight], own[weight])
    assert one[weight].abs().unique().tolist() == pytest.approx([math.sqrt(2 / 32)])
    assert not one["blocks.0.attn.qkv.bias"].any()
    assert torch.equal(one["norm.weight"], torch.ones(32))


def test_statistics_of_a_new_task_start_afresh_or_from_the_backbone() -> None:
    backbone = resnet18(width=4, image_size=8).eval()
    running = backbone.bn1.running_mean
    assert running is not None
    running.fill_(0.5)
    for weights, expected in (("random", 0.0), ("pretrained", 0.5)):
        learner = SupSup(backbone, VIEW, weights=weights)
        learner.add_classes((0, 1))
        learner.before(toy_stream().experiences[0])
        mean = learner._norms()[0][1].running_mean
        assert mean is not None
        assert mean.tolist() == [expected] * 4
        learner.train().loss(toy_stream().experiences[0].train.batch(slice(0, 8)))
        assert mean.tolist() != [expected] * 4
        assert running.tolist() == [0.5] * 4
        assert not backbone.training


def test_values_that_cannot_be_meant() -> None:
    for values, said in (
        ({"density": 0.0}, "density = 0.0: must"),
        ({"density": 1.0}, "density = 1.0: must"),
        ({"outputs": 1}, "outputs = 1: must"),
        ({"weights": "trained"}, "weights = 'trained': must"),
        ({"inference": "both"}, "inference = 'both': must"),
    ):
        with pytest.raises(ValueError, match=f"^{said}"):
            SupSup(toy_backbone(), VIEW, **values)


def test_streams_it_is_not_defined_on() -> None:
    learner = SupSup(toy_backbone(), VIEW, outputs=2)
    assert "boundaries" in str(refusal(learner, toy_schedule()))
    assert refusal(learner, toy_domains()) == "outputs = 2: must be at least the classes of a task, 6"
    learner.check(toy_stream())


def test_a_task_of_one_class_is_told_from_the_idle_neurons() -> None:
    stream = toy_stream(tasks=6)
    learner = SupSup(toy_backbone(), VIEW)
    learner.check(stream)
    records = list(learn(learner, stream, SHORT))
    assert records[-1].loss is not None
    assert records[-1].loss < math.log(10)
