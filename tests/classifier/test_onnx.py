"""onnxruntime, fed with an exported file, answers as the classifier does."""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from typer.testing import CliRunner

from image_files import write_images
from promptpool import ContinualClassifier
from promptpool.backbones.vit import ViT
from promptpool.classifier import onnx_file
from promptpool.classifier.graph import graph_of, known_classes
from promptpool.cli import app
from promptpool.errors import BadFileError
from promptpool.learners import adaptation
from promptpool.learners.closed_form import ClosedForm
from toys import THREADS, toy_examples

HALF = onnx.TensorProto.FLOAT16
GUIDE = (Path(__file__).parents[2] / "docs" / "guide.md").read_text()
TRAIN, TEST = toy_examples(8, 1).batch(slice(None)), toy_examples(7, 2).batch(slice(None))
NAMES = [f"pattern {c}" for c in range(6)]
SIZES = {"image_size": "8", "patch_size": "4", "heads": "2", "mean": "0.4,0.5,0.6", "std": "0.3,0.2,0.3"}
CLOSED: dict[str, Any] = {"projections": 40, "readout_blocks": 1}
FITTED: dict[str, Any] = {"capacity": 12}
# One value of each method that changes what is computed.
METHODS: dict[str, dict[str, Any]] = {
    "bic": {"capacity": 24, "held_places": 6, "bias_epochs": 20},
    "closed-form": CLOSED,
    "closed-form-prompts": {**CLOSED, "adapt": "prompts"},
    "der++": FITTED,
    "er": FITTED,
    "ewc": {},
    "ft-seq": {},
    "ft-seq-frozen": {"readout_rows": "both"},
    "gdumb": {**FITTED, "epochs": 2},
    "l2p": {"prompt_length": 1, "pool_size": 4, "top_k": 2},
    "l2p-r-trained": {**FITTED, "prompt_length": 1},
    "lwf": {},
    "masked-linear": {},
    "nearest-mean": {},
    "no-key": {"prompt_length": 1},
    "one-prompt": {"prompt_length": 2},
    "ranpac": {"projections": 50},
}
EXPORTED = ("closed-form", "closed-form-prompts", "l2p", "ranpac")  # to ONNX too; nearest-mean by the command


def written(path: Path, depth: int) -> Path:
    vit = ViT(image_size=8, patch_size=4, dim=16, depth=depth, heads=2).start(torch.Generator().manual_seed(0))
    save_file({name: 8 * value for name, value in vit.state_dict().items()}, path, metadata=SIZES)
    return path


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("weights") / "vit.safetensors", depth=1)


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptation, "LEAST_STEPS", 20)


def taught(weights: Path, method: str, **values: Any) -> ContinualClassifier:
    """Six patterns in two lessons; of the closed form two are forgotten again."""
    classifier = ContinualClassifier(weights, method=method, **{**METHODS.get(method, {}), **values})
    classifier.plan = replace(classifier.plan, epochs=2, least_steps=0)
    for own in ([0, 1, 2], [3, 4, 5]):
        rows = torch.isin(TRAIN.y, torch.tensor(own))
        classifier.learn(TRAIN.x[rows], [NAMES[y] for y in TRAIN.y[rows].tolist()])
    if method.startswith("closed-form"):
        classifier.forget(NAMES[3 if method.endswith("prompts") else 1])  # what taught prompts stays
        classifier.forget(NAMES[5])
    return classifier


