"""What the server bears: sizes, numbers and seconds; and what it says to whoever asks for more."""

from __future__ import annotations

from dataclasses import dataclass

MEGABYTE = 10**6


@dataclass(frozen=True)
class Limits:
    """Beyond these a request is refused, before it costs more than to notice."""

    body: int = 64 * MEGABYTE  # bytes of one request
    bodies: int = 512 * MEGABYTE  # bytes of all requests that are being read
    files: int = 100  # pictures of one request
    picture: int = 32 * MEGABYTE  # bytes of one picture
    pixels: int = 50_000_000  # of one picture
    queue: int = 512  # pictures that wait for an answer
    batch: int = 32  # pictures that are looked at together
    gather: float = 0.004  # seconds that a picture waits for others
    waiting: int = 10_000  # pictures that wait to be learned
    waiting_bytes: int = 4_000 * MEGABYTE
    head: float = 10.0  # seconds until the head of a request is there
    pause: float = 10.0  # seconds without a byte, in or out
    reading: float = 120.0  # seconds for a whole body
    jobs: int = 50  # jobs that are remembered


class RefusedError(Exception):
    """A request that is not done, with the status and the sentence that say why."""

    def __init__(self, status: int, sentence: str, retry: int | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.retry = status, sentence, retry


def conflict(sentence: str, retry: int | None = None) -> RefusedError:
    return RefusedError(409, sentence, retry)


def full(sentence: str, retry: int = 1) -> RefusedError:
    """There is no room at present."""
    return RefusedError(429, sentence, retry)
