"""Ask and teach a classifier that `promptpool serve` serves; nothing but Python's own library is needed.

shop = Client("http://127.0.0.1:8000")
shop.predict("photo.jpg")[0]["label"]         "mug"
shop.teach("bowl", ["1.jpg", "2.jpg"])
shop.learn()["new"]                           ["bowl"]
"""

from __future__ import annotations

import base64
import ipaddress
import json
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast
from urllib.parse import quote, urlencode, urlsplit

Name = TypeVar("Name")
Picture = str | Path | bytes  # a path, or the bytes of an image file
AT_ONCE = 32  # pictures of one request
BYTES_AT_ONCE = 16 * 10**6
LONGEST_PAUSE = 5.0  # seconds; a server that says to come back later than that is not waited for


class Candidate(TypedDict):
    label: str
    confidence: float


class Answer(TypedDict):
    """What a server says of a picture; `error` is None unless it is none."""

    version: int
    name: str
    label: str
    unknown: bool
    guess: str
    confidence: float
    top: list[Candidate]
    prompts: list[int] | None
    similar: list[dict[str, str]]
    error: str | None


class Taught(TypedDict):
    """What became of pictures that were sent: those added wait for `learn`."""

    waiting: int
    added: list[dict[str, str]]
    refused: list[dict[str, str]]


class ServerError(RuntimeError):
    """A server that refuses, with its sentence and the status; 0 where there is no server."""

    def __init__(self, sentence: str, status: int = 0, retry: float | None = None) -> None:
        super().__init__(sentence)
        self.status, self.retry = status, retry


