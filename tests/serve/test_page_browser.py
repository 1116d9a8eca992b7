"""The served page in Chromium, on a real server with the package's own model and drawn characters."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from drawn_pictures import SIGNS, draw_pictures
from page_server import serving
from page_visits import Visit, expect, opened_browser, visiting
from promptpool import ContinualClassifier

pytestmark = pytest.mark.browser
KNOWN = list(SIGNS)[:6]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with opened_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that knows six signs, and pictures to ask about and to learn."""
    folder = tmp_path_factory.mktemp("page")
    draw_pictures(folder / "january", KNOWN, 10)
    draw_pictures(folder / "february", ["telephone", "heart"], 6, first=20)
    draw_pictures(folder / "asked", [*KNOWN, "telephone"], 1, first=40, level=0.3)
    (folder / "asked" / "broken.png").write_bytes(b"no picture")
    classifier = ContinualClassifier()
    classifier.learn(folder / "january")
    classifier.save(folder / "signs")
    return folder


@pytest.fixture
def visit(browser: Any, place: Path, tmp_path: Path) -> Iterator[Visit]:
    shutil.copytree(place / "signs", tmp_path / "signs")
    with serving(tmp_path / "signs") as address, visiting(browser, address) as visit:
        yield visit


@pytest.mark.skipif("PROMPTPOOL_SCREENSHOTS" not in os.environ, reason="PROMPTPOOL_SCREENSHOTS names no folder")
def test_the_picture_of_the_readme(browser: Any, place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "signs", tmp_path / "signs")
    with serving(tmp_path / "signs") as address, visiting(browser, address, (1120, 1100), scale=1.5) as visit:
        page = visit.open().page
        page.get_by_role("button", name="Hide this note").click()
        visit.drop(asked(place, "heart", "anchor", "telephone", "umbrella", "snowflake", "star"))
        visit.answered(6)
        visit.card("telephone 40.png").get_by_role("button", name="It is something else").click()
        page.get_by_role("combobox", name="What is it?").fill("telephone")
        page.get_by_role("option", name="New class “telephone”").click()
        expect(page.locator("#badge")).to_have_text("1")
        page.locator("#main").focus()
        page.evaluate("scrollTo(0, 0)")
        path = Path(os.environ["PROMPTPOOL_SCREENSHOTS"]) / "serve.png"
        end = page.locator(".card").last.bounding_box()
        drawn = page.screenshot(clip={"x": 0, "y": 0, "width": 1120, "height": end["y"] + end["height"] + 20})
        Image.open(io.BytesIO(drawn)).convert("RGB").quantize(256).save(path, optimize=True)


def asked(place: Path, *names: str) -> list[Path]:
    return [place / "asked" / name / f"{name} 40.png" for name in names]


def test_dropped_pictures_get_labels(visit: Visit, place: Path) -> None:
    visit.open()
    expect(visit.page.locator("#ask-empty")).to_contain_text("Nothing asked yet")
    visit.look("ask-empty")
    visit.drop([*asked(place, "heart", "star", "telephone"), place / "asked" / "broken.png"])
    visit.answered(4)
    for name in ("heart", "star"):
        expect(visit.card(f"{name} 40.png").locator(".label")).to_have_text(name)
        expect(visit.card(f"{name} 40.png").locator(".best li")).to_have_count(5)
    unknown = visit.card("telephone 40.png")
    expect(unknown.locator(".label")).to_have_text("I do not know this")
    expect(unknown).to_contain_text("The nearest is")
    expect(visit.card("broken.png")).to_contain_text("No answer")
    expect(visit.page.locator("#ask-summary")).to_have_text(
        "4 pictures: 2 recognised, 1 not known, 1 without an answer."
    )
    expect(visit.page.locator("#said")).to_have_text("4 pictures: 2 recognised, 1 not known, 1 without an answer.")
    visit.look("ask")
    visit.page.locator("#sure").select_option("0.99")
    visit.answered(4)
    visit.page.get_by_role("button", name="Remove broken.png").click()
    expect(visit.page.locator(".card")).to_have_count(3)
    visit.page.get_by_role("button", name="Clear").click()
    expect(visit.page.locator(".card")).to_have_count(0)


