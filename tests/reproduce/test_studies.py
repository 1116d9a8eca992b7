"""What each study consists of: valid configurations, the paper's rows, runs that studies share."""

from __future__ import annotations

from pathlib import Path

import pytest

from promptpool.experiments.config import complete, load_config
from promptpool.experiments.identity import run_folder
from promptpool.report.names import METHODS
from promptpool.reproduce import paper
from promptpool.reproduce.paper import Reported, Setting
from promptpool.reproduce.plan import Request, seeded
from promptpool.reproduce.studies import (
    NO_BUFFER,
    REFERENCE_METHODS,
    REFERENCES,
    SCALES,
    STUDIES,
    benchmark_of,
    configured,
    studies_at,
)

ROWS = {
    "table1": [("split", paper.TABLE_1["cifar100"]), ("five", paper.TABLE_1["5-datasets"])],
    "table3": [("domains", paper.TABLE_3)],
    "table4": [("gaussian", paper.TABLE_4)],
    "table5": [("five", paper.TABLE_5)],
}
WHOLE = [scale for scale in SCALES if "gaussian" in SCALES[scale]]  # the others have Table 1 alone
KEYS = {label: method for method, label in METHODS.items() if not method.startswith("resnet18-")}


def wanted(*studies: str, scale: str = "mini", limit: int | None = None) -> Request:
    return Request(studies, scale, 1, Path("runs"), limit=limit)


def folders(study: str, stream: str, scale: str = "mini") -> dict[tuple[str, str, int | None], Path]:
    asked, title = wanted(study, scale=scale), benchmark_of(scale, stream).title
    return {(i.group, i.method, i.at): asked.folder(i, 0) for i in asked.items() if i.stream == title}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("study", STUDIES)
def test_every_configuration_is_valid(study: str, scale: str) -> None:
    if study not in studies_at(scale):
        return
    items = list(wanted(study, scale=scale).items())
    assert items
    for item in (*items, *wanted(study, scale=scale, limit=2).items()):
        assert complete(item.config) == item.config
        assert item.study == study
        assert complete(seeded(item.config, 3)) == seeded(item.config, 3)
        assert seeded(item.config, 3)["learner"].get("seed", 3) == 3


@pytest.mark.parametrize("study", ROWS)
def test_each_row_of_the_paper_has_its_item_with_its_number(study: str) -> None:
    items = list(STUDIES[study]("paper"))
    for place, reported in ROWS[study]:
        on = benchmark_of("paper", place)
        found = {Setting(KEYS[i.method], i.at or 0): i for i in items if i.stream == on.title}
        assert {row: found[row].reported for row in reported} == reported
        for row, item in found.items():
            if row.per_class:
                assert item.config["learner"]["capacity"] == row.per_class * (on.classes or 0)
            assert item.reported is None or row in reported
    assert not any(item.reported for item in STUDIES[study]("mini"))


def test_table_2_has_the_papers_numbers() -> None:
    found: dict[tuple[str, str], Reported | None] = {
        (i.group, i.method): i.reported for i in STUDIES["table2"]("paper")
    }
    for group, cells in (("ResNet-18", paper.TABLE_2["resnet18"]), ("ViT", paper.TABLE_2["vit-b16"])):
        assert {key: cell for key, cell in found.items() if key[0] == group and cell} == {
            (group, METHODS[row.method]): cell for row, cell in cells.items()
        }
    for item in STUDIES["table2"]("mini"):
        assert (item.config["backbone"]["name"] == "resnet18") is item.group.startswith("ResNet-18")


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("study", ["table1", "table3", "table4"])
def test_the_references_stand_beside_l2p(study: str, scale: str) -> None:
    if study not in studies_at(scale):
        return
    items = list(STUDIES[study](scale))
    for stream in dict.fromkeys(item.stream for item in items):
        of = [item for item in items if item.stream == stream]
        assert [item.method for item in of if item.group == REFERENCES] == [METHODS[name] for name in REFERENCE_METHODS]
        (l2p,) = [item for item in of if item.method == "L2P"]
        assert l2p.group == NO_BUFFER
        for item in of:
            assert item.config["dataset"] == l2p.config["dataset"]
            joint = {"joint": True} if item.method == "Upper bound" else {}
            assert item.config["scenario"] == l2p.config["scenario"] | joint


@pytest.mark.parametrize("method", ["ewc", "l2p", "er", "gdumb", "der++", "l2p-r", "nearest-mean", "upper-bound"])
@pytest.mark.parametrize(("scale", "name"), [(scale, SCALES[scale]["gaussian"]) for scale in WHOLE])
def test_a_table_runs_what_the_command_would(method: str, scale: str, name: str) -> None:
    (item,) = [item for item in STUDIES["table4"](scale) if item.method == METHODS[method]]
    assert item.config == load_config(f"{name}-{method}", scale=scale)


@pytest.mark.parametrize("scale", SCALES)
def test_one_prompt_is_as_long_as_those_it_stands_for(scale: str) -> None:
    items = {(i.stream, i.method): i.config["learner"] for i in STUDIES["table1"](scale) if i.at is None}
    for stream in dict.fromkeys(stream for stream, _ in items):
        l2p, one = items[stream, "L2P"], items[stream, "One prompt"]
        assert (one["pool_size"], one["top_k"]) == (1, 1)
        assert one["prompt_length"] == l2p["top_k"] * l2p["prompt_length"]


