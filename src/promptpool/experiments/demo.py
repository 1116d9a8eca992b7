"""The paper in miniature: who forgets, and who does not, on one hundred drawn characters in ten tasks."""

from __future__ import annotations

from collections.abc import Sequence

from promptpool.experiments.config import Config, load_config
from promptpool.metrics import average_accuracy
from promptpool.training.folder import Run

METHODS = {
    "FT-seq": "ft-seq",
    "FT-seq-frozen": "ft-seq-frozen",
    "masked linear head": "masked-linear",
    "nearest class mean": "nearest-mean",
    "L2P": "l2p",
    "upper bound": "upper-bound",
}


def verdict(runs: Sequence[Run]) -> str:
    """What the demo showed, whatever it is."""
    average = {run.config["learner"]["name"]: 100 * average_accuracy(run.accuracy) for run in runs if not _joint(run)}
    references = ("masked-linear", "nearest-mean")
    ahead = [f"{name} {average[name]:.1f}" for name in references if average[name] > average["l2p"]]
    said = f"After ten tasks L2P holds {average['l2p']:.1f} %, fine-tuning {average['ft-seq']:.1f} %."
    return f"{said} Without prompts: {', '.join(ahead)}; docs/results.md says why." if ahead else said


def _joint(run: Run) -> bool:
    return bool(run.config["scenario"].get("joint"))


def demo_configs() -> dict[str, Config]:
    """The configurations of the demo, by the method's name."""
    return {name: load_config(f"glyphs100-{method}", scale="demo") for name, method in METHODS.items()}
