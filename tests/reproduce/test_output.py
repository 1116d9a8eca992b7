"""Tables from results: Markdown, LaTeX and terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import pytest
from rich.console import Console

from parsed_page import Parsed
from promptpool.report import table
from promptpool.reproduce import latex as tex
from promptpool.reproduce.expected import stored
from promptpool.reproduce.output import TITLES, study_tables, write_results
from promptpool.reproduce.results import Result, read_results
from promptpool.reproduce.studies import BOUND
from reproduce_runs import made_result

STORED = stored()
ROWS = [
    made_result("EWC", 40, forgetting="30.00", loss_classes="all", seconds="12", runs="ewc-1"),
    made_result("L2P", 60, accuracy_deviation="1.50", forgetting="5.00", forgetting_deviation="0.50", prompts="8",
               pool_size="10", loss_classes="current", runs="l2p-1 l2p-2"),
    made_result("ER", 55, "2 per class", at="2", forgetting="9.00"),
    made_result("GDumb", 55, "2 per class", at="2"),
    made_result("BiC", None, "2 per class", at="2"),
    made_result("Upper bound", 90, BOUND),
]  # fmt: skip
OTHER = [
    made_result("EWC", 70, stream="100% & more_{5}"),
    made_result("L2P", 20, stream="100% & more_{5}"),
    made_result("ER", 33, "4 per class", at="4", stream="100% & more_{5}"),
]
CURVES = [
    made_result("L2P", float(10 * chosen + length), f"N = {chosen}", study="figure4", stream=stream, at=str(length))
    for stream in ("one", "two")
    for chosen in (1, 5)
    for length in (1, 5, 10)
]


def markdown(results: Sequence[Result]) -> str:
    return table.markdown([*study_tables(results).values()])


def latex(results: Sequence[Result]) -> str:
    return tex.latex(study_tables(results))


def lines_of(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


def test_markdown_word_for_word() -> None:
    assert (
        markdown(ROWS)
        == """\
**Table 1: class-incremental learning, glyphs**