@pytest.mark.parametrize("method", EXPORTED)
def test_onnxruntime_answers_as_the_classifier_does(method: str, weights: Path, tmp_path: Path) -> None:
    classifier, path = taught(weights, method), tmp_path / "shop.onnx"
    agreement = classifier.export_onnx(path)
    assert agreement.pictures == sum(onnx_file.BATCHES)
    (logits, probabilities, *distance), facts = asked(path, TEST.x)
    labels = json.loads(facts["labels"])
    assert labels == list(classifier.labels)
    said = classifier.ask(TEST.x)
    scores = said.scores[:, known_classes(classifier)]
    spread = float(scores.max() - scores.min())
    np.testing.assert_allclose(logits, scores, rtol=0, atol=1e-3 * spread)
    best, second = scores.topk(2, dim=1).values.T
    clear = best - second > 1e-3 * spread
    assert clear.sum() > 0.9 * len(clear)
    assert bool(distance) == method.startswith("closed-form")
    for row, answer in enumerate(classifier.predict(TEST.x)):
        assert probabilities[row].max() == pytest.approx(answer.confidence, abs=1e-3)
        if clear[row]:
            assert labels[logits[row].argmax()] == answer.guess
        if distance and abs(distance[0][row] - float(facts["farthest"])) > 1e-3:
            assert said.far is not None
            assert (distance[0][row] > float(facts["farthest"])) == bool(said.far[row] > float(facts["farthest"]))
    if method == "closed-form":
        check_file(path, classifier, weights)


