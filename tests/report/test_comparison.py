from __future__ import annotations

import csv
import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from promptpool import metrics
from promptpool.report import table
from promptpool.report.comparison import comma_separated, comparison_table, terminal_tables
from promptpool.report.rows import Row, compare, measured
from promptpool.training.run_folder import Run
from report_runs import TASKS, made_run, toy_run


def printed(runs: list[Run], width: int = 200) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    for each in terminal_tables(runs):
        console.print(each)
    return console.export_text()


def only(runs: list[Run]) -> dict[str, list[str]]:
    """The cells of the one comparison, by method."""
    (comparison,) = compare(runs)
    found = comparison_table(comparison)
    assert all(len(row) == len(found.columns) for row in found.rows)
    return {name.line: [cell.line for cell in cells] for name, *cells in found.rows}


def header(runs: list[Run]) -> list[str]:
    return [column.name for column in comparison_table(compare(runs)[0]).columns]


def markdown(runs: list[Run]) -> str:
    return table.markdown([comparison_table(comparison) for comparison in compare(runs)])


def in_csv(runs: list[Run]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(comma_separated(compare(runs)))))


def test_one_run_worked_by_hand(tmp_path: Path) -> None:
    run = made_run(tmp_path / "a", seconds=(1.5, 2.0, 0.75))
    # average (50 + 40 + 70) / 3, forgetting ((90 - 50) + (80 - 40)) / 2, learning (90 + 80 + 70) / 3
    assert only([run]) == {"FT-seq": ["all", "53.3", "40.0", "80.0", "-", "4.2", "0"]}
    assert header([run])[2:5] == ["average accuracy", "forgetting", "learning accuracy"]


def test_seeds_become_mean_and_deviation(tmp_path: Path) -> None:
    ends = (40, 50, 60)
    runs = [made_run(tmp_path / str(s), ((80, None), (40, end)), seed=s) for s, end in enumerate(ends)]
    (row,) = compare(runs)[0].rows
    found = measured(row.each(metrics.average_accuracy))
    assert found is not None
    assert found.mean == pytest.approx(0.45)
    assert found.deviation == pytest.approx(0.05)  # of 40, 45 and 50 percent, with n - 1
    assert only(runs)["FT-seq"][1:] == ["45.0 ± 5.0", "40.0 ± 0.0", "65.0 ± 5.0", "-", "-", "0, 1, 2"]
    assert "Mean ± deviation over seeds (n - 1)." in printed(runs)


def test_seeds_set_apart_are_shown_apart(tmp_path: Path) -> None:
    assert only([made_run(tmp_path / "a", learner={"seed": 4})])["FT-seq"][-1] == "0/4/0"


def test_unfinished_runs_are_marked_and_enter_no_mean(tmp_path: Path) -> None:
    whole = made_run(tmp_path / "a")
    part = made_run(tmp_path / "b", TASKS[:2], seed=1, environment={"experiences": 3})
    found = only([whole, part])
    assert found["FT-seq"][1] == "53.3"
    assert found["FT-seq (2 of 3 experiences)"][1:4] == ["-", "-", "-"]
    assert "Unfinished runs stand alone" in printed([whole, part])


def test_a_metric_that_is_not_defined_is_a_dash(tmp_path: Path) -> None:
    joint = made_run(tmp_path / "a", [[90, 80, 70]])
    assert only([joint])["FT-seq"][1:4] == ["80.0", "-", "-"]
    row = in_csv([joint])[0]
    assert (row["average_accuracy"], row["forgetting"]) == ("0.8", "")


def test_one_test_set_has_a_final_accuracy(tmp_path: Path) -> None:
    run = made_run(tmp_path / "a", [[30], [50], [45]])
    assert header([run])[2:] == ["final accuracy", "prompts in use", "seconds", "seeds"]
    assert only([run])["FT-seq"][1] == "45.0"


def test_a_learner_without_a_loss_has_no_classes_in_it(tmp_path: Path) -> None:
    assert only([made_run(tmp_path / "a", name="nearest-mean", loss_classes=None)])["Nearest class mean"][0] == "-"


def test_a_real_run_says_how_many_prompts_are_in_use(tmp_path: Path) -> None:
    run = toy_run(tmp_path / "a", top_k=2, pool_size=4)
    used = run.records[-1].facts["prompts_in_use"]
    assert only([run])["L2P"][4] == f"{used} of 4"
    assert "†" not in printed([run])


