"""`promptpool review` and `promptpool evaluate` as one types them: tables, pages and files."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

from image_files import TINTS, image_bytes, pack_zip
from parsed_page import Parsed
from promptpool import ContinualClassifier
from promptpool.classifier import pictures
from promptpool.classifier.looking import has_labels, look, with_labels, without_labels
from promptpool.cli import app
from promptpool.data import images
from promptpool.data.decoding import proportions
from promptpool.errors import BadFileError
from promptpool.learners.closed_form import ClosedForm
from small_runs import write_weights

EVIL = "<script>alert('x')<"
COLOURS = ("red", "green", "blue", "yellow")  # as in TINTS; the others are never learned


def typed(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def picture(folder: Path, name: str, number: int, tint: int) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(image_bytes(number, tint=TINTS[tint]))


def class_folders(folder: Path, first: int, each: int, labels: tuple[str, ...] = COLOURS) -> Path:
    for tint, label in enumerate(labels):
        for n in range(each):
            picture(folder, f"{label}/{n}.png", first + 100 * tint + n, tint)
    return folder


def flat(folder: Path, *, strange: int = 6) -> Path:
    """Five pictures of each known colour, and some that are mere noise."""
    for tint in range(4):
        for n in range(5):
            picture(folder, f"{tint}-{n}.png", 5000 + 100 * tint + n, tint)
    for n in range(strange):
        noise = torch.randint(0, 256, (16, 16, 3), generator=torch.Generator().manual_seed(n), dtype=torch.uint8)
        Image.fromarray(noise.numpy()).save(folder / f"strange-{n}.png")
    return folder


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of four colours, one of which has a name that no page must obey."""
    folder = tmp_path_factory.mktemp("taught")
    classifier = ContinualClassifier(write_weights(folder / "vit.safetensors"), projections=60)
    classifier.learn(class_folders(folder / "lesson", 0, 10))
    classifier.rename("yellow", EVIL)
    classifier.save(folder / "shop")
    return folder / "shop"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def parsed(path: Path) -> Parsed:
    """A page that fetches nothing, runs nothing, and says all in words."""
    page = Parsed(path.read_text(encoding="utf-8"))
    for tag, attributes in page.found:
        assert tag not in {"script", "iframe", "object", "embed", "form", "base", "link"} or attributes == {
            "rel": "icon",
            "href": "data:,",
        }
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "srcset", "href", "action", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("data:", "#"))
    assert all(image["alt"] for image in page.all("img"))
    assert [len(page.all(tag)) for tag in ("h1", "header", "main", "footer")] == [1, 1, 1, 1]
    sections = page.all("section")
    assert len(sections) == len(page.all("h2")) == len({each["aria-labelledby"] for each in sections}) > 1
    assert {each["aria-labelledby"] for each in sections} == {each["id"] for each in page.all("h2")}
    return page


def shown(page: Parsed) -> list[dict[str, str | None]]:
    return [image for image in page.all("img") if "--ratio" in str(image.get("style"))]


def test_a_review_of_pictures_without_labels(taught: Path, here: Path) -> None:
    photos = flat(here / "photos")
    (photos / "note.png").write_bytes(b"no picture")
    shutil.copy(taught.parent / "lesson" / "red" / "0.png", photos / "known.png")
    shutil.copy(photos / "0-0.png", photos / "again.png")
    result = typed("review", taught, "photos", "--most", "10")
    assert result.exit_code == 0, result.output
    assert result.stdout.rstrip().endswith("page: shop-review.html")
    assert "label these first" in result.stdout
    assert "1 file skipped: note.png" in result.stdout
    assert "learned already  1, left out" in " ".join(result.stdout.split("\n"))
    page = parsed(here / "shop-review.html")
    assert "What to label next" in page.text
    names = [str(image["alt"]).split(":")[0] for image in shown(page)]
    assert len(names) == len(set(names))
    assert {f"strange-{n}.png" for n in range(6)} <= set(names)
    assert "known.png" not in names
    assert not {"again.png", "0-0.png"} <= set(names)
    assert sum(not name.startswith("strange") for name in names) >= 10


def test_the_lines_of_a_review_can_be_filled_in_and_learned(taught: Path, here: Path) -> None:
    flat(here / "photos")
    result = typed("review", taught, "photos", "--most", "4", "--csv", "--out", "pages/todo.html")
    assert result.exit_code == 0, result.output
    assert "page: pages/todo.html" in result.stderr
    assert (here / "pages" / "todo.html").exists()
    lines = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [line["reason"] for line in lines].count("label first") == 4
    new = [line for line in lines if line["reason"] == "looks new"]
    assert {Path(line["file"]).name for line in new} >= {f"strange-{n}.png" for n in range(6)}
    assert all(line["group"] for line in new)
    assert {line["label"] for line in lines} == {""}
    filled = result.stdout.replace("png,,", "png,noise,")
    (here / "todo.csv").write_text(filled)
    copy = shutil.copytree(taught, here / "copy")
    learned = typed("learn", copy, "todo.csv")
    assert learned.exit_code == 0, learned.output
    assert "note: columns that were not read: 'reason', 'group', 'guess'" in learned.stderr
    assert "noise" in ContinualClassifier.load(copy).labels


