from typing import Any

import pytest

from promptpool.backbones.vit import ViT
from promptpool.data.views import ImageView
from promptpool.learners.l2p import L2P
from promptpool.learners.profiles import PROFILES, profile
from promptpool.training.loop import Plan
from toys import toy_backbone

NAMES = ("paper", "google-v1", "google-v2", "pytorch-port")

# Each row is a value of L2P, of the view, of the plan or of the backbone; each column a profile, on CIFAR-100.
TABLE: dict[str, dict[str, tuple[Any, Any, Any, Any]]] = {
    "learner": {
        "pool_size": (10, 10, 10, 10),
        "top_k": (5, 5, 4, 5),
        "prompt_length": (5, 5, 10, 5),
        "pull": (0.5, 0.1, 1.0, 0.1),
        "vote": (0, 16, 16, 16),
        "start": ((0.0, 0.01), (0.0, 0.01), (0.0, 0.01), (-1.0, 1.0)),
        "order": ("prompts-first", "class-first", "prompts-first", "class-first"),
        "position": ("none", "class", "none", "class"),
        "loss_classes": ("current", "current", "current", "current"),
        "head_start": ("zeros", "zeros", "zeros", "truncated-normal"),
        "key": ("learned", "learned", "learned", "learned"),
        "diversify": (False, False, False, False),
        "slots": (False, False, False, False),
        "inherit": (False, False, False, False),
        "query_view": ("same", "same", "same", "same"),
        "capacity": (0, 0, 0, 0),
    },
    "view": {
        "crop": (None, (0.05, 1.0), (0.05, 1.0), (0.05, 1.0)),
        "flip": (False, True, True, True),
        "values": ("unit", "unit", "unit", "unit"),
        "test_crop": (None, 0.875, 0.875, 0.875),
    },
    "plan": {
        "batch_size": (128, 128, 128, 16),
        "learning_rate": (0.03, 0.015, 0.015, 0.001875),
        "clip": (1.0, 1.0, 1.0, 1.0),
        "clip_frozen": (False, True, True, False),
        "optimiser": ("adam", "adam", "adam", "adam"),
        "weight_decay": (0.0, 0.0, 0.0, 0.0),
        "drop_last": (False, True, True, False),
        "test_classes": ("seen", "all", "all", "all"),
    },
    "backbone": {"gelu": ("exact", "tanh", "tanh", "exact")},
}

# What is otherwise on 5-datasets; google-v1 has no such configuration.
FIVE_DATASETS: dict[str, tuple[Any, Any, Any, Any]] = {
    "pool_size": (20, None, 20, 20),
    "top_k": (4, None, 4, 4),
    "prompt_length": (5, None, 10, 10),
    "pull": (0.5, None, 0.5, 0.5),
    "diversify": (True, None, False, False),
    "slots": (False, None, True, True),
    "inherit": (False, None, True, True),
}


def built(name: str, benchmark: str = "cifar100") -> dict[str, dict[str, Any]]:
    """Every value in effect once a profile has made a learner, a view and a plan."""
    values = profile(name, benchmark=benchmark)
    view = ImageView(8, **values.view)
    learner = L2P(toy_backbone(dim=16), view, **values.learner)
    gelu = ViT(**values.backbone, depth=1, dim=16, heads=1).gelu
    return {
        "learner": learner.settings(),
        "view": vars(view),
        "plan": vars(Plan(**values.plan)),
        "backbone": {"gelu": gelu},
    }


def column(name: str, benchmark: str = "cifar100") -> dict[str, dict[str, Any]]:
    place = NAMES.index(name)
    table = {part: {key: cells[place] for key, cells in rows.items()} for part, rows in TABLE.items()}
    if benchmark == "5-datasets":
        table["learner"] |= {key: cells[place] for key, cells in FIVE_DATASETS.items()}
    return table


def assert_cells(name: str, benchmark: str) -> None:
    actual = built(name, benchmark)
    for part, cells in column(name, benchmark).items():
        assert {key: actual[part][key] for key in cells} == cells


def test_the_profiles_are_the_four_of_the_table() -> None:
    assert tuple(PROFILES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_of_the_table(name: str) -> None:
    assert_cells(name, "cifar100")


@pytest.mark.parametrize("name", ["paper", "google-v2", "pytorch-port"])
def test_every_cell_of_the_table_on_five_datasets(name: str) -> None:
    assert_cells(name, "5-datasets")


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_sets_nothing_outside_the_table(name: str) -> None:
    for part, values in profile(name)._asdict().items():
        assert values.keys() <= TABLE[part].keys()


def test_the_paper_is_the_default() -> None:
    learner, plan = L2P(toy_backbone(dim=16), ImageView(8)), Plan()
    default = {
        "learner": learner.settings(),
        "view": vars(ImageView(8)),
        "plan": vars(plan),
        "backbone": {"gelu": "exact"},
    }
    assert [name for name in NAMES if built(name) == default] == ["paper"]
    assert plan.epochs == 5


def test_asking_for_one_benchmark_does_not_change_another() -> None:
    before = profile("paper").learner.copy()
    profile("paper", benchmark="5-datasets")
    assert profile("paper").learner == before


def test_unknown_names_raise() -> None:
    with pytest.raises(ValueError, match=r"^profile = 'google'.*paper, google-v1, google-v2, pytorch-port"):
        profile("google")
    with pytest.raises(ValueError, match=r"^benchmark = 'imagenet'.*cifar100 or 5-datasets"):
        profile("paper", benchmark="imagenet")
    with pytest.raises(ValueError, match=r"^profile = 'google-v1'.*5-datasets"):
        profile("google-v1", benchmark="5-datasets")
