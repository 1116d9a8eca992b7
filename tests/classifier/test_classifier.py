"""The classifier equals the experiment it stands for, and keeps what the closed form promises."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from image_files import write_images
from promptpool import ContinualClassifier, Prediction
from promptpool.backbones.vit import ViT
from promptpool.classifier.calibration import calibrated
from promptpool.data.scenarios import from_arrays
from promptpool.errors import BadFileError
from promptpool.learners import LEARNERS
from promptpool.learners.closed_form import ClosedForm
from promptpool.training import learn
from promptpool.training.evaluation import predict
from small_runs import write_weights
from toys import toy_examples

NAMES = [f"pattern {c}" for c in range(6)]
TRAIN, TEST = toy_examples(12, 1), toy_examples(7, 2)
FAST: dict[str, dict[str, Any]] = {"closed-form": {"projections": 60}, "l2p": {"prompt_length": 1}, "nearest-mean": {}}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_weights(tmp_path_factory.mktemp("weights") / "vit.safetensors")


def taught(weights: Path, classes: list[list[int]], method: str = "closed-form", **values: Any) -> ContinualClassifier:
    given = {"held_out": 0.0, **FAST[method], **values}
    classifier = ContinualClassifier(weights, method=method, **given)
    classifier.plan = replace(classifier.plan, least_steps=0)
    for own in classes:
        classifier.learn(*lesson(own))
    return classifier


def lesson(classes: list[int]) -> tuple[Tensor, list[str]]:
    own = TRAIN.select(torch.isin(TRAIN.y, torch.tensor(classes))).batch(slice(None))
    return own.x, [NAMES[y] for y in own.y.tolist()]


def answers(classifier: ContinualClassifier) -> list[str]:
    return [answer.guess for answer in classifier.predict(TEST.batch(slice(None)).x)]


@pytest.mark.parametrize("method", ["closed-form", "l2p"])
def test_lessons_are_the_experiences_of_a_stream(method: str, weights: Path) -> None:
    classifier = taught(weights, [[0, 1], [2, 3], [4, 5]], method)
    size = classifier.backbone.image_size
    pictures = [lesson(own) for own in ([0, 1], [2, 3], [4, 5])]
    squares = [(resized(x, size).numpy(), [NAMES.index(label) for label in labels]) for x, labels in pictures]
    stream = from_arrays(squares, [(squares[0][0][:1], squares[0][1][:1])] * 3)
    learner = LEARNERS[method](classifier.backbone, classifier.view, **classifier._learner_values)
    for _ in learn(learner, stream, classifier.plan):
        pass
    batch = TEST.batch(slice(None))
    seen = batch._replace(raw=resized(batch.x, size), ids=torch.arange(len(batch.y)))
    expected = [NAMES[c] for c in predict(learner, seen).tolist()]
    assert answers(classifier) == expected


def resized(x: Tensor, size: int) -> Tensor:
    pictures = [Image.fromarray(each.permute(1, 2, 0).numpy()) for each in x]
    arrays = [np.asarray(each.resize((size, size), Image.Resampling.BILINEAR)) for each in pictures]
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).contiguous()


@pytest.mark.parametrize("products", ["torch", "onednn"])
def test_a_classifier_computes_by_what_suits_the_processor_it_is_on(
    products: str, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("promptpool.classifier.classifier.suited", lambda: "torch")
    usual = taught(weights, [[0, 1, 2]])
    usual.save(tmp_path / "shop")
    monkeypatch.setattr("promptpool.classifier.classifier.suited", lambda: products)
    loaded = ContinualClassifier.load(tmp_path / "shop")
    assert isinstance(loaded.backbone, ViT)
    assert loaded.backbone.products == products
    assert answers(loaded) == answers(usual)
    loaded.merge(taught(weights, [[3, 4, 5]]))
    assert answers(loaded) == answers(taught(weights, [[0, 1, 2], [3, 4, 5]]))


def test_the_order_of_lessons_changes_nothing(weights: Path) -> None:
    one, other = taught(weights, [[0, 1, 2], [3, 4, 5]]), taught(weights, [[5], [3, 1], [4, 0, 2]])
    assert answers(one) == answers(other)
    places = [other.known.labels.index(label) for label in one.known.labels]
    for name in ("weight", "bias"):
        found, expected = getattr(other.learner.head, name)[places], getattr(one.learner.head, name)
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def test_a_forgotten_class_was_never_there(weights: Path) -> None:
    classifier, other = taught(weights, [[0, 1], [2, 3, 4, 5]]), taught(weights, [[0, 1], [2, 4]])
    for label in (NAMES[3], NAMES[5]):
        classifier.forget(label)
    assert classifier.labels == other.labels
    assert answers(classifier) == answers(other)
    with pytest.raises(ValueError, match="no such class; it knows pattern 0"):
        classifier.forget(NAMES[3])
    classifier.learn(*lesson([3]))
    assert NAMES[3] in classifier.labels


def test_two_merged_are_one(weights: Path) -> None:
    whole = taught(weights, [[0, 1, 2, 3, 4, 5]])
    first, second = taught(weights, [[0, 1, 2]]), taught(weights, [[5, 4], [3]])
    first.merge(second)
    assert set(first.labels) == set(whole.labels)
    assert answers(first) == answers(whole)
    assert [lesson.number for lesson in first.lessons] == [1, 2, 3]


def test_a_class_can_have_another_name_or_join_another(weights: Path) -> None:
    classifier = taught(weights, [[0, 1, 2]])
    classifier.rename(NAMES[1], "one")
    assert list(classifier.labels) == [NAMES[0], "one", NAMES[2]]
    classifier.rename("one", NAMES[0])
    assert list(classifier.labels) == [NAMES[0], NAMES[2]]
    assert isinstance(classifier.learner, ClosedForm)
    assert classifier.learner.sums.counts.tolist() == [24, 0, 12]
    with pytest.raises(ValueError, match="text that can be printed"):
        classifier.rename(NAMES[0], " ")


def test_a_picture_of_both_classes_counts_once_when_they_become_one(weights: Path) -> None:
    """Otherwise its copy answers for it where it is judged as if it had not been learned."""
    classifier, once = taught(weights, [[0, 1, 2]]), taught(weights, [[0, 1, 2]])
    x, _ = lesson([2])
    classifier.learn(x, ["two"] * 12)
    classifier.rename("two", NAMES[2])
    assert isinstance(classifier.learner, ClosedForm)
    assert classifier.counts() == once.counts()
    assert classifier.learner.sums.counts.tolist() == [12, 12, 12, 0]
    assert classifier.accuracies() == once.accuracies()
    classifier.take_out(2)
    assert classifier.learner.sums.counts.tolist() == [12, 12, 12, 0]
    assert answers(classifier) == answers(once)


def test_a_known_label_is_the_same_class(weights: Path) -> None:
    classifier = taught(weights, [[0, 1]])
    x, _ = lesson([1, 2])
    classifier.learn(255 - x, [NAMES[1]] * 12 + [NAMES[2]] * 12)
    assert classifier.labels == tuple(NAMES[:3])
    assert classifier.lessons[1].new == (NAMES[2],)
    assert classifier.lessons[1].counts == {NAMES[1]: 12, NAMES[2]: 12}
    assert classifier.counts() == {NAMES[0]: 12, NAMES[1]: 24, NAMES[2]: 12}


def test_a_lesson_of_one_picture_is_a_lesson(weights: Path) -> None:
    classifier = taught(weights, [])
    x, labels = lesson([0])
    assert classifier.learn([(x[0], labels[0])]).pictures == 1
    assert classifier.predict(x[1]).label == NAMES[0]
    classifier.learn([(lesson([1])[0][0], "another")])
    assert classifier.labels == (NAMES[0], "another")
    with pytest.raises(ValueError, match="method='closed-form' can learn this"):
        taught(weights, [[0, 1]], "l2p").learn(*lesson([2]))


def test_pictures_held_out_are_judged_and_then_learned(weights: Path) -> None:
    classifier = taught(weights, [], held_out=0.25)
    found = classifier.learn(*lesson([0, 1, 2]))
    assert found.held_out == 9
    assert found.accuracy is not None
    assert found.accuracy > 0.8
    assert isinstance(classifier.learner, ClosedForm)
    assert len(classifier.learner.rows) == 36
    apart = taught(weights, [[0, 1, 2]], held_out=0.25, keep_held_out=True)
    assert isinstance(apart.learner, ClosedForm)
    assert len(apart.learner.rows) == 27
    assert apart.learn(*lesson([0, 1, 2])).duplicates == 27, "those held out were not learned"
    later = classifier.learn(*lesson([3, 4]))
    assert later.before is not None
    assert later.after is not None


def test_a_wrong_label_is_named(weights: Path) -> None:
    x, labels = lesson([0, 1, 2, 3])
    labels[5] = NAMES[3]  # is of class 0
    found = taught(weights, []).learn(x, labels)
    assert ("picture 5", NAMES[3], NAMES[0]) in found.doubtful


def test_what_is_like_no_class_is_unknown(weights: Path) -> None:
    classifier = taught(weights, [[0, 1, 2, 3]])
    known = [answer.label for answer in classifier.predict(TEST.select(TEST.y < 4).batch(slice(None)).x)]
    noise = torch.randint(0, 256, (20, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    strange = [answer.label for answer in classifier.predict(noise)]
    assert strange.count("unknown") / 20 > known.count("unknown") / 28


def test_answers_that_must_be_sure_are_fewer(weights: Path) -> None:
    classifier = taught(weights, [[0, 1, 2, 3, 4, 5]])
    pictures = TEST.batch(slice(None)).x
    plain, sure = classifier.predict(pictures), classifier.predict(pictures, sure=1.0)
    unknown = [sum(answer.label == "unknown" for answer in found) for found in (plain, sure)]
    assert unknown[0] <= unknown[1]
    with pytest.raises(ValueError, match=r"sure = 1\.5: must be above 0 and at most 1"):
        classifier.predict(pictures, sure=1.5)


def test_a_lesson_that_fails_changes_nothing(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for method in FAST:
        classifier = taught(weights, [[0, 1]], method)
        before, known = answers(classifier), classifier.labels
        monkeypatch.setattr(ContinualClassifier, "_scores", lambda self, examples: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            classifier.learn(*lesson([2, 3]))
        monkeypatch.undo()
        assert classifier.labels == known
        assert len(classifier.lessons) == 1
        assert answers(classifier) == before


def test_pictures_come_in_many_ways(weights: Path, tmp_path: Path) -> None:
    folder = write_images(tmp_path / "pictures", [f"{label}/{n}.png" for label in ("a", "b") for n in range(6)])
    classifier = taught(weights, [])
    classifier.learn(folder)
    classifier.learn(str(folder))
    assert list(classifier.labels) == ["a", "b"]
    one = classifier.predict(folder / "a" / "0.png")
    assert isinstance(one, Prediction)
    assert one.label in ("a", "b", "unknown")
    assert len(classifier.predict(folder)) == 12
    picture = Image.open(folder / "a" / "0.png")
    array = np.asarray(picture.convert("RGB"))
    same = [classifier.predict(each) for each in (picture, array, array.transpose(2, 0, 1), torch.tensor(array))]
    assert {answer.top for answer in same} == {one.top}
    assert len(classifier.predict([picture, array])) == 2
    items = [{"image": picture, "label": 3}, {"image": picture, "label": np.int64(4)}]
    classifier.learn(items)
    assert list(classifier.labels) == ["a", "b", "3", "4"]


BAD: list[tuple[Any, Any, type[Exception], str]] = [
    ([], None, ValueError, "no picture to learn from"),
    ("nowhere", None, BadFileError, "no such file or folder"),
    ([np.zeros((4, 4, 3))], ["a"], ValueError, "pixels are uint8"),
    ([np.full((4, 4), np.nan)], ["a"], ValueError, "pixels are uint8"),
    ([np.zeros((4, 4, 5), np.uint8)], ["a"], ValueError, "with C 1 or 3"),
    ([np.zeros((0, 4, 3), np.uint8)], ["a"], ValueError, r"not \[0, 4, 3\]"),
    ([np.zeros((4, 4), np.uint8)], ["a", "b"], ValueError, "1 pictures and 2 labels do not match"),
    ([np.zeros((4, 4), np.uint8)], [""], ValueError, "text that can be printed"),
    ([np.zeros((4, 4), np.uint8)], ["a\n"], ValueError, "text that can be printed"),
    ([np.zeros((4, 4), np.uint8)], None, ValueError, "give labels beside the pictures"),
    ([{"image": 1}], None, ValueError, "need the keys image and label"),
]


@pytest.mark.parametrize(("data", "labels", "kind", "message"), BAD)
def test_bad_lessons_are_refused_and_change_nothing(
    data: Any, labels: Any, kind: type[Exception], message: str, weights: Path
) -> None:
    classifier = taught(weights, [[0, 1]])
    before = answers(classifier)
    with pytest.raises(kind, match=message):
        classifier.learn(data, labels)
    assert len(classifier.lessons) == 1
    assert answers(classifier) == before


def test_asking_before_learning_is_an_error(weights: Path) -> None:
    with pytest.raises(ValueError, match="learn first"):
        ContinualClassifier(weights).predict(lesson([0])[0])


def test_values_that_cannot_be_meant(weights: Path) -> None:
    with pytest.raises(ValueError, match="method = 'svm': must be one of"):
        ContinualClassifier(weights, method="svm")
    with pytest.raises(ValueError, match="held_out = 1"):
        ContinualClassifier(weights, held_out=1.0)
    with pytest.raises(ValueError, match=r"learner\.brightness"):
        ContinualClassifier(weights, brightness=3)
    with pytest.raises(ValueError, match="cannot take a class out; 'closed-form'"):
        taught(weights, [[0, 1]], "nearest-mean").forget(NAMES[0])


def test_copies_are_learned_once(weights: Path) -> None:
    classifier = taught(weights, [[0, 1]])
    before = answers(classifier)
    again = classifier.learn(*lesson([0, 1]))
    assert (again.number, again.pictures, again.duplicates) == (0, 0, 24)
    assert len(classifier.lessons) == 1, "nothing new was learned"
    assert answers(classifier) == before
    assert classifier.counts() == {NAMES[0]: 12, NAMES[1]: 12}
    classifier.forget(NAMES[0])
    assert classifier.learn(*lesson([0])).pictures == 12


def test_memory_does_not_grow_with_questions(weights: Path) -> None:
    classifier = taught(weights, [[0, 1, 2]])
    for _ in range(3):
        classifier.predict(TEST.batch(slice(None)).x)
    assert len(classifier.learner.frozen) <= 64


def test_a_folder_for_tests_is_not_learned(weights: Path, tmp_path: Path) -> None:
    names = [f"{part}/{label}/{n}.png" for part in ("train", "test") for label in "ab" for n in range(4)]
    found = taught(weights, []).learn(write_images(tmp_path / "both", names))
    assert (found.pictures, found.left_out) == (8, 8)


def test_classifiers_that_see_otherwise_are_not_merged(weights: Path) -> None:
    small, large = taught(weights, [[0, 1]]), taught(weights, [[2, 3]], image_size=64)
    with pytest.raises(ValueError, match="the same values and the same backbone"):
        small.merge(large)


def test_answers_that_are_all_right_leave_some_doubt(weights: Path) -> None:
    found = calibrated(torch.eye(4).repeat(3, 1) * 9, torch.arange(4).repeat(3))
    assert max(found.confidences) < 1
    assert found.least_confidence(0.99) is None
    assert found.least_confidence(0.9) is not None
    assert all(answer.confidence < 1 for answer in taught(weights, [[0, 1]]).predict(TEST.batch(slice(None)).x))


def test_a_forgotten_class_is_no_answer(weights: Path) -> None:
    classifier = taught(weights, [[0, 1, 2, 3]])
    classifier.forget(NAMES[1])
    classifier.forget(NAMES[2])
    for answer in classifier.predict(TEST.batch(slice(None)).x, top=50):
        assert {label for label, _ in answer.top} == {NAMES[0], NAMES[3]}


@pytest.mark.parametrize("label", ["unknown", " mug", ""])
def test_labels_that_cannot_be_are_refused_everywhere(label: str, weights: Path, tmp_path: Path) -> None:
    classifier = taught(weights, [[0, 1]])
    with pytest.raises(ValueError, match="label"):
        classifier.learn([(lesson([2])[0][0], label)])
    with pytest.raises(ValueError, match="label"):
        classifier.rename(NAMES[0], label)
    if label:
        with pytest.raises(ValueError, match="label"):
            classifier.learn(write_images(tmp_path / "pictures", [f"{label}/1.png", "b/1.png"]))