def test_a_review_of_labels(taught: Path, here: Path) -> None:
    folder = class_folders(here / "labels", 7000, 6, ("red", "green", "blue"))
    picture(folder, "green/really red.png", 7999, 0)
    for n in range(4):
        picture(folder, f"violet/{n}.png", 8000 + n, 4)
    for given in (folder, pack_zip(folder, here / "labels.zip")):
        result = typed("review", taught, given)
        assert result.exit_code == 0, result.output
        assert "green/really red.png  green      red" in result.stdout
        page = parsed(here / "shop-review.html")
        assert "Labels to look at" in page.text
        assert any("green/really red.png: red" in str(image["alt"]) for image in shown(page))
        assert "Classes not known yet" in page.text
        assert "violet" in page.text
    lines = list(csv.DictReader(io.StringIO(typed("review", taught, folder, "--csv").stdout)))
    assert [Path(line["file"]).name for line in lines if line["reason"] == "looks like red"] == ["really red.png"]
    assert sum(line["reason"] == "class not known" for line in lines) == 4


def test_learned_pictures_are_judged_as_if_they_had_not_been(taught: Path, here: Path) -> None:
    classifier = ContinualClassifier.load(taught)
    assert isinstance(classifier.learner, ClosedForm)
    given, _ = with_labels(taught.parent / "lesson", 32)
    seen = look(classifier, given, features=True, as_if_new=True)
    assert (seen.owners >= 0).all()
    assert seen.rows is not None
    scores = classifier.learner.leave_one_out(seen.rows, seen.owners)
    torch.testing.assert_close(seen.shares, classifier.known.calibration.probabilities(scores)[:, :4])
    plain = look(classifier, with_labels(taught.parent / "lesson", 32)[0])
    assert plain.rows is None
    assert not torch.allclose(plain.shares, seen.shares)
    result = typed("review", taught, taught.parent / "lesson", "--out", "page.html")
    assert result.exit_code == 0, result.output
    assert "30 of these pictures were learned; each is judged as if it had not been" in result.stderr
    assert "30 of these pictures were learned" in parsed(here / "page.html").text


def test_what_is_seen_is_what_is_predicted(taught: Path, tmp_path: Path) -> None:
    folder = flat(tmp_path / "photos")
    classifier = ContinualClassifier.load(taught)
    seen = look(classifier, without_labels(folder, 32))
    answers = classifier.predict(folder)
    assert [f"{folder}/{name}" for name in seen.names] == [answer.name for answer in answers]
    assert [seen.answer(row) for row in range(len(seen))] == [answer.label for answer in answers]
    confidences = [answer.confidence for answer in answers]
    assert [seen.confidence(row) for row in range(len(seen))] == pytest.approx(confidences, abs=1e-5)


