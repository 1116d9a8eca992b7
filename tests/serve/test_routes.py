"""Every route says what the contract with the page says."""

from __future__ import annotations

import io
import json
import logging
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from promptpool import ContinualClassifier
from promptpool.classifier import files
from promptpool.serve.engine import LocalEngine
from promptpool.serve.routes import knowing, pages
from served import asking, finished, lesson, picture, teach, text, write_classifier
from served import engine as engine_fixture
from served import shop as shop_fixture
from served import taught as taught_fixture

engine, shop, taught = engine_fixture, shop_fixture, taught_fixture

PREDICTION = {"name", "label", "unknown", "guess", "confidence", "top", "prompts", "similar", "error"}
JOB = {"id", "kind", "state", "what", "done", "total", "error", "report"}
REPORT = {
    *("lesson", "version", "pictures", "new", "known", "held_out", "accuracy", "before", "after", "suffered"),
    *("doubtful", "duplicates", "known_as", "skipped", "seconds"),
}
ABOUT = {
    *("name", "version", "method", "backbone", "image_size", "classes", "pictures", "bytes", "drawings_only"),
    *("thumbnails", "prompts", "exact", "note"),
}


@pytest.fixture
def client(engine: LocalEngine) -> Iterator[TestClient]:
    with asking(engine) as client:
        yield client


def test_it_says_what_it_is(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"ready": True, "version": 1}
    about = client.get("/classifier").json()
    assert about.keys() == ABOUT
    assert (about["name"], about["classes"], about["pictures"]) == ("shop", 2, 12)
    assert about["backbone"] == "vit.safetensors", "no path of this machine"
    assert about["exact"] is True
    classes = client.get("/classes").json()
    assert [each["name"] for each in classes["classes"]] == ["green", "red"]
    assert classes["classes"][0]["pictures"] == 6
    confusion = client.get("/confusion").json()
    assert confusion["labels"] == ["green", "red"]
    assert client.get("/prompts").json() == {"counts": None}
    assert client.get("/thumbnails/ab12").status_code == 404


def test_not_ready_while_it_ends(client: TestClient, engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_stopping", True)
    answer = client.get("/ready")
    assert (answer.status_code, answer.json()) == (503, {"ready": False})
    monkeypatch.undo()


def test_answers_to_a_form_and_to_json_are_the_same(client: TestClient) -> None:
    files = [("files", ("a.png", picture("red", 50))), ("files", ("b.txt", b"no picture"))]
    form = client.post("/predict?top=2", files=files).json()
    images = [{"name": "a.png", "data": text(picture("red", 50))}, {"name": "b.txt", "data": text(b"no picture")}]
    assert client.post("/predict", params={"top": 2}, json={"images": images}).json() == form
    good, bad = form["predictions"]
    assert form["version"] == 1
    assert good.keys() == PREDICTION
    assert (len(good["top"]), good["error"], good["prompts"], good["similar"]) == (2, None, None, [])
    assert (bad["label"], bad["error"]) == ("unknown", "not an image of a kind that is read here")
    only_bad = client.post("/predict", files=files[1:]).json()
    assert (only_bad["version"], len(only_bad["predictions"])) == (1, 1)
    sure = client.post("/predict?sure=1", files=files[:1]).json()["predictions"][0]
    assert sure["label"] == "unknown"
    assert sure["guess"] in ("red", "green")


def test_a_lesson_from_the_first_picture_to_the_new_version(client: TestClient) -> None:
    answer = client.post(
        "/lessons",
        files=[("files", (f"{n}.png", content)) for n, (_, content) in enumerate(lesson(("blue",)))],
        data={"label": "sea"},
    )
    assert answer.status_code == 201
    assert answer.json()["waiting"] == len(answer.json()["added"]) == 6
    identity = answer.json()["added"][0]["id"]
    mixed = [("files", ("x.png", picture("yellow", 1))), ("files", ("notes.txt", b"text"))]
    answer = client.post("/lessons", files=mixed, data={"labels": json.dumps(["sun", "sun"])})
    assert answer.status_code == 201
    assert answer.json()["refused"] == [{"name": "notes.txt", "error": "not an image of a kind that is read here"}]
    assert client.get("/lessons").json()["labels"] == {"sea": 6, "sun": 1}
    small = client.get(f"/lessons/{identity}/picture")
    assert small.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(small.content)).size == (160, 160)
    assert client.patch(f"/lessons/{identity}", json={"label": "sky"}).json()["label"] == "sky"
    assert client.get("/lessons").json()["labels"] == {"sky": 1, "sea": 5, "sun": 1}
    assert client.delete(f"/lessons/{identity}").json() == {"waiting": 6}
    begun = client.post("/learn")
    assert begun.status_code == 202
    job = finished(client, begun.json()["job"])
    assert job.keys() == JOB
    assert job["report"].keys() == REPORT
    assert (job["report"]["new"], job["report"]["version"], job["report"]["pictures"]) == (["sea", "sun"], 2, 6)
    assert client.get("/jobs").json()["jobs"] == [job]
    assert client.get("/lessons").json() == {"pictures": [], "labels": {}}
    assert client.get("/classifier").json()["classes"] == 4
    versions = client.get("/versions").json()
    assert versions["present"] == 2
    assert [each["what"] for each in versions["versions"]] == [
        "lesson 2: 6 pictures, 2 new classes",
        "lesson 1: 12 pictures, 2 new classes",
    ]
    assert client.post("/undo").json() == {"version": 1}
    assert client.get("/classifier").json()["classes"] == 2


