"""Lessons: taken out again, stopped and gone on with, judged by what stays; memories, thumbnails, near-copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.utils.data import Dataset

from promptpool import ContinualClassifier
from promptpool.backbones.vit import ViT
from promptpool.classifier import files, judging, teaching
from promptpool.classifier.answers import id_text
from promptpool.classifier.lessons import Change, small_grey
from promptpool.learners import LEARNERS
from promptpool.learners.base import Learner
from promptpool.progress import heard_by
from promptpool.training import Plan
from small_runs import write_weights
from toys import toy_examples, toy_learner

PICTURES = toy_examples(10, 1).batch(slice(None))
NAMES = [f"pattern {y}" for y in PICTURES.y.tolist()]
ASKED = toy_examples(6, 2).batch(slice(None)).x
VALUES: dict[str, dict[str, Any]] = {"closed-form": {"projections": 40}, "l2p": {"prompt_length": 1}}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_weights(tmp_path_factory.mktemp("weights") / "vit.safetensors")


def new(weights: Path, method: str = "closed-form", **values: Any) -> ContinualClassifier:
    classifier = ContinualClassifier(weights, method=method, **{**VALUES.get(method, {}), **values})
    classifier.plan = Plan(epochs=2, batch_size=8, learning_rate=0.003)
    return classifier


def some(*places: int) -> tuple[Tensor, list[str]]:
    """Ten pictures of each of these patterns, and their labels."""
    rows = [row for place in places for row in range(10 * place, 10 * place + 10)]
    return PICTURES.x[rows], [NAMES[row] for row in rows]


def guesses(classifier: ContinualClassifier) -> list[str]:
    return [answer.guess for answer in classifier.predict(ASKED)]


def test_a_lesson_taken_out_was_never_given(weights: Path) -> None:
    classifier, other = new(weights), new(weights)
    first, again = some(0, 1), some(1, 2)
    classifier.learn(*first)
    classifier.learn(*again)  # it has the pictures of pattern 1 too
    classifier.learn(*some(3))
    classifier.take_out(1)
    other.learn(*again)
    other.learn(*some(3))
    assert list(classifier.labels) == [NAMES[10], NAMES[20], NAMES[30]]
    assert classifier.counts() == {NAMES[10]: 10, NAMES[20]: 10, NAMES[30]: 10}
    assert guesses(classifier) == guesses(other)
    assert [lesson.number for lesson in classifier.lessons] == [2, 3]
    known = [classifier.known.labels.index(label) for label in other.labels]
    torch.testing.assert_close(
        classifier.learner.head.weight[known], other.learner.head.weight[: len(known)], rtol=1e-8, atol=1e-8
    )
    with pytest.raises(ValueError, match="lesson 1: is not there, or its pictures are not known; there are 2, 3"):
        classifier.take_out(1)
    assert classifier.learn(*some(4)).number == 4


def test_prompts_of_the_first_lesson_cannot_be_taken_out(weights: Path) -> None:
    classifier = new(weights, adapt="prompts")
    classifier.learn(*some(0, 1))
    classifier.learn(*some(2))
    with pytest.raises(ValueError, match="lesson 1: the prompts were learned in it"):
        classifier.take_out(1)
    with pytest.raises(ValueError, match=f"'{NAMES[10]}' cannot be taken out: the prompts were learned with its"):
        classifier.forget(NAMES[10])
    classifier.learn(*some(3))
    classifier.forget(NAMES[30])
    classifier.take_out(2)
    assert classifier.labels == (NAMES[0], NAMES[10])


def test_a_decision_of_the_first_lesson_cannot_be_taken_out(weights: Path) -> None:
    classifier = new(weights, "closed-form-prompts")
    classifier.learn(*some(0, 1))
    classifier.learn(*some(2))
    with pytest.raises(ValueError, match="lesson 1: whether to take prompts was decided in it"):
        classifier.take_out(1)
    with pytest.raises(ValueError, match=f"'{NAMES[0]}' cannot be taken out: whether to take prompts was decided"):
        classifier.forget(NAMES[0])
    classifier.take_out(2)
    assert classifier.labels == (NAMES[0], NAMES[10])


def test_a_picture_that_both_have_learned_counts_once(weights: Path) -> None:
    first, second, whole = new(weights), new(weights), new(weights)
    first.learn(*some(0, 1))
    second.learn(*some(1, 2))
    whole.learn(*some(0, 1, 2))
    first.merge(second)
    assert first.counts() == whole.counts()
    assert guesses(first) == guesses(whole)
    first.take_out(1)
    assert first.labels == (NAMES[10], NAMES[20])


class StopError(Exception):
    pass


def stopped(step: int) -> Any:
    def listener(what: str, done: int, total: int | None) -> None:
        del total
        if what == "learning" and done == step:
            raise StopError

    return heard_by(listener)


@pytest.mark.parametrize("method", ["closed-form", "l2p"])
def test_a_lesson_that_was_killed_goes_on(
    method: str, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teaching, "SECONDS", 0.0)
    monkeypatch.setenv("PROMPTPOOL_FEATURES_GB", "1")
    whole, killed = new(weights, method), new(weights, method)
    for each in (whole, killed):
        each.learn(*some(0, 1))
    passes = count_passes(monkeypatch)
    whole.learn(*some(2, 3))
    needed = passes[0]
    with stopped(3), pytest.raises(StopError):
        killed.learn(*some(2, 3), progress=tmp_path)
    assert killed.labels == (NAMES[0], NAMES[10])
    steps, passes[0] = list[int](), 0
    with heard_by(lambda what, done, total: steps.append(done) if what == "learning" else None):
        killed.learn(*some(2, 3), progress=tmp_path)
    used = passes[0]
    assert guesses(killed) == guesses(whole)
    if method == "l2p":
        assert steps[0] == 4  # it went on after the third
        torch.testing.assert_close(killed.learner.state_dict(), whole.learner.state_dict(), rtol=1e-4, atol=1e-5)
    else:
        assert used < needed  # features of the first steps were there already


def count_passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    count, read = [0], ViT.read

    def counted(self: ViT, *arguments: Any) -> Tensor:
        count[0] += 1
        return read(self, *arguments)

    monkeypatch.setattr(ViT, "read", counted)
    return count


def test_a_full_disk_does_not_end_a_lesson(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(teaching, "SECONDS", 0.0)
    monkeypatch.setattr(teaching, "save_checkpoint", full)
    classifier = new(weights, "l2p")
    classifier.learn(*some(0, 1), progress=tmp_path)
    assert classifier.labels == (NAMES[0], NAMES[10])


def test_what_another_lesson_had_begun_is_not_gone_on_with(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teaching, "SECONDS", 0.0)
    killed, other = new(weights, "l2p"), new(weights, "l2p")
    with stopped(2), pytest.raises(StopError):
        killed.learn(*some(0, 1), progress=tmp_path)
    for each in (killed, other):
        each.learn(*some(2, 3), progress=tmp_path if each is killed else None)
    assert guesses(killed) == guesses(other)


def test_notes_of_a_lesson_belong_to_a_version(weights: Path, tmp_path: Path) -> None:
    classifier, folder = new(weights), tmp_path / "shop"
    assert files.progress_folder(folder).name == "new"
    classifier.learn(*some(0, 1))
    classifier.save(folder)
    begun = files.progress_folder(folder)
    (begun / "features").mkdir(parents=True)
    assert files.progress_folder(folder) == begun
    assert begun.is_dir()
    classifier.learn(*some(2))
    classifier.save(folder)
    assert not begun.exists()


@pytest.mark.parametrize("name", sorted(LEARNERS))
def test_learners_that_answer_from_features_do(name: str) -> None:
    learner = toy_learner(name)
    if not learner.answers_from_features:
        return
    learner.add_classes(range(3))
    learner.before_evaluation()
    learner.eval()
    batch = toy_examples(3, 1).batch(slice(0, 9))
    rows = learner.frozen(batch)
    expected = learner.logits(batch)[:, :3]
    found = judging.score_rows(learner, rows, 3)
    torch.testing.assert_close(found, expected.to(found), rtol=1e-4, atol=1e-4)


def test_methods_without_kept_examples_are_judged_by_features_held_out(weights: Path, tmp_path: Path) -> None:
    classifier = new(weights, "nearest-mean")
    classifier.learn(*some(0, 1, 2))
    lesson = classifier.learn(*some(3, 4))
    assert classifier.known.held_rows.shape == (5, 32)
    assert lesson.before is not None
    assert lesson.after is not None
    assert set(classifier.accuracies()) == set(classifier.labels)
    assert classifier.known.calibration.least is not None
    found = classifier.confusion()
    assert found is not None
    assert found[1].sum() == 5
    classifier.save(tmp_path / "shop")
    again = ContinualClassifier.load(tmp_path / "shop")
    assert again.accuracies() == classifier.accuracies()
    assert again.learn(*some(5)).before == pytest.approx(lesson.after)


def test_prompts_cannot_be_judged_without_pictures(weights: Path) -> None:
    classifier = new(weights, "l2p")
    classifier.learn(*some(0, 1))
    lesson = classifier.learn(*some(2, 3))
    assert (lesson.before, lesson.after) == (None, None)
    assert lesson.accuracy is not None
    assert classifier.confusion() is None


@pytest.mark.parametrize("keep", ["features", "sums"])
@pytest.mark.parametrize("kept", [True, False])
def test_the_closed_form_judges_with_and_without_held_out_pictures(keep: str, kept: bool, weights: Path) -> None:
    classifier = new(weights, keep=keep, keep_held_out=kept)
    classifier.learn(*some(0, 1))
    lesson = classifier.learn(*some(2, 3))
    assert lesson.before is not None
    assert lesson.after is not None
    assert classifier.counts()[NAMES[0]] == (9 if kept else 10)
    assert len(classifier.known.held_labels) == (4 if kept or keep == "sums" else 0)
    assert classifier.known.calibration.farthest is not None


def test_classes_that_suffer_are_named() -> None:
    labels = torch.tensor([0] * 10 + [1] * 10 + [2] * 10)
    before, after = (judged(labels, wrong) for wrong in ((1, 2, 5), (2, 6, 5)))
    found = judging.suffered(before, after, ["a", "b", "c"])
    assert found == (Change("b", 0.8, 0.4),)  # a lost one picture only


def judged(labels: Tensor, wrong: tuple[int, ...]) -> judging.Judged:
    """Answers of which so many are wrong, class by class."""
    answers = labels.clone()
    for label, count in enumerate(wrong):
        answers[10 * label : 10 * label + count] = (label + 1) % 3
    return judging.Judged(torch.nn.functional.one_hot(answers, 3).double(), labels)


def test_a_memory_has_its_places_for_every_class(weights: Path, tmp_path: Path) -> None:
    classifier = new(weights, "er", rehearse=4)
    classifier.learn(*some(0, 1))
    assert len(memory(classifier)) == 8
    classifier.learn(*some(2))
    assert len(memory(classifier)) == 12
    classifier.save(tmp_path / "shop")
    again = ContinualClassifier.load(tmp_path / "shop")
    assert again.rehearse == 4
    assert len(memory(again)) == 12
    assert guesses(again) == guesses(classifier)


def memory(classifier: ContinualClassifier) -> Any:
    found = classifier.learner
    assert isinstance(found, Learner)
    return found.memory


@pytest.mark.parametrize("method", ["closed-form", "l2p", "nearest-mean"])
def test_methods_that_keep_no_pictures_refuse_to(method: str, weights: Path) -> None:
    with pytest.raises(ValueError, match=r"keeps no images; methods that do are .*l2p-r"):
        ContinualClassifier(weights, method=method, rehearse=20)
    with pytest.raises(ValueError, match="rehearse = 0"):
        ContinualClassifier(weights, method="er", rehearse=0)


def test_thumbnails_are_kept_if_asked_for_and_go_with_their_class(weights: Path, tmp_path: Path) -> None:
    plain, shown, folder = new(weights), new(weights, thumbnails=True), tmp_path / "shop"
    for each in (plain, shown):
        each.learn(*some(0, 1))
    plain.save(tmp_path / "plain")
    assert not (tmp_path / "plain" / files.THUMBNAILS).exists()
    shown.save(folder)
    assert len(list((folder / files.THUMBNAILS).glob("*.jpg"))) == 20
    again = ContinualClassifier.load(folder)
    (answer,) = again.predictions(PICTURES.x[3:4], similar=2)
    assert answer.similar[0] == (id_text(int(again.known.pictures.ids[place_of(again, 3)])), NAMES[3])
    assert files.thumbnail_path(folder, answer.similar[0][0]).read_bytes()[:2] == b"\xff\xd8"
    again.forget(NAMES[0])
    again.save(folder)
    assert len(list((folder / files.THUMBNAILS).glob("*.jpg"))) == 10


def place_of(classifier: ContinualClassifier, row: int) -> int:
    """Where a picture stands among the known ones, which are in the order in which they were learned."""
    small = classifier.known.pictures.small
    own = small_grey(torch.nn.functional.interpolate(PICTURES.x[row : row + 1].float(), 32, mode="bilinear"))
    return int((small.float() - own.float()).abs().sum(dim=1).argmin())


def test_an_answer_names_the_prompts_it_came_from(weights: Path) -> None:
    classifier = new(weights, "l2p")
    classifier.learn(*some(0, 1))
    answer = classifier.predict(ASKED[0])
    assert len(set(answer.prompts)) == 5
    counts = classifier.prompt_counts()
    assert counts is not None
    assert len(counts) == 10
    assert sum(counts) > 0
    assert new(weights).prompt_counts() is None


def test_near_copies_are_told(weights: Path) -> None:
    classifier = new(weights)
    pictures = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    near = np.concatenate([pictures, np.clip(pictures[:1].astype(int) + 1, 0, 255).astype(np.uint8)])
    found = classifier.learn(near, ["a", "b"] * 3 + ["a"])
    assert found.near == (("picture 6", "picture 0"),)
    later = classifier.learn(np.clip(pictures[1:2].astype(int) + 2, 0, 255).astype(np.uint8), ["b"])
    assert later.near == (("picture 0", "a picture of lesson 1"),)


def test_shares_and_the_best_few(weights: Path) -> None:
    classifier = new(weights)
    classifier.learn(*some(0, 1, 2))
    classifier.forget(NAMES[10])
    shares = classifier.predict_proba(ASKED)
    assert shares.shape == (len(ASKED), 2)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    best = classifier.top(ASKED, k=2)
    assert [label for ((label, _), *_) in best] == [classifier.labels[place] for place in shares.argmax(axis=1)]
    assert len(classifier.top(ASKED[0], k=1)) == 1
    with pytest.raises(ValueError, match="no such file"):
        classifier.predict_proba(["nowhere.png"])


class TorchSet(Dataset[tuple[Tensor, int]]):
    """As torch's data sets are: a length, an item at a time, and no end when iterated."""

    classes = ("cup", "fork")

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return PICTURES.x[index], index % 2


