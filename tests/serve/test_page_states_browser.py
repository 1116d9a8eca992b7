"""States of the served page that a quick server seldom shows: empty, busy, failed, gone, many classes, a camera."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drawn_pictures import SIGNS, draw_pictures
from page_server import serving
from page_visits import Visit, expect, opened_browser, visiting
from promptpool import ContinualClassifier

pytestmark = pytest.mark.browser
REFUSE_CAMERA = """
navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException("no", "NotAllowedError"))
"""
PASTE = """bytes => {
  const clipboardData = new DataTransfer()
  clipboardData.items.add(new File([new Uint8Array(bytes)], "image.png", { type: "image/png" }))
  document.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }))
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with opened_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("states")
    draw_pictures(folder / "january", list(SIGNS), 4)
    classifier = ContinualClassifier(held_out=0.0)
    classifier.learn(folder / "january")
    classifier.save(folder / "signs")
    return folder


@pytest.fixture
def visit(browser: Any, place: Path, tmp_path: Path) -> Iterator[Visit]:
    shutil.copytree(place / "signs", tmp_path / "signs")
    with serving(tmp_path / "signs") as address, visiting(browser, address) as visit:
        yield visit


def pictures(place: Path, *names: str) -> list[Path]:
    return [place / "january" / name / f"{name} 0.png" for name in names]


def changed(visit: Visit, path: str, **values: Any) -> None:
    """Have the server's answer say something else in places."""

    def answer(route: Any) -> None:
        response = route.fetch()
        route.fulfill(response=response, json=response.json() | values)

    visit.page.route(f"**{path}", answer)


def test_a_classifier_that_knows_nothing(browser: Any, place: Path, tmp_path: Path) -> None:
    ContinualClassifier().save(tmp_path / "empty")
    with serving(tmp_path / "empty") as address, visiting(browser, address) as visit:
        visit.open()
        expect(visit.page.locator("#ask-empty")).to_contain_text("It has learned nothing yet")
        visit.look("nothing-learned")
        visit.expected = ("409",)
        visit.drop(pictures(place, "heart"))
        expect(visit.page.locator(".card")).to_contain_text("Nothing was learned yet")
        visit.go("Look")
        expect(visit.page.locator("#classes")).to_contain_text("It has learned nothing yet")
        visit.look("nothing-to-look-at")


def test_nothing_moves_when_answers_come(visit: Visit, place: Path) -> None:
    held: list[Any] = []
    visit.page.route("**/predict*", lambda route: held.append(route))
    visit.open()
    visit.drop(pictures(place, "heart", "star", "anchor"))
    card = visit.page.locator(".card").first
    expect(card).to_contain_text("Looking at it.")
    visit.look("ask-busy")
    before = card.bounding_box()
    held[0].continue_()
    visit.answered(3)
    assert card.bounding_box() == pytest.approx(before, abs=2)


def test_prompts_and_similar_pictures(visit: Visit, place: Path) -> None:
    shown = {"label": "heart", "thumbnail": "/static/icon.svg"}
    answer = {"name": "a.png", "label": "heart", "unknown": False, "guess": "heart", "confidence": 0.8, "error": None}
    answer |= {"top": [{"label": "heart", "confidence": 0.8}, {"label": "star", "confidence": 0.2}]}
    answer |= {"prompts": [3, 1, 7], "similar": [shown, shown, shown | {"label": "a star of many points"}]}
    body = {"version": 1, "predictions": [answer, answer]}
    visit.page.route("**/predict*", lambda route: route.fulfill(json=body))
    changed(visit, "/classifier", prompts=10, thumbnails=True, method="l2p", exact=False)
    changed(visit, "/prompts", counts=[12, 40, 3, 0, 25, 18, 33, 7, 1, 29])
    visit.open()
    visit.drop(pictures(place, "heart", "star"))
    visit.answered(2)
    expect(visit.page.locator(".card").first).to_contain_text("Prompts chosen: 3 1 7")
    expect(visit.page.locator(".card").first.locator(".similar img")).to_have_count(3)
    visit.look("ask-prompts")
    visit.go("Look")
    expect(visit.page.locator("#prompts li").nth(1)).to_contain_text("Prompt 1: 40 times")
    expect(visit.page.get_by_role("button", name="Forget heart")).to_have_count(0)
    visit.look("look-prompts")