def test_pictures_that_wait_can_all_be_taken_away(client: TestClient) -> None:
    teach(client, lesson(("blue",)))
    assert client.delete("/lessons").json() == {"waiting": 0}
    assert client.get("/lessons").json()["pictures"] == []


def test_a_class_is_renamed_and_taken_out(client: TestClient) -> None:
    assert client.post("/classes/red/rename", json={"to": "a/b c"}).json() == {"version": 2}
    assert client.post("/classes/a%2Fb%20c/rename", json={"to": "ä?"}).json() == {"version": 3}
    assert [each["name"] for each in client.get("/classes").json()["classes"]] == ["green", "ä?"]
    assert client.delete("/classes/%C3%A4%3F").json() == {"version": 4}
    said = [each["what"] for each in client.get("/versions").json()["versions"]]
    assert said[:3] == ["without ä?", "a/b c is called ä?", "red is called a/b c"]


def test_the_export_is_a_classifier(client: TestClient, tmp_path: Path) -> None:
    answer = client.get("/export")
    assert answer.headers["content-disposition"] == 'attachment; filename="shop-1.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert set(archive.namelist()) == {f"shop/{name}" for name in (files.MODEL, files.CONFIG, files.CARD)}
        archive.extractall(tmp_path / "out")
    assert set(ContinualClassifier.load(tmp_path / "out" / "shop").labels) == {"green", "red"}