def test_a_folder_is_taught_and_undone(visit: Visit, place: Path) -> None:
    page = visit.open("#teach").page
    visit.look("teach-empty")
    visit.drop([place / "february"])
    expect(page.locator("#lesson-says")).to_have_text("12 pictures of 2 classes wait; new: telephone.")
    expect(page.locator("#waiting [role=option] img").first).to_be_visible()
    visit.look("teach")
    page.get_by_role("button", name="Learn now").click()
    expect(page.locator("#report h3")).to_have_text("Lesson 2 is learned")
    expect(page.locator("#report")).to_contain_text("New: telephone")
    expect(page.locator("#report")).to_contain_text("Right of 2 new pictures held out")
    expect(page.locator("#lesson-says")).to_contain_text("No picture waits")
    visit.look("report")
    page.get_by_role("link", name="Try it").click()
    visit.drop(asked(place, "telephone"))
    visit.answered(1)
    expect(visit.card("telephone 40.png").locator(".label")).to_have_text("telephone")

    visit.go("Look")
    expect(page.locator("#class-rows tr")).to_have_count(7)
    page.get_by_role("button", name="Go back to version 1").click()
    page.get_by_role("button", name="Stay").click()
    page.get_by_role("button", name="Go back to version 1").click()
    page.get_by_role("button", name="Go back", exact=True).click()
    expect(page.locator("#class-rows tr")).to_have_count(6)
    expect(page.locator("#facts")).to_have_text("6 classes, 60 pictures, version 1")
    visit.go("Ask")
    expect(page.locator("#ask-summary")).to_contain_text("It has changed since.")
    page.get_by_role("button", name="Ask again").click()
    visit.answered(1)
    expect(visit.card("telephone 40.png").locator(".label")).to_have_text("I do not know this")


def test_an_answer_is_corrected(visit: Visit, place: Path) -> None:
    page = visit.open().page
    visit.drop(asked(place, "star", "heart", "telephone"))
    visit.answered(3)
    star = visit.card("star 40.png")
    star.get_by_role("button", name="That is wrong").click()
    field = star.get_by_role("combobox", name="What is it?")
    expect(field).to_be_focused()
    expect(star.get_by_role("option", name="star", exact=True)).to_have_count(0)
    field.fill("unknown")
    field.press("Enter")
    expect(star).to_contain_text("Choose another name")
    field.fill("pentagram")
    visit.look("correction")
    star.get_by_role("option", name="New class “pentagram”").click()
    expect(star).to_contain_text("It goes into the next lesson as pentagram.")
    visit.card("heart 40.png").get_by_role("button", name="Right").click()
    expect(visit.card("heart 40.png")).to_contain_text("It goes into the next lesson as heart.")
    visit.card("telephone 40.png").get_by_role("button", name="It is something else").click()
    page.get_by_role("combobox", name="What is it?").fill("anch")
    page.get_by_role("option", name="anchor").click()
    expect(page.locator("#badge")).to_have_text("3")
    visit.look("corrected")
    visit.card("telephone 40.png").get_by_role("button", name="Take it out").click()
    expect(page.locator("#badge")).to_have_text("2")
    visit.go("Teach")
    expect(page.locator("#lesson-says")).to_have_text("2 pictures of 2 classes wait; new: pentagram.")
    page.get_by_role("button", name="Learn now").click()
    expect(page.locator("#report h3")).to_have_text("Lesson 2 is learned")
    visit.go("Ask")
    expect(star).to_contain_text("It was given to a lesson as pentagram.")


def test_waiting_pictures_are_moved_and_removed(visit: Visit, place: Path) -> None:
    page = visit.open("#teach").page
    pictures = sorted((place / "february" / "telephone").iterdir())
    visit.drop(pictures[:4])
    expect(page.locator("#tray h3")).to_have_text("4 pictures have no class yet")
    visit.look("tray")
    page.get_by_role("combobox", name="What do they show?").fill("phone")
    page.get_by_role("option", name="New class “phone”").click()
    expect(page.locator("#lesson-says")).to_have_text("4 pictures of 1 class wait; new: phone.")
    visit.drop(pictures[4:], onto=page.get_by_role("button", name="heart:"))
    expect(page.locator("#lesson-says")).to_have_text("6 pictures of 2 classes wait; new: phone.")

    phones = page.get_by_role("listbox", name="phone").get_by_role("option")
    phones.nth(0).click()
    phones.nth(2).click()
    expect(page.locator("#chosen")).to_contain_text("2 pictures chosen")
    visit.look("chosen")
    page.get_by_role("button", name="Move to a class").click()
    page.get_by_role("combobox", name="Move to").fill("heart")
    page.get_by_role("option", name="heart").click()
    expect(phones).to_have_count(2)
    expect(page.get_by_role("listbox", name="heart").get_by_role("option")).to_have_count(4)
    page.get_by_role("button", name="Choose all of phone").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.locator("#lesson-says")).to_have_text("4 pictures of 1 class wait.")
    page.reload()
    expect(page.locator("#lesson-says")).to_have_text("4 pictures of 1 class wait.")
    page.get_by_role("button", name="Remove all").click()
    visit.look("remove-all")
    page.get_by_role("button", name="Remove all").click()
    expect(page.locator("#lesson-says")).to_contain_text("No picture waits")