def test_a_hundred_classes(visit: Visit) -> None:
    names = [f"class {number}" for number in range(100)]
    dice = np.random.default_rng(0)
    counts = np.diag(np.full(100, 20)) + (dice.random((100, 100)) < 0.03) * dice.integers(1, 5, (100, 100))
    classes = [{"name": name, "pictures": 20, "accuracy": float(dice.random())} for name in names]
    changed(visit, "/classes", classes=classes)
    changed(visit, "/confusion", labels=names, counts=counts.tolist())
    page = visit.open("#look").page
    canvas = page.locator("#matrix")
    canvas.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    expect(page.locator("#cell")).to_contain_text("pictures of class 1 are recognised")
    visit.look("look-hundred")
    canvas.hover(position={"x": 3, "y": 3})
    expect(page.locator("#cell")).to_contain_text("of class 0 are recognised")
    page.locator("#classes").get_by_label("Find a class").fill("class 77")
    expect(page.locator("#class-rows tr")).to_have_count(1)
    visit.go("Teach")
    visit.look("teach-hundred")
    page.get_by_label("Find a class").first.fill("class 5")
    expect(page.locator("#shelf button")).to_have_count(12)


def test_a_lesson_on_its_way_and_one_that_fails(visit: Visit, place: Path) -> None:
    job: dict[str, Any] = {"id": "a", "kind": "learn", "state": "running", "what": "learning", "done": 3, "total": 10}
    job |= {"error": None, "report": None}
    visit.page.route("**/learn", lambda route: route.fulfill(status=202, json={"job": "a"}))
    visit.page.route("**/jobs/a", lambda route: route.fulfill(json=job))
    page = visit.open("#teach").page
    visit.drop([place / "january"])
    expect(page.locator("#lesson-says")).to_contain_text("28 pictures")
    page.get_by_role("button", name="Learn now").click()
    expect(page.locator("#lesson-goes")).to_contain_text("Learning: 3 of 10.")
    visit.look("learning")
    job |= {"state": "failed", "error": "the disk is full"}
    expect(page.locator("#lesson-goes")).to_contain_text("The lesson failed. The disk is full.")
    expect(page.get_by_role("button", name="Learn now")).to_be_enabled()
    visit.look("lesson-failed")


def test_a_report_with_everything(visit: Visit, place: Path) -> None:
    report = {"lesson": 2, "version": 2, "pictures": 28, "new": ["moon"], "known": ["heart"], "held_out": 4}
    report |= {"accuracy": 0.75, "before": 0.97, "after": 0.9, "duplicates": 2, "seconds": 3.2}
    report |= {"suffered": [{"label": "star", "before": 0.95, "after": 0.7}]}
    report |= {"doubtful": [{"picture": "heart/heart 3.png", "label": "heart", "looks_like": "moon"}]}
    report |= {"known_as": [{"label": "moon", "learned_as": "crescent"}]}
    report |= {"skipped": [{"name": "note.png", "error": "not an image"}]}
    done = {"id": "a", "kind": "learn", "state": "done", "what": "", "done": 1, "total": 1, "error": None}
    visit.page.route("**/learn", lambda route: route.fulfill(status=202, json={"job": "a"}))
    visit.page.route("**/jobs/a", lambda route: route.fulfill(json=done | {"report": report}))
    page = visit.open("#teach").page
    visit.drop([place / "january"])
    expect(page.locator("#lesson-says")).to_contain_text("28 pictures")
    page.get_by_role("button", name="Learn now").click()
    expect(page.locator("#report")).to_contain_text("Classes that suffer")
    expect(page.locator("#report")).to_contain_text("Labels that look wrong")
    expect(page.locator("#report")).to_contain_text("2 copies of known pictures were not learned again.")
    expect(page.locator("#report")).to_contain_text("Pictures that it knows as another class")
    visit.look("report-full")
    report |= {"lesson": 0, "pictures": 0, "new": [], "known": [], "suffered": [], "doubtful": [], "known_as": []}
    report |= {"accuracy": None, "before": None, "after": None, "held_out": 0, "duplicates": 28}
    page.get_by_role("button", name="Learn now").click()
    expect(page.locator("#report")).to_contain_text("Nothing new was learned")
    expect(page.get_by_role("button", name="Undo this lesson")).to_have_count(0)
    visit.look("report-nothing-new")


