"""A server on this machine that sends real bytes, well or badly."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Web(ThreadingHTTPServer):
    """Sends `content` under every path; `plan` says how the next requests are answered, then all goes well."""

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.content = content
        self.plan: list[Behaviour] = []
        self.asked: list[tuple[str, str | None]] = []  # the path and the range
        self.gate = threading.Event()

    @property
    def half(self) -> int:
        return len(self.content) // 2

    @property
    def ranges(self) -> list[str | None]:
        return [asked for _, asked in self.asked]

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is what some tests are about."""


class Answer(BaseHTTPRequestHandler):
    server: Web

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Range"]))
        behave = self.server.plan.pop(0) if self.server.plan else well
        behave(self)

    @property
    def start(self) -> int:
        """Where the asked part begins."""
        return int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").removesuffix("-"))

    def head(self, status: int, **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def begin(self) -> memoryview:
        """Send the head of a good answer; returns what has to follow."""
        whole, start = self.server.content, self.start
        if start:
            said = f"bytes {start}-{len(whole) - 1}/{len(whole)}"
            self.head(206, Content_Range=said, Content_Length=len(whole) - start)
        else:
            self.head(200, Content_Length=len(whole))
        return memoryview(whole)[start:]

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


Behaviour = Callable[[Answer], None]


def well(answer: Answer) -> None:
    if answer.start >= len(answer.server.content) > 0:
        answer.head(416, Content_Range=f"bytes */{len(answer.server.content)}")
    else:
        answer.wfile.write(answer.begin())


def without_ranges(answer: Answer) -> None:
    answer.head(200, Content_Length=len(answer.server.content))
    answer.wfile.write(answer.server.content)


def without_length(answer: Answer) -> None:
    answer.head(200)
    answer.wfile.write(answer.server.content)


def in_chunks(answer: Answer) -> None:
    answer.protocol_version = "HTTP/1.1"
    answer.head(200, Transfer_Encoding="chunked", Connection="close")
    for piece in (answer.server.content[: answer.server.half], answer.server.content[answer.server.half :], b""):
        answer.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))


def cut_off(answer: Answer) -> None:
    """Half of what is left, and then nothing more."""
    rest = answer.begin()
    answer.wfile.write(rest[: len(rest) // 2])


def cut_off_in_chunks(answer: Answer) -> None:
    answer.protocol_version = "HTTP/1.1"
    answer.head(200, Transfer_Encoding="chunked", Connection="close")
    answer.wfile.write(b"%x\r\n%s" % (len(answer.server.content), answer.server.content[: answer.server.half]))


def hang_up(answer: Answer) -> None:
    """No answer at all."""


def stall(answer: Answer) -> None:
    """Half of what is left, and the other half when the gate is opened."""
    rest = answer.begin()
    answer.wfile.write(rest[: len(rest) // 2])
    answer.wfile.flush()
    if answer.server.gate.wait(60):
        answer.wfile.write(rest[len(rest) // 2 :])


def wrong_bytes(answer: Answer) -> None:
    answer.wfile.write(bytes(byte ^ 1 for byte in answer.begin()))


def another_length(answer: Answer) -> None:
    answer.head(200, Content_Length=7)
    answer.wfile.write(b"<html/>")


def endless(answer: Answer) -> None:
    answer.head(200)
    while True:
        answer.wfile.write(bytes(2**16))


def wrong_place(answer: Answer) -> None:
    """A part that begins elsewhere, when a part is asked for."""
    whole = answer.server.content
    said = f"bytes {answer.start - 1}-{len(whole) - 1}/{len(whole)}"
    answer.head(206, Content_Range=said, Content_Length=len(whole) - answer.start + 1)
    answer.wfile.write(whole[answer.start - 1 :])


def wrong_total(answer: Answer) -> None:
    """A part of a longer file, when a part is asked for."""
    whole = answer.server.content
    said = f"bytes {answer.start}-{len(whole)}/{len(whole) + 1}"
    answer.head(206, Content_Range=said, Content_Length=len(whole) + 1 - answer.start)
    answer.wfile.write(whole[answer.start :] + b"!")


def says(status: int, **headers: object) -> Behaviour:
    return lambda answer: answer.head(status, Content_Length=0, **headers)


@contextmanager
def serving(content: bytes) -> Iterator[Web]:
    with Web(content) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.gate.set()
            server.shutdown()
            thread.join()