def test_onnx_is_for_those_who_have_it(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> None:
        raise ModuleNotFoundError("ONNX needs more packages (onnx): pip install 'promptpool[onnx]'")

    def impossible(*_: Any) -> None:
        raise ValueError("this cannot\nbe exported")

    def written(classifier: ContinualClassifier, path: Path) -> None:
        path.write_bytes(f"onnx {len(classifier.labels)}".encode())

    with knowing.EXPORTING:
        busy = client.get("/export?format=onnx")
    assert (busy.status_code, busy.headers["Retry-After"]) == (429, "5")
    for export, status in ((missing, 501), (impossible, 409), (written, 200)):
        monkeypatch.setattr(ContinualClassifier, "export_onnx", export)
        answer = client.get("/export?format=onnx")
        assert answer.status_code == status
        if status != 200:
            assert answer.json()["error"] in (
                "ONNX needs more packages (onnx): pip install 'promptpool[onnx]'",
                "this cannot be exported",
            )
    assert (answer.content, answer.headers["content-disposition"]) == (b"onnx 2", 'attachment; filename="shop-1.onnx"')


def test_similar_pictures_are_shown_where_small_ones_are_kept(tmp_path: Path) -> None:
    engine = LocalEngine(write_classifier(tmp_path / "shop", thumbnails=True))
    with asking(engine) as client:
        assert client.get("/classifier").json()["thumbnails"] is True
        answer = client.post("/predict", files=[("files", ("a.png", picture("red", 50)))]).json()["predictions"][0]
        assert len(answer["similar"]) == 3
        for each in answer["similar"]:
            assert each["label"] in ("red", "green")
            small = client.get(each["thumbnail"])
            assert small.headers["content-type"] == "image/jpeg"
            assert max(Image.open(io.BytesIO(small.content)).size) <= 96
        for name in ("0" * 16, "..%2f..%2fmodel", "%2e%2e", answer["similar"][0]["thumbnail"][12:] + ".jpg"):
            assert client.get(f"/thumbnails/{name}").status_code == 404
        for path in (tmp_path / "shop" / "thumbnails").iterdir():  # as after forget and undo
            path.unlink()
        answer = client.post("/predict", files=[("files", ("a.png", picture("red", 50)))]).json()["predictions"][0]
        assert answer["similar"] == []
    engine.close()


def test_wrong_requests_are_told_what_would_be_right(client: TestClient) -> None:
    wrong: list[tuple[str, str, dict[str, Any], int, str]] = [
        ("POST", "/learn", {}, 409, "no picture waits to be learned: add some to the lesson first"),
        ("POST", "/undo", {}, 409, "there is no version before this one"),
        ("DELETE", "/classes/zebra", {}, 404, "'zebra': no such class"),
        ("POST", "/classes/red/rename", {"json": {"to": " "}}, 422, "label ' ': must be text that can be printed"),
        ("POST", "/classes/red/rename", {"json": {"too": "x"}}, 422, "to: Field required (and 1 more)"),
        ("PATCH", "/lessons/ab", {"json": {"label": "x"}}, 404, "ab: no picture of this id waits"),
        ("DELETE", "/lessons/ab", {}, 404, "ab: no picture of this id waits"),
        ("GET", "/lessons/ab/picture", {}, 404, "ab: no picture of this id waits"),
        ("GET", "/jobs/ab", {}, 404, "'ab': no such job"),
        ("GET", "/nowhere", {}, 404, "there is no such address"),
        ("PUT", "/lessons", {}, 405, "this address has no such method"),
        ("POST", "/predict?top=0", {"json": {"images": []}}, 422, "top: Input should be greater than or equal to 1"),
        ("POST", "/predict?sure=nan", {"json": {"images": []}}, 422, "sure: Input should be a finite number"),
        ("GET", "/export?format=exe", {}, 422, "format: Input should be 'zip' or 'onnx'"),
    ]
    for method, path, given, status, sentence in wrong:
        answer = client.request(method, path, **given)
        assert (answer.status_code, answer.json().keys()) == (status, {"error"}), (path, answer.text)
        assert answer.json()["error"].startswith(sentence)


def test_labels_that_cannot_be_are_refused_one_by_one(client: TestClient) -> None:
    content = picture("blue", 1)
    pictures = [{"label": label, "data": text(content)} for label in ("unknown", " x", "\x07", "x" * 255)]
    answer = client.post("/lessons", json={"pictures": pictures[:3]})
    assert answer.status_code == 200
    assert [each["error"].startswith("label") for each in answer.json()["refused"]] == [True] * 3
    assert client.post("/lessons", json={"pictures": pictures}).status_code == 201
    form = client.post("/lessons", files=[("files", ("a.png", content))], data={"label": "x" * 256})
    assert "has 256 characters, more than 255" in form.json()["refused"][0]["error"]


def test_a_mistake_of_ours_tells_nothing(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for error in (KeyError("secret"), OSError(5, "secret", "/secret")):

        def broken(*_: Any, error: Exception = error) -> Any:
            raise error

        monkeypatch.setattr(knowing, "history", broken)
        with caplog.at_level(logging.CRITICAL, "promptpool.serve"):
            answer = client.get("/versions")
        assert answer.status_code == 500
        assert answer.json() == {"error": "something went wrong here; the server's log says what"}


def test_a_full_disk_is_said_to_whoever_teaches(
    client: TestClient, engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(engine.lessons, "_write", full)
    answer = client.post("/lessons", files=[("files", ("a.png", picture("blue", 1)))], data={"label": "x"})
    assert (answer.status_code, answer.json()) == (507, {"error": "the disk is full: nothing was changed"})
    monkeypatch.undo()
    monkeypatch.setattr(files, "save", full)
    assert client.delete("/classes/red").status_code == 507
    assert client.get("/classifier").json()["classes"] == 2


def test_the_page_and_the_docs_ask_no_other_host(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "page" / "deep").mkdir(parents=True)
    (tmp_path / "page" / "index.html").write_text("<title>the page</title>")
    (tmp_path / "page" / "deep" / "page.js").write_text("1")
    (tmp_path / "page" / "secret.txt").write_text("no file of a page")
    monkeypatch.setattr(pages, "PAGE", tmp_path / "page")
    pages.page_files.cache_clear()
    assert client.get("/").text == "<title>the page</title>"
    found = client.get("/static/deep/page.js")
    assert (found.text, found.headers["content-type"]) == ("1", "text/javascript; charset=utf-8")
    for name in ("secret.txt", "nothing.js", "..%2f..%2fapp.py", "%2e%2e/%2e%2e/app.py", "deep"):
        assert client.get(f"/static/{name}").status_code == 404
    monkeypatch.undo()
    pages.page_files.cache_clear()
    docs = client.get("/docs").text
    assert not re.search(r'(src|href)="(https?:)?//', docs)
    assert "POST /predict" in docs


def test_openapi_describes_every_route(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    assert set(schema["paths"]) == {
        *("/predict", "/lessons", "/lessons/{identity}", "/lessons/{identity}/picture", "/learn", "/jobs"),
        *("/jobs/{identity}", "/classifier", "/classes", "/classes/{name}", "/classes/{name}/rename", "/confusion"),
        *("/prompts", "/versions", "/undo", "/thumbnails/{identity}", "/export", "/health", "/ready", "/metrics"),
    }
    written = json.dumps(schema)
    for reference in set(re.findall(r'"#/components/schemas/(\w+)"', written)):
        assert reference in schema["components"]["schemas"]
    assert "HTTPValidationError" not in written
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            assert operation["summary"], path
            answers = operation["responses"]
            assert all(answers[status]["content"] for status in answers if status.startswith(("4", "5")))


def test_what_is_counted(client: TestClient) -> None:
    client.post("/predict", files=[("files", ("a.png", picture("red", 50))), ("files", ("b.txt", b"no picture"))])
    client.get("/nowhere")
    client.get("/jobs/ab")
    answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.text.splitlines()
    assert 'promptpool_requests_total{route="/predict",status="200"} 1' in lines
    assert 'promptpool_requests_total{route="/jobs/{identity}",status="404"} 1' in lines
    assert 'promptpool_requests_total{route="other",status="404"} 1' in lines
    assert 'promptpool_request_seconds_count{route="/predict"} 1' in lines
    assert 'promptpool_batch_pictures_bucket{le="1.0"} 1' in lines
    assert 'promptpool_answers_total{answer="error"} 1' in lines
    assert any(re.fullmatch(r'promptpool_unknown_share\{hours_ago="0"\} [01]\.0', line) for line in lines)
    for gauge in ("version 1", "classes 2", "queue_pictures 0", "waiting_pictures 0", "learning 0"):
        assert f"promptpool_{gauge}" in lines
