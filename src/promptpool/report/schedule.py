"""When each class comes, on a stream without boundaries."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from promptpool.report.themes import WIDTH, drawing
from promptpool.training.folder import Run


def schedule(run: Run, *, theme: str = "light") -> Figure | None:
    """The share of each class among the images that arrive, stretch by stretch; None where tasks have boundaries."""
    if not run.schedule:
        return None
    counts = np.array(run.schedule, dtype=np.float64)  # [stretch, class]
    sizes = counts.sum(axis=1, keepdims=True)
    arrived = (sizes.cumsum() - sizes[:, 0] / 2) / 1000
    colours = matplotlib.colormaps["viridis"]
    classes = Normalize(1, counts.shape[1])
    with drawing(theme):
        figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
        axes = figure.add_subplot()
        for number, share in enumerate((100 * counts / sizes).T, start=1):
            axes.plot(arrived, share, color=colours(classes(number)), linewidth=1.2)
        axes.set_xlim(0, float(sizes.sum()) / 1000)
        axes.set_ylim(0)
        axes.grid(axis="y")
        axes.set_title("share of each class among the images that arrive (%)")
        axes.set_xlabel("thousand images since the stream began")
        bar = figure.colorbar(ScalarMappable(classes, colours), ax=axes, shrink=0.9, pad=0.02)
        bar.set_label("class, in its order")
        bar.outline.set_visible(False)
    return figure
