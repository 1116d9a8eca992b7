"""What the paper claims, each as yes or no with the numbers that say so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from promptpool.metrics import Matrix
from promptpool.reproduce.entries import Entry, below_bound
from promptpool.reproduce.figures import overlap
from promptpool.reproduce.studies import LABELS, NO_BUFFER, UPPER_BOUND

OURS, TRAINED = LABELS["l2p-r"], LABELS["l2p-r-trained"]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, whether our numbers agree, and the numbers; None where they are not all there."""

    text: str
    stream: str
    holds: bool | None
    numbers: str
    seeds: str = "-"  # the fewest of a number

    @property
    def verdict(self) -> str:
        return "not measured" if self.holds is None else "yes" if self.holds else "no"


def claims(entries: Sequence[Entry], shares: dict[str, Matrix]) -> list[Claim]:
    """All that the entries at hand can tell."""
    found: list[Claim] = []
    for study in ("table1", "table3", "table4"):
        for stream in _streams(entries, study):
            rows = [entry for entry in entries if entry.study == study and entry.stream == stream]
            found.append(_regularisers(rows, stream))
            found += _rehearsal(rows, stream)
    for stream in _streams(entries, "table1"):
        found.append(_smaller_buffers([e for e in entries if e.study == "table1" and e.stream == stream], stream))
    found += _architectures([entry for entry in entries if entry.study == "table2"])
    found += _ablations([entry for entry in entries if entry.study == "table5"])
    found += _sharing(shares)
    return found


def markdown(found: Sequence[Claim]) -> str:
    lines = ["| claim | stream | here | seeds | numbers |", "| --- | --- | --- | ---: | --- |"]
    lines += [f"| {c.text} | {c.stream} | {c.verdict} | {c.seeds} | {c.numbers} |" for c in found]
    return "\n".join(lines) + "\n"


def _regularisers(rows: Sequence[Entry], stream: str) -> Claim:
    text = "Without a buffer, L2P beats the regularisers"
    plain = [row for row in rows if row.group == NO_BUFFER]
    return _highest(text, stream, plain, "L2P", ("EWC", "LwF"))


def _rehearsal(rows: Sequence[Entry], stream: str) -> Iterable[Claim]:
    for group in dict.fromkeys(row.group for row in rows if row.group.endswith("per class")):
        kept = [row for row in rows if row.group == group]
        others = tuple(row.method for row in kept if row.method not in (OURS, TRAINED))
        for best in (row.method for row in kept if row.method in (OURS, TRAINED)):
            yield _highest(f"{best} beats the rehearsal methods, {group}", stream, kept, best, others)


def _smaller_buffers(rows: Sequence[Entry], stream: str) -> Claim:
    """How much each method loses from the larger buffer to the smaller."""
    groups = list(dict.fromkeys(row.group for row in rows if row.group.endswith("per class")))
    text = "A smaller buffer hurts L2P-R least"
    if len(groups) < 2:
        return Claim(text, stream, None, "-")
    smaller = [row for row in rows if row.group == groups[0] and row.method != TRAINED]
    by_method: dict[str, float] = {}
    for row in smaller:
        larger = next((r.value for r in rows if r.group == groups[-1] and r.method == row.method), None)
        if row.value is not None and larger is not None:
            by_method[row.method] = larger - row.value
    compared = [row for row in rows if row.group in (groups[0], groups[-1]) and row.method in by_method]
    numbers = ", ".join(f"{method} loses {lost:.1f}" for method, lost in by_method.items())
    if OURS not in by_method or not 1 < len(by_method) == len(smaller):
        return Claim(text, stream, None, numbers or "-")
    return Claim(text, stream, by_method[OURS] <= min(by_method.values()), numbers, _seeds(compared))


def _architectures(rows: Sequence[Entry]) -> Iterable[Claim]:
    compared = [row for row in rows if row.method in ("SupSup", "DualNet", "L2P")]
    gaps = {row.method: gap for row in compared if (gap := below_bound(row, rows)) is not None}
    if rows:
        numbers = ", ".join(f"{method} {gap:.1f} below its bound" for method, gap in gaps.items()) or "-"
        whole = {"L2P", "SupSup", "DualNet"} <= gaps.keys()
        holds = gaps["L2P"] == min(gaps.values()) if whole else None
        text = "L2P stays nearer to its upper bound than SupSup and DualNet"
        bounds = [row for row in rows if row.method == UPPER_BOUND]
        yield Claim(text, rows[0].stream, holds, numbers, _seeds([*compared, *bounds]))


def _ablations(rows: Sequence[Entry]) -> Iterable[Claim]:
    for text, less in (
        ("The pool beats one prompt", "One prompt"),
        ("Learned keys beat means of prompts", "Mean of prompts as key"),
        ("Diversified selection helps unlike tasks", "No diversified selection"),
    ):
        if rows:
            yield _highest(text, rows[0].stream, rows, "L2P", (less,))


def _sharing(shares: dict[str, Matrix]) -> Iterable[Claim]:
    if len(shares) == 2:
        (similar, first), (unlike, second) = shares.items()
        numbers = f"overlap of two tasks' choices: {overlap(first):.2f} on {similar}, {overlap(second):.2f} on {unlike}"
        text = "Similar tasks share more of their prompts than unlike ones"
        yield Claim(text, f"{similar}, {unlike}", overlap(first) > overlap(second), numbers, "1")


def _highest(text: str, stream: str, rows: Sequence[Entry], best: str, others: Sequence[str]) -> Claim:
    """Whether one method is above all the others."""
    compared = [row for row in rows if row.method in (best, *others)]
    known = {row.method: row.value for row in compared if row.value is not None}
    numbers = ", ".join(_number(row) for row in compared if row.value is not None)
    if best not in known or len(known) < 2 or len(known) < len(compared):
        return Claim(text, stream, None, numbers or "-")
    holds = all(known[best] > value for name, value in known.items() if name != best)
    return Claim(text, stream, holds, numbers, _seeds(compared))


def _number(row: Entry) -> str:
    spread = f" ± {float(row.accuracy_deviation):.1f}" if row.accuracy_deviation else ""
    return f"{row.method} {float(row.accuracy):.1f}{spread}"


def _seeds(rows: Iterable[Entry]) -> str:
    """How many seeds the number with the fewest has."""
    return str(min((len(row.seeds.split()) for row in rows if row.value is not None), default=0))


def _streams(entries: Sequence[Entry], study: str) -> list[str]:
    return list(dict.fromkeys(entry.stream for entry in entries if entry.study == study))
