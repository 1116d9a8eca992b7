"""The batch-size study: an image that chooses for itself is predicted the same in any batch."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from promptpool.experiments.build import SharedCache
from promptpool.experiments.config import Config, complete
from promptpool.experiments.runner import run
from promptpool.learners.profiles import PROFILES
from promptpool.reproduce.batches import FILE, ORDERS, SIZES, batch_counts
from promptpool.reproduce.results import Result, batch_results
from promptpool.reproduce.studies import STUDIES, Item
from promptpool.training.run_folder import read_run
from small_runs import write_weights


def tiny(item: Item, folder: Path) -> Config:
    """An item's configuration on three tasks of glyph-five and a random ViT."""
    config = copy.deepcopy(item.config)
    config["dataset"] = {"name": "glyph-five", "train_per_class": 2, "test_per_class": 2}
    config["scenario"] = {"name": "class-incremental", "tasks": 5}
    config["backbone"] = {"name": str(write_weights(folder / "vit.safetensors"))}
    config["plan"] |= {"epochs": 1, "batch_size": 16}
    return complete(config)


def measured(item: Item, folder: Path) -> list[Result]:
    return batch_results(item, read_run(folder), batch_counts(item.config, folder, SharedCache()))


def test_in_miniature_a_profile_is_what_it_says_of_the_learner_and_of_clipping() -> None:
    paper, *others = (item.config for item in STUDIES["batches"]("mini"))
    for config in others:
        assert (config["view"], config["backbone"]) == (paper["view"], paper["backbone"])
        assert config["plan"] | {"clip_frozen": False} == paper["plan"]
    assert {item.config["view"]["test_crop"] for item in STUDIES["batches"]("paper")} == {None, 0.875}


@pytest.mark.parametrize("name", PROFILES)
def test_only_a_vote_makes_predictions_depend_on_the_batch(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMPTPOOL_CACHE", str(tmp_path / "cache"))
    (found,) = [item for item in STUDIES["batches"]("mini") if item.method == name]
    config, cache = tiny(found, tmp_path), SharedCache()
    item = Item(found.study, found.stream, found.group, found.method, config)
    for _ in run(config, tmp_path / "run", cache=cache):
        pass
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    results = measured(item, tmp_path / "run")
    assert [(result.group, result.at) for result in results] == [
        (order, str(size)) for order in ORDERS for size in SIZES
    ]
    votes = "vote" in PROFILES[name].learner
    assert votes is (config["learner"]["vote"] > 0)
    accuracies = [result.accuracy for result in results]
    alone = [result.accuracy for result in results if result.at == "1"]
    assert len(set(alone)) == 1  # a vote of one, in any order
    if not votes:
        assert len(set(accuracies)) == 1
        assert accuracies[0] == f"{100 * read_run(tmp_path / 'run').accuracy[-1].mean():.2f}"
    for result in results:
        assert (result.method, result.runs, result.seeds) == (name, "run", "0")
        assert result.loss_classes == config["learner"]["loss_classes"]
        assert 0 < int(result.prompts) <= int(result.pool_size)

    after = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert {key: value for key, value in after.items() if key != FILE} == before
    counts = json.loads(after[FILE])
    counts["shuffled"]["1"] = [1, 4]
    (tmp_path / "run" / FILE).write_text(json.dumps(counts))
    again = measured(item, tmp_path / "run")  # what is kept is not counted again
    assert again[3].accuracy == "25.00"
    assert again[:3] == results[:3]
