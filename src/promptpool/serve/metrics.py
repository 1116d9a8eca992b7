"""What the server counts, as Prometheus reads it (text format 0.0.4)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
PICTURES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
HOURS = 24  # for which the share of unknown answers is kept


class Counter:
    """Numbers that only grow, by their labels."""

    def __init__(self, name: str, about: str, labels: Sequence[str] = ()) -> None:
        self.name, self.about, self.labels = name, about, labels
        self._guard = threading.Lock()
        self._counts: dict[tuple[str, ...], int] = {}

    def add(self, *values: str, count: int = 1) -> None:
        with self._guard:
            self._counts[values] = self._counts.get(values, 0) + count

    def lines(self) -> Iterator[str]:
        with self._guard:
            counts = sorted(self._counts.items())
        yield from _head(self.name, "counter", self.about)
        for values, count in counts:
            yield _line(self.name, dict(zip(self.labels, values, strict=True)), count)


class Histogram:
    """How often a value lay below each of some bounds."""

    def __init__(self, name: str, about: str, bounds: Sequence[float], label: str = "") -> None:
        self.name, self.about, self.bounds, self.label = name, about, bounds, label
        self._guard = threading.Lock()
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def observe(self, value: float, key: str = "") -> None:
        place = sum(value > bound for bound in self.bounds)
        with self._guard:
            self._counts.setdefault(key, [0] * (len(self.bounds) + 1))[place] += 1
            self._sums[key] = self._sums.get(key, 0.0) + value

    def lines(self) -> Iterator[str]:
        with self._guard:
            found = {key: (list(counts), self._sums[key]) for key, counts in sorted(self._counts.items())}
        yield from _head(self.name, "histogram", self.about)
        for key, (counts, total) in found.items():
            own = {self.label: key} if self.label else {}
            for bound, count in zip([*map(str, self.bounds), "+Inf"], accumulate(counts), strict=True):
                yield _line(f"{self.name}_bucket", {**own, "le": bound}, count)
            yield _line(f"{self.name}_sum", own, round(total, 6))
            yield _line(f"{self.name}_count", own, sum(counts))


class UnknownShare:
    """The share of answers that were "unknown", for each of the last hours: it rises when pictures change."""

    name = "promptpool_unknown_share"

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._hours: dict[int, list[int]] = {}  # answers, and those of them that were unknown

    def note(self, answers: int, unknown: int, now: float | None = None) -> None:
        hour = int((time.time() if now is None else now) // 3600)
        with self._guard:
            found = self._hours.setdefault(hour, [0, 0])
            found[0] += answers
            found[1] += unknown
            self._hours = {each: counts for each, counts in self._hours.items() if each > hour - HOURS}

    def lines(self, now: float | None = None) -> Iterator[str]:
        hour = int((time.time() if now is None else now) // 3600)
        with self._guard:
            found = {hour - each: (counts[0], counts[1]) for each, counts in self._hours.items()}
        yield from _head(self.name, "gauge", "The share of answers that were unknown, by hour.")
        for ago, (answers, unknown) in sorted(found.items()):
            if 0 <= ago < HOURS and answers:
                yield _line(self.name, {"hours_ago": str(ago)}, round(unknown / answers, 6))


class Metrics:
    """All that is counted; gauges are asked for when somebody looks."""

    def __init__(self) -> None:
        self.requests = Counter("promptpool_requests_total", "Requests by route and status.", ("route", "status"))
        self.seconds = Histogram("promptpool_request_seconds", "How long requests took.", SECONDS, "route")
        self.batch_sizes = Histogram("promptpool_batch_pictures", "Pictures that were looked at together.", PICTURES)
        self.answers = Counter("promptpool_answers_total", "Pictures by the kind of answer.", ("answer",))
        self.unknown = UnknownShare()

    def note_answers(self, known: int, unknown: int, errors: int) -> None:
        for kind, count in (("known", known), ("unknown", unknown), ("error", errors)):
            if count:
                self.answers.add(kind, count=count)
        if known + unknown:
            self.unknown.note(known + unknown, unknown)

    def text(self, gauges: dict[str, tuple[str, float]]) -> str:
        """Everything, with gauges by their name: what they are, and their value now."""
        lines: list[str] = []
        for each in (self.requests, self.seconds, self.batch_sizes, self.answers, self.unknown):
            lines += each.lines()
        for name, (about, value) in gauges.items():
            lines += [*_head(name, "gauge", about), _line(name, {}, value)]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _line(name: str, labels: dict[str, str], value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{shown}}} {value}" if shown else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