def test_a_server_that_goes_and_comes_back(browser: Any, place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "signs", tmp_path / "signs")
    with serving(tmp_path / "signs") as address:
        context = visiting(browser, address)
        visit = context.__enter__()
        visit.expected = ("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")
        visit.open()
    visit.drop(pictures(place, "heart"))
    expect(visit.page.locator("#offline")).to_contain_text("The server does not answer.")
    visit.look("offline")
    with serving(tmp_path / "signs", port=int(address.rstrip("/").rpartition(":")[2])):
        expect(visit.page.locator("#offline")).to_be_hidden()
        visit.answered(1)
        expect(visit.page.locator(".card .label")).to_have_text("heart")
        context.__exit__(None, None, None)


def test_an_error_stands_where_it_happened(visit: Visit, place: Path) -> None:
    visit.expected = ("500", "501")
    visit.page.route("**/confusion", lambda route: route.fulfill(status=500, json={"error": "something went wrong."}))
    visit.page.route("**/export?format=onnx", lambda route: route.fulfill(status=501, json={"error": "no ONNX here."}))
    page = visit.open("#look").page
    expect(page.locator("#confusion")).to_contain_text("Something went wrong.")
    page.get_by_role("button", name="Download as ONNX").click()
    expect(page.locator("#about")).to_contain_text("No ONNX here.")
    visit.look("look-failed")
    page.unroute("**/confusion")
    page.locator("#confusion").get_by_role("button", name="Try again").click()
    expect(page.locator("#confusion table")).to_be_visible()

    visit.page.route("**/predict*", lambda route: route.fulfill(status=500, json={"error": "something went wrong."}))
    visit.go("Ask")
    visit.drop(pictures(place, "heart"))
    expect(page.locator(".card")).to_contain_text("Something went wrong.")
    visit.look("ask-failed")
    page.unroute("**/predict*")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".card .label")).to_have_text("heart")


def test_a_file_among_pictures_is_refused(visit: Visit, place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "january" / "heart", tmp_path / "more" / "heart")
    shutil.copytree(place / "january" / "star", tmp_path / "more" / "star")
    (tmp_path / "more" / "heart" / "broken.png").write_bytes(b"no picture")
    (tmp_path / "more" / "notes.txt").write_text("no picture either")
    page = visit.open("#teach").page
    visit.drop([tmp_path / "more"])
    expect(page.locator("#lesson-says")).to_have_text("8 pictures of 2 classes wait.")
    expect(page.locator("#teach-problem")).to_have_text("1 file is no picture and left out.")
    page.locator("summary", has_text="1 file was refused").click()
    expect(page.locator("#lesson-goes")).to_contain_text("broken.png")
    visit.look("refused")


def test_a_picture_of_the_camera(visit: Visit) -> None:
    page = visit.open().page
    page.get_by_role("button", name="Use the camera").click()
    expect(page.get_by_role("dialog", name="Camera")).to_be_visible()
    page.get_by_role("button", name="Take a picture").click()
    expect(page.locator("#camera-said")).to_have_text("One picture is taken.")
    visit.look("camera")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Camera")).to_be_hidden()
    visit.answered(1)
    expect(page.locator(".card .name")).to_contain_text("camera")


def test_a_camera_that_is_refused(visit: Visit) -> None:
    visit.page.add_init_script(REFUSE_CAMERA)
    page = visit.open().page
    page.get_by_role("button", name="Use the camera").click()
    expect(page.locator("#ask-problem")).to_contain_text("The camera is not allowed here.")
    visit.look("camera-refused")


def test_a_pasted_picture(visit: Visit, place: Path) -> None:
    page = visit.open().page
    page.evaluate(PASTE, list(pictures(place, "star")[0].read_bytes()))
    visit.answered(1)
    expect(page.locator(".card .label")).to_have_text("star")


def test_a_drag_says_where_it_goes(visit: Visit, place: Path) -> None:
    page = visit.open("#teach").page
    chip = page.get_by_role("button", name="heart:")
    visit.drag([place / "january"], chip, "dragEnter", "dragOver")
    expect(page.locator("#over")).to_have_text("Drop to teach heart")
    visit.look("drag")
    page.mouse.move(50, 50)  # which says that the drag is over
    expect(page.locator("#over")).to_be_hidden()


def test_the_policy_is_kept(visit: Visit) -> None:
    """No script and no style stands in the page itself; the server's policy would block it."""
    visit.open()
    markup = visit.page.request.get(visit.address).text()
    assert "<style" not in markup
    assert "style=" not in markup
    assert "onclick" not in markup
    policy = visit.page.request.get(visit.address).headers["content-security-policy"]
    assert "'unsafe" not in policy