def test_classes_are_renamed_and_forgotten(visit: Visit) -> None:
    page = visit.open("#look").page
    expect(page.locator("#confusion table")).to_be_visible()
    expect(page.locator("#versions")).to_contain_text("lesson 1: 60 pictures")
    visit.look("look")
    page.get_by_role("button", name="Rename star").click()
    page.get_by_label("New name of star").fill("heart")
    expect(page.locator("#classes")).to_contain_text("heart is a class already: the two become one.")
    visit.look("rename")
    page.get_by_label("New name of star").fill("pentagram")
    page.keyboard.press("Enter")
    expect(page.locator("#class-rows")).to_contain_text("pentagram")
    page.get_by_role("button", name="Forget heart").click()
    visit.look("forget")
    page.get_by_role("button", name="Keep it").click()
    expect(page.locator("#class-rows tr")).to_have_count(6)
    expect(page.get_by_role("button", name="Forget heart")).to_be_focused()
    page.get_by_role("button", name="Forget heart").click()
    page.get_by_role("button", name="Forget it").click()
    expect(page.locator("#class-rows tr")).to_have_count(5)
    page.get_by_role("button", name="Class", exact=True).click()
    expect(page.locator("#class-rows th").first).to_have_text("umbrella")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download it").click()
    assert download.value.suggested_filename == "signs-3.zip"


def test_with_the_keyboard_alone(visit: Visit, place: Path) -> None:
    page = visit.open().page
    keys = page.keyboard

    def until(name: str, role: str = "button") -> Any:
        """Walk on with Tab until the control has the focus, which is seen."""
        for _ in range(80):
            keys.press("Tab")
            wanted = page.get_by_role(role, name=name).and_(page.locator(":focus"))
            if wanted.count():
                assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
                return wanted
        raise AssertionError(f"Tab does not come to the {role} {name}")

    until("To the content", "link")
    keys.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    until("Choose pictures")
    with page.expect_file_chooser() as chooser:
        keys.press("Enter")
    chooser.value.set_files(asked(place, "telephone"))
    visit.answered(1)
    until("It is something else")
    keys.press("Enter")
    keys.type("phone")
    keys.press("Enter")
    expect(visit.card("telephone 40.png")).to_contain_text("It goes into the next lesson as phone.")

    page.locator("body").press("Home")
    page.get_by_role("link", name="Ask").focus()
    keys.press("Tab")
    keys.press("Enter")
    until("Choose a folder")
    with page.expect_file_chooser() as chooser:
        keys.press("Enter")
    chooser.value.set_files(place / "february")
    expect(page.locator("#lesson-says")).to_have_text("13 pictures of 3 classes wait; new: phone and telephone.")
    until("heart 20.png", "option")
    keys.press("ArrowRight")
    keys.press("Space")
    expect(page.locator("#chosen")).to_contain_text("1 picture chosen")
    keys.press("Delete")
    expect(page.locator("#lesson-says")).to_contain_text("12 pictures")
    page.get_by_role("button", name="Choose a folder").focus()
    until("Learn now")
    keys.press("Enter")
    expect(page.locator("#report h3")).to_be_focused()


def test_large_pictures_are_small_for_questions_and_whole_in_lessons(visit: Visit, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (1200, 1800, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "large.jpg", quality=95)
    size = (tmp_path / "large.jpg").stat().st_size
    page = visit.open().page
    with page.expect_request("**/predict*") as question:
        visit.drop([tmp_path / "large.jpg"])
    visit.answered(1)
    assert int(question.value.all_headers()["content-length"]) < size / 2
    with page.expect_request("**/lessons") as lesson:
        page.locator(".card .actions button").first.click()
    assert int(lesson.value.all_headers()["content-length"]) > size
    expect(page.locator(".card")).to_contain_text("It goes into the next lesson")


def test_many_pictures_go_in_small_groups(visit: Visit, tmp_path: Path) -> None:
    draw_pictures(tmp_path / "many", ["heart", "star"], 25)
    page = visit.open().page
    visit.drop([tmp_path / "many"])
    visit.answered(50)
    expect(page.locator("#ask-summary")).to_contain_text("50 pictures:")
    questions = [request for request in visit.requests if "/predict" in request.url]
    assert 7 <= len(questions) <= 8
    visit.go("Teach")
    visit.drop([tmp_path / "many"])
    expect(page.locator("#lesson-says")).to_have_text("50 pictures of 2 classes wait.")
    assert (
        7 <= len([request for request in visit.requests if request.method == "POST" and "/lessons" in request.url]) <= 8
    )