class Client:
    """See the module. `token` is needed where the server has one; `timeout` is in seconds, for one request."""

    def __init__(
        self, address: str = "http://127.0.0.1:8000", *, token: str | None = None, timeout: float = 60.0
    ) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"address = {address!r}: must be like http://127.0.0.1:8000")
        self.address, self.token, self.timeout = address.rstrip("/"), token, timeout
        proxies = urllib.request.ProxyHandler({} if _is_here(parts.hostname) else None)
        self._opener = urllib.request.build_opener(proxies)

    def predict(self, *pictures: Picture, top: int = 5, sure: float | None = None) -> list[Answer]:
        """An answer for each picture; with `sure` only where so large a share of answers is right."""
        query = urlencode({"top": top, **({} if sure is None else {"sure": sure})})
        found: list[Answer] = []
        for part in _parts(map(_read, pictures)):
            body = {"images": [{"name": name, "data": _text(content)} for name, content in part]}
            answer = self._json("POST", f"/predict?{query}", body)
            found += [cast(Answer, {"version": answer["version"], **each}) for each in answer["predictions"]]
        return found

    def teach(self, label: str, pictures: Picture | Iterable[Picture]) -> Taught:
        """Send pictures of one class to wait for `learn`; when this returns, the server has them on disk."""
        several = [pictures] if isinstance(pictures, str | Path | bytes) else pictures
        return self.teach_all((label, *_read(picture)) for picture in several)

    def teach_all(self, pictures: Iterable[tuple[str, str, bytes]]) -> Taught:
        """The same for pictures of several classes, each with its label, its name and its bytes."""
        found: Taught = {"waiting": 0, "added": [], "refused": []}
        for part in _parts(((label, name), content) for label, name, content in pictures):
            body = {
                "pictures": [{"label": label, "name": name, "data": _text(content)} for (label, name), content in part]
            }
            answer = cast(Taught, self._json("POST", "/lessons", body))
            found["waiting"] = answer["waiting"]
            found["added"] += answer["added"]
            found["refused"] += answer["refused"]
        return found

    def learn(self, *, wait: bool = True) -> dict[str, Any]:
        """Make a lesson of all that wait: what it did, or without `wait` the job, for `job(...)`."""
        job = self.job(self._json("POST", "/learn")["job"])
        pause = 0.1
        while wait and job["state"] in ("waiting", "running"):
            time.sleep(pause)
            pause = min(2 * pause, 2.0)
            job = self.job(job["id"])
        if job["state"] == "failed":
            raise ServerError(f"the lesson failed: {job['error']}", 409)
        return cast(dict[str, Any], job["report"] if wait else job)

    def job(self, identity: str) -> dict[str, Any]:
        """How far a job is."""
        return self._json("GET", f"/jobs/{quote(identity, safe='')}")

    def about(self) -> dict[str, Any]:
        """What the classifier is."""
        return self._json("GET", "/classifier")

    def classes(self) -> list[dict[str, Any]]:
        """Name, pictures and accuracy of each class."""
        return cast(list[dict[str, Any]], self._json("GET", "/classes")["classes"])

    def forget(self, label: str) -> int:
        """Take a class out; returns the new version."""
        return int(self._json("DELETE", f"/classes/{quote(label, safe='')}")["version"])

    def rename(self, old: str, new: str) -> int:
        """Give a class another name, or make one of two; returns the new version."""
        return int(self._json("POST", f"/classes/{quote(old, safe='')}/rename", {"to": new})["version"])

    def undo(self) -> int:
        """Go back to the version before; returns its number."""
        return int(self._json("POST", "/undo")["version"])

    def export(self, path: str | Path, *, format: str = "zip") -> Path:  # noqa: A002
        """Save the classifier as a zip, or with format="onnx" its model in ONNX."""
        target = Path(path)
        temporary = target.with_name(f".{target.name}.partial")
        with self._open("GET", f"/export?{urlencode({'format': format})}") as answer, temporary.open("wb") as file:
            shutil.copyfileobj(answer, file)
        temporary.replace(target)
        return target

    def _json(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        with self._open(method, path, body) as answer:
            try:
                return cast(dict[str, Any], json.load(answer))
            except (ValueError, OSError, HTTPException) as error:
                raise ServerError(f"{self.address}: the answer is damaged ({error})") from error

    def _open(self, method: str, path: str, body: dict[str, Any] | None = None) -> HTTPResponse:
        """The answer; a server that has too much to do is asked again, as often as the timeout allows."""
        content = None if body is None else json.dumps(body).encode()
        until = time.monotonic() + self.timeout
        while True:
            try:
                return self._once(method, path, content)
            except ServerError as error:
                wait = error.retry
                if error.status != 429 or wait is None or wait > min(LONGEST_PAUSE, until - time.monotonic()):
                    raise
                time.sleep(wait)

    def _once(self, method: str, path: str, content: bytes | None) -> HTTPResponse:
        headers = {"X-Promptpool": "1", "Accept": "*/*"}
        if content is not None:
            headers["Content-Type"] = "application/json"
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        url = f"{self.address}{path}"
        request = urllib.request.Request(url, content, headers, method=method)  # noqa: S310  # http alone, see above
        try:
            return cast(HTTPResponse, self._opener.open(request, timeout=self.timeout))
        except urllib.error.HTTPError as error:
            raise _refused(error) from error
        except (OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise ServerError(f"{self.address}: no answer ({reason})") from error


def _refused(error: urllib.error.HTTPError) -> ServerError:
    with error:
        try:
            sentence = str(json.loads(error.read())["error"])
        except (ValueError, KeyError, TypeError, OSError, HTTPException):
            sentence = str(error.reason)
    retry = error.headers.get("Retry-After", "")
    return ServerError(sentence, error.code, float(retry) if retry.isdecimal() else None)


def _is_here(host: str) -> bool:
    """True for this machine, to which no proxy leads."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read(picture: Picture) -> tuple[str, bytes]:
    """A name and the bytes of a picture."""
    if isinstance(picture, bytes):
        return "picture", picture
    path = Path(picture).expanduser()
    return path.name, path.read_bytes()


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _parts(pictures: Iterable[tuple[Name, bytes]]) -> Iterator[list[tuple[Name, bytes]]]:
    """Pictures in groups that a server takes at once."""
    part: list[tuple[Name, bytes]] = []
    size = 0
    for each in pictures:
        if part and (len(part) == AT_ONCE or size + len(each[1]) > BYTES_AT_ONCE):
            yield part
            part, size = [], 0
        part.append(each)
        size += len(each[1])
    if part:
        yield part
