"""Several classifiers behind one address: each below its name, and the guard before all of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from promptpool.errors import BadFileError
from promptpool.serve.engine import LocalEngine
from promptpool.serve.safety import Access
from promptpool.serve.several import Several, names_of
from served import HERE, finished, lesson, picture, teach, text
from served import shop as shop_fixture
from served import taught as taught_fixture

shop, taught = shop_fixture, taught_fixture
TOKEN = "0123456789abcdef"  # noqa: S105


@pytest.fixture
def engines(shop: Path, tmp_path: Path) -> Iterator[dict[str, LocalEngine]]:
    shutil.copytree(shop, tmp_path / "garden")
    found = {name: LocalEngine(tmp_path / name) for name in ("shop", "garden")}
    yield found
    for engine in found.values():
        engine.close()


def client_of(engines: dict[str, LocalEngine], below: str = "") -> TestClient:
    app, headers = Several(engines, Access()), {"X-Promptpool": "1"}
    return TestClient(app, base_url=f"{HERE}/{below}", headers=headers, raise_server_exceptions=False)


def test_each_has_its_routes_below_its_name(engines: dict[str, LocalEngine]) -> None:
    shop, garden = client_of(engines, "shop"), client_of(engines, "garden")
    teach(garden, lesson(("blue",)))
    assert finished(garden, garden.post("/learn").json()["job"])["state"] == "done"
    body = {"images": [{"name": "a.png", "data": text(picture("red", 9))}]}
    assert [each.post("/predict", json=body).json()["version"] for each in (shop, garden)] == [1, 2]
    assert [each.get("/classifier").json()["name"] for each in (shop, garden)] == ["shop", "garden"]
    assert shop.get("/").text.startswith("<!doctype html>")
    assert shop.get("/static/page.css").status_code == 200
    assert shop.get("/openapi.json").json()["info"]["title"] == "promptpool"
    assert garden.delete("/classes/blue").json() == {"version": 3}


def test_what_is_beside_them(engines: dict[str, LocalEngine]) -> None:
    client = client_of(engines)
    page = client.get("/")
    assert '<a href="shop/">shop</a>' in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"ready": True}
    assert client.get("/shop", follow_redirects=False).headers["location"] == "shop/"
    for path in ("/predict", "/zebra/", "/zebra", "//shop/classifier"):
        missing = client.get(path)
        assert missing.status_code == 404
        assert missing.json()["error"].endswith("classifiers are below /shop/, /garden/")
    assert client.post("/predict", json={}).json() == {"error": "ask a classifier, below /shop/, /garden/"}


def test_the_guard_is_before_each(engines: dict[str, LocalEngine]) -> None:
    client = TestClient(Several(engines, Access(TOKEN)), base_url=HERE)
    for path in ("/", "/shop/classifier", "/shop", "/garden/"):
        assert client.get(path, follow_redirects=False).status_code == 401
        assert client.get(path, headers={"Host": "evil.example"}).status_code == 403
    assert client.get("/health").status_code == client.get("/shop/health").status_code == 200
    signed = client.get(f"/shop/?token={TOKEN}", follow_redirects=False)
    assert (signed.status_code, signed.headers["location"]) == (303, "./")
    client.cookies.clear()
    assert client.get(f"/shop/?token={TOKEN}").url.path == "/shop/"
    assert client.get("/garden/classifier").status_code == 200, "the token is one for all"
    asked = client.post("/shop/undo", headers={"Origin": "http://evil.example", "X-Promptpool": "1"})
    assert asked.status_code == 403


def test_names_are_part_of_addresses(tmp_path: Path) -> None:
    assert list(names_of([tmp_path / "a-b", tmp_path / "c.d"])) == ["a-b", "c.d"]
    for wrong in ("a b", "ü", "health", "a?b"):
        with pytest.raises(BadFileError, match="is found by its name, which is of letters, digits and"):
            names_of([tmp_path / wrong])
    with pytest.raises(BadFileError, match="has the same name"):
        names_of([tmp_path / "a", tmp_path / "x" / "a"])