def test_some_rows_stand_in_a_table_of_other_weights() -> None:
    rows = {(item.stream, item.method): item.config for item in STUDIES["table1"]("small-dinov2")}
    assert len(rows) == 2 * 8
    assert studies_at("small-dinov2") == ("table1",)
    for (stream, method), config in rows.items():
        (other,) = [i.config for i in STUDIES["table1"]("small") if (i.stream, i.method) == (stream, method)]
        assert config["backbone"]["name"] != other["backbone"]["name"]
        whole, far = {"train_embedding": False}, {"prompt_length": 5, "start_from": "plain-tokens"}
        one = far | {"prompt_length": 25 if stream == "Split CIFAR-100" else 20}
        learner = {"FT-seq": whole, "Upper bound": whole, "L2P": far, "One prompt": one}.get(method, {})
        head = 0.0003 if stream == "Split CIFAR-100" else 0.01
        rates = {
            "Upper bound": 0.01,
            "L2P": 0.002,
            "One prompt": 0.002 if stream == "Split CIFAR-100" else 0.01,
            "Masked linear head": head,
        }
        plan = other["plan"] | ({"learning_rate": rates[method]} if method in rates else {})
        changed = {"learner": other["learner"] | learner, "plan": plan}
        assert config == other | {"backbone": {**other["backbone"], "name": config["backbone"]["name"]}} | changed


@pytest.mark.parametrize("scale", WHOLE)
def test_studies_share_runs(scale: str) -> None:
    for place in ("split", "five"):
        table1 = folders("table1", place, scale)
        (figure3,) = folders("figure3", place, scale).values()
        assert figure3 == table1[NO_BUFFER, "L2P", None]
        assert scale != "paper" or figure3 in folders("figure4", place, scale).values()
    table5 = folders("table5", "five", scale)
    table1 = folders("table1", "five", scale)
    assert table5[NO_BUFFER, "L2P", None] == table1[NO_BUFFER, "L2P", None]
    assert table5[NO_BUFFER, "One prompt", None] == table1[REFERENCES, "One prompt", None]
    assert len({folder for (group, _, _), folder in table5.items() if group == NO_BUFFER}) == 4
    split = folders("table1", "split", scale)
    assert set(folders("buffers", "split", scale).values()) & set(split.values())
    table2 = folders("table2", "split", scale)
    assert table2["ViT", "L2P", None] == split[NO_BUFFER, "L2P", None]
    assert table2["ViT", "Upper bound", None] == split["all data at once", "Upper bound", None]


def test_a_run_is_one_job_however_many_cells_it_fills() -> None:
    both = wanted("table1", "figure3")
    assert [job.folder for job in both.jobs()] == [job.folder for job in wanted("table1").jobs()]
    three = Request(("table5", "batches"), "mini", 3, Path("runs")).jobs()
    assert len({job.folder for job in three}) == len(three) == 3 * 8 + 4
    for job in three:
        assert job.folder == run_folder(Path("runs"), job.folder.name.rsplit("-", 1)[0], job.config)


def test_fine_tuning_takes_the_steps_of_er_where_it_is_said() -> None:
    for scale, on in ((scale, benchmark_of(scale, place)) for scale in SCALES for place in ("split", "five")):
        slower, plain, er = (configured(on, scale, method) for method in ("ft-seq-sgd", "ft-seq", "er"))
        assert slower == plain | {"plan": er["plan"]}


def test_l2p_r_with_its_backbone_trained_takes_the_steps_of_er() -> None:
    for scale, on in ((scale, benchmark_of(scale, place)) for scale, places in SCALES.items() for place in places):
        trained, plain, er = (configured(on, scale, method) for method in ("l2p-r-trained", "l2p-r", "er"))
        like_er = {"train_backbone": True, "train_embedding": er["learner"]["train_embedding"]}
        assert trained["learner"] == plain["learner"] | like_er
        assert trained["plan"] == er["plan"]
        assert {name: trained[name] for name in ("dataset", "scenario")} == {
            name: plain[name] for name in ("dataset", "scenario")
        }


def test_only_names_methods_or_streams_and_methods() -> None:
    def chosen(only: str) -> set[tuple[str, str]]:
        return {(item.stream, item.method) for item in Request(("table1",), "mini", 1, Path("runs"), only).items()}

    assert chosen("ewc") == {("Split glyphs100", "EWC"), ("glyph-five", "EWC")}
    methods = {"L2P", "L2P-R", "L2P-R (backbone trained)"}
    assert chosen("Split* L2P*") == {("Split glyphs100", method) for method in methods}
    assert chosen("EWC?") == set()


def test_only_and_backbone_and_limit_change_what_is_asked_for() -> None:
    asked = Request(("table1", "table2"), "mini", 1, Path("runs"), "l2p*", 3, "own.safetensors")
    items = list(asked.items())
    assert {item.method for item in items} == {"L2P", "L2P-R", "L2P-R (backbone trained)"}
    assert {item.config["backbone"]["name"] for item in items} == {"own.safetensors"}
    assert {item.config["dataset"]["train_per_class"] for item in items} == {3}
    untrained = Request(("table2",), "mini", 1, Path("runs"), "SupSup", None, "own.safetensors")
    assert [item.config["backbone"]["name"] for item in untrained.items()] == ["resnet18"]