def test_prompts_in_use_over_seeds(tmp_path: Path) -> None:
    runs = [toy_run(tmp_path / str(seed), seed=seed, top_k=2, pool_size=4) for seed in (0, 1)]
    first, second = (run.records[-1].facts["prompts_in_use"] for run in runs)
    deviation = abs(first - second) / math.sqrt(2)
    assert only(runs)["L2P"][4] == f"{(first + second) / 2:.1f} ± {deviation:.1f} of 4"


def test_a_vote_is_a_footnote(tmp_path: Path) -> None:
    runs = [toy_run(tmp_path / "a", vote=5, top_k=2), made_run(tmp_path / "b", environment=stream_of_toys(tmp_path))]
    assert list(only(runs)) == ["L2P †", "FT-seq"]
    for text in (printed(runs), markdown(runs)):
        assert "† Predictions depend on test batches" in text
        assert "vote = 5" in text
    assert [row["vote"] for row in in_csv(runs)] == ["5", "0"]


def stream_of_toys(folder: Path) -> dict[str, str]:
    return {"stream": toy_run(folder / "toy", "nearest-mean").environment["stream"]}


def test_one_table_per_stream(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / "a"), made_run(tmp_path / "b", environment={"stream": "0123456789"})]
    assert len(terminal_tables(runs)) == 2
    assert markdown(runs).count("| method |") == 2
    assert [row["stream"][:8] for row in in_csv(runs)] == ["5f5f5f5f", "01234567"]


def test_markdown_and_terminal_show_names_as_they_are(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / "a", name="a|<b>[red]*_")]
    assert "| a\\|&lt;b>\\[red\\]\\*\\_ | all |" in markdown(runs)
    assert "a|<b>[red]*_" in printed(runs)


def test_markdown_whole(tmp_path: Path) -> None:
    assert markdown([made_run(tmp_path / "a")]) == (
        "**3 experiences, 6 classes, stream 5f5f5f5f**\n\n"
        "| method | classes in loss | average accuracy | forgetting | learning accuracy | prompts in use "
        "| seconds | seeds |\n"
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| FT-seq | all | 53.3 | 40.0 | 80.0 | - | - | 0 |\n\n"
        "- Accuracies and forgetting in percent.\n"
    )


def test_a_narrow_terminal_breaks_no_word_and_drops_no_column(tmp_path: Path) -> None:
    pooled = [toy_run(tmp_path / f"l2p-{size}", pool_size=size, top_k=2) for size in (4, 10)]
    stream = {"stream": pooled[0].environment["stream"]}
    runs = [made_run(tmp_path / str(seed), name="ft-seq-frozen", seed=seed, environment=stream) for seed in (0, 1, 2)]
    text = printed([*runs, *pooled], width=80)
    for word in ("FT-seq-frozen", "(pool_size=10)", "forgetting", "learning", "accuracy", "seconds", "seeds", "0, 1,"):
        assert word in text
    (tmp_path / "told").mkdir()
    told = replace(runs[0].records[-1], correct_given_task=(100, 90, 80))
    more = replace(runs[0], path=tmp_path / "told", records=(*runs[0].records[:-1], told))
    text = printed([*runs, *pooled, more], width=80)
    for word in ("FT-seq-frozen", "forgetting", "learning", "accuracy", "given", "prompts", "seconds", "seeds"):
        assert word in text


def test_accuracy_with_the_task_given_has_a_column_where_it_was_measured(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run")
    told = replace(run.records[-1], correct_given_task=(100, 90, 80))
    (tmp_path / "told").mkdir()
    runs = [run, replace(run, path=tmp_path / "told", records=(*run.records[:-1], told))]
    assert "task given" not in printed([run])
    assert "90.0" in printed(runs[1:])
    assert comma_separated(compare(runs)).splitlines()[2].count("0.9,") == 1


def test_classes_in_the_loss_are_those_that_the_record_says(tmp_path: Path) -> None:
    facts = [{"loss_classes": "current"}] * 3
    supsup = made_run(tmp_path / "supsup", loss_classes=None, facts=facts)
    assert Row("", "", (supsup,)).loss_classes == "current"
    replayed = made_run(tmp_path / "l2p", loss_classes="current", learner={"replay_classes": "seen", "capacity": 5})
    assert Row("", "", (replayed,)).loss_classes == "current; replayed: seen"