def test_data_sets_of_others_bring_the_names_of_their_classes(weights: Path) -> None:
    datasets = pytest.importorskip("datasets")
    classifier = new(weights)
    classifier.learn(TorchSet())
    assert classifier.labels == ("cup", "fork")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["plate", "cup"])})
    pictures = [PICTURES.x[row].permute(1, 2, 0).numpy() for row in (10, 20)]
    classifier.learn(datasets.Dataset.from_dict({"image": pictures, "label": [0, 1]}, features=features))
    assert list(classifier.labels) == ["cup", "fork", "plate"]
    assert classifier.counts() == {"cup": 4, "fork": 3, "plate": 1}


STORED = Path(__file__).parent / "stored"


@pytest.mark.parametrize("name", ["format-1", "format-2"])
def test_files_of_every_format_can_be_read(name: str) -> None:
    """Written once, by the version that had this format, and never again."""
    classifier = ContinualClassifier.load(STORED / name)
    assert classifier.labels == ("dark", "light")
    assert len(classifier.lessons) == 1
    pictures = np.stack([np.full((32, 32, 3), level, np.uint8) for level in (10, 245)])
    assert [answer.guess for answer in classifier.predict(pictures)] == ["dark", "light"]
    noise = np.random.default_rng(1).integers(100, 150, (2, 32, 32, 3), dtype=np.uint8)
    classifier.learn(noise, ["noise", "noise"])
    assert list(classifier.labels) == ["dark", "light", "noise"]


def test_what_l2p_learns_is_small(tmp_path: Path) -> None:
    """As wide as ViT-B/16, with one hundred classes; depth does not matter, the backbone is not in the file."""
    vit = ViT(image_size=32, patch_size=16, dim=768, depth=1, heads=12).start(torch.Generator().manual_seed(0))
    path = tmp_path / "wide.safetensors"
    sizes = {"image_size": "32", "patch_size": "16", "heads": "12", "norm_eps": "1e-6"}
    save_file(vit.state_dict(), path, metadata=sizes)
    classifier = ContinualClassifier(path, method="l2p")
    classifier.plan = Plan(epochs=1, batch_size=100)
    x = np.random.default_rng(0).integers(0, 256, (100, 32, 32, 3), dtype=np.uint8)
    classifier.learn(x, [f"class {number}" for number in range(100)])
    classifier.save(tmp_path / "shop")
    assert (tmp_path / "shop" / files.MODEL).stat().st_size < 1_000_000
