"""What stands before every route: who may ask, from where, how much, how slowly.

- Host: only names of this server, so that no page of another host reaches it through a name of its own (rebinding).
- Origin and Sec-Fetch-Site: no page of another site asks for anything; and what changes something needs a header or a
  content type that a browser does not send to another site without asking first.
- Token: compared in constant time, from the Authorization header or the cookie that the page has.
- Bodies: their size before and while they are read, all of them together, and a client that pauses or trickles.
- Every answer forbids the browser to frame it, to guess its type, and to load anything from elsewhere.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from promptpool.serve.limits import Limits, RefusedError, full
from promptpool.serve.metrics import Metrics

OPEN = ("/health", "/ready")  # need no token
HARMLESS = ("/predict",)  # bodies that change nothing
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; "
        "font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class SlowClientError(RuntimeError):
    """A client that does not read."""


@dataclass(frozen=True)
class Access:
    """Who may ask: whoever knows the token, if there is one, under one of the names."""

    token: str | None = field(default=None, repr=False)
    names: tuple[str, ...] = ()  # beside those of this machine itself
    any_address: bool = False  # numbers instead of a name are allowed too, for a server that listens everywhere

    @property
    def cookie(self) -> str:
        """The name of the cookie, so that two servers of one host do not take each other's."""
        return f"promptpool_{hashlib.sha256((self.token or '').encode()).hexdigest()[:8]}"

    def knows_host(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        if name in ("localhost", *self.names):
            return True
        try:
            return ipaddress.ip_address(name).is_loopback or self.any_address
        except ValueError:
            return False

    def allows(self, given: str | None) -> bool:
        return self.token is None or (given is not None and hmac.compare_digest(given.encode(), self.token.encode()))


class Guard:
    """An application with all of that before it; counts requests."""

    def __init__(self, app: ASGIApp, access: Access, limits: Limits, metrics: Metrics) -> None:
        self.app, self.access, self.limits, self.metrics = app, access, limits, metrics
        self.reading = 0  # bytes of bodies that are being read

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        begin = time.perf_counter()
        answer = _Answer(send, self.limits.pause)
        body = _Body(receive, self)
        try:
            first = self.first_answer(scope)
            if first is not None:
                await first(scope, receive, answer.send)
            else:
                await self.app(scope, body.receive, answer.send)
        except SlowClientError:
            pass  # nobody is there to be told
        finally:
            self.reading -= body.size
            route = _route(scope)
            self.metrics.requests.add(route, str(answer.status))
            self.metrics.seconds.observe(time.perf_counter() - begin, route)

    def first_answer(self, scope: Scope) -> Response | None:
        """The answer to a request that comes to no route, or None."""
        headers, path = Headers(scope=scope), scope["path"]
        try:
            self._check_site(scope["method"], path, headers)
            if path == "/" and (given := parse_qs(scope["query_string"].decode("latin-1")).get("token")):
                return self._signed_in(scope, given[0])
            self._check_token(path, headers)
            self._check_length(headers)
        except RefusedError as refusal:
            return refused(refusal)
        return None

    def _check_site(self, method: str, path: str, headers: Headers) -> None:
        host = headers.get("host", "")
        if not self.access.knows_host(host):
            raise RefusedError(
                403, f"Host {host[:100]!r}: is no name of this server; promptpool serve --host-name allows others"
            )
        site, mode = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
        if site in ("cross-site", "same-site") and (method not in SAFE_METHODS or mode != "navigate"):
            raise RefusedError(403, "a page of another site asks: only this server's own page may")
        if method in SAFE_METHODS:
            return
        origin = headers.get("origin")
        if origin is not None and not _is_of(origin, host):
            raise RefusedError(403, f"Origin {origin[:100]!r}: only this server's own page may ask")
        is_json = headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
        if path not in HARMLESS and not is_json and headers.get("x-promptpool") != "1":
            raise RefusedError(403, "what changes something needs the header X-Promptpool: 1, or JSON")

    def _check_token(self, path: str, headers: Headers) -> None:
        if path in OPEN:
            return
        kind, _, given = headers.get("authorization", "").partition(" ")
        bearer = given.strip() if kind.lower() == "bearer" else None
        if not self.access.allows(bearer if bearer is not None else self._cookie(headers)):
            raise RefusedError(
                401, "this server needs its token: open /?token=... once, or send Authorization: Bearer ..."
            )

    def _cookie(self, headers: Headers) -> str | None:
        return cookie_parser(headers.get("cookie", "")).get(self.access.cookie)

    def _signed_in(self, scope: Scope, token: str) -> Response:
        """The page without the token in its address, and the cookie in its place."""
        if not self.access.allows(token):
            raise RefusedError(401, "the token is not that of this server")
        response = RedirectResponse("./", status_code=303)
        if self.access.token is not None:
            response.set_cookie(
                self.access.cookie, token, httponly=True, samesite="strict", secure=scope["scheme"] == "https"
            )
        return response

    def _check_length(self, headers: Headers) -> None:
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdecimal()):
            raise RefusedError(400, "Content-Length: is no number")
        if len(length) > 15 or int(length) > self.limits.body:
            raise self.too_large()
        if self.reading + int(length) > self.limits.bodies:
            raise full("too many large requests at once")

    def too_large(self) -> RefusedError:
        return RefusedError(413, f"the body has more than {self.limits.body:,} bytes, which is the most")


class _Body:
    """What a client sends, as long as it is not too much or too slow."""

    def __init__(self, receive: Receive, guard: Guard) -> None:
        self.inner, self.guard = receive, guard
        self.size = 0
        self.over = False
        self.until = time.monotonic() + guard.limits.reading

    async def receive(self) -> Message:
        limits = self.guard.limits
        if self.over:  # what is waited for now is that the client goes
            return await self.inner()
        left = min(limits.pause, self.until - time.monotonic())
        try:
            message = await asyncio.wait_for(self.inner(), max(left, 0.001))
        except TimeoutError as error:
            raise _raised(RefusedError(408, "the body came too slowly")) from error
        if message["type"] != "http.request":
            return message
        length = len(message.get("body", b""))
        self.size += length
        self.guard.reading += length
        self.over = not message.get("more_body", False)
        if self.size > limits.body:
            raise _raised(self.guard.too_large())
        if self.guard.reading > limits.bodies:
            raise _raised(full("too many large requests at once"))
        return message


class _Answer:
    """What goes out, with the headers that every answer has; a client that does not read is let go."""

    def __init__(self, send: Send, pause: float) -> None:
        self.inner, self.pause = send, pause
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        try:
            await asyncio.wait_for(self.inner(message), self.pause)
        except TimeoutError as error:
            raise SlowClientError("the client does not read its answer") from error


def refused(refusal: RefusedError) -> JSONResponse:
    """The answer for what is not done."""
    headers = {} if refusal.retry is None else {"Retry-After": str(refusal.retry)}
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": refusal.sentence}, refusal.status, headers)


def _raised(refusal: RefusedError) -> HTTPException:
    """A refusal as FastAPI lets it pass while it reads a body."""
    retry = None if refusal.retry is None else {"Retry-After": str(refusal.retry)}
    return HTTPException(refusal.status, refusal.sentence, retry)


def _is_of(origin: str, host: str) -> bool:
    parts = urlsplit(origin)
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


def _route(scope: Scope) -> str:
    """The route as it is written, so that no client makes up names."""
    return str(getattr(scope.get("route"), "path", "other"))


def host_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names as the Host header has them, in small letters."""
    return tuple(name.strip().lower().rstrip(".") for name in names)
