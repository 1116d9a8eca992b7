"""The paper in miniature: who forgets, and who does not, on one hundred drawn characters in ten tasks."""

from __future__ import annotations

from promptpool.experiments.config import Config, load_config

# The presets at a size that two cores do in two minutes.
SMALL = ("dataset.train_per_class=20", "dataset.test_per_class=10")
METHODS = {
    "FT-seq": "glyphs100-ft-seq",
    "FT-seq-frozen": "glyphs100-ft-seq-frozen",
    "masked linear head": "glyphs100-masked-linear",
    "nearest class mean": "glyphs100-nearest-mean",
    "L2P": "glyphs100-l2p",
    "upper bound": "glyphs100-upper-bound",
}


def demo_configs() -> dict[str, Config]:
    """The configurations of the demo, by the method's name."""
    return {name: load_config(preset, SMALL) for name, preset in METHODS.items()}
