"""What people try, and what they get: a sentence and a status, and the server goes on."""

from __future__ import annotations

import io
import json
import shutil
import socket
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from promptpool.errors import BadFileError
from promptpool.serve.engine import LocalEngine
from promptpool.serve.limits import Limits
from promptpool.serve.running import Place, checked_access
from promptpool.serve.safety import HEADERS, Access
from served import HERE, answering_thread, asking, finished, listening, picture, teach, text
from served import taught as taught_fixture

taught = taught_fixture

TOKEN = "0123456789abcdef0123"  # noqa: S105
SMALL = Limits(body=20_000, bodies=50_000, files=3, picture=8_000, pixels=10_000, head=0.3, pause=0.3, reading=1.0)


@pytest.fixture(scope="module")
def engine(taught: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngine]:
    """One for all of them: none leaves a trace."""
    shop = shutil.copytree(taught, tmp_path_factory.mktemp("attacked") / "shop")
    engine = LocalEngine(Path(shop), limits=SMALL)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def client(engine: LocalEngine) -> Iterator[TestClient]:
    with asking(engine) as client:
        yield client
        assert client.get("/health").status_code == 200, "it is still there"


def refused(answer: Any, status: int, sentence: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.json().keys() == {"error"}
    assert sentence in answer.json()["error"]
    for name, value in HEADERS.items():
        assert answer.headers[name] == value


def one(content: bytes, name: str = "a.png") -> dict[str, Any]:
    return {"files": [("files", (name, content))]}


def png(width: int, height: int) -> bytes:
    """A small file that says it is a large picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


# The token


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": "Bearer ä".encode("latin-1").decode("latin-1")},
        {"Cookie": f"promptpool={TOKEN}"},
        {"Cookie": "\x01;;=="},
    ],
)
def test_without_the_token_there_is_nothing(headers: dict[str, str], engine: LocalEngine) -> None:
    given = {name: value.encode("latin-1") for name, value in headers.items()}
    with asking(engine, Access(TOKEN)) as client:
        for method, path in (("GET", "/"), ("GET", "/classifier"), ("GET", "/metrics"), ("POST", "/learn")):
            answer = client.request(method, path, headers=given)  # type: ignore[arg-type]
            refused(answer, 401, "needs its token")
            assert answer.headers["WWW-Authenticate"] == "Bearer"
        refused(client.get("/?token=wrong"), 401, "the token is not that of this server")
        assert client.get("/health").status_code == client.get("/ready").status_code == 200


def test_with_the_token_all_is_there(engine: LocalEngine) -> None:
    with asking(engine, Access(TOKEN)) as client:
        assert client.get("/classifier", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        answer = client.get(f"/?token={TOKEN}", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "./")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert client.get("/classifier").status_code == 200, "the cookie is enough"
        secure = client.get(f"https://127.0.0.1/?token={TOKEN}", follow_redirects=False)
        assert "Secure" in secure.headers["set-cookie"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "shop.example.org"])  # noqa: S104
def test_an_address_that_others_reach_wants_a_token(host: str, tmp_path: Path) -> None:
    with pytest.raises(BadFileError, match=r"others reach this address, so a token is needed.*TLS"):
        checked_access(Place(host))
    assert checked_access(Place("localhost")) is None
    for content, fits in ((f"{TOKEN}\n", True), ("short", False), ("with space" * 3, False), ("", False)):
        (tmp_path / "token").write_text(content)
        place = Place(host, token_file=tmp_path / "token")
        if fits:
            assert checked_access(place) == TOKEN
        else:
            with pytest.raises(BadFileError, match="a token is one line of 16 to 512"):
                checked_access(place)
    with pytest.raises(BadFileError, match="No such file"):
        checked_access(Place(host, token_file=tmp_path / "nothing"))


# Other sites


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "10.0.0.1", "[::", ""])
def test_a_name_that_is_not_ours_is_refused(host: str, client: TestClient) -> None:
    refused(client.get("/classifier", headers={"Host": host}), 403, "is no name of this server")


def test_names_that_are_ours_are_not_refused(engine: LocalEngine) -> None:
    for host in ("127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000", "127.9.9.9"):
        assert Access().knows_host(host)
    everywhere = Access(TOKEN, ("shop.example.org",), any_address=True)
    for host in ("10.0.0.1:8000", "[fe80::1]", "shop.example.org", "SHOP.example.org.:443"):
        assert everywhere.knows_host(host)
    assert not everywhere.knows_host("evil.example")
    del engine


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9000", "file://127.0.0.1:8000", ""]
)
@pytest.mark.parametrize("path", ["/predict", "/lessons", "/learn", "/undo"])
def test_another_origin_is_refused(origin: str, path: str, client: TestClient) -> None:
    refused(client.post(path, headers={"Origin": origin}), 403, "only this server's own page may ask")
    assert client.post("/learn", headers={"Origin": HERE}).status_code == 409


def test_a_form_of_another_site_changes_nothing(client: TestClient) -> None:
    plain = {"X-Promptpool": "", "Content-Type": "text/plain"}
    for method, path in (("POST", "/learn"), ("POST", "/undo"), ("DELETE", "/lessons"), ("DELETE", "/classes/red")):
        refused(client.request(method, path, headers=plain, content=b"{}"), 403, "needs the header X-Promptpool: 1")
    for site in ("cross-site", "same-site"):
        refused(client.post("/learn", headers={"Sec-Fetch-Site": site}), 403, "a page of another site asks")
        refused(
            client.get("/export", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}), 403, "another site"
        )
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200
    assert client.get("/classifier").headers.get("access-control-allow-origin") is None
    assert client.options("/lessons", headers={"Origin": "http://evil.example"}).status_code == 405


# Too much


def test_a_body_that_is_too_large_is_not_read(client: TestClient) -> None:
    for path in ("/predict", "/lessons"):
        refused(client.post(path, **one(bytes(30_000))), 413, "more than 20,000 bytes")
    declared = {"Content-Type": "application/json", "Content-Length": "9" * 30}
    refused(client.post("/predict", headers=declared, content=b"{}"), 413, "more than 20,000 bytes")
    wrong = {"Content-Type": "application/json", "Content-Length": "-1"}
    refused(client.post("/predict", headers=wrong, content=b"{}"), 400, "Content-Length")


def test_a_body_without_a_length_is_counted(client: TestClient) -> None:
    def endless() -> Iterator[bytes]:
        yield b"--x\r\nContent-Disposition: form-data; name=files; filename=a\r\n\r\n"
        for _ in range(1000):
            yield bytes(1000)

    kinds = {"/predict": "multipart/form-data; boundary=x", "/lessons": "application/json"}
    for path, kind in kinds.items():
        answer = client.post(path, headers={"Content-Type": kind}, content=endless())
        refused(answer, 413, "more than 20,000 bytes")
    patched = client.patch("/lessons/ab", headers={"Content-Type": "application/json"}, content=endless())
    refused(patched, 413, "more than 20,000 bytes")


def test_all_bodies_together_are_counted(client: TestClient) -> None:
    guard: Any = client.app
    guard.reading = 45_000
    answer = client.post("/predict", **one(bytes(7_000)))
    refused(answer, 429, "too many large requests at once")
    assert answer.headers["Retry-After"] == "1"
    assert guard.reading == 45_000
    guard.reading = 0
    assert client.post("/predict", **one(picture("red", 1))).status_code == 200
    assert guard.reading == 0


def test_too_many_files_are_refused(client: TestClient) -> None:
    many: dict[str, Any] = {"files": [("files", (f"{n}.png", b"x")) for n in range(4)]}
    refused(client.post("/predict", **many), 413, "more than 3 pictures in one request")
    refused(client.post("/lessons", **many, data={"label": "a"}), 413, "more than 3 pictures in one request")
    listed = {"images": [{"data": text(b"x")}] * 4}
    refused(client.post("/predict", json=listed), 413, "4 pictures in one request: at most 3 can be")


def test_bombs_do_not_go_off(client: TestClient) -> None:
    huge: dict[str, Any] = {"files": [("files", ("a.png", png(60_000, 60_000))), ("files", ("b.png", png(101, 100)))]}
    found = client.post("/predict", **huge).json()["predictions"]
    assert "cannot be decoded" in found[0]["error"] or "more than 10,000" in found[0]["error"]
    assert found[1]["error"] == "101 x 100 pixels are more than 10,000"
    answer = client.post("/lessons", **huge, data={"label": "a"})
    assert len(answer.json()["refused"]) == 2
    heavy = client.post("/predict", **one(bytes(9_000))).json()["predictions"][0]
    assert heavy["error"] == "more than 8,000 bytes"
    packed = zlib.compress(bytes(10**6))
    squeezed = client.post("/predict", headers={"Content-Encoding": "deflate"}, **one(packed))
    assert squeezed.json()["predictions"][0]["error"], "nothing is unpacked"


def test_a_full_queue_says_when_to_come_back(client: TestClient, engine: LocalEngine) -> None:
    batches: Any = answering_thread(engine)
    batches.room.length = engine.limits.queue
    answer = client.post("/predict", **one(picture("red", 1)))
    refused(answer, 429, "512 pictures wait for an answer already")
    assert answer.headers["Retry-After"] == "1"
    batches.room.length = 0


def test_a_full_lesson_says_when_to_come_back(engine: LocalEngine) -> None:
    engine.lessons.limits = replace(SMALL, waiting=1)
    with asking(engine) as client:
        teach(client, [("red", picture("red", 1))])
        answer = client.post("/lessons", **one(picture("red", 2)), data={"label": "red"})
        refused(answer, 429, "1 pictures wait already")
        assert answer.headers["Retry-After"] == "60"
        client.delete("/lessons")
    engine.lessons.limits = SMALL


# Damage


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "image/png", "", "json"])
def test_another_content_type_is_refused(kind: str, client: TestClient) -> None:
    for path in ("/predict", "/lessons"):
        refused(client.post(path, headers={"Content-Type": kind}, content=b"label=a"), 415, "send multipart/form-data")


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"", 400, "the body is no JSON"),
        (b"{", 400, "the body is no JSON"),
        (b"\xff\xfe", 400, "the body is no JSON"),
        (b"[" * 5000, 400, "the body is no JSON"),
        (b"[]", 422, "the body: Input should be an object"),
        (b"null", 422, "the body: Input should be an object"),
        (b'{"images": 3}', 422, "images: Input should be a valid array"),
        (b'{"images": []}', 422, "images: List should have at least 1 item"),
        (b'{"images": [{"data": 3}]}', 422, "images.0.data: Input should be a valid string"),
        (b'{"images": [{"data": "!!"}]}', 422, "images.0.data: is not base64"),
        (b'{"images": [{"data": "YQ"}]}', 422, "images.0.data: is not base64"),
        ('{"images": [{"data": "ä"}]}'.encode(), 422, "images.0.data: is not base64"),
        (b'{"images": [{"data": "", "path": "/etc/passwd"}]}', 422, "images.0.path: Extra inputs are not permitted"),
    ],
)
def test_broken_json_is_refused(body: bytes, status: int, sentence: str, client: TestClient) -> None:
    refused(client.post("/predict", headers={"Content-Type": "application/json"}, content=body), status, sentence)


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"{", 400, "no JSON"),
        (b"[" * 5000, 400, ""),
        (b"{}", 422, "label: Field required"),
        (b'{"label": 3}', 422, "label"),
    ],
)
def test_broken_json_of_a_small_body_is_refused(body: bytes, status: int, sentence: str, client: TestClient) -> None:
    refused(client.patch("/lessons/ab", headers={"Content-Type": "application/json"}, content=body), status, sentence)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"data": {"label": "a"}}, "content type"),
        ({"files": [("other", ("a.png", b"x"))], "data": {"label": "a"}}, "field 'other': must be one of files"),
        ({"files": [("files", ("a.png", b"x"))]}, "label, labels: give one of them"),
        ({"files": [("files", ("a.png", b"x"))], "data": {"label": "a", "labels": "[]"}}, "give one of them"),
        ({"files": [("files", ("a.png", b"x"))], "data": {"labels": "{"}}, "labels: must be a JSON list"),
        ({"files": [("files", ("a.png", b"x"))], "data": {"labels": "[" * 3000}}, "labels: must be a JSON list"),
        ({"files": [("files", ("a.png", b"x"))], "data": {"labels": "[3]"}}, "labels: must be a JSON list"),
        ({"files": [("files", ("a.png", b"x"))], "data": {"labels": '["a", "b"]'}}, "2 labels and 1 files"),
        ({"files": [("files", ("a.png", b"x")), ("label", ("b", b"x"))]}, "label: must be text, not a file"),
        ({"files": [("label", (None, b"a"))]}, "files: at least one picture is needed"),
        ({"files": [("files", (None, b"a")), ("label", (None, b"a"))]}, "send each picture as a file with a name"),
    ],
)
def test_broken_forms_are_refused(given: dict[str, Any], sentence: str, client: TestClient) -> None:
    refused(client.post("/lessons", **given), 415 if "content type" in sentence else 422, sentence)


@pytest.mark.parametrize(
    "body", [b"", b"--x", b"--x\r\n\r\n", b"--x\r\nContent-Disposition: form-data\r\n\r\na\r\n--x--"]
)
def test_damaged_forms_are_refused(body: bytes, client: TestClient) -> None:
    for kind in ("multipart/form-data; boundary=x", "multipart/form-data"):
        answer = client.post("/predict", headers={"Content-Type": kind}, content=body)
        assert answer.status_code in (400, 422)
        assert answer.json().keys() == {"error"}


@pytest.mark.parametrize(
    "name", ["../../../evil.png", "/etc/passwd", "C:\\boot.ini", "a\x1b[2J.png", "<b>.png", "..", "x" * 5000]
)
def test_names_are_no_paths(name: str, client: TestClient, engine: LocalEngine) -> None:
    content = picture("blue", 7)
    before = {path for path in engine.folder.parent.rglob("*") if path.parent != engine.lessons.folder}
    body = {"pictures": [{"name": name[:1000], "label": "a", "data": text(content)}]}
    answer = client.post("/lessons", json=body)
    assert answer.status_code == 201
    form = client.post("/lessons", **one(content, name), data={"label": "a"})
    assert form.status_code in (200, 201, 400), "a head of a part may be too long"
    shown = answer.json()["added"][0]["name"]
    assert "/" not in shown
    assert "\\" not in shown
    assert shown.isprintable()
    assert {path for path in engine.folder.parent.rglob("*") if path.parent != engine.lessons.folder} == before
    assert len(list(engine.lessons.folder.iterdir())) == 2
    assert finished(client, client.post("/learn").json()["job"])["state"] == "done"


def test_nothing_is_unpickled(client: TestClient) -> None:
    import pickle

    class Evil:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return (pytest.fail, ("code was run",))

    content = pickle.dumps(Evil())
    assert client.post("/predict", **one(content, "a.pkl")).json()["predictions"][0]["error"]
    assert client.post("/lessons", **one(content), data={"label": "a"}).json()["refused"]


# Slow clients, which need a network


def answered(address: str, *parts: bytes, pause: float = 0.0) -> bytes:
    """What comes back for bytes that are sent part by part, until the server closes."""
    host, _, port = address.removeprefix("http://").partition(":")
    found = io.BytesIO()
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        for part in parts:
            connection.sendall(part)
        connection.settimeout(30 + pause)
        while content := connection.recv(65536):
            found.write(content)
    return found.getvalue()


def test_slow_clients_are_let_go(engine: LocalEngine) -> None:
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    with listening(engine) as address:
        assert answered(address) == b"", "nothing was sent"
        assert answered(address, b"GET /health HTTP/1.1\r\nHost: local") == b"", "half a head"
        slow = answered(address, head + b"Content-Length: 100\r\n\r\n", b'{"images": ')
        assert slow.startswith(b"HTTP/1.1 408 ")
        assert json.loads(slow.partition(b"\r\n\r\n")[2]) == {"error": "the body came too slowly"}
        whole = answered(address, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /he")
        assert whole.startswith(b"HTTP/1.1 200 "), "and half of the next"
        large = answered(address, head + b"Content-Length: 100000\r\n\r\n")
        assert large.startswith(b"HTTP/1.1 413 "), "before a byte of it was read"
