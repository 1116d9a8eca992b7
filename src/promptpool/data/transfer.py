"""One request for what a file still lacks, from an address on the web.

Only http and https, also where a server sends us on. An answer is used if it begins where the file ends (206) or at the
start (200, and the file begins anew), and if it is as long as expected; no byte beyond that is written. Every piece is
written as it arrives, so that whatever stops us, the next request goes on from there. `read` is for short answers that
are no files. A token goes to the host that was asked and to no other that it sends us on to.
"""

from __future__ import annotations

import http.client
import io
import os
import re
import urllib.error
import urllib.request
from email.message import Message
from typing import IO, cast
from urllib.parse import urlsplit

from promptpool import __version__
from promptpool.errors import BadFileError
from promptpool.progress import report

PIECE = 2**18
AGAIN = (408, 425, 429, *range(500, 600))  # a server that answers so may have the file in a while


class RefusedError(Exception):
    """The server answers, but not with this file; asking again is of no use.

    `status` and `code` are what it answers (404) and what the Hugging Face hub says beside it (RepoNotFound).
    """

    status: int | None = None
    code: str = ""


class BrokenError(Exception):
    """The answer did not come, or not all of it; asking again may help."""


class UnreachableError(BrokenError):
    """There is no server, or no network."""


def receive(
    url: str, file: io.FileIO, *, what: str, size: int | None, timeout: float, token: str | None = None
) -> None:
    """Append what `file` lacks, reporting as `what`, up to `size` or else the size that the server says."""
    have = file.seek(0, os.SEEK_END)
    for start in dict.fromkeys((have, 0)):  # anew, if the rest alone cannot be had
        try:
            answer = _ask(url, start, timeout, token)
        except urllib.error.HTTPError as error:
            with error:
                ended = error.code == 416 and start > 0
                if ended and size is None and error.headers.get("Content-Range", "") == f"bytes */{start}":
                    return
            if not ended:
                raise _http_error(error) from error
            continue
        with answer:
            end = _end(answer, start, size)
            if end is not None:
                begin = start if answer.status == 206 else 0
                if begin < have:
                    file.truncate(begin)
                _copy(answer, file, begin, end, what)
                return
    raise RefusedError("answers with another part of the file than was asked for")


def read(url: str, *, most: int, timeout: float, token: str | None = None) -> bytes:
    """A whole answer of at most so many bytes."""
    try:
        with _ask(url, 0, timeout, token) as answer:
            content = answer.read(most + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise _http_error(error) from error
    except (OSError, http.client.HTTPException) as error:
        raise BrokenError(_reason(error)) from error
    if len(content) > most:
        raise RefusedError(f"answers with more than {most:,} bytes")
    return content


def _ask(url: str, start: int, timeout: float, token: str | None) -> http.client.HTTPResponse:
    headers = {"User-Agent": f"promptpool/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        request = urllib.request.Request(url, headers=headers)  # noqa: S310  # `_opener` has no other scheme
        return cast(http.client.HTTPResponse, _opener().open(request, timeout=timeout))
    except urllib.error.HTTPError:
        raise
    except urllib.error.URLError as error:
        raise UnreachableError(_reason(error.reason)) from error
    except (OSError, http.client.HTTPException) as error:
        raise BrokenError(_reason(error)) from error
    except ValueError as error:  # an address that cannot be one
        raise RefusedError(_reason(error)) from error


def _opener() -> urllib.request.OpenerDirector:
    """What opens http and https, through the proxies of the environment, and nothing else."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Keeps a token from other hosts."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
        if request is not None and urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
            request.remove_header("Authorization")
        return request


def _http_error(error: urllib.error.HTTPError) -> Exception:
    text = f"answers {error.code}: {_reason(error.reason)}"
    if error.code in AGAIN:
        return BrokenError(text)
    refused = RefusedError(text)
    refused.status, refused.code = error.code, error.headers.get("X-Error-Code", "")
    return refused


def _end(answer: http.client.HTTPResponse, start: int, size: int | None) -> int | None:
    """How long the file is when this answer is at its end; None if it is not the part that was asked for."""
    if answer.status == 206:
        said = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", answer.headers.get("Content-Range", ""))
        if not start or not said or int(said[1]) != start:
            return None
        total = size if said[2] == "*" else int(said[2])
        return total if size in (None, total) else None
    if answer.status != 200:
        raise RefusedError(f"answers {answer.status}: {answer.reason}")
    total = answer.length
    if size is not None and total not in (None, size):
        raise RefusedError(f"has {total:,} bytes instead of {size:,}")
    if size is None and total is None:
        raise RefusedError("does not say how long the file is")
    return total if size is None else size


def _copy(answer: http.client.HTTPResponse, file: io.FileIO, have: int, end: int, what: str) -> None:
    report(what, have, end)
    while have < end:
        try:
            piece = answer.read1(min(PIECE, end - have))
        except (OSError, http.client.HTTPException) as error:
            raise BrokenError(f"{_reason(error)} after {have:,} of {end:,} bytes") from error
        if not piece:
            raise BrokenError(f"ends after {have:,} of {end:,} bytes")
        _write(file, piece)
        have += len(piece)
        report(what, have, end)


def _write(file: io.FileIO, piece: bytes) -> None:
    left = memoryview(piece)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise BadFileError(f"{file.name!s}: cannot be written: {error.strerror}; what is there is kept") from error


def _reason(error: object) -> str:
    """What went wrong, in a few words."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(said.split()) or type(error).__name__
