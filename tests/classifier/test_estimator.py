"""The classifier as an estimator of scikit-learn: its own checks, and what they do not know of pictures."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import promptpool
from promptpool import ContinualClassifier, ContinualEstimator
from promptpool.backbones.vit import ViT
from promptpool.classifier import estimator as module
from promptpool.errors import BadFileError
from small_runs import write_weights
from toys import toy_examples

WEIGHTS = "vit.safetensors"
VALUES: dict[str, Any] = {"projections": 60}
LEARNED, ASKED = (toy_examples(count, seed).batch(slice(None)) for count, seed in ((8, 1), (5, 2)))
IMAGES, NUMBERS = LEARNED.x.permute(0, 2, 3, 1).contiguous().numpy(), LEARNED.y.numpy()  # [n, H, W, C]
OTHERS, OTHER_NUMBERS = ASKED.x.permute(0, 2, 3, 1).contiguous().numpy(), ASKED.y.numpy()
NAMES = np.array(["fork", "cup", "bowl", "plate", "spoon", "knife"])
LABELS = NAMES[NUMBERS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_weights(tmp_path_factory.mktemp("weights") / WEIGHTS).parent


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def made(**values: Any) -> ContinualEstimator:
    return ContinualEstimator(WEIGHTS, **{"values": VALUES, **values})


@pytest.fixture(scope="module")
def fitted(folder: Path) -> ContinualEstimator:
    return ContinualEstimator(folder / WEIGHTS, values=VALUES).fit(IMAGES, LABELS)


# Rows of any length are pictures of one line; no check is expected to fail.
@parametrize_with_checks([made(image_shape=(1, -1), pixel_range=(-30.0, 110.0))])  # type: ignore[untyped-decorator]
def test_the_checks_of_scikit_learn(estimator: ContinualEstimator, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_it_is_the_classifier(fitted: ContinualEstimator) -> None:
    classifier = ContinualClassifier(WEIGHTS, held_out=0.0, **VALUES)
    classifier.learn(list(IMAGES), LABELS)
    assert fitted.classes_.tolist() == sorted(NAMES)
    shares = fitted.predict_proba(OTHERS)
    for answer, row in zip(classifier.predict(list(OTHERS), top=6), shares, strict=True):
        expected = dict(answer.top)
        np.testing.assert_allclose(row, [expected[label] for label in fitted.classes_], atol=1e-8)
    assert fitted.predict(OTHERS).tolist() == [answer.guess for answer in classifier.predict(list(OTHERS))]
    assert fitted.score(OTHERS, NAMES[OTHER_NUMBERS]) > 0.9


def test_pictures_come_in_many_ways(fitted: ContinualEstimator, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.png" for number in range(len(OTHERS))]
    for path, image in zip(paths, OTHERS, strict=True):
        Image.fromarray(image).save(path)
    texts = [str(path) for path in paths]
    expected = fitted.predict_proba(OTHERS)
    ways: list[Any] = [list(OTHERS), OTHERS.transpose(0, 3, 1, 2), ASKED.x, [Image.fromarray(each) for each in OTHERS]]
    for way in [*ways, paths, texts, np.array(texts), np.array(paths, dtype=object)]:
        np.testing.assert_allclose(fitted.predict_proba(way), expected, atol=1e-8)
    grey = OTHERS[:3, :, :, 0]  # three pictures, not one with three channels
    np.testing.assert_allclose(fitted.predict_proba(grey), fitted.predict_proba(list(grey)), atol=1e-8)
    flat = clone(fitted).set_params(image_shape=(8, 8, 3), pixel_range=(0.0, 1.0)).fit(rows(IMAGES) / 255, LABELS)
    np.testing.assert_allclose(flat.predict_proba(rows(OTHERS) / 255), expected, atol=1e-8)
    assert flat.n_features_in_ == 192


def rows(images: Any) -> Any:
    return images.reshape(len(images), -1)


def test_fit_starts_anew_and_partial_fit_goes_on() -> None:
    first, rest = NUMBERS < 3, NUMBERS >= 3
    estimator = made().partial_fit(IMAGES[first], LABELS[first], classes=["cup", "whisk"])
    assert estimator.classes_.tolist() == ["bowl", "cup", "fork", "whisk"]
    assert (estimator.predict_proba(OTHERS)[:, 3] == 0).all(), "nothing of it was learned"
    estimator.partial_fit(IMAGES[rest], LABELS[rest])
    assert estimator.classes_.tolist() == sorted([*NAMES, "whisk"])
    whole = made().fit(IMAGES, LABELS)
    assert estimator.predict(OTHERS).tolist() == whole.predict(OTHERS).tolist()
    assert estimator.fit(IMAGES[first], LABELS[first]).classes_.tolist() == ["bowl", "cup", "fork"]
    assert len(estimator.classifier_.lessons) == 1


@pytest.mark.parametrize(
    "labels", [NUMBERS, NUMBERS.astype(np.uint8) + 100, LABELS, LABELS.astype(object), NUMBERS > 2]
)
def test_classes_have_the_type_of_the_labels(labels: Any) -> None:
    estimator = made().fit(IMAGES, labels)
    assert estimator.classes_.dtype == estimator.predict(OTHERS).dtype == labels.dtype
    assert estimator.classes_.tolist() == np.unique(labels).tolist()
    assert estimator.score(IMAGES, labels) > 0.9
    assert made().fit(list(IMAGES), labels.tolist()).classes_.tolist() == estimator.classes_.tolist()


def test_an_answer_is_unknown_only_if_asked_for(fitted: ContinualEstimator) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    assert set(fitted.predict(noise)) <= set(NAMES)
    found = fitted.predict(noise, unknown="something else")
    assert "something else" in found
    known = found != "something else"
    assert (found[known] == fitted.predict(noise)[known]).all()
    numbered = made().fit(IMAGES, NUMBERS)
    assert -1 in numbered.predict(noise, unknown=-1)
    with pytest.raises(ValueError, match="unknown = 'none': must be of the classes' kind, integers"):
        numbered.predict(noise, unknown="none")
    other = made(method="nearest-mean", values=None).fit(IMAGES, NUMBERS)
    with pytest.raises(ValueError, match="unknown = -1: method = 'nearest-mean' cannot tell"):
        other.predict(noise, unknown=-1)
    other.set_params(held_out=0.25).fit(IMAGES, NUMBERS)
    assert -1 in other.predict(noise, unknown=-1)


def test_nothing_is_looked_at_before_it_is_fitted() -> None:
    estimator = ContinualEstimator("nowhere.safetensors", method="svm", held_out=7.0, image_shape=(9,))
    assert clone(estimator).get_params() == estimator.get_params()
    assert all(getattr(estimator, name) == value for name, value in estimator.get_params().items())
    with pytest.raises(NotFittedError):
        estimator.predict(OTHERS)
    estimator.set_params(image_shape=None, held_out=0.0)
    with pytest.raises(ValueError, match="method = 'svm': must be one of"):
        estimator.fit(IMAGES, LABELS)


def test_a_pickle_answers_as_the_object_and_learns_on(fitted: ContinualEstimator) -> None:
    again = pickle.loads(pickle.dumps(fitted))  # noqa: S301
    np.testing.assert_allclose(again.predict_proba(OTHERS), fitted.predict_proba(OTHERS), atol=1e-8)
    again.partial_fit(255 - IMAGES, np.full(len(IMAGES), "negative"))
    assert "negative" in again.predict(255 - OTHERS)
    assert "negative" not in fitted.classes_


def test_what_it_learned_is_saved_as_any_classifier(fitted: ContinualEstimator, tmp_path: Path) -> None:
    fitted.classifier_.save(tmp_path / "shop")
    again = ContinualClassifier.load(tmp_path / "shop")
    assert [answer.guess for answer in again.predict(list(OTHERS))] == fitted.predict(OTHERS).tolist()


def brighter(images: Any) -> Any:
    return np.minimum(images, 200) + 20


def test_in_a_pipeline_over_processes() -> None:
    pipeline = make_pipeline(FunctionTransformer(brighter), made())
    alone = cross_val_score(pipeline, IMAGES, LABELS, cv=2)
    assert alone.min() > 0.8
    apart = cross_val_score(pipeline, IMAGES, LABELS, cv=2, n_jobs=2)
    np.testing.assert_allclose(apart, alone, atol=0.05)


def test_a_search_over_methods_and_values() -> None:
    grid = [{"method": ["closed-form"], "values": [{"projections": 30}, VALUES]}, {"method": ["nearest-mean"]}]
    search = GridSearchCV(made(values=None), grid, cv=2, error_score="raise")
    search.fit([Image.fromarray(image) for image in IMAGES], LABELS)
    assert len(search.cv_results_["params"]) == 3
    assert search.best_score_ > 0.8
    assert search.score(OTHERS, NAMES[OTHER_NUMBERS]) > 0.8


def test_frozen_features_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPOOL_CACHE", str(tmp_path))
    monkeypatch.setenv("PROMPTPOOL_FEATURES_GB", "1")
    monkeypatch.setattr(module, "FEW", 1)
    counted: list[int] = []
    read = ViT.read

    def counting(self: ViT, x: Any, readout: Any) -> Any:
        counted.append(len(x))
        return read(self, x, readout)

    monkeypatch.setattr(ViT, "read", counting)
    scores = cross_val_score(made(), IMAGES, LABELS, cv=2)
    assert sum(counted) > 0
    counted.clear()
    again = [cross_val_score(made(values={"projections": many}), IMAGES, LABELS, cv=2) for many in (60, 50)]
    assert counted == []
    assert again[0].tolist() == scores.tolist()
    estimator = made().fit(IMAGES, LABELS)
    assert len(estimator.classifier_.learner.frozen) == 0, "what is in files is not in memory"


def test_it_goes_on_as_it_was_made(fitted: ContinualEstimator) -> None:
    changed = pickle.loads(pickle.dumps(fitted)).set_params(method="l2p", values=None)  # noqa: S301
    with pytest.raises(ValueError, match="method = 'l2p': was 'closed-form' when this was fitted; fit anew"):
        changed.partial_fit(IMAGES, LABELS)


BAD: list[tuple[dict[str, Any], Any, Any, str]] = [
    ({}, "january/", ["a"], r"X = 'january/': must be a list of pictures"),
    ({}, [], [], "X has no picture|0 sample"),
    ({}, IMAGES, None, "requires y to be passed"),
    ({}, IMAGES, LABELS[:5], "inconsistent numbers of samples"),
    ({}, IMAGES, np.linspace(0, 1, len(IMAGES)), "Unknown label type"),
    ({}, IMAGES, ["unknown"] * len(IMAGES), "label 'unknown': is what the answer is"),
    ({}, IMAGES / 255, LABELS, r"X has float64: must be uint8, or give pixel_range"),
    ({"pixel_range": (0, 100)}, IMAGES.astype(int), LABELS, r"pixel_range = \(0, 100\): X has numbers from"),
    ({"pixel_range": (0, 1)}, np.full(IMAGES.shape, np.nan), LABELS, "X has numbers from nan"),
    ({"pixel_range": (1, 0)}, IMAGES / 255, LABELS, "the first number must be below the second"),
    ({}, rows(IMAGES), LABELS, "rows of pixels need image_shape"),
    ({"image_shape": (8, 9)}, rows(IMAGES), LABELS, r"image_shape = \(8, 9\): X has 192 numbers in a row"),
    ({"image_shape": (8, 8, 3)}, IMAGES, LABELS, "Found array with dim 4"),
    ({}, ["nowhere.png"] * len(LABELS), LABELS, "nowhere.png: no such file"),
    ({"values": {"brightness": 3}}, IMAGES, LABELS, r"learner\.brightness"),
]


@pytest.mark.parametrize(("values", "pictures", "labels", "message"), BAD)
def test_what_cannot_be_meant_is_named(values: dict[str, Any], pictures: Any, labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        made(**values).fit(pictures, labels)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_learned_changes_nothing(fitted: ContinualEstimator) -> None:
    before = fitted.predict_proba(OTHERS)
    with pytest.raises(ValueError, match="labels are integers and text: must be of one kind"):
        fitted.partial_fit(IMAGES, NUMBERS)
    with pytest.raises(BadFileError, match=r"nowhere\.png"):
        fitted.partial_fit(["nowhere.png"], ["whisk"])
    for values in ({}, {"unknown": "none"}):
        with pytest.raises(ValueError, match=r"nowhere\.png: no such file"):
            fitted.predict(["nowhere.png"], **values)
    assert fitted.classes_.tolist() == sorted(NAMES)
    np.testing.assert_allclose(fitted.predict_proba(OTHERS), before, atol=1e-8)


def test_without_scikit_learn_the_extra_is_named() -> None:
    code = """
import sys
from promptpool import *
from promptpool import ContinualClassifier
print("sklearn" in sys.modules)
sys.modules["sklearn"] = None
from promptpool import ContinualEstimator
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert said.stdout.split() == ["False"]
    expected = "ModuleNotFoundError: ContinualEstimator needs the extra: pip install 'promptpool[sklearn]'"
    assert said.stderr.splitlines()[-1] == expected
    assert "ContinualEstimator" in dir(promptpool)
