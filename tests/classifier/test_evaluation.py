"""What is counted of answers, and the matrix and the diagram that are drawn of it."""

from __future__ import annotations

import io

import pytest
import torch
from PIL import Image

from parsed_page import Parsed
from promptpool.classifier.confusion import ANOTHER, MOST, confusion_svg
from promptpool.classifier.evaluation import evaluated, mixed_up
from promptpool.classifier.evaluation_page import class_table, evaluation_page, reliability
from promptpool.classifier.looking import Seen


def jpeg() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), "teal").save(file, "JPEG")
    return file.getvalue()


def seen(classes: str | tuple[str, ...], told: list[tuple[str, str, float, bool]], learned: int = 0) -> Seen:
    """What would have been seen: for each picture its label, the best class, its confidence and if it is far."""
    shares = torch.zeros(len(told), len(classes), dtype=torch.float64)
    for row, (_, guess, confidence, _) in enumerate(told):
        shares[row] = (1 - confidence) / max(len(classes) - 1, 1)
        shares[row, list(classes).index(guess)] = confidence
    return Seen(
        names=tuple(f"{label}/{n}.png" for n, (label, *_) in enumerate(told)),
        paths=(None,) * len(told),
        labels=tuple(label for label, *_ in told),
        small=(jpeg(),) * len(told),
        classes=tuple(classes),
        shares=shares,
        far=torch.tensor([far for *_, far in told]),
        ids=torch.arange(len(told)),
        owners=torch.tensor([0 if row < learned else -1 for row in range(len(told))]),
        rows=None,
    )


TOLD = [
    ("a", "a", 0.95, False),
    ("a", "b", 0.65, False),
    ("a", "a", 0.85, True),
    ("b", "b", 0.75, False),
    ("b", "b", 0.72, False),
    ("b", "a", 0.78, False),
    ("z", "a", 0.9, False),
    ("z", "b", 0.6, True),
]


def test_answers_are_counted() -> None:
    found = evaluated(seen("ab", TOLD, learned=2))
    a, b, z = found.classes
    assert (a.pictures, a.right, a.refused, a.taken_for, a.times) == (3, 1, 1, "b", 1)
    assert (b.pictures, b.right, b.refused, b.taken_for, b.times) == (3, 2, 0, "a", 1)
    assert (z.known, z.pictures, z.right, z.refused, z.taken_for) == (False, 2, 0, 1, "a")
    assert (found.pictures, found.of_known, found.right, found.learned) == (8, 6, 3, 2)
    assert found.strange == (z,)
    assert found.answers == ("a", "b", "unknown")
    assert found.confusion["a", "unknown"] == 1
    assert found.wrong == (6, 5, 1), "the surest first"
    assert found.refused == (2,)
    assert mixed_up(found, 2) == [("a", "b", 1), ("b", "a", 1)]


def test_confidence_against_what_is_right() -> None:
    found = evaluated(seen("ab", TOLD))
    bins = {round(each.low, 1): each for each in found.bins}
    assert [each.answers for each in found.bins] == [0, 0, 0, 0, 0, 0, 1, 3, 0, 1]
    assert bins[0.7].right == pytest.approx(2 / 3)
    assert bins[0.7].confidence == pytest.approx(0.75)
    assert found.error == pytest.approx((0.65 + 3 * (0.75 - 2 / 3) + 0.05) / 5)
    assert reliability(found.bins, theme="dark").axes


def test_classes_are_told_worst_first_and_unknown_ones_last() -> None:
    rows = class_table(evaluated(seen("ab", TOLD))).rows
    assert [row[0].text for row in rows] == ["a", "b", "z"]
    assert [row[1].text for row in rows] == ["33.3", "66.7", "not known"]


@pytest.mark.parametrize("count", [1, 3, 25, 100, 150])
def test_the_matrix_is_drawn_for_few_and_for_many(count: int) -> None:
    classes = tuple(f"class {n}" for n in range(count))
    told = [(name, name, 0.9, False) for name in classes]
    told += [(classes[n], classes[n - 1], 0.6, False) for n in range(0, count, 2)]
    drawn = Parsed(confusion_svg(evaluated(seen(classes, told))))
    shown, numbers = min(count, MOST), [each for each in drawn.all("text") if each.get("class") == "number"]
    assert len(drawn.all("title")) == len(drawn.all("rect")) >= shown
    assert len(numbers) == (len(drawn.all("rect")) if count <= 25 else 0)
    assert (ANOTHER in drawn.text) == (count > MOST)
    assert len(drawn.all("text")) - len(numbers) == 2 * shown + (1 if count <= MOST else 2)
    assert "class 0, answered with class 0: 1 of 2" in drawn.text or count == 1


def test_a_page_without_a_right_answer() -> None:
    told = [("a", "b", 0.9, True), ("z", "b", 0.9, True)]
    found = seen("ab", told)
    text = Parsed(evaluation_page("shop", "test/", found, evaluated(found), 10)).text
    assert "No picture of a known class got an answer." in text
    assert "No picture got a wrong answer." in text


def test_no_more_pictures_are_shown_than_asked_for() -> None:
    told = [("a", "b", 0.51 + n / 100, False) for n in range(30)] + [("a", "b", 0.6, True) for _ in range(30)]
    told += [("z", "b", 0.6, False) for _ in range(30)]
    found = seen("ab", told)
    page = Parsed(evaluation_page("shop", "test/", found, evaluated(found), 10))
    assert len([image for image in page.all("img") if "--ratio" in str(image.get("style"))]) == 10 + 5 + 5
    assert page.text.count("20 more are not shown.") == 1
    assert page.text.count("25 more are not shown.") == 2
