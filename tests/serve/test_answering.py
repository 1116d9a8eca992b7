"""What the server answers is what the classifier says, in two halves and in any company."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from promptpool import ContinualClassifier
from promptpool.data.decoding import decode
from promptpool.learners import adaptation
from promptpool.learners.l2p import L2P
from promptpool.serve.answering import Wish, answers, copy_to_change, encoded, is_frozen, ready_to_answer
from promptpool.serve.batches import Answered, Batches, Question
from promptpool.serve.limits import Limits, RefusedError
from served import LABELS, lesson, picture, write_classifier

METHODS = ["closed-form", "closed-form-prompts", "l2p", "nearest-mean"]


def images(classifier: ContinualClassifier, count: int = 3) -> torch.Tensor:
    size = classifier.backbone.image_size
    found = [decode(content, "picture", size) for _, content in lesson(LABELS[:3], first=50, count=count)]
    return torch.from_numpy(np.stack(found))


@pytest.mark.parametrize("method", METHODS)
def test_the_two_halves_say_what_the_classifier_says(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adaptation, "LEAST_STEPS", 4)
    classifier = ContinualClassifier.load(write_classifier(tmp_path / "shop", method))
    asked = images(classifier)
    expected = classifier.predict(asked, top=2, sure=0.5)
    serving = ready_to_answer(classifier)
    found = answers(serving, encoded(serving, asked), [Wish(each.name, 2, 0.5) for each in expected])
    for one, other in zip(found, expected, strict=True):
        assert (one.label, one.guess) == (other.label, other.guess)
        assert [label for label, _ in one.top] == [label for label, _ in other.top]
        assert one.confidence == pytest.approx(other.confidence, abs=1e-3)
        assert (one.prompts is None) == (method != "l2p")
    assert is_frozen(serving) == (method == "closed-form")


def test_with_the_closed_form_rows_serve_every_version(tmp_path: Path) -> None:
    old = ready_to_answer(ContinualClassifier.load(write_classifier(tmp_path / "shop")))
    new = copy_to_change(old)
    new.learn([tmp_path / "0.png", tmp_path / "1.png"], ["blue", "blue"])
    ready_to_answer(new)
    asked = images(old)
    assert new.backbone is old.backbone
    assert (len(old.labels), len(new.labels)) == (2, 3)
    torch.testing.assert_close(encoded(old, asked), encoded(new, asked))
    assert {answer.guess for answer in answers(new, encoded(old, asked), [Wish("a")] * 9)} <= set(LABELS[:3])


def test_prompts_that_enter_later_are_served(tmp_path: Path) -> None:
    classifier = ContinualClassifier.load(write_classifier(tmp_path / "shop", "l2p"))
    assert isinstance(classifier.learner, L2P)
    asked, before = images(classifier), classifier.learner.enter
    scores = {}
    for enter in (before, before + 1):
        classifier.learner.enter = enter
        scores[enter] = classifier.ask(asked).scores
    serving = ready_to_answer(classifier)
    torch.testing.assert_close(serving.ask(asked).scores, scores[1], rtol=1e-3, atol=1e-4)
    assert not torch.allclose(scores[0], scores[1], rtol=1e-3, atol=1e-4)


def test_a_vote_is_not_held_among_the_pictures_of_strangers(tmp_path: Path) -> None:
    serving = ready_to_answer(ContinualClassifier.load(write_classifier(tmp_path / "shop", "l2p")))
    assert isinstance(serving.learner, L2P)
    serving.learner.pool.vote = 4  # as a profile of public code has it
    asked = images(serving)
    together = answers(serving, asked, [Wish("a")] * len(asked))
    alone = [answers(serving, asked[n : n + 1], [Wish("a")])[0] for n in range(len(asked))]
    assert [each.prompts for each in together] == [each.prompts for each in alone]


def question(count: int) -> tuple[list[np.ndarray[tuple[int, ...], np.dtype[np.uint8]]], list[Wish]]:
    return [np.zeros((3, 2, 2), dtype=np.uint8)] * count, [Wish("a")] * count


class Slow:
    """Work that begins when it is told to, and notes its batches."""

    def __init__(self) -> None:
        self.go, self.begun, self.batches = threading.Event(), threading.Event(), list[int]()

    def __call__(self, questions: Sequence[Question]) -> list[Answered]:
        self.begun.set()
        assert self.go.wait(60)
        self.batches.append(sum(len(each.pictures) for each in questions))
        if any(wish.name == "bad" for each in questions for wish in each.wishes):
            raise ValueError("a feature is not a number")
        return [Answered(1, []) for _ in questions]


def test_questions_gather_while_the_model_is_at_work() -> None:
    work, sizes = Slow(), list[float]()
    batches = Batches(work, Limits(batch=4, queue=6), sizes.append)
    first = batches.ask(*question(1))
    assert work.begun.wait(60)
    others = [batches.ask(*question(1)) for _ in range(5)]
    with pytest.raises(RefusedError, match="6 pictures wait for an answer already, at most 6 can") as refusal:
        batches.ask(*question(1))
    assert (refusal.value.status, refusal.value.retry) == (429, 1)
    others[4].cancel()
    work.go.set()
    assert first.result(60).version == 1
    assert all(each.result(60) for each in others[:4])
    batches.close()
    assert work.batches[0] == 1
    assert sum(work.batches) == 5, "one was cancelled before its turn"
    assert max(work.batches) > 1
    assert sizes == work.batches
    assert batches.length == 0


def test_a_question_that_fails_fails_alone() -> None:
    work = Slow()
    batches = Batches(work, Limits(), lambda size: None)
    pictures, _ = question(1)
    first = batches.ask(*question(1))
    assert work.begun.wait(60)
    good, bad, last = batches.ask(*question(1)), batches.ask(pictures, [Wish("bad")]), batches.ask(*question(1))
    work.go.set()
    assert {each.result(60).version for each in (first, good, last)} == {1}
    with pytest.raises(ValueError, match="a feature is not a number"):
        bad.result(60)
    batches.close()
    assert work.batches == [1, 3, 1, 1, 1]


def test_a_question_waits_for_others_where_there_are_some() -> None:
    work = Slow()
    batches = Batches(work, Limits(gather=60.0, batch=2), lambda size: None)
    first = batches.ask(*question(1))
    assert work.begun.wait(60), "one who asks alone does not wait"
    others = [batches.ask(*question(1)) for _ in range(3)]
    work.go.set()
    assert first.result(60)
    assert others[1].result(60)
    assert not others[2].done(), "it waits for another"
    batches.ask(*question(1))
    assert others[2].result(60)
    batches.close()
    assert work.batches == [1, 2, 2]


def test_a_question_alone_may_be_larger_than_the_queue() -> None:
    work = Slow()
    work.go.set()
    batches = Batches(work, Limits(queue=2), lambda size: None)
    assert batches.ask(*question(5)).result(60).version == 1
    batches.close()


def test_pictures_differ() -> None:
    contents = [content for _, content in lesson(LABELS, count=20)]
    assert len(set(contents)) == len(contents)
    assert picture("red", 3) == picture("red", 3)
