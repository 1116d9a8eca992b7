"""The claims of the paper, each with yes, no or level, and the numbers that decide it.

Two rows are level where they are no farther apart than their deviations joined (the root of the sum of squares); a row
with one seed counts with `ONE_SEED`, about what seeds differ by on streams of similar tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from promptpool.metrics import Matrix
from promptpool.report.names import METHODS, UPPER_BOUND
from promptpool.report.table import UNDEFINED, Cell, Column, Table
from promptpool.reproduce.figures import overlap
from promptpool.reproduce.results import Result, Results, below_bound
from promptpool.reproduce.studies import NO_BUFFER

OURS, TRAINED = METHODS["l2p-r"], METHODS["l2p-r-trained"]
ONE_SEED = 0.7  # points


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, how far our numbers agree with it (None where some are missing), and the numbers."""

    text: str
    stream: str
    lead: float | None  # over the strongest of the others
    numbers: str
    seeds: str = UNDEFINED  # of the number that has the fewest
    noise: float = 0.0  # what the lead may be by chance

    @property
    def verdict(self) -> str:
        if self.lead is None:
            return "not measured"
        return "level" if abs(self.lead) <= self.noise else "yes" if self.lead > 0 else "no"


def claims(results: Results) -> list[Claim]:
    """All claims that the results at hand can decide."""
    found: list[Claim] = []
    for study in ("table1", "table3", "table4"):
        for stream, rows in _by_stream(results, study).items():
            plain = [row for row in rows if row.group == NO_BUFFER]
            found.append(highest("Without a buffer, L2P beats the regularisers", stream, plain, "L2P", ("EWC", "LwF")))
            found += _rehearsal(rows, stream)
    found += [_smaller_buffers(rows, stream) for stream, rows in _by_stream(results, "table1").items()]
    found += _architectures(results.studies.get("table2", []))
    found += _ablations(results.studies.get("table5", []))
    found += _sharing(results.shares)
    return found


def claims_table(found: Sequence[Claim]) -> Table:
    columns = [Column(name, left=name != "seeds") for name in ("claim", "stream", "here", "seeds", "numbers")]
    rows = [tuple(map(Cell, (c.text, c.stream, c.verdict, c.seeds, c.numbers))) for c in found]
    return Table(tuple(columns), tuple(rows))


def _rehearsal(rows: Sequence[Result], stream: str) -> Iterable[Claim]:
    for group in dict.fromkeys(row.group for row in rows if row.group.endswith("per class")):
        rehearsal = [row for row in rows if row.group == group]
        others = tuple(row.method for row in rehearsal if row.method not in (OURS, TRAINED))
        for best in (row.method for row in rehearsal if row.method in (OURS, TRAINED)):
            yield highest(f"{best} beats the rehearsal methods, {group}", stream, rehearsal, best, others)


def _smaller_buffers(rows: Sequence[Result], stream: str) -> Claim:
    """How much each method loses when the larger buffer is replaced by the smaller."""
    groups = list(dict.fromkeys(row.group for row in rows if row.group.endswith("per class")))
    text = "A smaller buffer hurts L2P-R least"
    if len(groups) < 2:
        return Claim(text, stream, None, UNDEFINED)
    smaller = [row for row in rows if row.group == groups[0] and row.method != TRAINED]
    by_method: dict[str, float] = {}
    for row in smaller:
        larger = next((r.value for r in rows if r.group == groups[-1] and r.method == row.method), None)
        if row.value is not None and larger is not None:
            by_method[row.method] = larger - row.value
    compared = [row for row in rows if row.group in (groups[0], groups[-1]) and row.method in by_method]
    numbers = ", ".join(f"{method} loses {lost:.1f}" for method, lost in by_method.items())
    if OURS not in by_method or not 1 < len(by_method) == len(smaller):
        return Claim(text, stream, None, numbers or UNDEFINED)
    rival = min((method for method in by_method if method != OURS), key=by_method.__getitem__)
    noise = _noise(row for row in compared if row.method in (OURS, rival))
    return Claim(text, stream, by_method[rival] - by_method[OURS], numbers, _seeds(compared), noise)


def _architectures(rows: Sequence[Result]) -> Iterable[Claim]:
    compared = [row for row in rows if row.method in ("SupSup", "DualNet", "L2P")]
    gaps = {row.method: gap for row in compared if (gap := below_bound(row, rows)) is not None}
    if rows:
        numbers = ", ".join(f"{method} {gap:.1f} below its bound" for method, gap in gaps.items()) or UNDEFINED
        text = "L2P stays nearer to its upper bound than SupSup and DualNet"
        if not {"L2P", "SupSup", "DualNet"} <= gaps.keys():
            yield Claim(text, rows[0].stream, None, numbers)
            return
        bounds = [row for row in rows if row.method == UPPER_BOUND]
        rival = min(("SupSup", "DualNet"), key=gaps.__getitem__)
        noise = _noise([*(row for row in compared if row.method in ("L2P", rival)), *bounds])
        yield Claim(text, rows[0].stream, gaps[rival] - gaps["L2P"], numbers, _seeds([*compared, *bounds]), noise)


def _ablations(rows: Sequence[Result]) -> Iterable[Claim]:
    for text, less in (
        ("The pool beats one prompt", "One prompt"),
        ("Learned keys beat means of prompts", "Mean of prompts as key"),
        ("Diversified selection helps unlike tasks", "No diversified selection"),
    ):
        if rows:
            yield highest(text, rows[0].stream, rows, "L2P", (less,))


def _sharing(shares: dict[str, Matrix]) -> Iterable[Claim]:
    if len(shares) == 2:
        (similar, first), (unlike, second) = shares.items()
        numbers = f"overlap of two tasks' choices: {overlap(first):.2f} on {similar}, {overlap(second):.2f} on {unlike}"
        text = "Similar tasks share more of their prompts than unlike ones"
        yield Claim(text, f"{similar}, {unlike}", overlap(first) - overlap(second), numbers, "1")


def highest(text: str, stream: str, rows: Sequence[Result], best: str, others: Sequence[str]) -> Claim:
    """Whether one method is above all the others."""
    compared = [row for row in rows if row.method in (best, *others)]
    known = {row.method: row.value for row in compared if row.value is not None}
    numbers = ", ".join(_number(row) for row in compared if row.value is not None)
    if best not in known or len(known) < 2 or len(known) < len(compared):
        return Claim(text, stream, None, numbers or UNDEFINED)
    rival = max((method for method in known if method != best), key=known.__getitem__)
    noise = _noise(row for row in compared if row.method in (best, rival))
    return Claim(text, stream, known[best] - known[rival], numbers, _seeds(compared), noise)


def _number(row: Result) -> str:
    spread = f" ± {float(row.accuracy_deviation):.1f}" if row.accuracy_deviation else ""
    return f"{row.method} {float(row.accuracy):.1f}{spread}"


def _noise(rows: Iterable[Result]) -> float:
    """What sums and differences of these rows' accuracies may be off by."""
    return math.hypot(*(float(row.accuracy_deviation or ONE_SEED) for row in rows))


def _seeds(rows: Iterable[Result]) -> str:
    """The number of seeds behind the number that has the fewest."""
    return str(min((len(row.seeds.split()) for row in rows if row.value is not None), default=0))


def _by_stream(results: Results, study: str) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {}
    for result in results.studies.get(study, []):
        found.setdefault(result.stream, []).append(result)
    return found
