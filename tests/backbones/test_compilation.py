"""Compiled blocks: how often torch compiles, what stays the same, and what is refused."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch._dynamo as dynamo
from torch import Tensor, nn
from torch._dynamo.utils import counters

from promptpool import load_backbone
from promptpool.backbones import compilation
from promptpool.backbones.base import Readout
from promptpool.backbones.features import FrozenFeatures
from promptpool.data.scenarios import class_incremental
from promptpool.data.stream import Stream
from promptpool.learners.base import Learner
from promptpool.learners.state import state
from promptpool.training.checkpoint import learn, load_checkpoint, save_checkpoint
from promptpool.training.loop import Plan, Session
from published import images, random_vit
from toys import METHODS, SHORT, VALUES, VIEW, toy_backbone, toy_examples, toy_learner, toy_stream

# Warnings of torch about itself: it hides the first from users, and the second is about a module that it imports.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
]
MOST = 6  # graphs: whole blocks and those that keep some rows, of a model that learns, is tested, or is a teacher
QUICK_PLAN = Plan(epochs=1, batch_size=16, learning_rate=0.01, test_batch_size=5)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Counts of graphs that torch finds; it runs them as they are, which takes no C++ compiler."""
    monkeypatch.setattr(compilation, "BACKEND", "eager")
    monkeypatch.setattr("promptpool.backbones.vit.check_compiler", lambda: None)
    dynamo.reset()
    counters.clear()
    yield counters["stats"]
    dynamo.reset()


def compiled_learner(name: str) -> Learner:
    backbone = toy_backbone()
    backbone.compute(compiled=True)
    return METHODS[name](backbone, VIEW, **VALUES.get(name, {}))


def ten_tasks() -> Stream:
    """Each of two classes; batches of 16 and 5 or 1, tests of 5 and 1."""
    names = [f"pattern {c}" for c in range(20)]
    train = toy_examples(11, 1, classes=20)
    kept = torch.ones(len(train), dtype=torch.bool)
    kept[train.y == 3] = torch.arange(11) < 6  # a task of 17: its last batch has one image
    return class_incremental(train.select(kept), toy_examples(3, 2, classes=20), names, tasks=10, seed=3)


@pytest.mark.parametrize("name", ["l2p", "lwf"])
def test_ten_tasks_compile_a_few_graphs(name: str, graphs: dict[str, int]) -> None:
    losses, found = [], []
    for step in Session(compiled_learner(name), ten_tasks(), QUICK_PLAN):
        losses.append(step.loss)
        if step.record is not None:
            found.append(graphs["unique_graphs"])
    assert len(found) == 10
    assert 0 < found[-1] <= MOST
    assert found[-1] == found[1]  # no task after the second adds any
    assert not counters["graph_break"]
    assert not counters["recompile_limit"]
    plain = Session(METHODS[name](toy_backbone(), VIEW), ten_tasks(), QUICK_PLAN)
    assert losses == pytest.approx([step.loss for step in plain], rel=1e-3)


def test_derivatives_of_each_example_are_taken_of_the_blocks_themselves(graphs: dict[str, int]) -> None:
    plain, ours = toy_learner("ewc"), compiled_learner("ewc")
    losses = [[record.loss for record in learn(each, toy_stream(tasks=2), QUICK_PLAN)] for each in (plain, ours)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    assert graphs["unique_graphs"]
    assert state(plain)["weights"].keys() == state(ours)["weights"].keys()


def test_supsup_is_refused_in_one_line(graphs: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"^backbone\.compile = True: must be False for SupSup, whose masks.*$"):
        compiled_learner("supsup")
    assert not graphs


def test_a_compiled_backbone_has_features_of_its_own(graphs: dict[str, int]) -> None:
    plain, ours = toy_backbone(), toy_backbone()
    ours.compute(compiled=True)
    assert FrozenFeatures(plain, VIEW).fingerprint != FrozenFeatures(ours, VIEW).fingerprint  # it rounds otherwise
    ours.compute(compiled=False)
    assert plain.fingerprint() == ours.fingerprint()
    with ours.plainly():
        pass
    assert plain.fingerprint() == ours.fingerprint()
    assert not graphs


def test_a_copy_learns_apart_from_its_model(graphs: dict[str, int]) -> None:
    ours = random_vit()
    ours.compute(compiled=True)
    before = ours.features(images())
    other = copy.deepcopy(ours)
    with torch.no_grad():
        other.blocks[0].get_parameter("mlp.fc1.weight").add_(1)
    count = graphs["unique_graphs"]
    assert other.compiled
    assert not torch.allclose(other.features(images()), before)
    torch.testing.assert_close(ours.features(images()), before)
    assert graphs["unique_graphs"] == count  # the same code


def test_a_checkpoint_goes_on_with_compiled_blocks_only(tmp_path: Path, graphs: dict[str, int]) -> None:
    def session(learner: Learner) -> Session:
        return Session(learner, toy_stream(tasks=2), SHORT)

    begun, whole = session(compiled_learner("l2p")), session(compiled_learner("l2p"))
    for step in begun:
        if step.step == 3:
            save_checkpoint(tmp_path / "checkpoint", begun)
            break
    resumed = session(compiled_learner("l2p"))
    load_checkpoint(tmp_path / "checkpoint", resumed)
    assert [step.loss for step in resumed] == pytest.approx([step.loss for step in whole][3:], rel=1e-4)
    with pytest.raises(ValueError, match="another backbone"):
        load_checkpoint(tmp_path / "checkpoint", session(toy_learner("l2p")))
    assert graphs


def test_an_export_takes_the_blocks_themselves(graphs: dict[str, int]) -> None:
    class Features(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vit = random_vit()
            self.vit.compute(compiled=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.vit.features(x)

    model = Features().eval()
    with torch.no_grad():
        program = torch.export.export(model, (images(),))
    assert not graphs["unique_graphs"]
    torch.testing.assert_close(program.module()(images()), model(images()), rtol=1e-4, atol=1e-5)


def test_without_a_compiler_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ValueError, match=r"^compile = True: needs a C\+\+ compiler, and there is no no-such-compiler"):
        load_backbone("vit-glyphs", compile=True)
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"include": str(tmp_path)})
    with pytest.raises(ValueError, match="compile = True: needs Python's header files"):
        load_backbone("vit-glyphs", compile=True)


@pytest.mark.compiles
def test_compiled_code_computes_the_same() -> None:
    """The code itself, in both precisions, with gradients, and with blocks computed a second time."""
    compilation.check_compiler()
    for precision, near in (("single", 1e-4), ("bfloat16", 2**-5)):
        vit = random_vit()
        vit.compute(precision=precision)
        tokens = vit.embed(images()).detach().requires_grad_()
        weight = vit.blocks[0].get_parameter("mlp.fc1.weight")
        found = []
        for on, again in ((False, False), (True, False), (True, True)):
            vit.compute(compiled=on)
            vit.compute(checkpointing=again)
            rows = vit.encode(tokens, rows=3)
            read = vit.read(images(), Readout(2, "both")).detach()
            found.append([rows.detach(), read, *torch.autograd.grad(rows.square().sum(), [tokens, weight])])
        for others in found[1:]:
            for expected, other in zip(found[0], others, strict=True):
                assert (other - expected).norm() / expected.norm() < near
    dynamo.reset()
