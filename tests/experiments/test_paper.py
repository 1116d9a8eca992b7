"""The presets at the paper's scale say the paper's numbers and have its values."""

from __future__ import annotations

import pytest

from promptpool.experiments.config import load_config, presets
from promptpool.learners import LEARNERS
from promptpool.reproduce.paper import TABLE_1, TABLE_3, TABLE_4, TABLE_5, Reported, Setting

CLASSES = {"cifar100": 100, "5-datasets": 50, "core50": 50, "cifar100-gaussian": 100}
ROWS = [
    *((f"{benchmark}-{row.method}", row, cell) for benchmark, rows in TABLE_1.items() for row, cell in rows.items()),
    *((f"core50-{row.method}", row, cell) for row, cell in TABLE_3.items()),
    *((f"cifar100-gaussian-{row.method}", row, cell) for row, cell in TABLE_4.items() if row.method != "upper-bound"),
    *((f"5-datasets-{row.method}", row, cell) for row, cell in TABLE_5.items()),
]
OURS = {*LEARNERS, "upper-bound", "one-prompt", "no-key", "no-diversity"}
PAPER_SCALE = [
    name for name in presets() if name.startswith(("cifar100-", "5-datasets-", "core50-")) and "-small-" not in name
]


@pytest.mark.parametrize(("preset", "row", "cell"), [row for row in ROWS if row[1].method in OURS])
def test_a_row_of_the_paper_has_a_preset_that_says_its_number(preset: str, row: Setting, cell: Reported) -> None:
    header = presets()[preset].read_text().split("seed =")[0]
    assert f"{cell.accuracy:.2f}" in header
    assert cell.forgetting is None or f"forgetting {cell.forgetting:.2f}" in header
    assert row.per_class == 0 or f"{row.per_class} per class" in header or f"{row.per_class} images per class" in header


@pytest.mark.parametrize("preset", PAPER_SCALE)
def test_the_papers_values(preset: str) -> None:
    config = load_config(preset)
    if config.get("profile") == "pytorch-port" or config["backbone"]["name"] == "resnet18":
        return  # of that network the paper says nothing
    task_free = config["scenario"]["name"] == "gaussian-schedule"
    assert config["plan"]["batch_size"] == 128
    assert config["plan"]["epochs"] == (1 if task_free else 5)
    assert config["view"]["values"] == "unit"
    assert config["backbone"]["name"] == "google/vit-base-patch16-224-in21k"
    if config.get("profile") == "paper":
        assert config["plan"]["learning_rate"] == 0.03
        assert config["plan"]["optimiser"] == "adam"
        assert config["learner"]["pull"] == 0.5


@pytest.mark.parametrize(
    ("preset", "pool"),
    [("cifar100-l2p", (10, 5, 5)), ("core50-l2p", (10, 5, 5)), ("5-datasets-l2p", (20, 4, 5))],
)
def test_the_papers_pools(preset: str, pool: tuple[int, int, int]) -> None:
    learner = load_config(preset)["learner"]
    assert (learner["pool_size"], learner["top_k"], learner["prompt_length"]) == pool
    assert learner["diversify"] is (preset == "5-datasets-l2p")


@pytest.mark.parametrize("benchmark", CLASSES)
def test_l2p_r_keeps_the_papers_number_of_images(benchmark: str) -> None:
    kept = {"cifar100": 50, "5-datasets": 10, "core50": 50, "cifar100-gaussian": 50}[benchmark]
    assert load_config(f"{benchmark}-l2p-r")["learner"]["capacity"] == kept * CLASSES[benchmark]


def test_the_ablations_change_one_thing_each() -> None:
    whole = load_config("5-datasets-l2p")["learner"]
    for name, keys in {
        "one-prompt": {"pool_size", "top_k", "prompt_length", "diversify"},
        "no-key": {"key"},
        "no-diversity": {"diversify"},
    }.items():
        ablated = load_config(f"5-datasets-{name}")["learner"]
        assert {key for key in whole if ablated[key] != whole[key]} == keys