def asked(path: Path, pictures: Tensor) -> tuple[list[Any], dict[str, str]]:
    """What onnxruntime says, in batches of 1, 3, 8 and the rest; and the metadata."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(path, options)
    parts = pictures.split([1, 3, 8, len(pictures) - 12])
    found = [session.run(None, {"pixels": part.numpy()}) for part in parts]
    return [np.concatenate(output) for output in zip(*found, strict=True)], session.get_modelmeta().custom_metadata_map


def check_file(path: Path, classifier: ContinualClassifier, weights: Path) -> None:
    """What the file says of itself, what it rounds, and that it tells nothing of this machine."""
    model = onnx.load(path)
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert facts["backbone"] == "vit.safetensors"
    assert facts["backbone_hash"] == classifier.backbone.origin
    assert facts["image_size"] == "8"
    assert facts["method"] == "closed-form"
    assert float(facts["temperature"]) == classifier.known.calibration.temperature
    assert float(facts["farthest"]) == classifier.known.calibration.farthest
    shape = model.graph.input[0].type.tensor_type.shape.dim
    assert [each.dim_param or each.dim_value for each in shape] == ["n", 3, 8, 8]
    halves = [node for node in model.graph.node if node.op_type == "Cast" and node.attribute[0].i == HALF]
    assert len(halves) == 1, "rows are rounded to half precision, as they were learned"
    for place in (weights.parent, Path(onnx_file.__file__).parent):
        assert str(place).encode() not in path.read_bytes()


@pytest.mark.parametrize("method", sorted(METHODS.keys() - EXPORTED))
def test_a_graph_computes_what_its_classifier_does(method: str, weights: Path) -> None:
    check_graph(taught(weights, method))


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("closed-form", {"classifier": "ridge"}),
        ("closed-form", {"classifier": "gaussian", "projections": 0}),
        ("closed-form", {"projections": 0}),
        ("nearest-mean", {"distance": "euclidean"}),
        ("ranpac", {"projections": 0}),
        ("l2p", {"order": "prompts-first", "position": "none", "start_from": "scaled"}),
    ],
)
def test_values_that_change_the_graph(method: str, values: dict[str, Any], weights: Path) -> None:
    check_graph(taught(weights, method, **values))


def test_prompts_that_enter_later_are_exported(tmp_path: Path) -> None:
    classifier = taught(written(tmp_path / "vit.safetensors", depth=2), "l2p", enter=1)
    check_graph(classifier)
    assert classifier.export_onnx(tmp_path / "shop.onnx").difference < 1e-3


def check_graph(classifier: ContinualClassifier) -> None:
    with torch.no_grad():
        logits, probabilities, *distance = graph_of(classifier)(TEST.x)
    scores = classifier.ask(TEST.x).scores
    known = known_classes(classifier)
    assert [classifier.known.labels[number] for number in known] == list(classifier.labels)
    expected = scores[:, known].double()
    torch.testing.assert_close(logits.double(), expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))
    shares = classifier.known.calibration.probabilities(expected)
    torch.testing.assert_close(probabilities.double(), shares, rtol=1e-3, atol=1e-3)
    learner = classifier.learner
    if isinstance(learner, ClosedForm) and learner.gaussian is not None:
        ids = torch.arange(len(TEST.x))
        apart = learner.distance(learner.read(TEST._replace(ids=ids)))
        torch.testing.assert_close(distance[0].double(), apart, rtol=1e-3, atol=1e-3 * float(apart.abs().max()))
    else:
        assert not distance


def test_pictures_are_forgotten_with_their_class(weights: Path) -> None:
    classifier = taught(weights, "closed-form")
    logits, *_ = graph_of(classifier)(TRAIN.x)
    assert logits.shape == (48, 4)
    assert logits.isfinite().all()


def test_what_cannot_be_exported_is_refused(weights: Path, tmp_path: Path) -> None:
    path = tmp_path / "shop.onnx"
    with pytest.raises(ValueError, match="learn first"):
        ContinualClassifier(weights, **CLOSED).export_onnx(path)
    with pytest.raises(ValueError, match=r"'supsup': cannot be exported to ONNX; bic, closed-form, .*ranpac can"):
        ContinualClassifier(weights, method="supsup").export_onnx(path)
    with pytest.raises(ValueError, match="only vote = 0 can be exported"):
        taught(weights, "l2p-google-v2").export_onnx(path)
    with pytest.raises(BadFileError, match="is a folder"):
        ContinualClassifier(weights, **CLOSED).export_onnx(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_too_large_is_refused(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_file, "LARGEST", 1000)
    with pytest.raises(ValueError, match="one ONNX file holds at most 2"):
        taught(weights, "nearest-mean").export_onnx(tmp_path / "shop.onnx")


@pytest.mark.parametrize(
    ("output", "change", "message"),
    [
        (0, lambda values: values + 1, "scores differ by .* of their spread, more than 0.001"),
        (0, lambda values: values * torch.nan, "scores differ by nan"),
        (2, lambda values: -values, "12 pictures get another answer"),
    ],
)
def test_a_file_that_does_not_agree_is_not_written(
    output: int, change: Any, message: str, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier, path = taught(weights, "closed-form"), tmp_path / "shop.onnx"
    path.write_text("the one before")

    def changed(content: bytes, pictures: Tensor) -> list[Tensor]:
        del content
        found = [each.double() for each in graph_of(classifier)(pictures)]
        found[output] = change(found[output])
        return found

    monkeypatch.setattr(onnx_file, "_content", lambda graph, metadata, size: b"")
    monkeypatch.setattr(onnx_file, "answers", changed)
    with pytest.raises(RuntimeError, match=message):
        classifier.export_onnx(path)
    assert path.read_text() == "the one before"
    assert [each.name for each in tmp_path.iterdir()] == ["shop.onnx"]


def test_the_command_and_the_guide(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path, [f"lesson/{label}/{n}.png" for label in "ab" for n in range(6)])
    arguments = ["learn", "shop", "lesson", "--backbone", str(weights), "--method", "nearest-mean"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    done = CliRunner().invoke(app, ["export", "shop", "--onnx", "shop.onnx"])
    assert done.exit_code == 0, done.output
    assert "shop.onnx: 2 classes" in done.stdout
    assert "on 12 pictures it answers as shop does" in done.stdout
    code = next(block for block in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL) if "onnxruntime" in block)
    for label in "ab":
        shutil.copy(tmp_path / "lesson" / label / "0.png", "photo.jpg")
        names: dict[str, Any] = {}
        exec(compile(code, "guide.md", "exec"), names)  # noqa: S102
        shop = ContinualClassifier.load("shop")
        answer, least = shop.predict("photo.jpg"), shop.known.calibration.least
        assert float(names["facts"]["least"]) == (least or 0.0)
        if least is None or abs(answer.confidence - least) > 1e-3:
            assert names["unknown"] == (answer.label == "unknown")
        assert names["labels"][names["probabilities"].argmax()] == answer.guess
        assert names["probabilities"].max() == pytest.approx(answer.confidence, abs=1e-3)


def test_without_the_packages_one_line_says_what_to_install(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taught(weights, "nearest-mean").save(tmp_path / "shop")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    said = CliRunner().invoke(app, ["export", str(tmp_path / "shop"), "--onnx", str(tmp_path / "shop.onnx")])
    assert said.exit_code == 2
    assert said.stderr.count("\n") == 1
    assert "pip install 'promptpool[onnx]'" in said.stderr
