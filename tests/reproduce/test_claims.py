"""Claims on made-up results: yes, no, level, not measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from promptpool.metrics import Matrix
from promptpool.report.table import markdown
from promptpool.reproduce.claims import Claim, claims_table
from promptpool.reproduce.claims import claims as claims_of
from promptpool.reproduce.results import Result, Results
from reproduce_runs import made_result

FEW, MANY = "2 per class", "10 per class"
TABLE_1 = [
    made_result("EWC", 40),
    made_result("LwF", 50),
    made_result("L2P", 60),
    made_result("RanPAC", 70, "no buffer, not in the paper"),
    made_result("ER", 30, FEW),
    made_result("L2P-R", 61, FEW),
    made_result("ER", 66, MANY),
    made_result("L2P-R", 64, MANY),
]
TABLE_2 = [
    made_result("Upper bound", 80, "ResNet-18", study="table2"),
    made_result("SupSup", 30, "ResNet-18", study="table2"),
    made_result("DualNet", 40, "ResNet-18", study="table2"),
    made_result("Upper bound", 90, "ViT", study="table2"),
    made_result("L2P", 49, "ViT", study="table2"),
]
TABLE_5 = [
    made_result("One prompt", 50, study="table5"),
    made_result("Mean of prompts as key", 60, study="table5"),
    made_result("No diversified selection", 61.5, study="table5"),
    made_result("L2P", 60, study="table5"),
]


def claims(results: Sequence[Result], shares: dict[str, Matrix]) -> list[Claim]:
    studies: dict[str, list[Result]] = {}
    for result in results:
        studies.setdefault(result.study, []).append(result)
    return claims_of(Results(studies, shares))


def without(results: Sequence[Result], method: str) -> list[Result]:
    return [result for result in results if result.method != method]


def unmeasured(results: Sequence[Result], method: str, group: str | None = None) -> list[Result]:
    return [
        made_result(e.method, None, e.group, study=e.study) if e.method == method and group in (None, e.group) else e
        for e in results
    ]


def said(results: Sequence[Result]) -> dict[str, str]:
    return {claim.text: claim.verdict for claim in claims(results, {})}


def test_table_1() -> None:
    found = {claim.text: claim for claim in claims(TABLE_1, {})}
    assert {text: claim.verdict for text, claim in found.items()} == {
        "Without a buffer, L2P beats the regularisers": "yes",
        "L2P-R beats the rehearsal methods, 2 per class": "yes",
        "L2P-R beats the rehearsal methods, 10 per class": "no",
        "A smaller buffer hurts L2P-R least": "yes",
    }
    assert found["Without a buffer, L2P beats the regularisers"].numbers == "EWC 40.0, LwF 50.0, L2P 60.0"
    assert found["A smaller buffer hurts L2P-R least"].numbers == "ER loses 36.0, L2P-R loses 3.0"
    assert all(claim.stream == "glyphs" for claim in found.values())


def test_a_claim_is_not_measured_until_all_its_rows_are() -> None:
    beaten, least = "Without a buffer, L2P beats the regularisers", "A smaller buffer hurts L2P-R least"
    assert said(unmeasured(TABLE_1, "LwF"))[beaten] == "not measured"
    assert said(unmeasured(TABLE_1, "L2P"))[beaten] == "not measured"
    assert said(without(TABLE_1, "LwF"))[beaten] == "yes"  # Table 4 has no such row
    assert said(unmeasured(TABLE_1, "ER", MANY))[least] == "not measured"
    assert said(unmeasured(TABLE_1, "ER", MANY))["L2P-R beats the rehearsal methods, 10 per class"] == "not measured"
    assert said(TABLE_1[:6])[least] == "not measured"  # one size


def test_a_selection_of_rows_is_no_error() -> None:
    assert said([made_result("L2P", 60)]) == {
        "Without a buffer, L2P beats the regularisers": "not measured",
        "A smaller buffer hurts L2P-R least": "not measured",
    }
    assert set(said([result for result in TABLE_1 if result.method.startswith("L2P")]).values()) == {"not measured"}
    assert set(said([result for result in TABLE_1 if result.method == "ER"]).values()) == {"not measured"}
    assert claims([], {}) == []


def test_each_stream_has_its_own_claims() -> None:
    other = [made_result("EWC", 70, stream="five"), made_result("L2P", 20, stream="five")]
    found = [claim for claim in claims([*TABLE_1, *other], {}) if claim.text.endswith("regularisers")]
    assert [(claim.stream, claim.verdict) for claim in found] == [("glyphs", "yes"), ("five", "no")]


def test_table_2_compares_what_is_lost_to_the_own_bound() -> None:
    text = "L2P stays nearer to its upper bound than SupSup and DualNet"
    assert said(TABLE_2) == {text: "level"}  # 41 below, DualNet 40, and four rows with one seed each
    assert said([*TABLE_2[:-1], made_result("L2P", 48, "ViT", study="table2")]) == {text: "no"}
    assert said([*TABLE_2[:-1], made_result("L2P", 52, "ViT", study="table2")]) == {text: "yes"}
    assert said(unmeasured(TABLE_2, "DualNet")) == {text: "not measured"}
    assert said(unmeasured(TABLE_2, "Upper bound", "ViT")) == {text: "not measured"}


def test_table_5() -> None:
    assert list(said(TABLE_5).values()) == ["yes", "level", "no"]
    assert list(said(unmeasured(TABLE_5, "One prompt")).values()) == ["not measured", "level", "no"]


def test_rows_are_level_within_their_deviations_joined() -> None:
    def verdict(lead: float, first: str = "", second: str = "") -> str:
        one = made_result("EWC", 40, accuracy_deviation=first)
        other = made_result("L2P", 40 + lead, accuracy_deviation=second)
        return said([one, other])["Without a buffer, L2P beats the regularisers"]

    assert [verdict(lead, "0.30", "0.40") for lead in (0.45, 0.55, -0.45, -0.55)] == ["level", "yes", "level", "no"]
    assert [verdict(lead) for lead in (0.95, 1.05, -0.95, -1.05)] == ["level", "yes", "level", "no"]  # a seed each
    assert [verdict(lead, second="2.40") for lead in (2.45, 2.55)] == ["level", "yes"]


def test_sharing() -> None:
    alike, unlike = np.array([[1.0, 0.5], [1.0, 0.5]]), np.array([[1.0, 0.0], [0.0, 1.0]])
    (claim,) = claims([], {"split": alike, "five": unlike})
    assert (claim.verdict, claim.stream) == ("yes", "split, five")
    assert claim.numbers == "overlap of two tasks' choices: 1.00 on split, 0.00 on five"
    (claim,) = claims([], {"split": unlike, "five": alike})
    assert claim.verdict == "no"
    assert claims([], {"split": alike}) == []


def test_markdown() -> None:
    found = [Claim("one", "s", 1.0, "1"), Claim("two", "s", -1.0, "2"), Claim("three", "s", None, "-")]
    text = markdown([claims_table(found)])
    assert [line.split(" | ")[2] for line in text.splitlines()[2:]] == ["yes", "no", "not measured"]
    assert text.endswith("| three | s | not measured | - | - |\n")


def test_a_claim_says_deviations_and_the_fewest_seeds() -> None:
    rows = [
        made_result("EWC", 40, accuracy_deviation="1.25", seeds="0 1 2"),
        made_result("L2P", 60, accuracy_deviation="0.50", seeds="0 1"),
        made_result("RanPAC", 70, seeds="0"),
    ]
    (claim,) = [each for each in claims(rows, {}) if each.lead is not None]
    assert (claim.numbers, claim.seeds) == ("EWC 40.0 ± 1.2, L2P 60.0 ± 0.5", "2")