def test_every_picture_is_decoded_once(taught: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []

    def counting(decode: Callable[..., Any]) -> Callable[..., Any]:
        def counted(content: bytes, what: str, *values: Any) -> Any:
            decoded.append(what)
            return decode(content, what, *values)

        return counted

    for module in (images, pictures):
        monkeypatch.setattr(module, "decode", counting(module.decode))
    assert typed("evaluate", taught, class_folders(here / "test", 9000, 3)).exit_code == 0
    assert len(decoded) == len(set(decoded)) == 12


def test_an_evaluation_and_its_page(taught: Path, here: Path) -> None:
    folder = class_folders(here / "test", 9000, 5, ("red", "green", "blue"))
    for n in range(3):
        picture(folder, f"violet/{n}.png", 9900 + n, 4)
        picture(folder, f"blue/like red {n}.png", 9950 + n, 0)
    (folder / "red" / "note.png").write_bytes(b"no picture")
    result = typed("evaluate", taught, folder)
    assert result.exit_code == 0, result.output
    assert "not among its classes, where only unknown could be right: violet" in result.stdout
    assert result.stdout.rstrip().endswith("page: shop-evaluation.html")
    assert "note: 1 file skipped: red/note.png" in result.stderr
    page = parsed(here / "shop-evaluation.html")
    for text in ("of 18 pictures of known classes", "Class by class", "expected calibration error", "Mixed up most"):
        assert text in page.text
    wrong = [str(image["alt"]) for image in shown(page)]
    assert sum("labelled blue" in text and "like red" in text for text in wrong) >= 2
    assert len(page.all("svg")) == 1


def test_pictures_that_were_learned_are_said_to_say_little(taught: Path, here: Path) -> None:
    result = typed("evaluate", taught, taught.parent / "lesson", "--out", "page.html")
    assert "note: 40 of these pictures were learned" in result.stderr
    assert "40 of these pictures were learned" in parsed(here / "page.html").text


def test_only_the_test_part_is_evaluated(taught: Path, here: Path) -> None:
    class_folders(here / "both" / "train", 9000, 4)
    class_folders(here / "both" / "test", 9500, 2)
    assert "of 8 pictures are right" in typed("evaluate", taught, "both").stdout


def test_names_are_shown_not_obeyed(taught: Path, here: Path) -> None:
    folder = class_folders(here / "test", 9000, 3)
    (folder / "yellow").rename(folder / EVIL)
    (folder / "red" / "0.png").rename(folder / EVIL / '"><img src=x onerror=alert(1)>.png')
    for verb in ("evaluate", "review"):
        result = typed(verb, taught, folder, "--out", f"{verb}.html")
        assert result.exit_code == 0, result.output
        page = parsed(here / f"{verb}.html")
        assert not any(image.get("src") == "x" for image in page.all("img"))
    assert EVIL in parsed(here / "evaluate.html").text


def test_another_method_says_what_it_cannot(taught: Path, here: Path) -> None:
    classifier = ContinualClassifier(taught.parent / "vit.safetensors", method="nearest-mean")
    classifier.learn(taught.parent / "lesson")
    classifier.save(here / "means")
    result = typed("review", "means", flat(here / "photos"), "--most", "3")
    assert result.exit_code == 0, result.output
    assert "note: nearest-mean has no features to compare" in result.stderr
    assert "nearest-mean has no features to compare" in parsed(here / "means-review.html").text
    result = typed("review", "means", taught.parent / "lesson")
    assert "nearest-mean cannot judge them as if they had not been" in " ".join(result.stderr.split())
    assert typed("evaluate", "means", class_folders(here / "test", 9000, 3)).exit_code == 0


def test_folders_that_are_no_classes(taught: Path, here: Path) -> None:
    for month in ("2024-01", "2024-02"):
        flat(here / "camera" / month, strange=1)
    result = typed("review", taught, "camera")
    assert "if they are no classes say --unlabelled" in result.stderr
    result = typed("review", taught, "camera", "--unlabelled")
    assert result.exit_code == 0, result.output
    assert "label these first" in result.stdout


def test_labelled_and_unlabelled_are_told_apart(tmp_path: Path) -> None:
    assert has_labels(class_folders(tmp_path / "a", 0, 1))
    assert not has_labels(flat(tmp_path / "b"))
    assert not has_labels(tmp_path / "b" / "0-0.png")
    (tmp_path / "b" / ".hidden").mkdir()
    shutil.copy(tmp_path / "b" / "0-0.png", tmp_path / "b" / ".hidden")
    assert not has_labels(tmp_path / "b")
    (tmp_path / "table.csv").write_text("path,label\n")
    assert has_labels(tmp_path / "table.csv")
    shutil.copy(tmp_path / "b" / "0-0.png", tmp_path / "a")
    with pytest.raises(BadFileError, match=r"in it and in folders; --unlabelled"):
        has_labels(tmp_path / "a")
    with pytest.raises(BadFileError, match="no such file or folder"):
        has_labels(tmp_path / "nothing")


def test_what_cannot_be_meant_is_one_line(taught: Path, here: Path) -> None:
    folder = flat(here / "photos")
    for words, message in (
        (("review", taught, folder, "--out", here), "is a folder; say which file in it, such as"),
        (("evaluate", taught, folder), "lies in no class folder"),
        (("evaluate", taught, here / "nothing"), "no such file or folder"),
        (("review", here, folder), "no classifier"),
    ):
        result = typed(*words)
        assert result.exit_code == 2, result.output
        assert message in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
    (here / "none").mkdir()
    (here / "none" / "a.png").write_bytes(b"no picture")
    assert "no picture that can be read; 1 file skipped: a.png" in typed("review", taught, here / "none").stderr


def test_pictures_are_shown_in_their_proportions(tmp_path: Path) -> None:
    image = Image.new("RGB", (40, 20))
    image.save(tmp_path / "wide.png")
    exif = Image.Exif()
    exif[274] = 6  # lies on its side
    image.save(tmp_path / "turned.jpg", exif=exif)
    (tmp_path / "none.png").write_bytes(b"no picture")
    found = [proportions(tmp_path / name) for name in ("wide.png", "turned.jpg", "none.png", "missing.png")]
    assert found == [2.0, 0.5, 1.0, 1.0]


def test_the_pages_stay_small(taught: Path, here: Path) -> None:
    folder = here / "many"
    for n in range(150):
        picture(folder, f"{n}.png", n, n % 6)
    assert typed("review", taught, folder, "--out", "page.html").exit_code == 0
    assert (here / "page.html").stat().st_size < 150 * 4000 + 100_000