| group | method | accuracy | forgetting | prompts in use | seconds | classes in loss | runs |
| --- | --- | ---: | ---: | ---: | ---: | --- | --- |
| no buffer | EWC | 40.00 | 30.00 | - | 12 | all | ewc-1 |
| no buffer | L2P | **60.00 ± 1.50** | **5.00 ± 0.50** | 8 of 10 | - | current | l2p-1 l2p-2 |
| 2 per class | ER | **55.00** | 9.00 | - | - | - | - |
| 2 per class | GDumb | **55.00** | - | - | - | - | - |
| 2 per class | BiC | - | - | - | - | - | - |
| all data at once | Upper bound | 90.00 | - | - | - | - | - |
"""
    )


def test_each_stream_has_its_own_table_and_its_own_best() -> None:
    text = markdown([*ROWS, *OTHER])
    assert text.count("**Table 1: class-incremental learning, ") == 2
    assert "| no buffer | EWC | **70.00** |" in text
    assert "| no buffer | L2P | **60.00 ± 1.50** |" in text
    assert "| 4 per class | ER | 33.00 |" in text  # alone in its group
    for each in text.split("\n\n**"):
        assert len({len(line) for line in lines_of(each)}) == 1


def test_a_bar_in_a_name_does_not_end_a_cell() -> None:
    assert "| no buffer | a\\|b | 1.00 |" in markdown([made_result("a|b", 1), made_result("c", 2)])


def test_the_papers_numbers_stand_beside_ours() -> None:
    rows = [made_result("L2P", 60, paper_accuracy="83.83 ± 0.04", paper_forgetting="7.63"), made_result("RanPAC", 61)]
    head, _, ours, ranpac = lines_of(markdown(rows))
    place = head.index("the paper")
    assert ours[place : place + 2] == ["83.83 ± 0.04", "7.63"]
    assert ranpac[place : place + 2] == ["-", "-"]


def test_table_2_says_how_far_below_its_bound() -> None:
    rows = [
        made_result("Upper bound", 80, "ResNet-18", study="table2"),
        made_result("SupSup", 30, "ResNet-18", study="table2", task_given="75.00"),
        made_result("Upper bound", 90, "ViT", study="table2"),
        made_result("L2P", 83.83, "ViT", study="table2"),
        made_result("DualNet", None, "ResNet-18", study="table2", at="2"),
    ]
    head, _, *found = lines_of(markdown(rows))
    place = head.index("below its bound")
    assert [row[place] for row in found] == ["-", "50.00", "-", "6.17", "-"]
    assert [row[place + 1] for row in found] == ["-", "75.00", "-", "-", "-"]
    assert found[-1][1] == "DualNet, 2 kept per class"
    assert r"SupSup & ResNet-18 & 30.00 & 50.00 & 75.00 \\" in latex(rows)


@pytest.mark.parametrize("results", [ROWS, [*ROWS, *OTHER], CURVES, OTHER, ROWS[:1]])
def test_latex_is_balanced(results: Sequence[Result]) -> None:
    text = latex(results)
    streams = len(study_tables(results))
    plain = re.sub(r"\\[&%$#_{}]", "", text)
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    streams_of = groupby(results, key=lambda row: row.stream)
    columns = [2 if any(row.forgetting for row in rows) else 1 for _, rows in streams_of]
    assert text.startswith(r"\begin{tabular}{ll" + "r" * sum(columns) + "}\n")
    assert text.endswith("\\bottomrule\n\\end{tabular}\n")
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 1
    shown = [line.split(" % ")[0] for line in plain.splitlines()]
    heads, *rows = [line for line in shown if line.endswith(r"\\")]
    assert heads.count("&") == 1 + streams
    assert [int(count) for count in re.findall(r"\\multicolumn{(\d)}{c}", heads)] == columns
    assert {line.count("&") for line in rows} == {1 + sum(columns)}
    assert not {"_", "%"} & set("".join(shown))


def test_latex_side_by_side_as_in_the_paper() -> None:
    text = latex([*ROWS, *OTHER])
    lines = [line.split(" % ")[0] for line in text.splitlines()]
    assert r"L2P & no buffer & \textbf{60.00$\pm$1.50} & \textbf{5.00$\pm$0.50} & 20.00 \\" in lines
    assert r"EWC & no buffer & 40.00 & 30.00 & \textbf{70.00} \\" in lines
    assert r"ER & 2 per class / 4 per class & \textbf{55.00} & 9.00 & 33.00 \\" in lines
    assert r"Upper bound & all data at once & 90.00 & - & - \\" in lines
    assert lines.count(r"\midrule") == 3
    assert r"\multicolumn{1}{c}{100\% \& more\_\{5\}}" in lines[2]
    assert "% 8 of 10, current, l2p-1 l2p-2; " in text  # what a cell rests on


def test_latex_has_the_papers_numbers_where_they_are_known() -> None:
    rows = [made_result("L2P", 60, paper_accuracy="83.83 ± 0.04", paper_forgetting="7.63"), made_result("RanPAC", 61)]
    assert r"L2P & no buffer & 60.00 & 83.83$\pm$0.04 & 7.63 \\" in latex(rows)


def test_latex_keeps_every_value_of_a_curve() -> None:
    text = latex(CURVES)
    for each in CURVES:
        assert text.count(f"L2P, {each.at} & {each.group}") == 1
    assert all(text.count(f"{each.accuracy}") == 2 for each in CURVES)  # on both streams


def in_terminal(results: Sequence[Result], width: int = 200) -> str:
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system="standard")
    for each in study_tables(results).values():
        console.print(table.terminal(each))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_terminal_shows_all_but_run_names() -> None:
    text = in_terminal([*ROWS, *OTHER])
    assert "Table 1: class-incremental learning, glyphs" in text
    assert "l2p-1" not in text
    assert "*" not in text
    assert "\x1b[1m60.00 ± 1.50\x1b[0m" in text
    assert "\x1b[1m40.00" not in text


def test_the_terminal_cuts_no_word_at_80_columns() -> None:
    rows = [
        made_result("Masked linear head", 60, "ResNet-18, 50 images", study="table2", accuracy_deviation="1.50",
                   forgetting="15.00", forgetting_deviation="10.50", task_given="75.00", prompts="10", pool_size="10",
                   loss_classes="current"),
        made_result("Upper bound", 90, "ResNet-18, 50 images", study="table2"),
    ]  # fmt: skip
    text = re.sub(r"\x1b\[\d+m", "", in_terminal(rows, 80))
    assert "…" not in text
    words = set(re.split(r"[\s│─┼]+", text))
    expected = "images Masked linear head 60.00 ± 1.50 15.00 ± 10.50 30.00 75.00 10 of current prompts"
    assert set(expected.split()) <= words


@pytest.mark.parametrize("render", [markdown, latex, in_terminal])
def test_nothing_measured_is_no_error(render: Callable[[Sequence[Result]], str]) -> None:
    text = render([made_result("L2P"), made_result("EWC")])
    assert "L2P" in text
    assert "EWC" in text
    assert "L2P" not in render([])


def test_the_page_of_the_stored_results_is_whole_and_fetches_nothing(tmp_path: Path) -> None:
    results = read_results(STORED)
    page = Parsed(write_results(results, tmp_path / "out", tmp_path / "runs").read_text(encoding="utf-8"))
    assert not {tag for tag, _ in page.found} & {"script", "iframe", "object", "embed", "form", "base"}
    assert {(link["href"] or "")[: len("../runs/")] for link in page.all("a")} == {"../runs/"}
    assert all((image["src"] or "").startswith("data:") for image in page.all("img"))
    assert len(page.all("source")) == len(page.all("img")) == 3
    for each in [result for found in results.studies.values() for result in found]:
        assert all(text in page.text for text in (TITLES[each.study], each.group, each.method, each.accuracy))
